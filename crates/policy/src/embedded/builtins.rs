//! Built-in functions of Rego, with the errors of conftest.
//!
//! In conftest, a function that fails has no value, and the rule that calls it is not violated: `startswith(null, "x")`
//! on an attribute that the plan leaves open is ordinary. The evaluator fails on the same values, but also on some that
//! conftest handles, such as names with a NUL character or JSON that is nested deeply. An author of a pull request could
//! choose such values to silence a rule. So only failures that conftest has too are swallowed. Any other one is an error
//! of the whole evaluation, even if a policy calls the function below `not`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::{Arc, Mutex, PoisonError};

use regorus::unstable::{BUILTINS, Expr, Ref, Source, Span};
use regorus::{Engine, Value};

use super::{EvalError, plain};

/// Functions that stay with the evaluator, which treats them specially.
const KEPT: [&str; 3] = ["walk", "trace", "rand.intn"];

/// Functions that fail on malformed texts in conftest as well.
const FAIL_ON_TEXTS: [&str; 8] = [
    "base64.decode",
    "base64url.decode",
    "hex.decode",
    "json.unmarshal",
    "semver.compare",
    "to_number",
    "units.parse",
    "units.parse_bytes",
];

/// Part of the message of the reader of JSON about a text that is nested too deeply. conftest reads such texts.
const TOO_DEEP: &str = "recursion limit";

/// First failure of a function that conftest would not have had.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    fn note(&self, function: &str, problem: &str) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("`{function}`: {problem}"));
    }

    /// Returns the failure, if there was one.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Function that returns arrays, sets and objects as they are, and is undefined for other values.
pub(super) const ITEMS: &str = "lockkeeper_items";

