//! Refuses policies whose expressions are nested so deeply that the parser would use up its stack or its time.
//!
//! - The parser and the evaluator call themselves for each level of an expression, and the parser limits only parentheses. Some
//!   thousand brackets, signs or operators would end the process.
//! - The parser reads the first element of an array, set or object twice, because it could be the value of a comprehension. So
//!   each level doubles its time. It reads what follows a `|` up to three times, because it could be a union.
//!
//! The tokens are those of the parser, so brackets in texts and comments do not count.

use regorus::unstable::{Lexer, Source, Span, Token, TokenKind};

use super::{EvalError, LENGTHS, RegoFile, plain};

/// Maximum depth of an expression. Each bracket is a level, and so is each operator of a chain such as `1 + 2 + 3`.
const MAX_DEPTH: usize = 500;

/// Maximum number of levels around a value that the parser reads again: one for each array, set and object, and two for each
/// comprehension. Reading 20 arrays and objects takes 3 seconds, and policies are read up to four times.
const MAX_REPEATS: usize = 20;

/// Checks the depth of all expressions of a file.
pub(super) fn check(file: &RegoFile) -> Result<(), EvalError> {
    let RegoFile { path, text } = file;
    let (bytes, lines) = (LENGTHS.max_file_bytes, LENGTHS.max_lines);
    let source = Source::from_contents_with_limits(path.clone(), text.clone(), bytes, lines)
        .map_err(|error| EvalError::Policy(plain(&error)))?;
    let mut lexer = Lexer::new(&source);
    lexer.set_max_col(LENGTHS.max_col);
    let (mut nesting, mut line) = (Nesting::default(), 1);
    let too_deep = |line: u32, problem: String| EvalError::TooDeep {
        place: format!("{path}:{line}"),
        problem,
    };
    loop {
        check_depth(leading_sets(text, nesting.end)).map_err(|problem| too_deep(line, problem))?;
        // The parser describes a token that cannot be read. It also goes into brackets that nobody closes.
        let token = lexer.next_token().ok();
        let token = token.filter(|Token(kind, _)| *kind != TokenKind::Eof);
        let checked = match &token {
            Some(Token(kind, span)) => {
                line = span.line;
                nesting.add(kind, span)
            }
            None => nesting.close_all(),
        };
        checked.map_err(|problem| too_deep(line, problem))?;
        if token.is_none() {
            return Ok(());
        }
    }
}

/// Counts the words `set(` that follow each other after a place. The lexer calls itself for each of them, because `set()` is one
/// token.
fn leading_sets(text: &str, place: u32) -> usize {
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    // The quote after a text is no part of its token.
    let mut rest = text
        .get(place..)
        .unwrap_or_default()
        .trim_start_matches(['"', '`']);
    let mut count = 0;
    while count <= MAX_DEPTH {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix('#') {
            rest = comment.split_once('\n').map_or("", |(_, next)| next);
        } else if let Some(next) = rest.strip_prefix("set(") {
            rest = next;
            count += 1;
        } else {
            break;
        }
    }
    count
}

/// Brackets that are open at a token.
#[derive(Default)]
struct Nesting {
    /// Outer brackets, the file itself first.
    outer: Vec<Bracket>,
    inner: Bracket,
    /// True if the token before could be the end of a value.
    ends_value: bool,
    /// True if the token before is the word `if`, which a body follows.
    is_if: bool,
    /// Place after the token before, in bytes.
    end: u32,
}

/// Content of an open bracket, as far as it was read.
#[derive(Default)]
struct Bracket {
    /// True if the bracket may be that of an array, set, object or comprehension.
    is_literal: bool,
    /// True if it has a `|`, so it may be that of a comprehension.
    has_query: bool,
    /// True if the parser reads the present part of the content again.
    is_repeated: bool,
    /// Levels around this one that the parser reads again.
    outer_repeats: usize,
    /// Number of operators of the present expression.
    operators: usize,
    /// Depth of the deepest bracket of the present expression.
    brackets: usize,
    /// Depth of the deepest expression before it.
    deepest: usize,
}

impl Bracket {
    /// Returns the depth of the present expression.
    fn depth(&self) -> usize {
        self.operators + self.brackets
    }

    /// Returns the levels around a value in this bracket that the parser reads again.
    fn repeats(&self) -> usize {
        let own = match (self.is_repeated, self.has_query) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        self.outer_repeats + own
    }

