//! Evaluates functions about lists and objects whose arguments are all known.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::functions::{Args, Evaluated, arg, text};
use super::limits::MAX_ITEMS;
use super::value::{HclValue, NoValue, whole};

/// Returns the value of a function about lists and objects; `None` if this module has no function of that name.
pub(super) fn call(name: &str, args: Args<'_>) -> Option<Evaluated> {
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
            .and_then(HclValue::to_items)
            .and_then(|items| HclValue::list(items.iter().rev().cloned().collect())),
        "keys" => arg(args, 0)
            .and_then(HclValue::to_attributes)
            .and_then(|object| {
                HclValue::list(
                    object
                        .keys()
                        .map(|key| HclValue::Text(Rc::clone(key)))
                        .collect(),
                )
            }),
        "values" => arg(args, 0)
            .and_then(HclValue::to_attributes)
            .and_then(|object| HclValue::list(object.values().cloned().collect())),
        "distinct" | "toset" => unique(args, name == "toset"),
        "coalesce" => coalesce(args),
        "slice" => slice(args),
        _ => return None,
    })
}

#[expect(clippy::cast_precision_loss, reason = "nothing is that long")]
fn length(args: Args<'_>) -> Evaluated {
    let count = match arg(args, 0)? {
        HclValue::List(list) => list.items.len(),
        HclValue::Object(object) => object.items.len(),
        other @ (HclValue::Unknown(_)
        | HclValue::Null
        | HclValue::Bool(_)
        | HclValue::Number(_)
        | HclValue::Text(_)) => other.to_text()?.chars().count(),
    };
    Ok(HclValue::Number(count as f64))
}

fn element(args: Args<'_>) -> Evaluated {
    let (items, at) = (
        arg(args, 0)?.to_items()?,
        whole(arg(args, 1)?.to_number()?).ok_or("no such element")?,
    );
    items
        .get(at % items.len().max(1))
        .cloned()
        .ok_or_else(|| "a list is empty".into())
}

fn lookup(args: Args<'_>) -> Evaluated {
    let (object, key) = (arg(args, 0)?.to_attributes()?, text(args, 1)?);
    let value = object.get(&*key).or(args.get(2)).cloned();
    value.ok_or_else(|| "an object lacks an attribute".into())
}

fn merge(args: Args<'_>) -> Evaluated {
    let mut all = BTreeMap::new();
    for object in args {
        let object = object.to_attributes()?;
        all.extend(
            object
                .iter()
                .map(|(key, value)| (Rc::clone(key), value.clone())),
        );
    }
    HclValue::object(all)
}

fn concat(args: Args<'_>) -> Evaluated {
    let mut all = Vec::new();
    for list in args {
        all.extend(list.to_items()?.iter().take(MAX_ITEMS + 1).cloned());
        if all.len() > MAX_ITEMS {
            break;
        }
    }
    HclValue::list(all)
}

fn flatten(args: Args<'_>) -> Evaluated {
    let (mut flat, mut left, mut looked_at) = (Vec::new(), vec![arg(args, 0)?.clone()], 0);
    while let Some(value) = left.pop() {
        looked_at += 1;
        if looked_at > 4 * MAX_ITEMS {
            return Err(NoValue::unsupported("a list has too many elements"));
        }
        match value {
            HclValue::List(list) => left.extend(list.items.iter().rev().cloned()),
            HclValue::Unknown(fault) => return Err(NoValue::Unknown(fault)),
            other @ (HclValue::Null
            | HclValue::Bool(_)
            | HclValue::Number(_)
            | HclValue::Text(_)
            | HclValue::Object(_)) => {
                flat.push(other);
            }
        }
    }
    HclValue::list(flat)
}

fn compact(args: Args<'_>) -> Evaluated {
    let mut kept = Vec::new();
    for item in arg(args, 0)?.to_items()?.iter() {
        let empty = matches!(item, HclValue::Null) || item.to_text()?.is_empty();
        kept.extend((!empty).then(|| item.clone()));
    }
    HclValue::list(kept)
}

fn contains(args: Args<'_>) -> Evaluated {
    let (items, wanted) = (arg(args, 0)?.to_items()?, arg(args, 1)?);
    let told: Vec<Option<bool>> = items.iter().map(|item| item.equals(wanted)).collect();
    if told.contains(&Some(true)) {
        return Ok(HclValue::Bool(true));
    }
    let unknown = items.iter().find_map(HclValue::fault).cloned();
    match unknown {
        Some(fault) => Err(NoValue::Unknown(fault)),
        None if told.contains(&None) => {
            Err(NoValue::unsupported("lists and objects are not compared"))
        }
        None => Ok(HclValue::Bool(false)),
    }
}

/// Removes duplicates; the result of a set is sorted. Only texts are compared.
fn unique(args: Args<'_>, sorted: bool) -> Evaluated {
    let items = arg(args, 0)?.to_items()?;
    if items.iter().any(|item| {
        matches!(
            item,
            HclValue::Null | HclValue::List(_) | HclValue::Object(_)
        )
    }) {
        return Err(NoValue::unsupported("lists and objects are not compared"));
    }
    let mut texts: Vec<Rc<str>> = items
        .iter()
        .map(HclValue::to_text)
        .collect::<Result<_, _>>()?;
    if sorted {
        texts.sort_unstable();
    }
    let mut seen = BTreeSet::new();
    texts.retain(|text| seen.insert(Rc::clone(text)));
    HclValue::list(texts.into_iter().map(HclValue::Text).collect())
}

fn coalesce(args: Args<'_>) -> Evaluated {
    let empty = |value: &&HclValue| {
        matches!(value, HclValue::Null) || matches!(value, HclValue::Text(text) if text.is_empty())
    };
    args.iter()
        .find(|value| !empty(value))
        .cloned()
        .ok_or_else(|| "all arguments are empty".into())
}

fn slice(args: Args<'_>) -> Evaluated {
    let bound = |at| {
        Ok::<_, NoValue>(
            whole(arg(args, at)?.to_number()?).ok_or("an index must be a whole number")?,
        )
    };
    let (items, from, to) = (arg(args, 0)?.to_items()?, bound(1)?, bound(2)?);
    let part = items
        .get(from..to)
        .ok_or("an index is beyond the end of a list")?;
    HclValue::list(part.to_vec())
}