/// Replaces the functions of the evaluator by ones that distinguish failures.
pub(super) fn register(engine: &mut Engine, failure: &Failure) -> Result<(), EvalError> {
    let items = |mut arguments: Vec<Value>| {
        let is_collection =
            |value: &Value| matches!(value, Value::Array(_) | Value::Set(_) | Value::Object(_));
        let found = arguments.pop().filter(is_collection);
        Ok(found.unwrap_or(Value::Undefined))
    };
    engine
        .add_extension(ITEMS.to_owned(), 1, Box::new(items))
        .map_err(|error| EvalError::Failed(plain(&error)))?;
    // The functions need a place for their messages, although nobody sees it.
    let source = Source::from_contents("function".to_owned(), "function\n".to_owned())
        .map_err(|error| EvalError::Failed(plain(&error)))?;
    let span = Span {
        source,
        line: 1,
        col: 1,
        start: 0,
        end: 8,
    };
    for (name, (function, arity)) in BUILTINS.iter() {
        let (name, function): (&'static str, _) = (*name, *function);
        if KEPT.contains(&name) || name.starts_with("__") {
            continue;
        }
        let place = span.clone();
        let parameter = Ref::new(Expr::Null {
            span: span.clone(),
            value: Value::Null,
            eidx: 0,
        });
        let parameters = vec![parameter; usize::from(*arity).max(1)];
        let failure = failure.clone();
        let wrapped = move |mut arguments: Vec<Value>| {
            if let Some(at) = pattern_of(name)
                && let Some(Value::String(pattern)) = arguments.get(at)
            {
                if has_class_operator(pattern) {
                    failure.note(
                        name,
                        "`&&`, `--`, `~~` and brackets inside of brackets of a regular expression are not supported",
                    );
                    return Ok(Value::Undefined);
                }
                let pattern = with_ascii_classes(pattern);
                arguments[at] = Value::from(pattern);
            }
            let result = match (name, arguments.first()) {
                ("sprintf", _) => return Ok(sprintf(&arguments)),
                ("count", Some(Value::String(text))) => {
                    return Ok(Value::from(text.chars().count()));
                }
                ("glob.quote_meta", Some(Value::String(text))) => {
                    return Ok(Value::from(glob_quoted(text)));
                }
                ("lower", Some(Value::String(text))) => {
                    let lower = text.chars().map(|c| c.to_lowercase().next().unwrap_or(c));
                    return Ok(Value::from(lower.collect::<String>()));
                }
                ("upper", Some(Value::String(text))) => {
                    let upper: String = text.chars().map(upper).collect();
                    return Ok(Value::from(upper));
                }
                ("json.is_valid", Some(Value::String(text))) => match Value::from_json_str(text) {
                    Err(error) if format!("{error:#}").contains(TOO_DEEP) => Err(error),
                    Ok(_) => Ok(Value::Bool(true)),
                    Err(_) => Ok(Value::Bool(false)),
                },
                ("glob.match", _) => match glob_arguments(&arguments) {
                    Some((pattern, delimiters, text)) => {
                        let regex = regex_of_glob(pattern, &delimiters)
                            .and_then(|regex| regex::Regex::new(&regex).ok());
                        if let Some(regex) = regex {
                            return Ok(Value::Bool(regex.is_match(text)));
                        }
                        failure.note(name, "the pattern may have another meaning in conftest");
                        return Ok(Value::Undefined);
                    }
                    None => function(&place, &parameters, &arguments, false),
                },
                _ => function(&place, &parameters, &arguments, false),
            };
            let error = match result {
                Ok(Value::String(text)) if name.starts_with("json.marshal") => {
                    return Ok(Value::from(without_html(&text)));
                }
                Ok(Value::Undefined) if name == "regex.replace" => {
                    // Conftest may be able to read the regular expression.
                    if arguments.iter().all(|it| matches!(it, Value::String(_))) {
                        failure.note(name, "invalid regex");
                    }
                    return Ok(Value::Undefined);
                }
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let text = format!("{error:#}");
            let problem = text
                .split_once("\nerror: ")
                .map_or(text.as_str(), |(_, problem)| problem);
            let is_type = [" expects ", " requires "]
                .iter()
                .any(|word| problem.starts_with(&format!("`{name}`{word}")));
            let is_text = FAIL_ON_TEXTS.contains(&name) && !text.contains(TOO_DEEP);
            if is_type || is_text {
                return Ok(Value::Undefined);
            }
            let problem: String = problem.chars().take(300).collect();
            failure.note(name, &problem);
            Err(error)
        };
        engine
            .add_extension(name.to_owned(), *arity, Box::new(wrapped))
            .map_err(|error| EvalError::Failed(plain(&error)))?;
    }
    Ok(())
}

/// Returns the position of the regular expression among the arguments of a function.
fn pattern_of(function: &str) -> Option<usize> {
    match function {
        "regex.find_all_string_submatch_n"
        | "regex.find_n"
        | "regex.is_valid"
        | "regex.match"
        | "regex.split" => Some(0),
        "regex.replace" => Some(1),
        _ => None,
    }
}

/// Returns true if brackets of a regular expression contain `&&`, `--`, `~~` or other brackets. They are operators here, but
/// ordinary characters in conftest.
fn has_class_operator(pattern: &str) -> bool {
    let mut rest = pattern;
    let mut is_inside = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => {
                let mut after = after.chars();
                after.next();
                after.as_str()
            }
            '[' if is_inside => match after_named_class(after) {
                Some(after) => after,
                None => return true,
            },
            '[' => {
                is_inside = true;
                let first = after.strip_prefix('^').unwrap_or(after);
                // At the beginning it is a character.
                first.strip_prefix(']').unwrap_or(first)
            }
            ']' => {
                is_inside = false;
                after
            }
            '&' | '-' | '~' if is_inside && after.starts_with(c) => return true,
            _ => after,
        };
    }
    false
}

/// Returns the text after a class such as `[:alpha:]`, whose first bracket is left out.
fn after_named_class(text: &str) -> Option<&str> {
    const NAMES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
        "space", "upper", "word", "xdigit",
    ];
    let (name, after) = text.strip_prefix(':')?.split_once(":]")?;
    let name = name.strip_prefix('^').unwrap_or(name);
    NAMES.contains(&name).then_some(after)
}

