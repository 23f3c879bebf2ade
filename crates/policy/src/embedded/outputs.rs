//! Rewrites policies where the evaluator has another result than OPA.
//!
//! - If the value of a rule is undefined in one round of a loop, the evaluator forgets the values of all other rounds, or
//!   refuses the rule. `deny contains change.change.after.name if some change in input.resource_changes` would find nothing
//!   if the last change deletes something. OPA only leaves the round out. So the value becomes the last statement of the
//!   body: `deny contains v if { some change in input.resource_changes; v := (change.change.after.name) }`.
//! - It does not evaluate comprehensions with several statements in the head of a rule. The rewritten rules have none.
//! - `some x in c` and `every x in c` are errors if `c` is null or a text, and undefined in OPA.
//!
//! Lines stay where they are, as far as possible, because errors and tests name them.

use regorus::unstable::{Expr, Module, Ref, Rule, RuleBody, RuleHead, Source, Span};

use super::calls::{FoundCalls, place};
use super::{EvalError, builtins};

/// Beginning of the names of variables that no policy uses.
const VARIABLE: &str = "lockkeeper_value_";

/// Limits the loops of each module to collections. Returns the text of each module that changes, in the order of the modules.
pub(super) fn guard_loops(modules: &[Ref<Module>]) -> Result<Vec<Option<String>>, EvalError> {
    modules
        .iter()
        .map(|module| guard_loops_of(module))
        .collect()
}

fn guard_loops_of(module: &Module) -> Result<Option<String>, EvalError> {
    let mut rewriting = Rewriting::of(module);
    let mut found = FoundCalls::default();
    for rule in &module.policy {
        found.rule(rule);
    }
    if let Some(pattern) = found.patterns.first() {
        return Err(EvalError::Policy(format!(
            "{}: an object cannot be a pattern here. Write `x.key == value` instead",
            place(pattern.span())
        )));
    }
    for collection in found.collections {
        let (start, end) = rewriting.range(collection.span());
        rewriting.insert(start, format!("{}(", builtins::ITEMS));
        rewriting.insert(end, ")".to_owned());
    }
    Ok(rewriting.text())
}

/// Moves the values of rules into their bodies. Returns the text of each module that changes, in the order of the modules.
pub(super) fn move_values(modules: &[Ref<Module>]) -> Result<Vec<Option<String>>, EvalError> {
    modules
        .iter()
        .map(|module| move_values_of(module))
        .collect()
}

fn move_values_of(module: &Module) -> Result<Option<String>, EvalError> {
    let mut rewriting = Rewriting::of(module);
    if rewriting.source.contents().contains(VARIABLE) {
        return Err(EvalError::Policy(format!(
            "{}: names cannot begin with `{VARIABLE}`",
            rewriting.source.file()
        )));
    }
    for rule in &module.policy {
        rewriting.rule(rule)?;
    }
    Ok(rewriting.text())
}

/// Changes of one module.
struct Rewriting<'a> {
    source: &'a Source,
    /// Ranges of bytes with their new texts. Insertions at one place keep their order.
    edits: Vec<(usize, usize, String)>,
    variables: usize,
}

/// Statement that gives a variable its value.
#[derive(Clone)]
struct MovedValue {
    statement: String,
    /// Number of lines that the value had and the statement has not.
    lines: usize,
}

impl<'a> Rewriting<'a> {
    fn of(module: &'a Module) -> Self {
        Self {
            source: &module.package.span.source,
            edits: Vec::new(),
            variables: 0,
        }
    }

    /// Returns the range of bytes of a part of the module. The evaluator leaves out the quotes of a text at its ends.
    fn range(&self, span: &Span) -> (usize, usize) {
        let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        let (start, end) = (place(span.start), place(span.end));
        let text = self.source.contents().as_bytes();
        let is_quote = |at: Option<usize>| {
            let byte = at.and_then(|at| text.get(at));
            matches!(byte, Some(b'"' | b'`'))
        };
        (
            start - usize::from(is_quote(start.checked_sub(1))),
            end.saturating_add(usize::from(is_quote(Some(end)))),
        )
    }

