//! Generated policies, with an evaluator of its own for their few kinds of statements: a value that is undefined in one round
//! of a loop leaves out this round, and nothing else.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Texts that look like parts of a policy.
const TEXTS: [&str; 9] = [
    "x", "one", "é ü", "if {", "# no", "}\"]", "`", "a\n:= b", "y",
];

/// Attributes of a change. Each is missing in some of them.
const ATTRIBUTES: [&[&str]; 5] = [
    &["after", "name"],
    &["id"],
    &["after", "tags", "team"],
    &["after", "tags", "env"],
    &["nothing"],
];

/// Expression. It has no value, one, or one in each round of a loop.
#[derive(Debug, Clone)]
enum Term {
    Text(&'static str),
    /// Part of a variable or of the input; `_` stands for all.
    Part(String, Vec<&'static str>),
    /// `concat` of texts.
    Joined(Vec<Self>),
    Array(Vec<Self>),
    Object(Vec<(&'static str, Self)>),
    SetOf(Box<Self>, Vec<Statement>),
    /// `concat` of a sorted comprehension.
    Listed(Box<Self>, Vec<Statement>),
    Call(usize, Box<Self>),
    /// Value of another rule.
    Rule(usize),
}

#[derive(Debug, Clone)]
enum Statement {
    /// `some KEY, VALUE in COLLECTION`
    Some(Option<String>, String, Term),
    Assign(String, Term),
    Compare(Term, &'static str, Term),
    In(Term, Term),
    Holds(Term),
    Not(Term),
    Every(String, Term, Vec<Self>),
    /// Statement on another input.
    With(Box<Self>),
}

/// Value of a rule, with its body and the values and bodies after `else`.
type Branches = Vec<(Term, Vec<Statement>)>;

#[derive(Debug, Clone)]
enum RuleGroup {
    Set(Vec<(Term, Vec<Statement>)>),
    /// Keys, values and bodies.
    Object(Vec<(Term, Term, Vec<Statement>)>),
    Complete(Vec<Branches>, Option<&'static str>),
    /// Function with the parameter `x`.
    Function(Vec<Branches>),
}

/// Rules `r0`, `r1` and so on, and those of `deny`. They use only the rules before them.
#[derive(Debug)]
pub(super) struct Policy {
    rules: Vec<RuleGroup>,
    deny: Vec<(Term, Vec<Statement>)>,
}

/// Meaning of a name in a body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Change,
    Text,
}

/// Makes rules from choices, with the names that are known at each place.
struct Generator<'c, 'b> {
    choices: &'c mut Choices<'b>,
    rules: Vec<RuleGroup>,
    names: Vec<(String, Kind)>,
    count: usize,
}

impl Policy {
    pub(super) fn generated(choices: &mut Choices<'_>) -> Self {
        let mut generator = Generator {
            choices,
            rules: Vec::new(),
            names: Vec::new(),
            count: 0,
        };
        for _ in 0..generator.choices.number(4) {
            let rules = generator.rules();
            generator.rules.push(rules);
        }
        let deny = generator.elements();
        let rules = generator.rules;
        Self { rules, deny }
    }

    pub(super) fn text(&self, choices: &mut Choices<'_>) -> String {
        let mut writer = Writer {
            choices,
            out: "package main\n\n".to_owned(),
        };
        for (number, rules) in self.rules.iter().enumerate() {
            writer.rules(&format!("r{number}"), rules);
        }
        for (value, body) in &self.deny {
            writer.element("deny", value, body);
        }
        writer.out
    }

    /// Returns the sorted values of `deny` as JSON; `None` if a rule has several values.
    fn denied(&self, input: &Value) -> Option<Vec<String>> {
        let meaning = Meaning {
            rules: &self.rules,
            is_conflict: Cell::new(false),
        };
        let denied = meaning.set(&self.deny, &Round::of(input.clone()));
        (!meaning.is_conflict.get()).then(|| denied.iter().map(ToString::to_string).collect())
    }
}

impl Generator<'_, '_> {
    fn rules(&mut self) -> RuleGroup {
        match self.choices.number(4) {
            0 => RuleGroup::Set(self.elements()),
            1 => {
                let count = 1 + self.choices.number(2);
                let pair = |generator: &mut Self| {
                    generator.scoped(|generator| {
                        let body = generator.body(2);
                        (generator.text(2), generator.text(2), body)
                    })
                };
                RuleGroup::Object((0..count).map(|_| pair(self)).collect())
            }
            2 => {
                let chains = self.chains();
                let default = self.choices.is_rare().then_some("default");
                RuleGroup::Complete(chains, default)
            }
            _ => self.scoped(|generator| {
                let kind = generator.choices.one(&[Kind::Change, Kind::Text]);
                generator.names.push(("x".to_owned(), kind));
                RuleGroup::Function(generator.chains())
            }),
        }
    }

    fn chains(&mut self) -> Vec<Branches> {
        let count = 1 + usize::from(self.choices.is_rare());
        (0..count)
            .map(|_| {
                let length = 1 + self.choices.number(3);
                let mut chain: Branches = (0..length).map(|_| self.valued()).collect();
                // Nothing can follow a value without a body.
                let end = chain.iter().position(|(_, body)| body.is_empty());
                chain.truncate(end.map_or(length, |end| end + 1));
                chain
            })
            .collect()
    }

    fn elements(&mut self) -> Vec<(Term, Vec<Statement>)> {
        let count = 1 + self.choices.number(2);
        (0..count).map(|_| self.valued()).collect()
    }

    fn valued(&mut self) -> (Term, Vec<Statement>) {
        self.scoped(|generator| {
            let body = generator.body(2);
            (generator.text(2), body)
        })
    }

    /// Forgets the names that a body has made.
    fn scoped<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let known = self.names.len();
        let result = work(self);
        self.names.truncate(known);
        result
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn body(&mut self, depth: usize) -> Vec<Statement> {
        let count = self.choices.number(4);
        (0..count).map(|_| self.statement(depth)).collect()
    }

    fn statement(&mut self, depth: usize) -> Statement {
        let kinds = if depth == 0 { 6 } else { 9 };
        match self.choices.number(kinds) {
            0 | 1 => {
                let (collection, kind, has_keys) = self.collection(depth);
                let (key, name) = (self.name(), self.name());
                let key = (has_keys && self.choices.is_rare()).then_some(key);
                if let Some(key) = &key {
                    self.names.push((key.clone(), Kind::Text));
                }
                self.names.push((name.clone(), kind));
                Statement::Some(key, name, collection)
            }
            2 => {
                let (name, value) = (self.name(), self.text(depth));
                self.names.push((name.clone(), Kind::Text));
                Statement::Assign(name, value)
            }
            3 => {
                let operator = self.choices.one(&["!=", "=="]);
                Statement::Compare(self.text(depth), operator, self.text(depth))
            }
            4 => Statement::Holds(self.part()),
            5 => Statement::Not(self.part()),
            6 => Statement::In(self.text(depth - 1), self.collection(depth - 1).0),
            7 => {
                let (collection, kind, _) = self.collection(depth - 1);
                let name = self.name();
                self.scoped(|generator| {
                    generator.names.push((name.clone(), kind));
                    let mut body = vec![generator.statement(depth - 1)];
                    body.extend(generator.body(depth - 1));
                    Statement::Every(name, collection, body)
                })
            }
            _ => {
                let statement = self.scoped(|generator| generator.statement(0));
                let is_simple = matches!(statement, Statement::Compare(..) | Statement::Holds(_));
                let statement = if is_simple {
                    statement
                } else {
                    Statement::Holds(self.part())
                };
                Statement::With(Box::new(statement))
            }
        }
    }

    /// Returns a collection, the kind of its values, and whether its keys are texts.
    fn collection(&mut self, depth: usize) -> (Term, Kind, bool) {
        let change = self.named(Kind::Change);
        let rules: Vec<(usize, bool)> = (self.rules.iter().enumerate())
            .filter_map(|(number, rules)| match rules {
                RuleGroup::Set(_) => Some((number, false)),
                RuleGroup::Object(_) => Some((number, true)),
                RuleGroup::Complete(..) | RuleGroup::Function(_) => None,
            })
            .collect();
        match self.choices.number(if depth == 0 { 4 } else { 7 }) {
            1 if let Some(change) = change => {
                (Term::Part(change, vec!["after", "tags"]), Kind::Text, true)
            }
            2 if !rules.is_empty() => {
                let (number, has_keys) = self.choices.one(&rules);
                (Term::Rule(number), Kind::Text, has_keys)
            }
            4 => {
                let items = (0..self.choices.number(3)).map(|_| self.text(0)).collect();
                (Term::Array(items), Kind::Text, false)
            }
            5 => {
                let keys = ["a", "if {", "c"];
                let count = self.choices.number(4);
                let fields = keys.into_iter().take(count);
                let fields = fields.map(|key| (key, self.text(0))).collect();
                (Term::Object(fields), Kind::Text, true)
            }
            6 => self.scoped(|generator| {
                let mut body = vec![generator.statement(depth - 1)];
                body.extend(generator.body(depth - 1));
                let value = generator.text(depth - 1);
                (Term::SetOf(Box::new(value), body), Kind::Text, false)
            }),
            _ => (
                Term::Part("input".to_owned(), vec!["changes"]),
                Kind::Change,
                false,
            ),
        }
    }

    fn named(&mut self, kind: Kind) -> Option<String> {
        let names: Vec<&String> = (self.names.iter())
            .filter_map(|(name, of)| (*of == kind).then_some(name))
            .collect();
        (!names.is_empty())
            .then(|| names[names.len() - 1 - self.choices.number(names.len())].clone())
    }

    fn part(&mut self) -> Term {
        let attribute = self.choices.one(&ATTRIBUTES);
        match self.named(Kind::Change) {
            Some(change) => Term::Part(change, attribute.to_vec()),
            None => Term::Part(
                "input".to_owned(),
                vec![self.choices.one(&["name", "none"])],
            ),
        }
    }

    /// Returns a term whose values are texts.
    fn text(&mut self, depth: usize) -> Term {
        let texts = |rules: &RuleGroup| match rules {
            RuleGroup::Complete(..) => Some(false),
            RuleGroup::Function(_) => Some(true),
            RuleGroup::Set(_) | RuleGroup::Object(_) => None,
        };
        let rules: Vec<(usize, bool)> = (self.rules.iter().enumerate())
            .filter_map(|(number, rules)| Some((number, texts(rules)?)))
            .collect();
        match self.choices.number(if depth == 0 { 5 } else { 8 }) {
            1 => Term::Text(self.choices.one(&TEXTS)),
            2 if let Some(name) = self.named(Kind::Text) => Term::Part(name, Vec::new()),
            3 => {
                let attribute = self.choices.one(&ATTRIBUTES);
                let path = ["changes", "_"].iter().chain(attribute).copied();
                Term::Part("input".to_owned(), path.collect())
            }
            5 => {
                let count = 1 + self.choices.number(3);
                Term::Joined((0..count).map(|_| self.text(depth - 1)).collect())
            }
            6 if !rules.is_empty() => match self.choices.one(&rules) {
                (number, true) => match self.named(Kind::Change) {
                    Some(change) if !self.choices.is_rare() => {
                        Term::Call(number, Box::new(Term::Part(change, Vec::new())))
                    }
                    _ => Term::Call(number, Box::new(self.text(depth - 1))),
                },
                (number, false) => Term::Rule(number),
            },
            7 => self.scoped(|generator| {
                let mut body = vec![generator.statement(depth - 1)];
                body.extend(generator.body(depth - 1));
                Term::Listed(Box::new(generator.text(depth - 1)), body)
            }),
            _ => self.part(),
        }
    }
}

/// Writes rules with spaces, lines and comments that change nothing.
struct Writer<'c, 'b> {
    choices: &'c mut Choices<'b>,
    out: String,
}

impl Writer<'_, '_> {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes a space, or anything that stands for one.
    fn gap(&mut self) {
        let gaps = [
            " ",
            " ",
            " ",
            " ",
            "  ",
            "\n  ",
            "\r\n\t",
            " # if { \" `\n",
            "\n# :=\n",
        ];
        let gap = self.choices.one(&gaps);
        self.push(gap);
    }

    fn rules(&mut self, name: &str, rules: &RuleGroup) {
        match rules {
            RuleGroup::Set(elements) => {
                for (value, body) in elements {
                    self.element(name, value, body);
                }
            }
            RuleGroup::Object(pairs) => {
                for (key, value, body) in pairs {
                    self.push(name);
                    self.push("[");
                    self.term(key);
                    self.push("] :=");
                    self.gap();
                    self.term(value);
                    // A key needs a body.
                    let truth = [Statement::Compare(Term::Text("x"), "==", Term::Text("x"))];
                    self.body(if body.is_empty() { &truth } else { body });
                    self.push("\n\n");
                }
            }
            RuleGroup::Complete(chains, default) => {
                if let Some(default) = default {
                    writeln!(self.out, "default {name} := {default:?}\n").unwrap();
                }
                self.chains(name, chains);
            }
            RuleGroup::Function(chains) => self.chains(&format!("{name}(x)"), chains),
        }
    }

    fn element(&mut self, name: &str, value: &Term, body: &[Statement]) {
        self.push(name);
        self.gap();
        self.push("contains");
        self.gap();
        self.term(value);
        self.body(body);
        self.push("\n\n");
    }

    fn chains(&mut self, name: &str, chains: &[Branches]) {
        for chain in chains {
            for (number, (value, body)) in chain.iter().enumerate() {
                self.push(if number == 0 { name } else { " else" });
                self.push(" :=");
                self.gap();
                self.term(value);
                self.body(body);
            }
            self.push("\n\n");
        }
    }

    fn body(&mut self, body: &[Statement]) {
        if body.is_empty() {
            return;
        }
        self.gap();
        self.push("if");
        self.gap();
        if let [statement] = body
            && self.choices.number(2) == 1
        {
            self.statement(statement);
            return;
        }
        self.push("{");
        self.gap();
        self.statements(body);
        self.push("}");
    }

    fn statements(&mut self, statements: &[Statement]) {
        for (number, statement) in statements.iter().enumerate() {
            if number > 0 {
                let end = self.choices.one(&["\n  ", "; ", " # ; }\n", ";\n"]);
                self.push(end);
            }
            self.statement(statement);
        }
        self.gap();
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Some(key, name, collection) => {
                self.push("some ");
                if let Some(key) = key {
                    self.push(key);
                    self.push(", ");
                }
                self.push(name);
                self.push(" in");
                self.gap();
                self.in_brackets(collection);
            }
            Statement::Assign(name, value) => {
                self.push(name);
                self.push(" :=");
                self.gap();
                self.term(value);
            }
            Statement::Compare(left, operator, right) => {
                self.term(left);
                self.push(" ");
                self.push(operator);
                self.gap();
                self.term(right);
            }
            Statement::In(value, collection) => {
                self.term(value);
                self.push(" in ");
                self.term(collection);
            }
            Statement::Holds(value) => self.term(value),
            Statement::Not(value) => {
                self.push("not ");
                self.term(value);
            }
            Statement::Every(name, collection, body) => {
                self.push("every ");
                self.push(name);
                self.push(" in ");
                self.in_brackets(collection);
                self.push(" {");
                self.gap();
                self.statements(body);
                self.push("}");
            }
            Statement::With(statement) => {
                self.statement(statement);
                write!(self.out, " with input as {}", other_input()).unwrap();
            }
        }
    }

    fn in_brackets(&mut self, term: &Term) {
        let has_brackets = self.choices.is_rare();
        self.push(if has_brackets { "(" } else { "" });
        self.term(term);
        self.push(if has_brackets { ")" } else { "" });
    }

    fn list(&mut self, terms: &[Term]) {
        self.push("[");
        for (number, term) in terms.iter().enumerate() {
            if number > 0 {
                self.push(",");
            }
            self.gap();
            self.term(term);
        }
        self.push("]");
    }

    fn term(&mut self, term: &Term) {
        match term {
            Term::Text(text) if !text.contains('`') && self.choices.number(2) == 1 => {
                write!(self.out, "`{text}`").unwrap();
            }
            Term::Text(text) => self.push(&Value::from(*text).to_string()),
            Term::Part(name, path) => {
                self.push(name);
                for part in path {
                    match *part {
                        "_" => self.push("[_]"),
                        part if self.choices.is_rare() => {
                            write!(self.out, "[{part:?}]").unwrap();
                        }
                        part => write!(self.out, ".{part}").unwrap(),
                    }
                }
            }
            Term::Joined(terms) => {
                self.push("concat(\"/\",");
                self.gap();
                self.list(terms);
                self.push(")");
            }
            Term::Array(terms) => self.list(terms),
            Term::Object(fields) => {
                self.push("{");
                for (key, value) in fields {
                    self.gap();
                    write!(self.out, "{key:?}:").unwrap();
                    self.gap();
                    self.term(value);
                    self.push(",");
                }
                if !fields.is_empty() && self.choices.number(2) == 0 {
                    self.out.pop();
                }
                self.push("}");
            }
            Term::SetOf(value, body) => {
                self.push("{");
                self.term(value);
                self.push(" |");
                self.gap();
                self.statements(body);
                self.push("}");
            }
            Term::Listed(value, body) => {
                self.push("concat(\",\", sort([");
                self.term(value);
                self.push(" |");
                self.gap();
                self.statements(body);
                self.push("]))");
            }
            Term::Call(number, argument) => {
                write!(self.out, "r{number}(").unwrap();
                self.term(argument);
                self.push(")");
            }
            Term::Rule(number) => write!(self.out, "r{number}").unwrap(),
        }
    }
}

/// Input of statements with `with`.
fn other_input() -> Value {
    serde_json::json!({"none": "}", "changes": [{"id": "{"}, {"after": {"name": "one"}}]})
}

/// Values of names in one round of all loops.
#[derive(Clone)]
struct Round {
    input: Value,
    names: BTreeMap<String, Value>,
}

impl Round {
    fn of(input: Value) -> Self {
        Self {
            input,
            names: BTreeMap::new(),
        }
    }

    fn with(&self, name: &str, value: Value) -> Self {
        let mut scope = self.clone();
        scope.names.insert(name.to_owned(), value);
        scope
    }
}

/// Evaluator of generated rules.
struct Meaning<'a> {
    rules: &'a [RuleGroup],
    /// A rule that can have one value only has several.
    is_conflict: Cell<bool>,
}

impl Meaning<'_> {
    fn set(&self, elements: &[(Term, Vec<Statement>)], scope: &Round) -> Vec<Value> {
        let values = elements
            .iter()
            .flat_map(|(value, body)| self.values_of(value, body, scope));
        unique(values)
    }

    /// Returns the values of a term in all rounds of a body.
    fn values_of(&self, value: &Term, body: &[Statement], scope: &Round) -> Vec<Value> {
        let rounds = self.rounds(body, scope);
        let values = rounds.iter().flat_map(|round| self.values(value, round));
        values.collect()
    }

    fn rounds(&self, body: &[Statement], scope: &Round) -> Vec<Round> {
        let mut rounds = vec![scope.clone()];
        for statement in body {
            rounds = rounds
                .iter()
                .flat_map(|round| self.statement(statement, round))
                .collect();
        }
        rounds
    }

    fn statement(&self, statement: &Statement, scope: &Round) -> Vec<Round> {
        let when = |holds: usize| vec![scope.clone(); holds];
        let values = |term: &Term| self.values(term, scope);
        match statement {
            Statement::Some(key, name, collection) => values(collection)
                .iter()
                .flat_map(items)
                .map(|(item_key, item)| {
                    let scope = scope.with(name, item);
                    match key {
                        Some(key) => scope.with(key, item_key),
                        None => scope,
                    }
                })
                .collect(),
            Statement::Assign(name, value) => {
                let values = values(value).into_iter();
                values.map(|value| scope.with(name, value)).collect()
            }
            Statement::Compare(left, operator, right) => {
                let pairs = product(&[values(left), values(right)]);
                let is_equal = *operator == "==";
                let holding = pairs.iter().filter(|pair| (pair[0] == pair[1]) == is_equal);
                when(holding.count())
            }
            Statement::In(value, collection) => {
                let pairs = product(&[values(value), values(collection)]);
                let holding = pairs
                    .iter()
                    .filter(|pair| items(&pair[1]).iter().any(|(_, item)| *item == pair[0]));
                when(holding.count())
            }
            Statement::Holds(value) => when(values(value).len()),
            Statement::Not(value) => when(usize::from(values(value).is_empty())),
            Statement::Every(name, collection, body) => {
                let holding = values(collection).into_iter().filter(|collection| {
                    let is_collection = collection.is_array() || collection.is_object();
                    is_collection
                        && items(collection)
                            .into_iter()
                            .all(|(_, item)| !self.rounds(body, &scope.with(name, item)).is_empty())
                });
                when(holding.count())
            }
            Statement::With(statement) => {
                let mut other = scope.clone();
                other.input = other_input();
                when(self.statement(statement, &other).len())
            }
        }
    }

    fn values(&self, term: &Term, scope: &Round) -> Vec<Value> {
        let all = |terms: &[Term]| {
            let values: Vec<_> = terms.iter().map(|term| self.values(term, scope)).collect();
            product(&values)
        };
        match term {
            Term::Text(text) => vec![Value::from(*text)],
            Term::Part(name, path) => {
                let root = scope.names.get(name).unwrap_or(&scope.input).clone();
                path.iter().fold(vec![root], |values, part| {
                    let parts = values.iter().flat_map(|value| match *part {
                        "_" => items(value).into_iter().map(|(_, item)| item).collect(),
                        part => Vec::from_iter(value.get(part).cloned()),
                    });
                    parts.collect()
                })
            }
            Term::Joined(terms) => {
                let lists = all(terms).into_iter();
                lists.filter_map(|list| joined(&list, "/")).collect()
            }
            Term::Array(terms) => all(terms).into_iter().map(Value::from).collect(),
            Term::Object(fields) => {
                let (keys, terms): (Vec<_>, Vec<_>) = fields.iter().cloned().unzip();
                let object = |values: Vec<Value>| {
                    let fields = keys.iter().map(|key| (*key).to_owned()).zip(values);
                    Value::Object(fields.collect())
                };
                all(&terms).into_iter().map(object).collect()
            }
            Term::SetOf(value, body) => {
                vec![Value::from(unique(self.values_of(value, body, scope)))]
            }
            Term::Listed(value, body) => {
                let mut values = self.values_of(value, body, scope);
                values.sort_by_key(|value| value.as_str().map(str::to_owned));
                joined(&values, ",").into_iter().collect()
            }
            Term::Call(number, argument) => {
                let RuleGroup::Function(chains) = &self.rules[*number] else {
                    unreachable!("it is a function");
                };
                let arguments = self.values(argument, scope).into_iter();
                arguments
                    .filter_map(|argument| {
                        let scope = Round::of(scope.input.clone()).with("x", argument);
                        self.single(chains, &scope)
                    })
                    .collect()
            }
            Term::Rule(number) => {
                let scope = Round::of(scope.input.clone());
                match &self.rules[*number] {
                    RuleGroup::Set(elements) => vec![Value::from(self.set(elements, &scope))],
                    RuleGroup::Object(pairs) => vec![self.object(pairs, &scope)],
                    RuleGroup::Complete(chains, default) => {
                        let default = default.map(Value::from);
                        Vec::from_iter(self.single(chains, &scope).or(default))
                    }
                    RuleGroup::Function(_) => unreachable!("it is called"),
                }
            }
        }
    }

    fn object(&self, pairs: &[(Term, Term, Vec<Statement>)], scope: &Round) -> Value {
        let mut fields = serde_json::Map::new();
        for (key, value, body) in pairs {
            for round in self.rounds(body, scope) {
                for pair in product(&[self.values(key, &round), self.values(value, &round)]) {
                    let key = pair[0].as_str().expect("a text").to_owned();
                    let before = fields.insert(key, pair[1].clone());
                    if before.is_some_and(|before| before != pair[1]) {
                        self.is_conflict.set(true);
                    }
                }
            }
        }
        Value::Object(fields)
    }

    /// Returns the value of a function or a rule that can have one only.
    fn single(&self, chains: &[Branches], scope: &Round) -> Option<Value> {
        let of_chain = |chain: &Branches| {
            let each = chain
                .iter()
                .map(|(value, body)| unique(self.values_of(value, body, scope)));
            each.into_iter().find(|values| !values.is_empty())
        };
        let values = unique(chains.iter().filter_map(of_chain).flatten());
        if values.len() > 1 {
            self.is_conflict.set(true);
        }
        values.into_iter().next()
    }
}

fn unique(values: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let texts: BTreeSet<String> = values.into_iter().map(|value| value.to_string()).collect();
    let values = texts.iter().map(|text| serde_json::from_str(text));
    values.collect::<Result<_, _>>().unwrap()
}

/// Returns all lists with one value of each.
fn product(values: &[Vec<Value>]) -> Vec<Vec<Value>> {
    values.iter().fold(vec![Vec::new()], |lists, values| {
        let extended = lists.iter().flat_map(|list| {
            values.iter().map(|value| {
                let mut list = list.clone();
                list.push(value.clone());
                list
            })
        });
        extended.collect()
    })
}

/// Returns the keys and values of a collection; nothing for other values.
fn items(value: &Value) -> Vec<(Value, Value)> {
    match value {
        Value::Array(items) => {
            let numbered = items.iter().cloned().enumerate();
            numbered.map(|(at, item)| (at.into(), item)).collect()
        }
        Value::Object(fields) => {
            let fields = fields.clone().into_iter();
            fields.map(|(key, item)| (key.into(), item)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn joined(texts: &[Value], separator: &str) -> Option<Value> {
    let texts: Option<Vec<&str>> = texts.iter().map(Value::as_str).collect();
    Some(Value::from(texts?.join(separator)))
}

/// Part of an error of the evaluator, which cannot read comprehensions in the value of another comprehension.
const NESTED: &str = "statements not scheduled";

#[test]
fn generated_policies_have_exactly_the_expected_values() {
    let input = input();
    let [count, with_values, refused] = [const { Cell::new(0) }; 3];
    let add = |count: &Cell<u32>| count.set(count.get() + 1);
    proptest!(fixed_seed(200), |(bytes in vec(any::<u8>(), 0..250))| {
        let mut choices = Choices::new(&bytes);
        let policy = Policy::generated(&mut choices);
        let text = policy.text(&mut choices);
        add(&count);
        match (policy.denied(&input), denied(&text, &input)) {
            (Some(_), Err(EvalError::Failed(error))) if error.contains(NESTED) => add(&refused),
            (Some(expected), found) => {
                if !expected.is_empty() {
                    add(&with_values);
                }
                prop_assert_eq!(found, Ok(expected), "{}", text);
            }
            (None, _) => add(&refused),
        }
    });
    let [count, with_values, refused] = [count.get(), with_values.get(), refused.get()];
    assert!(
        with_values * 2 > count && refused * 20 < count,
        "{count} policies, {with_values} with values, {refused} refused"
    );
}