/// Gives a regular expression the meaning that it has in conftest: classes such as `\d` are ASCII. Otherwise an author could
/// choose the digits of another script for a name that has to match.
fn with_ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.next() {
            // A class in brackets may contain others.
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str(r"[\t\n\f\r ]"),
            Some('S') => out.push_str(r"[^\t\n\f\r ]"),
            Some('b') => out.push_str(r"(?-u:\b)"),
            Some('B') => out.push_str(r"(?-u:\B)"),
            // The start and the end of a word here, but ordinary characters in conftest.
            Some(c @ ('<' | '>')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

/// Returns the pattern, the delimiters and the text of `glob.match`; `None` for arguments of other types.
fn glob_arguments(arguments: &[Value]) -> Option<(&str, Vec<char>, &str)> {
    let [Value::String(pattern), delimiters, Value::String(text)] = arguments else {
        return None;
    };
    let delimiters = match delimiters {
        Value::Null => Vec::new(),
        Value::Array(list) if list.is_empty() => vec!['.'],
        Value::Array(list) => list.iter().map(single_char).collect::<Option<_>>()?,
        Value::Undefined
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Set(_)
        | Value::Object(_) => return None,
    };
    Some((&**pattern, delimiters, &**text))
}

/// Returns a pattern that matches only this text.
fn glob_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"*?\[]{}".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn single_char(value: &Value) -> Option<char> {
    let Value::String(text) = value else {
        return None;
    };
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Returns the regular expression of a pattern, in which `**` stands for any text wherever it is; `None` for a pattern that is
/// not certain to mean the same in conftest.
fn regex_of_glob(pattern: &str, delimiters: &[char]) -> Option<String> {
    let escaped = |c: char| regex::escape(c.encode_utf8(&mut [0; 4]));
    let any = if delimiters.is_empty() {
        "(?s:.)".to_owned()
    } else {
        let list: String = delimiters.iter().map(|c| escaped(*c)).collect();
        format!("[^{list}]")
    };
    let mut out = r"\A(?:".to_owned();
    let mut rest = pattern.chars().peekable();
    let mut depth = 0_usize;
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.next_if_eq(&'*').is_some() => out.push_str("(?s:.*)"),
            '*' => {
                out.push_str(&any);
                out.push('*');
            }
            '?' => out.push_str(&any),
            '[' => {
                let is_negated = rest.next_if_eq(&'!').is_some();
                let mut list = Vec::new();
                loop {
                    match rest.next()? {
                        ']' => break,
                        c => list.push(c),
                    }
                }
                let inside: String = match list[..] {
                    [] => return None,
                    _ if list.iter().any(|c| "\\[!".contains(*c)) => return None,
                    [from, '-', to] => format!("{}-{}", escaped(from), escaped(to)),
                    _ if list.contains(&'-') => return None,
                    _ => list.iter().map(|c| escaped(*c)).collect(),
                };
                out.push_str(if is_negated { "[^" } else { "[" });
                out.push_str(&inside);
                out.push(']');
            }
            '{' => {
                depth += 1;
                out.push_str("(?:");
            }
            ',' if depth > 0 => out.push('|'),
            '}' => {
                depth = depth.checked_sub(1)?;
                out.push(')');
            }
            '\\' => out.push_str(&escaped(rest.next()?)),
            _ => out.push_str(&escaped(c)),
        }
    }
    out.push_str(r")\z");
    (depth == 0).then_some(out)
}

/// Returns the upper case of a character, which is one character in conftest.
fn upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// Writes JSON as Go does, which escapes the characters of HTML.
fn without_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(c)).ok();
            }
            _ => out.push(c),
        }
    }
    out
}

/// Formats as Go does, whose functions conftest uses. The function of the evaluator fails on verbs and values that do
/// not fit together, and a message with a small mistake would silence its rule.
fn sprintf(arguments: &[Value]) -> Value {
    match arguments {
        [Value::String(format), Value::Array(values)] => Value::from(formatted(format, values)),
        _ => Value::Undefined,
    }
}

/// Argument of a verb, as conftest passes it to Go.
enum Argument<'a> {
    Integer(String),
    Float(f64),
    /// Text, or any other value as a text.
    Text(Cow<'a, str>),
}

impl Argument<'_> {
    fn of(value: &Value) -> Argument<'_> {
        match value {
            Value::String(text) => Argument::Text(Cow::Borrowed(text.as_ref())),
            Value::Number(number) if number.is_integer() => {
                Argument::Integer(number.format_decimal())
            }
            Value::Number(number) => match number.as_f64() {
                Some(float) => Argument::Float(float),
                None => Argument::Text(Cow::Owned(number.format_decimal())),
            },
            Value::Null
            | Value::Bool(_)
            | Value::Array(_)
            | Value::Set(_)
            | Value::Object(_)
            | Value::Undefined => Argument::Text(Cow::Owned(shown(value))),
        }
    }

    /// Returns the value with the name of its type in Go, for verbs that do not fit.
    fn with_type(&self) -> String {
        match self {
            Self::Integer(digits) => format!("int64={digits}"),
            Self::Float(float) => format!("float64={}", go_float(*float)),
            Self::Text(text) => format!("string={text}"),
        }
    }
}

