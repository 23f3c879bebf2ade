//! Evaluates functions about lists and objects whose arguments are all known.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::functions::{Args, Outcome, arg, text};
use super::limits::MAX_ITEMS;
use super::value::{Stop, Value, whole};

/// Returns the value of a function about lists and objects; `None` if this module has no function of that name.
pub(super) fn call(name: &str, args: Args<'_>) -> Option<Outcome> {
    Some(match name {
        "length" => length(args),
        "element" => element(args),
        "lookup" => lookup(args),
        "merge" => merge(args),
        "concat" => concat(args),
        "flatten" => flatten(args),
        "compact" => compact(args),
        "contains" => contains(args),
        "reverse" => arg(args, 0)
            .and_then(Value::to_items)
            .and_then(|items| Value::list(items.iter().rev().cloned().collect())),
        "keys" => arg(args, 0)
            .and_then(Value::to_attributes)
            .and_then(|object| {
                Value::list(
                    object
                        .keys()
                        .map(|key| Value::Text(Rc::clone(key)))
                        .collect(),
                )
            }),
        "values" => arg(args, 0)
            .and_then(Value::to_attributes)
            .and_then(|object| Value::list(object.values().cloned().collect())),
        "distinct" | "toset" => unique(args, name == "toset"),
        "coalesce" => coalesce(args),
        "slice" => slice(args),
        _ => return None,
    })
}

#[expect(clippy::cast_precision_loss, reason = "nothing is that long")]
fn length(args: Args<'_>) -> Outcome {
    let count = match arg(args, 0)? {
        Value::List(list) => list.items.len(),
        Value::Object(object) => object.items.len(),
        other @ (Value::Unknown(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Text(_)) => other.to_text()?.chars().count(),
    };
    Ok(Value::Number(count as f64))
}

fn element(args: Args<'_>) -> Outcome {
    let (items, at) = (
        arg(args, 0)?.to_items()?,
        whole(arg(args, 1)?.to_number()?).ok_or("no such element")?,
    );
    items
        .get(at % items.len().max(1))
        .cloned()
        .ok_or_else(|| "a list is empty".into())
}

fn lookup(args: Args<'_>) -> Outcome {
    let (object, key) = (arg(args, 0)?.to_attributes()?, text(args, 1)?);
    let value = object.get(&*key).or(args.get(2)).cloned();
    value.ok_or_else(|| "an object lacks an attribute".into())
}

fn merge(args: Args<'_>) -> Outcome {
    let mut all = BTreeMap::new();
    for object in args {
        let object = object.to_attributes()?;
        all.extend(
            object
                .iter()
                .map(|(key, value)| (Rc::clone(key), value.clone())),
        );
    }
    Value::object(all)
}

fn concat(args: Args<'_>) -> Outcome {
    let mut all = Vec::new();
    for list in args {
        all.extend(list.to_items()?.iter().take(MAX_ITEMS + 1).cloned());
        if all.len() > MAX_ITEMS {
            break;
        }
    }
    Value::list(all)
}

fn flatten(args: Args<'_>) -> Outcome {
    let (mut flat, mut left, mut looked_at) = (Vec::new(), vec![arg(args, 0)?.clone()], 0);
    while let Some(value) = left.pop() {
        looked_at += 1;
        if looked_at > 4 * MAX_ITEMS {
            return Err(Stop::unsupported("a list has too many elements"));
        }
        match value {
            Value::List(list) => left.extend(list.items.iter().rev().cloned()),
            Value::Unknown(fault) => return Err(Stop::Unknown(fault)),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Text(_)
            | Value::Object(_)) => {
                flat.push(other);
            }
        }
    }
    Value::list(flat)
}

fn compact(args: Args<'_>) -> Outcome {
    let mut kept = Vec::new();
    for item in arg(args, 0)?.to_items()?.iter() {
        let empty = matches!(item, Value::Null) || item.to_text()?.is_empty();
        kept.extend((!empty).then(|| item.clone()));
    }
    Value::list(kept)
}

fn contains(args: Args<'_>) -> Outcome {
    let (items, wanted) = (arg(args, 0)?.to_items()?, arg(args, 1)?);
    let told: Vec<Option<bool>> = items.iter().map(|item| item.equals(wanted)).collect();
    if told.contains(&Some(true)) {
        return Ok(Value::Bool(true));
    }
    let unknown = items.iter().find_map(Value::fault).cloned();
    match unknown {
        Some(fault) => Err(Stop::Unknown(fault)),
        None if told.contains(&None) => {
            Err(Stop::unsupported("lists and objects are not compared"))
        }
        None => Ok(Value::Bool(false)),
    }
}

/// Removes duplicates; the result of a set is sorted. Only texts are compared.
fn unique(args: Args<'_>, sorted: bool) -> Outcome {
    let items = arg(args, 0)?.to_items()?;
    if items
        .iter()
        .any(|item| matches!(item, Value::Null | Value::List(_) | Value::Object(_)))
    {
        return Err(Stop::unsupported("lists and objects are not compared"));
    }
    let mut texts: Vec<Rc<str>> = items.iter().map(Value::to_text).collect::<Result<_, _>>()?;
    if sorted {
        texts.sort_unstable();
    }
    let mut seen = BTreeSet::new();
    texts.retain(|text| seen.insert(Rc::clone(text)));
    Value::list(texts.into_iter().map(Value::Text).collect())
}

fn coalesce(args: Args<'_>) -> Outcome {
    let empty = |value: &&Value| {
        matches!(value, Value::Null) || matches!(value, Value::Text(text) if text.is_empty())
    };
    args.iter()
        .find(|value| !empty(value))
        .cloned()
        .ok_or_else(|| "all arguments are empty".into())
}

fn slice(args: Args<'_>) -> Outcome {
    let bound = |at| {
        Ok::<_, Stop>(whole(arg(args, at)?.to_number()?).ok_or("an index must be a whole number")?)
    };
    let (items, from, to) = (arg(args, 0)?.to_items()?, bound(1)?, bound(2)?);
    let part = items
        .get(from..to)
        .ok_or("an index is beyond the end of a list")?;
    Value::list(part.to_vec())
}