    fn insert(&mut self, at: usize, text: String) {
        self.edits.push((at, at, text));
    }

    /// Moves the values of a rule to the ends of its bodies.
    fn rule(&mut self, rule: &Rule) -> Result<(), EvalError> {
        let Rule::Spec { head, bodies, .. } = rule else {
            return Ok(());
        };
        let Some(first) = bodies.first().filter(|body| !body.query.stmts.is_empty()) else {
            return self.rule_without_body(rule, head);
        };
        let mut keys = Vec::new();
        let end = self.before_if(first)?;
        let (own, start) = match head {
            RuleHead::Set { refr, key, .. } => {
                keys = self.keys(refr)?;
                (key.as_ref(), self.after(self.after_name(refr), "contains"))
            }
            RuleHead::Compr { refr, assign, .. } => {
                keys = self.keys(refr)?;
                let assign = assign.as_ref();
                let start =
                    assign.and_then(|assign| self.after_operator(self.range(&assign.span).0));
                (assign.map(|assign| &assign.value), start)
            }
            RuleHead::Func { assign, .. } => {
                let assign = assign.as_ref();
                let start =
                    assign.and_then(|assign| self.after_operator(self.range(&assign.span).0));
                (assign.map(|assign| &assign.value), start)
            }
        };
        let has_empty = bodies.iter().any(|body| body.query.stmts.is_empty());
        if has_empty && !keys.is_empty() {
            return Err(unreadable(rule.span()));
        }
        let mut moved_keys = Vec::new();
        for (start, end) in keys {
            moved_keys.push(self.moved(start, end)?);
        }
        for (number, body) in bodies.iter().enumerate() {
            if body.query.stmts.is_empty() {
                continue;
            }
            let value = if number == 0 {
                own.map(|value| (value, start, end))
            } else if let Some(assign) = &body.assign {
                let start = self.after_operator(self.range(&assign.span).0);
                Some((&assign.value, start, self.before_if(body)?))
            } else {
                None
            };
            let mut added = moved_keys.clone();
            if let Some((value, start, end)) = value
                && !is_literal(value)
            {
                let start = start.ok_or_else(|| unreadable(value.span()))?;
                added.push(self.moved(start, end)?);
            }
            self.append(body, &added);
        }
        Ok(())
    }

    /// Gives a rule a body with its value, which can be a loop: `deny contains input.resource_changes[_].address`.
    fn rule_without_body(&mut self, rule: &Rule, head: &RuleHead) -> Result<(), EvalError> {
        let (name, value) = match head {
            RuleHead::Set { refr, key, .. } => (Some(refr), key.as_ref()),
            RuleHead::Compr { refr, assign, .. } => {
                (Some(refr), assign.as_ref().map(|assign| &assign.value))
            }
            RuleHead::Func { assign, .. } => (None, assign.as_ref().map(|assign| &assign.value)),
        };
        if let Some(name) = name
            && !self.keys(name)?.is_empty()
        {
            return Err(unreadable(rule.span()));
        }
        if let Some(value) = value.filter(|value| !is_literal(value)) {
            let (start, end) = self.range(value.span());
            let variable = format!("{VARIABLE}{}", self.variables);
            self.variables += 1;
            self.insert(start, format!("{variable} if {{ {variable} := ("));
            self.insert(end, ") }".to_owned());
        }
        Ok(())
    }

    /// Returns the ranges of the keys of `names[a.b][c]`.
    fn keys(&self, mut reference: &Expr) -> Result<Vec<(usize, usize)>, EvalError> {
        let mut keys = Vec::new();
        loop {
            if let Expr::RefBrack {
                span, refr, index, ..
            } = reference
            {
                let opens = self.after_name(refr);
                let start = self.after(opens, "[").ok_or_else(|| unreadable(span))?;
                if !is_literal(index) {
                    keys.push((start, self.range(span).1));
                }
                reference = refr;
            } else if let Expr::RefDot { refr, .. } = reference {
                reference = refr;
            } else {
                return Ok(keys);
            }
        }
    }

