//! Evaluates functions that need only their arguments, which are all known.

use std::rc::Rc;

use regex::{Captures, Regex, RegexBuilder};

use super::collections;
use super::value::{Stop, Value, whole};

pub(super) type Args<'a> = &'a [Value];
pub(super) type Outcome = Result<Value, Stop>;

/// Returns the value of a function; `None` if this module has no function of that name.
pub(super) fn call(name: &str, args: Args<'_>) -> Option<Outcome> {
    on_text(name, args)
        .or_else(|| collections::call(name, args))
        .or_else(|| conversion(name, args))
}

pub(super) fn arg(args: Args<'_>, at: usize) -> Result<&Value, Stop> {
    args.get(at).ok_or_else(|| "an argument is missing".into())
}

pub(super) fn text(args: Args<'_>, at: usize) -> Result<Rc<str>, Stop> {
    arg(args, at)?.to_text()
}

fn on_text(name: &str, args: Args<'_>) -> Option<Outcome> {
    let one = |make: fn(&str) -> String| text(args, 0).and_then(|text| Value::text(&make(&text)));
    let pair = || Ok::<_, Stop>((text(args, 0)?, text(args, 1)?));
    let told =
        |tell: fn(&str, &str) -> bool| pair().map(|(one, two)| Value::Bool(tell(&one, &two)));
    let cut = |cut: for<'a> fn(&'a str, &str) -> &'a str| {
        pair().and_then(|(one, two)| Value::text(cut(&one, &two)))
    };
    Some(match name {
        "basename" => one(|path| {
            path.trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned()
        }),
        "dirname" => one(dirname),
        "lower" => one(str::to_lowercase),
        "upper" => one(str::to_uppercase),
        "trimspace" => one(|text| text.trim().to_owned()),
        "chomp" => one(|text| text.trim_end_matches(['\n', '\r']).to_owned()),
        "startswith" => told(|one, two| one.starts_with(two)),
        "endswith" => told(|one, two| one.ends_with(two)),
        "strcontains" => told(|one, two| one.contains(two)),
        "trimprefix" => cut(|one, two| one.strip_prefix(two).unwrap_or(one)),
        "trimsuffix" => cut(|one, two| one.strip_suffix(two).unwrap_or(one)),
        "trim" => cut(|one, two| one.trim_matches(|c| two.contains(c))),
        "replace" => replace(args),
        "format" => format(args),
        "split" => pair().and_then(|(separator, text)| Value::texts(text.split(&*separator))),
        "join" => join(args),
        "regex" => regex(args),
        "substr" => substr(args),
        _ => return None,
    })
}

fn dirname(path: &str) -> String {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((dir, _)) => dir.to_owned(),
        None => ".".to_owned(),
    }
}

/// Evaluates `replace`; a pattern between slashes is a regular expression.
fn replace(args: Args<'_>) -> Outcome {
    let (whole, from, to) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    if from.len() > 2
        && let Some(pattern) = from
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
    {
        let pattern = compiled(pattern)?;
        if to.contains('$') {
            return Err(Stop::unsupported(
                "references in a replacement are not evaluated",
            ));
        }
        let (mut parts, mut end) = (Vec::new(), 0);
        for found in pattern.find_iter(&whole) {
            parts.extend([&whole[end..found.start()], &*to]);
            end = found.end();
        }
        parts.push(&whole[end..]);
        return Value::joined(parts);
    }
    let between = std::iter::once("").chain(std::iter::repeat(&*to));
    Value::joined(
        whole
            .split(&*from)
            .zip(between)
            .flat_map(|(part, before)| [before, part]),
    )
}

/// Evaluates `format` with `%s`, `%d`, `%v`, `%q` and `%%`; other verbs are not evaluated.
fn format(args: Args<'_>) -> Outcome {
    let (pattern, mut at) = (text(args, 0)?, 1);
    let mut parts: Vec<Rc<str>> = Vec::new();
    let mut rest = &*pattern;
    while let Some((before, after)) = rest.split_once('%') {
        parts.push(before.into());
        let verb = after
            .chars()
            .next()
            .ok_or("`%` is at the end of a format")?;
        rest = &after[verb.len_utf8()..];
        if verb == '%' {
            parts.push("%".into());
            continue;
        }
        let value = text(args, at)?;
        at += 1;
        match verb {
            's' | 'd' | 'v' => parts.push(value),
            'q' => parts.extend(["\"".into(), value, "\"".into()]),
            _ => return Err(Stop::Unsupported(format!("`%{verb}` is not evaluated"))),
        }
    }
    parts.push(rest.into());
    Value::joined(parts.iter().map(|part| &**part))
}

