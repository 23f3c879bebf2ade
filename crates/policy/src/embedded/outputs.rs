//! Rewrites policies where the evaluator has another result than OPA.
//!
//! - If the value of a rule is undefined in one round of a loop, the evaluator forgets the values of all other rounds, or
//!   refuses the rule. `deny contains change.change.after.name if some change in input.resource_changes` would find nothing
//!   if the last change deletes something. OPA only leaves the round out. So the value becomes the last statement of the
//!   body: `deny contains v if { some change in input.resource_changes; v := (change.change.after.name) }`.
//! - It does not evaluate comprehensions with several statements in the head of a rule. The rewritten rules have none.
//! - `some x in c` and `every x in c` are errors if `c` is null or a text, and undefined in OPA.
//!
//! Rules stay at their lines, because errors and tests name them. Everything is found by its tokens, as the evaluator reads
//! them, because comments and texts can look like a part of a rule. A rule whose parts are not where they should be is refused.

use regorus::unstable::{
    Expr, Lexer, Module, Ref, Rule, RuleBody, RuleHead, Source, Span, TokenKind,
};

use super::calls::{FoundCalls, place};
use super::{EvalError, LENGTHS, builtins, plain};

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
    let mut rewriting = Rewriting::of(module, builtins::ITEMS)?;
    let mut found = FoundCalls::default();
    for rule in &module.policy {
        found.rule(rule);
    }
    if let Some(pattern) = found.patterns.first() {
        return Err(EvalError::Unsupported(format!(
            "{}: an object cannot be a pattern here. Write `x.key == value` instead",
            place(pattern.span())
        )));
    }
    for collection in found.collections {
        let (first, last) = rewriting.extent(collection);
        let (start, end) = rewriting
            .range(first, last)
            .ok_or_else(|| unreadable(collection.span()))?;
        // Nothing has to be between a word and a bracket: `some x in{1, 2}`.
        rewriting.insert(start, format!(" {}(", builtins::ITEMS));
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
    let mut rewriting = Rewriting::of(module, VARIABLE)?;
    for rule in &module.policy {
        rewriting.rule(rule)?;
    }
    Ok(rewriting.text())
}

/// Changes of one module.
struct Rewriting<'a> {
    source: &'a Source,
    /// Ranges of bytes of all words, signs and texts, with their quotes. Comments have none.
    tokens: Vec<(usize, usize)>,
    /// Ranges of bytes with their new texts. Insertions at one place keep their order.
    edits: Vec<(usize, usize, String)>,
    variables: usize,
}

impl<'a> Rewriting<'a> {
    /// Reads the tokens of a module, in which a name must not occur.
    fn of(module: &'a Module, name: &str) -> Result<Self, EvalError> {
        let source = &module.package.span.source;
        if source.contents().contains(name) {
            return Err(EvalError::Unsupported(format!(
                "{}: names cannot begin with `{name}`",
                source.file()
            )));
        }
        let mut lexer = Lexer::new(source);
        lexer.set_max_col(LENGTHS.max_col);
        let mut tokens = Vec::new();
        loop {
            let token = lexer
                .next_token()
                .map_err(|error| EvalError::Policy(plain(&error)))?;
            let (start, end) = (byte(token.1.start), byte(token.1.end));
            match token.0 {
                TokenKind::Eof => break,
                // The evaluator leaves out the quotes.
                TokenKind::String | TokenKind::RawString => {
                    tokens.push((start.saturating_sub(1), end.saturating_add(1)));
                }
                TokenKind::Symbol | TokenKind::Number | TokenKind::Ident => {
                    tokens.push((start, end));
                }
            }
        }
        Ok(Self {
            source,
            tokens,
            edits: Vec::new(),
            variables: 0,
        })
    }

    /// Returns the number of the token at a byte.
    fn token_at(&self, byte: usize) -> usize {
        self.tokens.partition_point(|(_, end)| *end <= byte)
    }

    fn first(&self, span: &Span) -> usize {
        self.token_at(byte(span.start))
    }

    fn last(&self, span: &Span) -> usize {
        self.token_at(byte(span.end).saturating_sub(1))
    }

    /// Returns the first and the last token of an expression, without brackets around it.
    fn extent(&self, expr: &Expr) -> (usize, usize) {
        let (first, last) = (self.first(expr.span()), self.last(expr.span()));
        if let Expr::Object { fields, .. } = expr
            && fields.len() > 1
        {
            // The evaluator says that it begins at its last key.
            return (self.first(&fields[0].0).saturating_sub(1), last);
        }
        if matches!(expr, Expr::Set { items, .. } if items.is_empty()) {
            // The evaluator says that it ends after the next token. `set(` is one token.
            return (first, first + 1);
        }
        (first, last)
    }

    /// Returns the range of bytes of tokens; `None` if there are none.
    fn range(&self, first: usize, last: usize) -> Option<(usize, usize)> {
        let (start, end) = (self.tokens.get(first)?.0, self.tokens.get(last)?.1);
        (first <= last).then_some((start, end))
    }

    fn is_token(&self, number: usize, words: &[&str]) -> bool {
        let range = self.range(number, number);
        let text = range.and_then(|(start, end)| self.source.contents().get(start..end));
        text.is_some_and(|text| words.contains(&text))
    }

    fn insert(&mut self, at: usize, text: String) {
        self.edits.push((at, at, text));
    }