/// Flags, width and precision of a verb.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "Go has five flags, and they are independent"
)]
struct Verb {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// Maximum width and precision. Go has a limit too.
const MAX_WIDTH: usize = 1000;

/// Reads a number, which may be missing.
fn number(rest: &mut Peekable<Chars<'_>>) -> usize {
    let mut number = 0_usize;
    while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
        rest.next();
        number = (number * 10 + digit as usize).min(MAX_WIDTH);
    }
    number
}

fn formatted(format: &str, values: &[Value]) -> String {
    let mut out = String::with_capacity(format.len());
    let mut rest = format.chars().peekable();
    let (mut next, mut is_reordered) = (0, false);
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut verb = Verb::default();
        while let Some(flag) = rest.next_if(|c| "+-# 0".contains(*c)) {
            match flag {
                '+' => verb.plus = true,
                '-' => verb.minus = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                _ => verb.zero = true,
            }
        }
        verb.width = number(&mut rest);
        if rest.next_if_eq(&'.').is_some() {
            verb.precision = Some(number(&mut rest));
        }
        if rest.next_if_eq(&'[').is_some() {
            // Arguments are counted from 1.
            next = number(&mut rest).saturating_sub(1);
            rest.next_if_eq(&']');
            is_reordered = true;
        }
        match (rest.next(), values.get(next)) {
            (None, _) => out.push_str("%!(NOVERB)"),
            (Some('%'), _) => out.push('%'),
            (Some(letter), None) => {
                write!(out, "%!{letter}(MISSING)").ok();
            }
            (Some(letter), Some(value)) => {
                next += 1;
                out.push_str(&verb.apply(letter, &Argument::of(value)));
            }
        }
    }
    if !is_reordered && next < values.len() {
        let extra: Vec<String> = values[next..]
            .iter()
            .map(|value| Argument::of(value).with_type())
            .collect();
        write!(out, "%!(EXTRA {})", extra.join(", ")).ok();
    }
    out
}

impl Verb {
    fn apply(&self, letter: char, argument: &Argument<'_>) -> String {
        let (sign, body) = match argument {
            Argument::Text(text) => match self.text(letter, text) {
                Some(body) => (String::new(), body),
                None => return format!("%!{letter}({})", argument.with_type()),
            },
            Argument::Integer(digits) => {
                let (sign, digits) = self.signed(digits);
                match integer(letter, digits, self.sharp) {
                    Some(body) => (sign, body),
                    None => return format!("%!{letter}({})", argument.with_type()),
                }
            }
            Argument::Float(float) => {
                let precision = self.precision;
                let text = match letter {
                    'v' | 'g' | 'G' => go_float(*float),
                    'f' | 'F' => format!("{float:.*}", precision.unwrap_or(6)),
                    'e' | 'E' => go_exponent(&format!("{float:.*e}", precision.unwrap_or(6))),
                    _ => return format!("%!{letter}({})", argument.with_type()),
                };
                let text = if letter.is_uppercase() {
                    text.to_uppercase()
                } else {
                    text
                };
                let (sign, digits) = self.signed(&text);
                (sign, digits.to_owned())
            }
        };
        let is_number = matches!(argument, Argument::Integer(_) | Argument::Float(_));
        let missing = self
            .width
            .saturating_sub(sign.chars().count() + body.chars().count());
        if self.minus {
            format!("{sign}{body}{}", " ".repeat(missing))
        } else if self.zero && is_number {
            format!("{sign}{}{body}", "0".repeat(missing))
        } else {
            format!("{}{sign}{body}", " ".repeat(missing))
        }
    }

