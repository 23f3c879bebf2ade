//! Damaged policies: each is refused with its file, or keeps all its rules when it is rewritten.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use regorus::unstable::{AssignOp, Literal, LiteralStmt, Query, RuleAssign};

use super::*;

/// Forms of rules that damage is done to, besides the policies that are compared with conftest.
const FORMS: &str = r##"package main

import data.lib.names as n

default name(_) := "none"

allowed := {"a": {"b": 1}, "c": [x | some x in {"k": 1, "l": 2}]}

none := set()

m[r.id]["x{"][input.k] := r.after.name if { some r in input.changes } # if {

names["x"][r.id] contains {"msg": sprintf("%s }", [r.id]), "n": {1, 2}} if some r in (input.changes)

f(x, [_, y]) := x.a if x.b else := `raw
{"# if` if { y == "}" } else := set()

f(x, _) if { x == 1 } { x == 2 }

deny contains concat("-", [
    r.after.name, # why "
    "é\" }",
]) if {
    some i, r in input.changes
    every k, v in r.tags { k != v; some z in v }
    not r.id in {"a", "b"}
    count(deny_x) == 0 with input as {"a": 1} with data.x as `}`
    r.n -1 > 0
}

deny_x contains input.changes[_].after[k] if k == "a"
"##;

/// Texts that damage is done with.
const PIECES: [&str; 30] = [
    "\n",
    " ",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "`",
    "# if\n",
    "#",
    ";",
    ",",
    " if ",
    " if { true }",
    " else := 1 ",
    " contains ",
    ":=",
    "=",
    "set()",
    "{\"a\": 1, \"b\": x}",
    "|",
    " some x in set() ",
    "é",
    "\0",
    "-1",
    " with input as {}",
    "input.a[_]",
];

/// Writes rules without places, comments and brackets, and the moved values where they were.
#[derive(Default)]
struct Shape {
    is_rewritten: bool,
    moved: BTreeMap<String, String>,
}

impl Shape {
    fn module(module: &Module, is_guarded: bool) -> Vec<String> {
        let rules = module.policy.iter();
        rules
            .map(|rule| {
                Self {
                    is_rewritten: is_guarded,
                    ..Self::default()
                }
                .rule(rule)
            })
            .collect()
    }

    fn rule(&mut self, rule: &Rule) -> String {
        let (head, bodies) = match rule {
            Rule::Spec { head, bodies, .. } => (head, bodies),
            Rule::Default {
                refr, args, value, ..
            } => {
                let (name, value) = (self.expr(refr), self.expr(value));
                return format!("default {name} {} {value}", self.exprs(args));
            }
        };
        let mut out = String::new();
        for (number, body) in bodies.iter().enumerate() {
            let statements = self.take_moved(&body.query);
            if number == 0 {
                out.push_str(&self.head(head));
            } else {
                let (name, value) = (self.name(head), self.assign(body.assign.as_ref()));
                write!(out, " else {name} {value}").unwrap();
            }
            // A rule without a body has one for its value only.
            if number > 0 || !statements.is_empty() {
                write!(out, " if {statements:?}").unwrap();
            }
        }
        if bodies.is_empty() {
            out = self.head(head);
        }
        out
    }

    /// Keeps the values of the variables of a body. Returns its other statements.
    fn take_moved(&mut self, query: &Query) -> Vec<String> {
        self.moved.clear();
        let (mut rest, mut moved) = (Vec::new(), BTreeMap::new());
        for statement in &query.stmts {
            if let Literal::Expr { expr, .. } = &statement.literal
                && let Expr::AssignExpr {
                    op: AssignOp::ColEq,
                    lhs,
                    rhs,
                    ..
                } = &**expr
                && let Expr::Var { span, .. } = &**lhs
                && span.text().starts_with(VARIABLE)
            {
                assert!(
                    statement.with_mods.is_empty(),
                    "a value is moved into `with`"
                );
                moved.insert(span.text().to_owned(), self.expr(rhs));
            } else {
                assert!(moved.is_empty(), "a statement follows the moved values");
                rest.push(self.statement(statement));
            }
        }
        self.moved = moved;
        rest
    }