    /// Begins another expression, and keeps the depth of the one before it.
    fn next_expression(&mut self) {
        self.deepest = self.deepest.max(self.depth());
        (self.operators, self.brackets) = (0, 0);
    }
}

impl Nesting {
    /// Adds a token. The error says what is nested too deeply.
    fn add(&mut self, kind: &TokenKind, span: &Span) -> Result<(), String> {
        let text = span.text();
        let is_adjacent = self.ends_value && self.end == span.start;
        let mut ends_value = false;
        match kind {
            TokenKind::Ident if text == "set(" => {
                self.begin_value();
                self.open(false)?;
            }
            TokenKind::Ident if text == "in" => self.operator()?,
            // `not[x]` is no index.
            TokenKind::Ident if text == "not" => self.begin_value(),
            // `1 -1` is one expression, too.
            TokenKind::Number if self.ends_value && text.starts_with('-') => {
                self.operator()?;
                ends_value = true;
            }
            TokenKind::Ident | TokenKind::Number | TokenKind::String | TokenKind::RawString => {
                self.begin_value();
                ends_value = true;
            }
            TokenKind::Symbol => match text {
                // An index, or the arguments of a call.
                "[" | "(" if is_adjacent => {
                    self.operator()?;
                    self.open(false)?;
                }
                "[" | "{" => {
                    self.begin_value();
                    self.open(!self.is_if)?;
                }
                "(" => {
                    self.begin_value();
                    self.open(false)?;
                }
                "]" | "}" | ")" => {
                    self.close()?;
                    ends_value = true;
                }
                "," => {
                    self.inner.next_expression();
                    self.inner.is_repeated &= self.inner.has_query;
                }
                ";" | ":" | ":=" | "=" => self.inner.next_expression(),
                "|" => {
                    self.inner.has_query = true;
                    self.inner.is_repeated = self.inner.is_literal;
                    self.operator()?;
                }
                _ => self.operator()?,
            },
            TokenKind::Eof => {}
        }
        self.ends_value = ends_value;
        self.is_if = *kind == TokenKind::Ident && text == "if";
        self.end = span.end;
        Ok(())
    }

    /// Begins a value. After another one, it begins another expression: the next statement, or the part after a word.
    fn begin_value(&mut self) {
        if self.ends_value {
            self.inner.next_expression();
        }
    }

    fn operator(&mut self) -> Result<(), String> {
        self.inner.operators += 1;
        check_depth(self.inner.depth())
    }

    fn open(&mut self, is_literal: bool) -> Result<(), String> {
        let bracket = Bracket {
            is_literal,
            is_repeated: is_literal,
            outer_repeats: self.inner.repeats(),
            ..Bracket::default()
        };
        self.outer.push(std::mem::replace(&mut self.inner, bracket));
        if self.inner.repeats() > MAX_REPEATS {
            return Err(format!(
                "arrays, sets and objects are nested more than {MAX_REPEATS} levels deep, each in the first element of another \
                 one; a comprehension counts twice"
            ));
        }
        check_depth(self.outer.len())
    }

    /// Closes a bracket. The parser describes one that nobody has opened.
    fn close(&mut self) -> Result<(), String> {
        let Some(outer) = self.outer.pop() else {
            return Ok(());
        };
        self.inner.next_expression();
        let depth = self.inner.deepest + 1;
        self.inner = outer;
        self.inner.brackets = self.inner.brackets.max(depth);
        check_depth(self.inner.depth())
    }

    fn close_all(&mut self) -> Result<(), String> {
        while !self.outer.is_empty() {
            self.close()?;
        }
        Ok(())
    }
}