    /// Splits the sign off a number.
    fn signed<'n>(&self, number: &'n str) -> (String, &'n str) {
        match number.strip_prefix('-') {
            Some(digits) => ("-".to_owned(), digits),
            None if self.plus => ("+".to_owned(), number),
            None if self.space => (" ".to_owned(), number),
            None => (String::new(), number),
        }
    }

    /// Formats a text; `None` if the verb is not for texts.
    fn text(&self, letter: char, text: &str) -> Option<String> {
        let text: String = match self.precision {
            Some(most) => text.chars().take(most).collect(),
            None => text.to_owned(),
        };
        match letter {
            'v' if self.sharp => Some(quoted(&text)),
            's' | 'v' => Some(text),
            'q' => Some(quoted(&text)),
            'x' => Some(hexadecimal(&text)),
            'X' => Some(hexadecimal(&text).to_uppercase()),
            _ => None,
        }
    }
}

/// Formats an integer without its sign; `None` if the verb is not for integers.
fn integer(letter: char, digits: &str, is_sharp: bool) -> Option<String> {
    let number = digits.parse::<u128>().ok();
    let with = |prefix: &str, text: String| {
        if is_sharp {
            format!("{prefix}{text}")
        } else {
            text
        }
    };
    match letter {
        'd' | 'v' => Some(digits.to_owned()),
        'b' => number.map(|number| with("0b", format!("{number:b}"))),
        'o' => number.map(|number| with("0", format!("{number:o}"))),
        'O' => number.map(|number| format!("0o{number:o}")),
        'x' => number.map(|number| with("0x", format!("{number:x}"))),
        'X' => number.map(|number| with("0X", format!("{number:X}"))),
        'c' => number
            .and_then(|number| char::from_u32(u32::try_from(number).ok()?))
            .map(String::from),
        _ => None,
    }
}

fn hexadecimal(text: &str) -> String {
    let mut digits = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        write!(digits, "{byte:02x}").ok();
    }
    digits
}

/// Formats a number with the fewest digits, as `%v` of Go does.
fn go_float(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        go_exponent(&format!("{float:e}"))
    } else {
        format!("{float}")
    }
}

/// Writes an exponent with a sign and at least two digits.
fn go_exponent(text: &str) -> String {
    let Some((number, exponent)) = text.split_once('e') else {
        return text.to_owned();
    };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{number}e{sign}{digits:0>2}")
}

fn list(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(", ")
}