    fn name(&self, head: &RuleHead) -> String {
        match head {
            RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. } => self.expr(refr),
            RuleHead::Func { refr, args, .. } => {
                format!("{}({})", self.expr(refr), self.exprs(args))
            }
        }
    }

    fn head(&self, head: &RuleHead) -> String {
        let name = self.name(head);
        match head {
            RuleHead::Set { key, .. } => format!("{name} contains {}", self.exprs(key)),
            RuleHead::Compr { assign, .. } | RuleHead::Func { assign, .. } => {
                format!("{name} {}", self.assign(assign.as_ref()))
            }
        }
    }

    fn assign(&self, assign: Option<&RuleAssign>) -> String {
        assign.map_or_else(String::new, |assign| {
            format!("{:?} {}", assign.op, self.expr(&assign.value))
        })
    }

    fn query(&self, query: &Query) -> Vec<String> {
        let statements = query.stmts.iter();
        statements
            .map(|statement| self.statement(statement))
            .collect()
    }

    fn statement(&self, statement: &LiteralStmt) -> String {
        let mut out = match &statement.literal {
            Literal::SomeVars { vars, .. } => {
                let vars: Vec<&str> = vars.iter().map(Span::text).collect();
                format!("some {vars:?}")
            }
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => format!(
                "some {} {} in {}",
                self.exprs(key),
                self.expr(value),
                self.collection(collection)
            ),
            Literal::Expr { expr, .. } => self.expr(expr),
            Literal::NotExpr { expr, .. } => format!("not {}", self.expr(expr)),
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => format!(
                "every {:?} {} in {} {:?}",
                key.as_ref().map(Span::text),
                value.text(),
                self.collection(domain),
                self.query(query)
            ),
        };
        for with in &statement.with_mods {
            let (target, value) = (self.expr(&with.refr), self.expr(&with.r#as));
            write!(out, " with {target} as {value}").unwrap();
        }
        out
    }

    /// Writes a collection without its guard. A rewritten one has to have it.
    fn collection(&self, collection: &Expr) -> String {
        let guarded = if let Expr::Call { fcn, params, .. } = collection
            && fcn.span().text() == builtins::ITEMS
        {
            params.first()
        } else {
            None
        };
        match guarded {
            Some(collection) if self.is_rewritten => self.expr(collection),
            None if !self.is_rewritten => self.expr(collection),
            _ => format!("without a guard: {}", self.expr(collection)),
        }
    }

    fn exprs<'a>(&self, exprs: impl IntoIterator<Item = &'a Ref<Expr>>) -> String {
        let exprs: Vec<String> = exprs.into_iter().map(|expr| self.expr(expr)).collect();
        exprs.join(", ")
    }

    fn expr(&self, expr: &Expr) -> String {
        match expr {
            Expr::Var { span, .. } => match self.moved.get(span.text()) {
                Some(value) => value.clone(),
                None => span.text().to_owned(),
            },
            Expr::String { value, .. }
            | Expr::RawString { value, .. }
            | Expr::Number { value, .. }
            | Expr::Bool { value, .. }
            | Expr::Null { value, .. } => value.to_json_str().unwrap(),
            Expr::Array { items, .. } => format!("[{}]", self.exprs(items)),
            Expr::Set { items, .. } => format!("set {{{}}}", self.exprs(items)),
            Expr::Object { fields, .. } => {
                let field = |(_, key, value): &(Span, Ref<Expr>, Ref<Expr>)| {
                    format!("{}: {}", self.expr(key), self.expr(value))
                };
                let fields: Vec<String> = fields.iter().map(field).collect();
                format!("object {fields:?}")
            }
            Expr::ArrayCompr { term, query, .. } => {
                format!("[{} | {:?}]", self.expr(term), self.query(query))
            }
            Expr::SetCompr { term, query, .. } => {
                format!("{{{} | {:?}}}", self.expr(term), self.query(query))
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => {
                let (key, value) = (self.expr(key), self.expr(value));
                format!("{{{key}: {value} | {:?}}}", self.query(query))
            }
            Expr::Call { fcn, params, .. } => {
                format!("{}({})", self.expr(fcn), self.exprs(params))
            }
            Expr::UnaryExpr { expr, .. } => format!("-({})", self.expr(expr)),
            Expr::RefDot { refr, field, .. } => {
                format!("{}.{}", self.expr(refr), field.0.text())
            }
            Expr::RefBrack { refr, index, .. } => {
                format!("{}[{}]", self.expr(refr), self.expr(index))
            }
            Expr::BinExpr { op, lhs, rhs, .. } => self.infix(op, lhs, rhs),
            Expr::BoolExpr { op, lhs, rhs, .. } => self.infix(op, lhs, rhs),
            Expr::ArithExpr { op, lhs, rhs, .. } => self.infix(op, lhs, rhs),
            Expr::AssignExpr { op, lhs, rhs, .. } => self.infix(op, lhs, rhs),
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                let (value, collection) = (self.expr(value), self.expr(collection));
                format!("({} {value} in {collection})", self.exprs(key))
            }
        }
    }

    fn infix(&self, op: &impl std::fmt::Debug, left: &Expr, right: &Expr) -> String {
        format!("({} {op:?} {})", self.expr(left), self.expr(right))
    }
}