fn check_depth(depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!(
            "expressions are nested more than {MAX_DEPTH} levels deep"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), EvalError> {
        check(&RegoFile {
            path: "deny.rego".to_owned(),
            text: text.to_owned(),
        })
    }

    /// Returns a rule whose value has these levels around a variable.
    fn rule(open: &str, levels: usize, close: &str) -> String {
        let (open, close) = (open.repeat(levels), close.repeat(levels));
        format!("package main\n\nx := {open}a{close}\n")
    }

    #[test]
    fn depth_is_counted_in_all_kinds_of_brackets_and_operators() {
        for (open, close, most) in [
            ("[", "]", MAX_REPEATS),
            ("{", "}", MAX_REPEATS),
            ("{\"a\": ", "}", MAX_REPEATS),
            ("{\"a\": [", "]}", MAX_REPEATS / 2),
            ("[1 | count(", ") > 0]", MAX_REPEATS / 2),
            ("[x | x := ", "]", MAX_REPEATS / 2),
            ("{x | y, ", "}", MAX_REPEATS / 2),
            ("[x | not", "]", MAX_REPEATS / 2),
            ("[1, ", "]", MAX_DEPTH),
            ("{1, ", "}", MAX_DEPTH),
            ("{\"b\": 1, \"a\": ", "}", MAX_DEPTH),
            ("(", ")", MAX_DEPTH),
            ("f(1, ", ")", MAX_DEPTH / 2),
            ("a[", "]", MAX_DEPTH / 2),
            ("set(", ")", MAX_DEPTH / 2),
            ("- ", "", MAX_DEPTH),
            ("1 + ", "", MAX_DEPTH),
            ("1 in ", "", MAX_DEPTH),
            ("", " -1", MAX_DEPTH),
            ("", "[0]", MAX_DEPTH - 1),
            ("", ".a", MAX_DEPTH),
            ("{1} |", "", MAX_DEPTH - 1),
            ("- [1, ", "]", MAX_DEPTH / 2),
        ] {
            assert_eq!(checked(&rule(open, most, close)), Ok(()), "{open}{close}");
            for (levels, unclosed) in [(most + 1, false), (10_000, false), (10_000, true)] {
                let close = if unclosed { "" } else { close };
                if unclosed && open.is_empty() {
                    continue;
                }
                let found = checked(&rule(open, levels, close));
                let Err(EvalError::TooDeep { place, .. }) = found else {
                    panic!("{levels} of {open}{close}: {found:?}");
                };
                assert_eq!(place, "deny.rego:3", "{open}{close}");
            }
        }
    }

    /// The lexer would use up its stack before it returns the first token.
    #[test]
    fn words_that_the_lexer_reads_together_are_counted_before() {
        for (start, open) in [("", "set(\n"), ("\"\" ", "set(\n"), ("`` ", "set( # a\n")] {
            let text = format!("package main\n\nx := {start}{}", open.repeat(60_000));
            let found = checked(&text);
            assert!(
                matches!(found, Err(EvalError::TooDeep { .. })),
                "{start}{open}"
            );
        }
    }

    #[test]
    fn the_line_and_the_limit_are_named() {
        let text = rule("[\n", 21, "]");
        let error = checked(&text).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "deny.rego:23: arrays, sets and objects are nested more than 20 levels deep, each in"
            ),
            "{error}"
        );
        let text = rule("[1,\n", 501, "]");
        let error = checked(&text).unwrap_err().to_string();
        assert!(
            error.starts_with("deny.rego:503: expressions are nested more than 500 levels deep."),
            "{error}"
        );
        assert!(error.ends_with("`name := …`"), "{error}");
    }

    #[test]
    fn long_policies_that_are_flat_are_not_deep() {
        for part in [
            "x.y.z == 1\n",
            "not x[0].y\n",
            "x := f(1) + 2\n",
            "some y in x\n",
            "every y in x { y > 1 }\n",
            "x == {\"a\": [1]} with input as {\"b\": [1]}\n",
            "x == 1; ",
            "[x, y] := z\n",
            "# [[[[ {{{{ ((((\n",
            "x == \"[[[[ {{{{ ((((\"\n",
            "x == `[[[[ {{{{ ((((`\n",
        ] {
            let body = part.repeat(2000);
            let text = format!("package main\n\ndeny contains \"m\" if {{\n{body}true\n}}\n");
            assert_eq!(checked(&text), Ok(()), "{part}");
        }
        for item in ["1, ", "[1], ", "{\"a\": [1, {2}]}, ", "f(x).y, ", "-1, "] {
            let text = format!("package main\n\nx := [{}1]\n", item.repeat(2000));
            assert_eq!(checked(&text), Ok(()), "{item}");
        }
        let rules = "x contains y if {\n  y := [1]\n}\n\ndefault z := false\n\n".repeat(2000);
        assert_eq!(checked(&format!("package main\n\n{rules}")), Ok(()));
    }
}