/// Returns a value as conftest shows it inside of a text.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.format_decimal(),
        Value::String(text) => quoted(text),
        Value::Array(values) => format!("[{}]", list(values.iter().map(shown))),
        Value::Set(values) if values.is_empty() => "set()".to_owned(),
        Value::Set(values) => format!("{{{}}}", list(values.iter().map(shown))),
        Value::Object(fields) => {
            let fields = fields
                .iter_sorted()
                .map(|(key, value)| format!("{}: {}", shown(key), shown(value)));
            format!("{{{}}}", list(fields))
        }
        Value::Undefined => "undefined".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(format: &str, values: &str) -> String {
        let Value::Array(values) = Value::from_json_str(values).unwrap() else {
            panic!("{values}: a list is expected");
        };
        formatted(format, &values)
    }

    #[test]
    fn messages_are_formatted_as_go_formats_them() {
        for (format, values, expected) in [
            ("%s is %s", r#"["a", "b"]"#, "a is b"),
            ("%d of %v, 100%%", "[1, 2]", "1 of 2, 100%"),
            (
                "%v %v %v",
                r#"[true, null, ["a", 1]]"#,
                r#"true null ["a", 1]"#,
            ),
            ("%v", r#"[{"b": 1, "a": []}]"#, r#"{"a": [], "b": 1}"#),
            ("%q %x %X", r#"["a\"b", "hi", 255]"#, r#""a\"b" 6869 FF"#),
            (
                "%5d|%-5d|%05d|%+d",
                "[42, 42, -42, 7]",
                "   42|42   |-0042|+7",
            ),
            ("%5s|%-5s|%.2s", r#"["ab", "ab", "abc"]"#, "   ab|ab   |ab"),
            (
                "%.2f %v %e",
                "[1.239, 1.5, 1234.5]",
                "1.24 1.5 1.234500e+03",
            ),
            ("%[2]s %[1]s", r#"["a", "b"]"#, "b a"),
            // Mistakes keep the message, and so the finding.
            ("%d", r#"["x"]"#, "%!d(string=x)"),
            ("%s", "[5]", "%!s(int64=5)"),
            ("%s and %s", r#"["a"]"#, "a and %!s(MISSING)"),
            ("none", r#"["a", 1]"#, "none%!(EXTRA string=a, int64=1)"),
            ("100%", "[]", "100%!(NOVERB)"),
            ("%99999999999999999999d", "[]", "%!d(MISSING)"),
            ("%y", "[1.5]", "%!y(float64=1.5)"),
        ] {
            assert_eq!(go(format, values), expected, "{format} {values}");
        }
    }

    #[test]
    fn classes_of_regular_expressions_are_ascii() {
        for (pattern, text, is_match) in [
            (r"^\w+$", "fine_1", true),
            (r"^\w+$", "größe", false),
            (r"^[\w-]+$", "a-1", true),
            (r"^[^\d]+$", "١", true),
            (r"^\d+$", "١", false),
            (r"^\D$", "١", true),
            (r"^a\sb$", "a\u{a0}b", false),
            (r"^a\Sb$", "a\u{a0}b", true),
            (r"\bx", "öx", true),
            (r"\Bx", "öx", false),
            (r"\Bx", "ax", true),
            (r"^\<a\.b\\$", r"<a.b\", true),
        ] {
            let regex = regex::Regex::new(&with_ascii_classes(pattern)).unwrap();
            assert_eq!(regex.is_match(text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn operators_in_brackets_are_not_supported() {
        for pattern in [
            "[a&&b]",
            "[a--b]",
            "[a~~b]",
            "[a[b]c]",
            "[^a[b]]",
            "[]a&&b]",
            "[^]&&b]",
            r"[\]&&b]",
            "[--a]",
            "x[[:foo:]]",
            "[[.a.]]",
            "[a-z][0-9&&5]",
        ] {
            assert!(has_class_operator(pattern), "{pattern}");
        }
        for pattern in [
            "a&&b--c~~d",
            "[a&b~-]",
            "[-a]",
            "[^-a]",
            "[]a]",
            "[^]a]",
            r"[\[\]]",
            r"\[a&&b\]",
            "[[:alpha:]_]",
            "[^[:^digit:]x]",
            "[a]&&[b]",
            r"\",
            "[",
            "",
        ] {
            assert!(!has_class_operator(pattern), "{pattern}");
        }
    }

    #[test]
    fn patterns_match_as_in_conftest() {
        for (pattern, delimiters, text, is_match) in [
            ("a.**", ".", "a.b.c", true),
            ("**.a", ".", "a", false),
            ("public-**", ".", "public-a.b", true),
            ("**/a", "/", "x/a", true),
            ("**/a", "/", "a", false),
            ("*.com", "./", "a.b.com", false),
            ("*", "", "a.b/c\n\0", true),
            ("?b", ".", "äb", true),
            ("a[^x]b", ".", "a-b", false),
            ("a[^x]b", ".", "a^b", true),
            ("a[!x]b", ".", "a-b", true),
            ("[a-c]b", ".", "bb", true),
            ("a{,-,b}b", ".", "a-b", true),
            ("\\*", ".", "*", true),
            ("a*b", ".", "a\nb", true),
            ("(a|b)+", ".", "(a|b)+", true),
        ] {
            let delimiters: Vec<char> = delimiters.chars().collect();
            let regex = regex_of_glob(pattern, &delimiters).unwrap();
            let regex = regex::Regex::new(&regex).unwrap();
            assert_eq!(regex.is_match(text), is_match, "{pattern} {text}");
        }
        assert_eq!(glob_quoted(r"a*b?c[d]e{f},\"), r"a\*b\?c\[d\]e\{f\},\\");
        for pattern in ["}", "{a", "[]", "[a", "[a-cx]", "a\\", "[\\]]"] {
            assert_eq!(regex_of_glob(pattern, &['.']), None, "{pattern}");
        }
    }

    #[test]
    fn each_character_stays_one_character() {
        let upper: String = "straße ä".chars().map(upper).collect();
        assert_eq!(upper, "STRAßE Ä");
        assert_eq!(
            without_html(r#"{"a":"<b> & c"}"#),
            r#"{"a":"\u003cb\u003e \u0026 c"}"#
        );
    }
}
