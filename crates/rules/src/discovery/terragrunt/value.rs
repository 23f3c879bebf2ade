//! Defines the values of expressions. A value that only a run could determine is a value too, the unknown one, and is
//! never guessed.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::limits::{MAX_ITEMS, MAX_NESTING, MAX_TEXT};
use crate::model::RepoPath;

/// Reason why a value is unknown, and the place of the expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownValue {
    pub(super) file: RepoPath,
    pub(super) line: usize,
    /// Reason as one clause.
    pub(super) what: String,
}

/// A value of the language, or the reason why it is unknown.
#[derive(Debug, Clone)]
pub(super) enum HclValue {
    Unknown(Rc<UnknownValue>),
    Null,
    Bool(bool),
    Number(f64),
    Text(Rc<str>),
    List(HclList),
    Object(HclObject),
}

/// Elements of a list, and their nesting, which is limited because dropping a value is recursive.
#[derive(Debug, Clone)]
pub(super) struct HclList {
    pub(super) items: Rc<Vec<HclValue>>,
    nesting: usize,
}

/// Attributes of an object by name.
#[derive(Debug, Clone)]
pub(super) struct HclObject {
    pub(super) items: Rc<BTreeMap<Rc<str>, HclValue>>,
    nesting: usize,
}

/// Reason why there is no value: it is unknown, or the expression is wrong.
#[derive(Debug, Clone)]
pub(super) enum NoValue {
    Unknown(Rc<UnknownValue>),
    /// Terragrunt may know the value, but this program does not evaluate it.
    Unsupported(String),
    Wrong(String),
}

impl NoValue {
    pub(super) fn unsupported(what: &str) -> Self {
        Self::Unsupported(what.to_owned())
    }
}

impl From<String> for NoValue {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

impl From<&str> for NoValue {
    fn from(what: &str) -> Self {
        Self::Wrong(what.to_owned())
    }
}

impl HclValue {
    pub(super) fn text(text: &str) -> Result<Self, NoValue> {
        if text.len() > MAX_TEXT {
            return Err(NoValue::unsupported("a text is too long"));
        }
        Ok(Self::Text(text.into()))
    }

    /// Joins parts to a text, and checks the length before each step.
    pub(super) fn joined<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Self, NoValue> {
        let mut text = String::new();
        for part in parts {
            if text.len() + part.len() > MAX_TEXT {
                return Err(NoValue::unsupported("a text is too long"));
            }
            text.push_str(part);
        }
        Ok(Self::Text(text.into()))
    }

    pub(super) fn list(items: Vec<Self>) -> Result<Self, NoValue> {
        let nesting = checked(items.len(), items.iter())?;
        Ok(Self::List(HclList {
            items: Rc::new(items),
            nesting,
        }))
    }

    pub(super) fn object(items: BTreeMap<Rc<str>, Self>) -> Result<Self, NoValue> {
        let nesting = checked(items.len(), items.values())?;
        Ok(Self::Object(HclObject {
            items: Rc::new(items),
            nesting,
        }))
    }

    pub(super) fn texts<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Self, NoValue> {
        Self::list(
            items
                .into_iter()
                .take(MAX_ITEMS + 1)
                .map(|item| Self::Text(item.into()))
                .collect(),
        )
    }

    fn nesting(&self) -> usize {
        match self {
            Self::List(list) => list.nesting,
            Self::Object(object) => object.nesting,
            Self::Unknown(_) | Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => 0,
        }
    }