fn join(args: Args<'_>) -> Outcome {
    let separator = text(args, 0)?;
    let mut texts = Vec::new();
    for list in &args[1..] {
        for item in list.to_items()?.iter() {
            texts.push(item.to_text()?);
        }
    }
    let between = std::iter::once("").chain(std::iter::repeat(&*separator));
    Value::joined(
        texts
            .iter()
            .zip(between)
            .flat_map(|(text, before)| [before, &**text]),
    )
}

fn compiled(pattern: &str) -> Result<Regex, Stop> {
    let built = RegexBuilder::new(pattern).size_limit(1 << 18).build();
    built.map_err(|_| Stop::unsupported("a regular expression is not valid, or too large"))
}

/// Returns the match of a regular expression: a text, a list of groups, or an object if the groups are named.
fn regex(args: Args<'_>) -> Outcome {
    let (pattern, subject) = (compiled(&text(args, 0)?)?, text(args, 1)?);
    let found = pattern
        .captures(&subject)
        .ok_or("a regular expression does not match")?;
    let group = |at: usize| {
        found
            .get(at)
            .map_or(Value::Null, |group| Value::Text(group.as_str().into()))
    };
    let names: Vec<_> = pattern.capture_names().enumerate().skip(1).collect();
    if names.iter().any(|(_, name)| name.is_some()) {
        let object = names
            .iter()
            .filter_map(|(at, name)| Some((Rc::from((*name)?), group(*at))));
        return Value::object(object.collect());
    }
    if names.is_empty() {
        Ok(whole_match(&found))
    } else {
        Value::list(names.iter().map(|(at, _)| group(*at)).collect())
    }
}

fn whole_match(found: &Captures<'_>) -> Value {
    Value::Text(found.get(0).map_or("", |group| group.as_str()).into())
}

fn substr(args: Args<'_>) -> Outcome {
    let (text, from) = (
        text(args, 0)?,
        whole(arg(args, 1)?.to_number()?).ok_or("an offset must be a whole number")?,
    );
    let length = arg(args, 2)?.to_number()?;
    let count = if length < 0.0 {
        usize::MAX
    } else {
        whole(length).ok_or("a length must be a whole number")?
    };
    Value::text(&text.chars().skip(from).take(count).collect::<String>())
}

fn conversion(name: &str, args: Args<'_>) -> Option<Outcome> {
    let same = || arg(args, 0).cloned();
    Some(match name {
        "tostring" => text(args, 0).map(Value::Text),
        "tonumber" => arg(args, 0).and_then(Value::to_number).map(Value::Number),
        "tobool" => arg(args, 0).and_then(Value::to_bool).map(Value::Bool),
        "tolist" => arg(args, 0).and_then(Value::to_items).and_then(|_| same()),
        "tomap" => arg(args, 0)
            .and_then(Value::to_attributes)
            .and_then(|_| same()),
        "sensitive" | "nonsensitive" => same(),
        _ => return None,
    })
}

/// Converts a JSON value into a value of the language.
pub(super) fn from_json(json: &serde_json::Value, depth: usize) -> Outcome {
    use serde_json::Value as Json;
    if depth > 32 {
        return Err(Stop::unsupported("a value is nested too deeply"));
    }
    match json {
        Json::Null => Ok(Value::Null),
        Json::Bool(value) => Ok(Value::Bool(*value)),
        Json::Number(number) => Ok(number.as_f64().map_or(Value::Null, Value::Number)),
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::list(
            items
                .iter()
                .map(|item| from_json(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Json::Object(items) => {
            let attribute = |(key, value): (&String, _)| {
                Ok::<_, Stop>((Rc::from(key.as_str()), from_json(value, depth + 1)?))
            };
            Value::object(items.iter().map(attribute).collect::<Result<_, _>>()?)
        }
    }
}
