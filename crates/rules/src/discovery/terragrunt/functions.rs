//! Evaluates functions that need only their arguments, which are all known.

use std::rc::Rc;

use regex::{Captures, Regex, RegexBuilder};

use super::collections;
use super::value::{HclValue, NoValue, whole};

pub(super) type Args<'a> = &'a [HclValue];
pub(super) type Evaluated = Result<HclValue, NoValue>;

/// Returns the value of a function; `None` if this module has no function of that name.
pub(super) fn call(name: &str, args: Args<'_>) -> Option<Evaluated> {
    on_text(name, args)
        .or_else(|| collections::call(name, args))
        .or_else(|| conversion(name, args))
}

pub(super) fn arg(args: Args<'_>, at: usize) -> Result<&HclValue, NoValue> {
    args.get(at).ok_or_else(|| "an argument is missing".into())
}

pub(super) fn text(args: Args<'_>, at: usize) -> Result<Rc<str>, NoValue> {
    arg(args, at)?.to_text()
}

fn on_text(name: &str, args: Args<'_>) -> Option<Evaluated> {
    let one =
        |make: fn(&str) -> String| text(args, 0).and_then(|text| HclValue::text(&make(&text)));
    let pair = || Ok::<_, NoValue>((text(args, 0)?, text(args, 1)?));
    let told =
        |tell: fn(&str, &str) -> bool| pair().map(|(one, two)| HclValue::Bool(tell(&one, &two)));
    let cut = |cut: for<'a> fn(&'a str, &str) -> &'a str| {
        pair().and_then(|(one, two)| HclValue::text(cut(&one, &two)))
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
        "split" => pair().and_then(|(separator, text)| HclValue::texts(text.split(&*separator))),
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
fn replace(args: Args<'_>) -> Evaluated {
    let (whole, from, to) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    if from.len() > 2
        && let Some(pattern) = from
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
    {
        let pattern = compiled(pattern)?;
        if to.contains('$') {
            return Err(NoValue::unsupported(
                "references in a replacement are not evaluated",
            ));
        }
        let (mut parts, mut end) = (Vec::new(), 0);
        for found in pattern.find_iter(&whole) {
            parts.extend([&whole[end..found.start()], &*to]);
            end = found.end();
        }
        parts.push(&whole[end..]);
        return HclValue::joined(parts);
    }
    let between = std::iter::once("").chain(std::iter::repeat(&*to));
    HclValue::joined(
        whole
            .split(&*from)
            .zip(between)
            .flat_map(|(part, before)| [before, part]),
    )
}

/// Evaluates `format` with `%s`, `%d`, `%v`, `%q` and `%%`; other verbs are not evaluated.
fn format(args: Args<'_>) -> Evaluated {
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
            _ => return Err(NoValue::Unsupported(format!("`%{verb}` is not evaluated"))),
        }
    }
    parts.push(rest.into());
    HclValue::joined(parts.iter().map(|part| &**part))
}

fn join(args: Args<'_>) -> Evaluated {
    let separator = text(args, 0)?;
    let mut texts = Vec::new();
    for list in &args[1..] {
        for item in list.to_items()?.iter() {
            texts.push(item.to_text()?);
        }
    }
    let between = std::iter::once("").chain(std::iter::repeat(&*separator));
    HclValue::joined(
        texts
            .iter()
            .zip(between)
            .flat_map(|(text, before)| [before, &**text]),
    )
}

fn compiled(pattern: &str) -> Result<Regex, NoValue> {
    let built = RegexBuilder::new(pattern).size_limit(1 << 18).build();
    built.map_err(|_| NoValue::unsupported("a regular expression is not valid, or too large"))
}

/// Returns the match of a regular expression: a text, a list of groups, or an object if the groups are named.
fn regex(args: Args<'_>) -> Evaluated {
    let (pattern, subject) = (compiled(&text(args, 0)?)?, text(args, 1)?);
    let found = pattern
        .captures(&subject)
        .ok_or("a regular expression does not match")?;
    let group = |at: usize| {
        found.get(at).map_or(HclValue::Null, |group| {
            HclValue::Text(group.as_str().into())
        })
    };
    let names: Vec<_> = pattern.capture_names().enumerate().skip(1).collect();
    if names.iter().any(|(_, name)| name.is_some()) {
        let object = names
            .iter()
            .filter_map(|(at, name)| Some((Rc::from((*name)?), group(*at))));
        return HclValue::object(object.collect());
    }
    if names.is_empty() {
        Ok(whole_match(&found))
    } else {
        HclValue::list(names.iter().map(|(at, _)| group(*at)).collect())
    }
}

fn whole_match(found: &Captures<'_>) -> HclValue {
    HclValue::Text(found.get(0).map_or("", |group| group.as_str()).into())
}

fn substr(args: Args<'_>) -> Evaluated {
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
    HclValue::text(&text.chars().skip(from).take(count).collect::<String>())
}

fn conversion(name: &str, args: Args<'_>) -> Option<Evaluated> {
    let same = || arg(args, 0).cloned();
    Some(match name {
        "tostring" => text(args, 0).map(HclValue::Text),
        "tonumber" => arg(args, 0)
            .and_then(HclValue::to_number)
            .map(HclValue::Number),
        "tobool" => arg(args, 0).and_then(HclValue::to_bool).map(HclValue::Bool),
        "tolist" => arg(args, 0)
            .and_then(HclValue::to_items)
            .and_then(|_| same()),
        "tomap" => arg(args, 0)
            .and_then(HclValue::to_attributes)
            .and_then(|_| same()),
        "sensitive" | "nonsensitive" => same(),
        _ => return None,
    })
}

/// Converts a JSON value into a value of the language.
pub(super) fn from_json(json: &serde_json::Value, depth: usize) -> Evaluated {
    use serde_json::Value as Json;
    if depth > 32 {
        return Err(NoValue::unsupported("a value is nested too deeply"));
    }
    match json {
        Json::Null => Ok(HclValue::Null),
        Json::Bool(value) => Ok(HclValue::Bool(*value)),
        Json::Number(number) => Ok(number.as_f64().map_or(HclValue::Null, HclValue::Number)),
        Json::String(text) => HclValue::text(text),
        Json::Array(items) => HclValue::list(
            items
                .iter()
                .map(|item| from_json(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Json::Object(items) => {
            let attribute = |(key, value): (&String, _)| {
                Ok::<_, NoValue>((Rc::from(key.as_str()), from_json(value, depth + 1)?))
            };
            HclValue::object(items.iter().map(attribute).collect::<Result<_, _>>()?)
        }
    }
}