    /// Returns the approximate number of bytes that the value takes; its elements were counted before.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + 16,
            Self::List(list) => list.items.len() * 24 + 16,
            Self::Object(object) => object.items.len() * 64 + 16,
            Self::Unknown(_) | Self::Null | Self::Bool(_) | Self::Number(_) => 0,
        }
    }

    /// Returns the reason why the value is unknown, if it is.
    pub(super) fn fault(&self) -> Option<&Rc<UnknownValue>> {
        if let Self::Unknown(fault) = self {
            Some(fault)
        } else {
            None
        }
    }

    /// Returns the name of this kind of value for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "an unknown value",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Converts the value to a text, as templates and functions do.
    pub(super) fn to_text(&self) -> Result<Rc<str>, NoValue> {
        match self {
            Self::Text(text) => Ok(Rc::clone(text)),
            Self::Number(number) => Ok(shown_number(*number).into()),
            Self::Bool(value) => Ok(value.to_string().into()),
            Self::Unknown(fault) => Err(NoValue::Unknown(Rc::clone(fault))),
            Self::Null | Self::List(_) | Self::Object(_) => {
                Err(format!("{} is not a text", self.kind()).into())
            }
        }
    }

    /// Converts the value to a boolean, as conditions do.
    pub(super) fn to_bool(&self) -> Result<bool, NoValue> {
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Text(text) if &**text == "true" => Ok(true),
            Self::Text(text) if &**text == "false" => Ok(false),
            Self::Unknown(fault) => Err(NoValue::Unknown(Rc::clone(fault))),
            Self::Null | Self::Number(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => {
                Err(format!("{} is not a boolean", self.kind()).into())
            }
        }
    }

    /// Converts the value to a number, as operators do.
    pub(super) fn to_number(&self) -> Result<f64, NoValue> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text
                .parse()
                .map_err(|_| NoValue::from("a text is not a number")),
            Self::Unknown(fault) => Err(NoValue::Unknown(Rc::clone(fault))),
            Self::Null | Self::Bool(_) | Self::List(_) | Self::Object(_) => {
                Err(format!("{} is not a number", self.kind()).into())
            }
        }
    }

    /// Returns the elements of a list.
    pub(super) fn to_items(&self) -> Result<Rc<Vec<Self>>, NoValue> {
        match self {
            Self::List(list) => Ok(Rc::clone(&list.items)),
            Self::Unknown(fault) => Err(NoValue::Unknown(Rc::clone(fault))),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Object(_) => {
                Err(format!("{} is not a list", self.kind()).into())
            }
        }
    }

    /// Returns the attributes of an object; `null` has none.
    pub(super) fn to_attributes(&self) -> Result<Rc<BTreeMap<Rc<str>, Self>>, NoValue> {
        match self {
            Self::Object(object) => Ok(Rc::clone(&object.items)),
            Self::Null => Ok(Rc::default()),
            Self::Unknown(fault) => Err(NoValue::Unknown(Rc::clone(fault))),
            Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => {
                Err(format!("{} is not an object", self.kind()).into())
            }
        }
    }

    /// Returns an attribute of an object.
    pub(super) fn attribute(&self, name: &str) -> Result<Self, NoValue> {
        if let Self::Null = self {
            return Err(format!("null has no attribute `{name}`").into());
        }
        let attributes = self.to_attributes()?;
        attributes
            .get(name)
            .cloned()
            .ok_or_else(|| format!("there is no attribute `{name}`").into())
    }

    /// Returns an element of a list or an attribute of an object.
    pub(super) fn index(&self, index: &Self) -> Result<Self, NoValue> {
        if let Self::Object(_) = self {
            return self.attribute(&index.to_text()?);
        }
        let (items, at) = (self.to_items()?, index.to_number()?);
        let place = whole(at).ok_or("an index must be a whole number")?;
        items
            .get(place)
            .cloned()
            .ok_or_else(|| format!("there is no element {place}").into())
    }

    /// Compares two values. Lists and objects are only compared with empty ones, which is the usual case; `None`
    /// means unknown.
    pub(super) fn equals(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Unknown(_), _) | (_, Self::Unknown(_)) => None,
            (Self::Null, Self::Null) => Some(true),
            (Self::Bool(one), Self::Bool(two)) => Some(one == two),
            (Self::Number(one), Self::Number(two)) => Some((one - two).abs() < f64::EPSILON),
            (Self::Text(one), Self::Text(two)) => Some(one == two),
            (Self::List(one), Self::List(two)) => empty_alike(one.items.len(), two.items.len()),
            (Self::Object(one), Self::Object(two)) => empty_alike(one.items.len(), two.items.len()),
            _ => Some(false),
        }
    }
}

fn empty_alike(one: usize, two: usize) -> Option<bool> {
    if one.min(two) == 0 {
        Some(one == two)
    } else {
        None
    }
}

/// Returns the nesting of a value that contains these values, and checks the limits.
fn checked<'a>(count: usize, items: impl Iterator<Item = &'a HclValue>) -> Result<usize, NoValue> {
    let nesting = 1 + items.map(HclValue::nesting).max().unwrap_or(0);
    if count > MAX_ITEMS {
        return Err(NoValue::unsupported(
            "a list or an object has too many elements",
        ));
    }
    if nesting > MAX_NESTING {
        Err(NoValue::unsupported(
            "lists or objects are nested too deeply",
        ))
    } else {
        Ok(nesting)
    }
}

/// Converts a number that counts or numbers elements.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was looked at just before"
)]
pub(super) fn whole(number: f64) -> Option<usize> {
    ((0.0..=1e9).contains(&number) && number.fract() == 0.0).then_some(number as usize)
}

fn shown_number(number: f64) -> String {
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_they_are_written() {
        for (number, shown) in [(1.0, "1"), (1.5, "1.5"), (-3.0, "-3"), (1e6, "1000000")] {
            assert_eq!(&*HclValue::Number(number).to_text().unwrap(), shown);
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        assert!(HclValue::text(&"x".repeat(MAX_TEXT + 1)).is_err());
        assert!(HclValue::joined(std::iter::repeat_n("xx", MAX_TEXT)).is_err());
        assert!(HclValue::list(vec![HclValue::Null; MAX_ITEMS + 1]).is_err());
        let deep =
            (0..=MAX_NESTING).try_fold(HclValue::Null, |inner, _| HclValue::list(vec![inner]));
        assert!(deep.is_err());
    }

    #[test]
    fn large_values_are_not_compared() {
        let list = |count: usize| HclValue::list(vec![HclValue::Null; count]).unwrap();
        assert_eq!(list(0).equals(&list(0)), Some(true));
        assert_eq!(list(1).equals(&list(0)), Some(false));
        assert_eq!(list(1).equals(&list(1)), None);
    }
}
