//! Evaluates `for`, as an expression and in templates.

use std::collections::BTreeMap;
use std::rc::Rc;

use hcl_edit::expr::{Expression, ForExpr};
use hcl_edit::template::ForDirective;

use super::frame::{Eval, Frame};
use super::limits::MAX_ITEMS;
use super::value::{HclValue, NoValue, UnknownValue};

impl Frame<'_> {
    /// Runs `work` for each element of a collection, with the variables of the loop bound. If the elements are
    /// unknown, `work` runs once with the reason.
    fn each(
        &self,
        collection: &Expression,
        key: Option<&str>,
        value: &str,
        mut work: impl FnMut(Result<(), Rc<UnknownValue>>) -> Result<(), Rc<UnknownValue>>,
    ) -> Result<(), Rc<UnknownValue>> {
        let (pairs, unknown) = match self.eval(collection)? {
            HclValue::List(list) => (numbered(&list.items), None),
            HclValue::Object(object) => (
                object
                    .items
                    .iter()
                    .map(|(name, value)| (HclValue::Text(Rc::clone(name)), value.clone()))
                    .collect(),
                None,
            ),
            HclValue::Unknown(fault) => (
                vec![(
                    HclValue::Unknown(Rc::clone(&fault)),
                    HclValue::Unknown(Rc::clone(&fault)),
                )],
                Some(fault),
            ),
            other @ (HclValue::Null
            | HclValue::Bool(_)
            | HclValue::Number(_)
            | HclValue::Text(_)) => {
                return Err(self.fault(collection, format!("{} has no elements", other.kind())));
            }
        };
        for (index, element) in pairs {
            let before = self.vars.borrow().len();
            self.vars
                .borrow_mut()
                .extend(key.map(|key| (key.to_owned(), index)));
            self.vars.borrow_mut().push((value.to_owned(), element));
            let done = work(unknown.clone().map_or(Ok(()), Err));
            self.vars.borrow_mut().truncate(before);
            done?;
        }
        Ok(())
    }

    pub(super) fn for_expression(&self, expression: &ForExpr) -> Eval {
        let ForExpr {
            intro,
            key_expr,
            value_expr,
            grouping,
            cond,
            ..
        } = expression;
        let mut made = LoopResults::default();
        let key_var = intro.key_var.as_ref().map(|key| key.as_str());
        self.each(
            &intro.collection_expr,
            key_var,
            intro.value_var.as_str(),
            |known| {
                made.unknown = known.err().or(made.unknown.take());
                let keep = cond
                    .as_ref()
                    .map_or(Ok(HclValue::Bool(true)), |cond| self.eval(&cond.expr))?;
                match keep.to_bool() {
                    Ok(false) => return Ok(()),
                    Ok(true) => {}
                    Err(stop) => made.unknown = Some(self.unknown(expression, stop)?),
                }
                let key = key_expr.as_ref().map(|key| self.eval(key)).transpose()?;
                let value = self.eval(value_expr)?;
                let added = made.add(key, value, *grouping);
                added.or_else(|stop| {
                    self.unknown(expression, stop)
                        .map(|fault| made.unknown = Some(fault))
                })
            },
        )?;
        self.placed(expression, made.finish(key_expr.is_some(), *grouping))
    }

    pub(super) fn for_directive(&self, directive: &ForDirective) -> Eval {
        let header = &directive.for_expr;
        let (key, value) = (
            header.key_var.as_ref().map(|key| key.as_str()),
            header.value_var.as_str(),
        );
        let (mut parts, mut unknown) = (Vec::new(), None);
        self.each(&header.collection_expr, key, value, |known| {
            unknown = known.err().or(unknown.take());
            parts.push(self.template(&header.template)?);
            Ok(())
        })?;
        if let Some(fault) = unknown {
            return Ok(HclValue::Unknown(fault));
        }
        let texts: Result<Vec<Rc<str>>, NoValue> = parts.iter().map(HclValue::to_text).collect();
        let joined = texts.and_then(|texts| HclValue::joined(texts.iter().map(|text| &**text)));
        self.placed(&header.collection_expr, joined)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no list is that long")]
fn numbered(items: &[HclValue]) -> Vec<(HclValue, HclValue)> {
    items
        .iter()
        .enumerate()
        .map(|(index, value)| (HclValue::Number(index as f64), value.clone()))
        .collect()
}

/// Results of a `for` expression so far.
#[derive(Default)]
struct LoopResults {
    list: Vec<HclValue>,
    object: BTreeMap<Rc<str>, Vec<HclValue>>,
    unknown: Option<Rc<UnknownValue>>,
}

impl LoopResults {
    fn add(
        &mut self,
        key: Option<HclValue>,
        value: HclValue,
        grouping: bool,
    ) -> Result<(), NoValue> {
        if self.list.len() + self.object.len() >= MAX_ITEMS {
            return Err(NoValue::unsupported("a `for` makes too many elements"));
        }
        let Some(key) = key else {
            self.list.push(value);
            return Ok(());
        };
        let group = self.object.entry(key.to_text()?).or_default();
        if !grouping {
            group.clear();
        }
        group.push(value);
        Ok(())
    }

    fn finish(self, keyed: bool, grouping: bool) -> Result<HclValue, NoValue> {
        if let Some(fault) = self.unknown {
            return Err(NoValue::Unknown(fault));
        }
        if !keyed {
            return HclValue::list(self.list);
        }
        let one = |mut group: Vec<HclValue>| {
            if grouping {
                HclValue::list(group)
            } else {
                Ok(group.pop().unwrap_or(HclValue::Null))
            }
        };
        let items = self
            .object
            .into_iter()
            .map(|(key, group)| Ok((key, one(group)?)));
        HclValue::object(items.collect::<Result<_, NoValue>>()?)
    }
}