    /// Moves the values of a rule to the ends of its bodies.
    fn rule(&mut self, rule: &Rule) -> Result<(), EvalError> {
        let Rule::Spec { head, bodies, .. } = rule else {
            return Ok(());
        };
        let refuse = || unreadable(rule.span());
        // Values start after a word of the head.
        let (keys, own) = match head {
            RuleHead::Set { refr, key, .. } => {
                let word = self.name_end(refr) + 1;
                if !self.is_token(word, &["contains"]) {
                    return Err(refuse());
                }
                let own = key.as_ref().map(|key| (key, word + 1));
                (self.keys(refr)?, own)
            }
            RuleHead::Compr { refr, assign, .. } => {
                let assign = assign.as_ref();
                let own = assign.map(|assign| (&assign.value, self.first(&assign.span) + 1));
                (self.keys(refr)?, own)
            }
            RuleHead::Func { assign, .. } => {
                let assign = assign.as_ref();
                let own = assign.map(|assign| (&assign.value, self.first(&assign.span) + 1));
                (Vec::new(), own)
            }
        };
        if bodies.is_empty() {
            if !keys.is_empty() {
                return Err(refuse());
            }
            if let Some((value, first)) = own
                && !is_literal(value)
            {
                // The value can be a loop: `deny contains input.resource_changes[_].address`.
                let range = self.range(first, self.last(rule.span()));
                let (start, end) = range.ok_or_else(refuse)?;
                let variable = self.variable();
                self.insert(start, format!(" {variable} if {{ {variable} := ("));
                self.insert(end, ") }".to_owned());
            }
            return Ok(());
        }
        for body in bodies {
            // A body after a body. The evaluator takes it as `else := true`.
            let is_chained = body.assign.is_none() && self.is_token(self.first(&body.span), &["{"]);
            if is_chained && (own.is_some() || !keys.is_empty()) {
                return Err(EvalError::Unsupported(format!(
                    "{}: a rule with a value or a key cannot have several bodies. Write one rule for each body",
                    place(&body.span)
                )));
            }
            if body.query.stmts.is_empty() && !keys.is_empty() {
                return Err(refuse());
            }
        }
        let mut moved_keys = Vec::new();
        for (first, last) in keys {
            moved_keys.push(self.moved(first, last).ok_or_else(refuse)?);
        }
        for (number, body) in bodies.iter().enumerate() {
            if body.query.stmts.is_empty() {
                continue;
            }
            let value = match &body.assign {
                Some(assign) => Some((&assign.value, self.first(&assign.span) + 1)),
                None => own.filter(|_| number == 0),
            };
            let mut added = moved_keys.clone();
            if let Some((value, first)) = value
                && !is_literal(value)
            {
                let word = self.first(&body.query.span).saturating_sub(1);
                let last = self.is_token(word, &["if"]).then(|| word.saturating_sub(1));
                let moved = last.and_then(|last| self.moved(first, last));
                added.push(moved.ok_or_else(refuse)?);
            }
            self.append(body, &added).ok_or_else(refuse)?;
        }
        Ok(())
    }

    /// Returns the first and the last tokens of the keys of `names[a.b][c]`.
    fn keys(&self, mut reference: &Expr) -> Result<Vec<(usize, usize)>, EvalError> {
        let mut keys = Vec::new();
        loop {
            if let Expr::RefBrack {
                span, refr, index, ..
            } = reference
            {
                let bracket = self.name_end(refr) + 1;
                if !self.is_token(bracket, &["["]) {
                    return Err(unreadable(span));
                }
                if !is_literal(index) {
                    keys.push((bracket + 1, self.last(span)));
                }
                reference = refr;
            } else if let Expr::RefDot { refr, .. } = reference {
                reference = refr;
            } else {
                return Ok(keys);
            }
        }
    }

    /// Returns the last token of the name of a rule. The evaluator leaves out the last bracket.
    fn name_end(&self, reference: &Expr) -> usize {
        let is_bracket = matches!(reference, Expr::RefBrack { .. });
        self.last(reference.span()) + usize::from(is_bracket)
    }

    /// Returns the name of a new variable.
    fn variable(&mut self) -> String {
        self.variables += 1;
        format!("{VARIABLE}{}", self.variables)
    }

    /// Replaces an expression by a variable. Returns the statement that gives the variable its value.
    fn moved(&mut self, first: usize, last: usize) -> Option<String> {
        let (start, end) = self.range(first, last)?;
        let value = self.source.contents().get(start..end)?;
        let variable = self.variable();
        let statement = format!("{variable} := ({value})");
        self.edits.push((start, end, format!(" {variable} ")));
        Some(statement)
    }

    /// Adds statements at the end of a body.
    fn append(&mut self, body: &RuleBody, added: &[String]) -> Option<()> {
        if added.is_empty() {
            return Some(());
        }
        let (first, last) = (body.query.stmts.first()?, body.query.stmts.last()?);
        let (first, last) = (self.first(&first.span), self.last(&last.span));
        let (start, end) = self.range(first, last)?;
        let mut text: String = added
            .iter()
            .flat_map(|statement| ["; ", statement])
            .collect();
        // The braces are a part of the query.
        if self.first(&body.query.span) == first {
            self.insert(start, "{ ".to_owned());
            text.push_str(" }");
        }
        self.insert(end, text);
        Some(())
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

fn byte(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
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
    EvalError::Unsupported(format!(
        "{}: this form of a rule is not supported. Write `name contains value if {{ … }}` or `name[key] := value if {{ … }}`",
        place(span)
    ))
}

#[cfg(test)]
mod tests;