    /// Returns the place after the name of a rule. The evaluator leaves out the last bracket.
    fn after_name(&self, reference: &Expr) -> usize {
        let end = self.range(reference.span()).1;
        let bracket = matches!(reference, Expr::RefBrack { .. });
        let closed = bracket.then(|| self.after(end, "]")).flatten();
        closed.unwrap_or(end)
    }

    /// Replaces an expression by a variable.
    fn moved(&mut self, start: usize, end: usize) -> Result<MovedValue, EvalError> {
        let text = self.text_of(start, end);
        let expr = text.trim();
        if expr.is_empty() {
            let file = self.source.file();
            return Err(EvalError::Policy(format!("{file}: a value is missing")));
        }
        let start = start + text.len() - text.trim_start().len();
        let end = start + expr.len();
        let variable = format!("{VARIABLE}{}", self.variables);
        self.variables += 1;
        // Comments and raw texts need their lines.
        let (flat, lines) = if expr.contains(['#', '`']) {
            (format!("{expr}\n"), 0)
        } else {
            (expr.replace('\n', " "), expr.matches('\n').count())
        };
        let statement = format!("{variable} := ({flat})");
        self.edits.push((start, end, variable));
        Ok(MovedValue { statement, lines })
    }

    /// Adds statements at the end of a body.
    fn append(&mut self, body: &RuleBody, added: &[MovedValue]) {
        let (Some(first), Some(last)) = (body.query.stmts.first(), body.query.stmts.last()) else {
            return;
        };
        if added.is_empty() {
            return;
        }
        let (start, end) = (self.range(&first.span).0, self.range(&last.span).1);
        let mut text = String::new();
        for MovedValue { statement, .. } in added {
            text.push_str("; ");
            text.push_str(statement);
        }
        let lines = added.iter().map(|moved| moved.lines).sum();
        text.push_str(&"\n".repeat(lines));
        // The braces are a part of the query.
        if self.range(&body.query.span).0 == start {
            self.insert(start, "{ ".to_owned());
            text.push_str(" }");
        }
        self.insert(end, text);
    }

    /// Returns the place of the word `if` of a body.
    fn before_if(&self, body: &RuleBody) -> Result<usize, EvalError> {
        let before = self.text_of(0, self.range(&body.query.span).0).trim_end();
        before
            .strip_suffix("if")
            .map(str::len)
            .ok_or_else(|| unreadable(&body.query.span))
    }

    /// Returns the place after a word.
    fn after(&self, start: usize, word: &str) -> Option<usize> {
        let text = self.text_of(start, self.source.contents().len());
        let rest = text.trim_start().strip_prefix(word)?;
        Some(start + text.len() - rest.len())
    }

    fn after_operator(&self, start: usize) -> Option<usize> {
        self.after(start, ":=").or_else(|| self.after(start, "="))
    }

    fn text_of(&self, start: usize, end: usize) -> &'a str {
        let source = self.source;
        source.contents().get(start..end).unwrap_or_default()
    }

    fn text(mut self) -> Option<String> {
        if self.edits.is_empty() {
            return None;
        }
        let text = self.source.contents();
        // Insertions of equal places stay in their order.
        self.edits.sort_by_key(|(start, end, _)| (*start, *end));
        let (mut out, mut at) = (String::with_capacity(text.len() * 2), 0);
        for (start, end, new) in &self.edits {
            out.push_str(text.get(at..*start).unwrap_or_default());
            out.push_str(new);
            at = *end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        Some(out)
    }
}

fn is_literal(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
    )
}

fn unreadable(span: &Span) -> EvalError {
    EvalError::Policy(format!(
        "{}: this form of a rule is not supported. Write `name contains value if {{ … }}` or `name[key] := value if {{ … }}`, \
         without a comment before the brace",
        place(span)
    ))
}