/// Rewrites a policy and compares its rules. Returns false if it is refused.
fn keeps_its_rules(text: &str) -> Result<bool, EvalError> {
    on_large_stack(|| {
        let Ok(mut original) = parsed(&[file(text)]) else {
            return Ok(false);
        };
        let expected = Shape::module(&original.get_modules()[0], false);
        let mut text = text.to_owned();
        for rewrite in [guard_loops, move_values] {
            let mut engine = parsed(&[file(&text)])?;
            match rewrite(engine.get_modules()) {
                Ok(mut changed) => {
                    let changed = changed.pop().flatten();
                    text = changed.unwrap_or(text);
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.starts_with("main.rego:"), "{error}");
                    return Ok(false);
                }
            }
        }
        let mut rewritten = parsed(&[file(&text)])?;
        let rewritten = Shape::module(&rewritten.get_modules()[0], true);
        assert_eq!(rewritten, expected, "{text}");
        Ok(true)
    })
}

/// Returns the policies that damage is done to.
fn policies() -> Vec<String> {
    let mut policies = vec![FORMS.to_owned()];
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/policies");
    for kind in ["agree", "worded"] {
        let mut sets: Vec<_> = fs::read_dir(fixtures.join(kind))
            .unwrap()
            .map(|set| set.unwrap().path().join("main.rego"))
            .collect();
        sets.sort();
        policies.extend(sets.iter().filter_map(|set| fs::read_to_string(set).ok()));
    }
    policies
}

fn damaged(policies: &[String], choices: &mut Choices<'_>) -> String {
    let mut text = match choices.number(3) {
        0 => FORMS.to_owned(),
        1 => meaning::Policy::generated(choices).text(choices),
        _ => policies[choices.number(policies.len())].clone(),
    };
    for _ in 0..=choices.number(3) {
        let mut place = |text: &str| {
            let place = choices.number(256) * 256 + choices.number(256);
            text.floor_char_boundary(place % (text.len() + 1))
        };
        let at = place(&text);
        let end = text.floor_char_boundary(at + place(&text) % 20);
        let end = end.max(at).min(text.len());
        match choices.number(5) {
            0 => text.replace_range(at..end, ""),
            1 => {
                let copy = text[at..end].to_owned();
                text.insert_str(at, &copy);
            }
            2 => {
                let (before, after) = (text[..at].to_owned(), text[end..].to_owned());
                let swapped: String = text[at..end].chars().rev().collect();
                text = before + &swapped + &after;
            }
            3 => text.replace_range(at..end, choices.one(&PIECES)),
            _ => text.insert_str(at, choices.one(&PIECES)),
        }
    }
    text
}

#[test]
fn whole_policies_keep_their_rules() {
    let policies = policies();
    assert!(policies.len() > 30, "{} policies", policies.len());
    for policy in policies {
        assert_eq!(keeps_its_rules(&policy), Ok(true), "{policy}");
    }
}

#[test]
fn damaged_policies_are_refused_or_keep_their_rules() {
    let policies = policies();
    let [kept, refused] = [const { Cell::new(0) }; 2];
    proptest!(fixed_seed(450), |(bytes in vec(any::<u8>(), 8..200))| {
        let text = damaged(&policies, &mut Choices::new(&bytes));
        match keeps_its_rules(&text) {
            Ok(true) => kept.set(kept.get() + 1),
            Ok(false) => refused.set(refused.get() + 1),
            Err(error) => prop_assert!(false, "{error}\n{text}"),
        }
    });
    let [kept, refused] = [kept.get(), refused.get()];
    assert!(kept > 50 && refused > 50, "{kept} kept, {refused} refused");
}
