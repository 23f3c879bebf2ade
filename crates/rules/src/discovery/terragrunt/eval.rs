//! Evaluates expressions to values.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use hcl_edit::expr::{
    BinaryOp, BinaryOperator, Conditional, Expression, Object, ObjectKey, Traversal,
    TraversalOperator, UnaryOp, UnaryOperator,
};
use hcl_edit::template::{Directive, Element, IfDirective, Template};
use hcl_edit::{Decorated, Span};

use super::frame::{Eval, Frame};
use super::value::{HclValue, NoValue, UnknownValue};

impl Frame<'_> {
    /// Returns the value of an expression.
    pub(super) fn eval(&self, expr: &Expression) -> Eval {
        if let Err(what) = self.session.enter() {
            return Ok(HclValue::Unknown(self.fault(expr, what)));
        }
        let value = self.eval_inner(expr);
        self.session.leave();
        if let Ok(value) = &value {
            self.session.charge(value.size());
        }
        value
    }

    fn eval_inner(&self, expr: &Expression) -> Eval {
        match expr {
            Expression::Null(_) => Ok(HclValue::Null),
            Expression::Bool(value) => Ok(HclValue::Bool(**value)),
            Expression::Number(number) => {
                Ok(number.as_f64().map_or(HclValue::Null, HclValue::Number))
            }
            Expression::String(text) => self.placed(expr, HclValue::text(text)),
            Expression::Array(array) => {
                let items = array
                    .iter()
                    .map(|item| self.eval(item))
                    .collect::<Result<_, _>>()?;
                self.placed(expr, HclValue::list(items))
            }
            Expression::Object(object) => self.object(object),
            Expression::StringTemplate(template) => self.whole_template(expr, template),
            Expression::HeredocTemplate(heredoc) => self.whole_template(expr, &heredoc.template),
            Expression::Parenthesis(inner) => self.eval(inner.inner()),
            Expression::Variable(name) => self.variable(name.as_str(), expr),
            Expression::Conditional(conditional) => self.conditional(conditional),
            Expression::FuncCall(call) => self.call(call),
            Expression::Traversal(traversal) => self.traversal(traversal),
            Expression::UnaryOp(operation) => self.unary(operation),
            Expression::BinaryOp(operation) => self.binary(operation),
            Expression::ForExpr(expression) => self.for_expression(expression),
        }
    }

    fn object(&self, object: &Object) -> Eval {
        let (mut items, mut unknown) = (BTreeMap::new(), None);
        for (key, value) in object {
            let name = match key {
                ObjectKey::Ident(name) => HclValue::Text(name.as_str().into()),
                ObjectKey::Expression(key) => self.eval(key)?,
            };
            let value = self.eval(value.expr())?;
            match name.to_text() {
                Ok(name) => drop(items.insert(name, value)),
                Err(stop) => unknown = Some(self.unknown(object, stop)?),
            }
        }
        unknown.map_or_else(
            || self.placed(object, HclValue::object(items)),
            |fault| Ok(HclValue::Unknown(fault)),
        )
    }

    /// Evaluates a whole template; `"${x}"` alone has the value of `x`, of any type.
    fn whole_template(&self, expr: &Expression, template: &Template) -> Eval {
        if let Some(Element::Interpolation(only)) = template.as_single_element()
            && matches!(expr, Expression::StringTemplate(_))
        {
            return self.eval(&only.expr);
        }
        self.template(template)
    }

    pub(super) fn template(&self, template: &Template) -> Eval {
        let (mut parts, mut unknown) = (Vec::new(), None);
        for element in template {
            let value = match element {
                Element::Literal(text) => HclValue::Text(text.as_str().into()),
                Element::Interpolation(inner) => self.eval(&inner.expr)?,
                Element::Directive(directive) => match &**directive {
                    Directive::If(directive) => self.if_directive(directive)?,
                    Directive::For(directive) => self.for_directive(directive)?,
                },
            };
            match value.to_text() {
                Ok(text) => parts.push(text),
                Err(stop) => unknown = Some(self.unknown(template, stop)?),
            }
        }
        match unknown {
            Some(fault) => Ok(HclValue::Unknown(fault)),
            None => self.placed(template, HclValue::joined(parts.iter().map(|part| &**part))),
        }
    }

    fn if_directive(&self, directive: &IfDirective) -> Eval {
        let then = || self.template(&directive.if_expr.template);
        let other = || {
            let other = directive.else_expr.as_ref();
            other.map_or(Ok(HclValue::Text("".into())), |other| {
                self.template(&other.template)
            })
        };
        self.choose(&directive.if_expr.cond_expr, then, other)
    }

    fn conditional(&self, conditional: &Conditional) -> Eval {
        let Conditional {
            cond_expr,
            true_expr,
            false_expr,
            ..
        } = conditional;
        self.choose(cond_expr, || self.eval(true_expr), || self.eval(false_expr))
    }

    /// Evaluates one of two expressions. If the condition is unknown, both are evaluated for the files that they
    /// read. The value is then unknown, unless both are equal.
    fn choose(
        &self,
        condition: &Expression,
        then: impl Fn() -> Eval,
        other: impl Fn() -> Eval,
    ) -> Eval {
        match self.eval(condition)?.to_bool() {
            Ok(true) => then(),
            Ok(false) => other(),
            Err(stop) => {
                let fault = self.unknown(condition, stop)?;
                match (self.session.attempt(then), self.session.attempt(other)) {
                    (Ok(one), Ok(two)) if one.equals(&two) == Some(true) => Ok(one),
                    _ => Ok(HclValue::Unknown(fault)),
                }
            }
        }
    }

    /// Returns the reason why a value is unknown, or an error if the expression is wrong.
    pub(super) fn unknown(
        &self,
        place: &impl Span,
        stop: NoValue,
    ) -> Result<Rc<UnknownValue>, Rc<UnknownValue>> {
        match stop {
            NoValue::Unknown(fault) => Ok(fault),
            NoValue::Unsupported(what) => Ok(self.fault(place, what)),
            NoValue::Wrong(what) => Err(self.fault(place, what)),
        }
    }

    fn variable(&self, name: &str, place: &Expression) -> Eval {
        let bound = self
            .vars
            .borrow()
            .iter()
            .rev()
            .find(|(var, _)| var == name)
            .map(|(_, value)| value.clone());
        if let Some(value) = bound {
            return Ok(value);
        }
        let unknown = |what: &str| Ok(HclValue::Unknown(self.fault(place, what)));
        match name {
            "local" => self.placed(place, self.all_locals()),
            "include" => self.placed(place, self.include_value(None).map(|(value, _)| value)),
            "dependency" => unknown("the outputs of another unit are known only after its apply"),
            "feature" => unknown("a feature can be set when Terragrunt is called"),
            "unit" | "stack" => unknown("the place of the units of a stack is not evaluated"),
            "values" => match &self.origin.values {
                Some(values) => Ok(values.clone()),
                None => Err(self.fault(
                    place,
                    "there are no `values`: no `terragrunt.values.hcl` is here",
                )),
            },
            _ => Err(self.fault(place, "there is no such variable")),
        }
    }

    fn traversal(&self, traversal: &Traversal) -> Eval {
        let Traversal {
            expr, operators, ..
        } = traversal;
        let first = match operators.first().map(|operator| &**operator) {
            Some(TraversalOperator::GetAttr(name)) => Some(name.as_str()),
            _ => None,
        };
        let (value, taken) = match (expr.as_variable().map(hcl_edit::Ident::as_str), first) {
            (Some("local"), Some(name)) => (self.local(name, traversal)?, 1),
            (Some("include"), first) => match self.include_value(first) {
                Ok(found) => found,
                Err(stop) => return self.placed(traversal, Err(stop)),
            },
            _ => (self.eval(expr)?, 0),
        };
        self.follow(value, &operators[taken..], traversal)
    }

    fn follow(
        &self,
        mut value: HclValue,
        operators: &[Decorated<TraversalOperator>],
        place: &Traversal,
    ) -> Eval {
        for (at, operator) in operators.iter().enumerate() {
            if let HclValue::Unknown(_) = value {
                break;
            }
            let next = match &**operator {
                TraversalOperator::GetAttr(name) => value.attribute(name.as_str()),
                TraversalOperator::Index(index) => value.index(&self.eval(index)?),
                #[expect(clippy::cast_precision_loss, reason = "no list is that long")]
                TraversalOperator::LegacyIndex(index) => {
                    value.index(&HclValue::Number(**index as f64))
                }
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => {
                    return self.splat(&value, &operators[at + 1..], place);
                }
            };
            value = self.placed(place, next)?;
        }
        Ok(value)
    }

    fn splat(
        &self,
        value: &HclValue,
        rest: &[Decorated<TraversalOperator>],
        place: &Traversal,
    ) -> Eval {
        let items = match value {
            HclValue::List(list) => Rc::clone(&list.items),
            HclValue::Null => Rc::default(),
            single @ (HclValue::Unknown(_)
            | HclValue::Bool(_)
            | HclValue::Number(_)
            | HclValue::Text(_)
            | HclValue::Object(_)) => Rc::new(vec![single.clone()]),
        };
        let mut all = Vec::new();
        for item in items.iter() {
            if let Err(what) = self.session.enter() {
                return Ok(HclValue::Unknown(self.fault(place, what)));
            }
            let followed = self.follow(item.clone(), rest, place);
            self.session.leave();
            all.push(followed?);
        }
        self.placed(place, HclValue::list(all))
    }

    fn unary(&self, operation: &UnaryOp) -> Eval {
        let value = self.eval(&operation.expr)?;
        let done = match *operation.operator {
            UnaryOperator::Not => value.to_bool().map(|value| HclValue::Bool(!value)),
            UnaryOperator::Neg => value.to_number().map(|value| HclValue::Number(-value)),
        };
        self.placed(operation, done)
    }

    fn binary(&self, operation: &BinaryOp) -> Eval {
        let (one, two) = (
            self.eval(&operation.lhs_expr)?,
            self.eval(&operation.rhs_expr)?,
        );
        let result = match *operation.operator {
            BinaryOperator::Eq => self.equality(operation, &one, &two).map(HclValue::Bool),
            BinaryOperator::NotEq => self
                .equality(operation, &one, &two)
                .map(|equal| HclValue::Bool(!equal)),
            BinaryOperator::And => either(&one, &two, false),
            BinaryOperator::Or => either(&one, &two, true),
            BinaryOperator::Less => comparison(&one, &two, Ordering::is_lt),
            BinaryOperator::LessEq => comparison(&one, &two, Ordering::is_le),
            BinaryOperator::Greater => comparison(&one, &two, Ordering::is_gt),
            BinaryOperator::GreaterEq => comparison(&one, &two, Ordering::is_ge),
            BinaryOperator::Plus => arithmetic(&one, &two, |one, two| one + two),
            BinaryOperator::Minus => arithmetic(&one, &two, |one, two| one - two),
            BinaryOperator::Mul => arithmetic(&one, &two, |one, two| one * two),
            BinaryOperator::Div => arithmetic(&one, &two, |one, two| one / two),
            BinaryOperator::Mod => arithmetic(&one, &two, |one, two| one % two),
        };
        self.placed(operation, result)
    }

    fn equality(
        &self,
        operation: &BinaryOp,
        one: &HclValue,
        two: &HclValue,
    ) -> Result<bool, NoValue> {
        let unknown = one.fault().or(two.fault()).cloned();
        let not_compared = || self.fault(operation, "lists and objects are not compared");
        one.equals(two)
            .ok_or_else(|| NoValue::Unknown(unknown.unwrap_or_else(not_compared)))
    }
}

/// Evaluates `&&` and `||`: one side can decide even if the other is unknown.
fn either(one: &HclValue, two: &HclValue, deciding: bool) -> Result<HclValue, NoValue> {
    let decides = |value: &HclValue| matches!(value.to_bool(), Ok(value) if value == deciding);
    if decides(one) || decides(two) {
        return Ok(HclValue::Bool(deciding));
    }
    one.to_bool()?;
    two.to_bool().map(HclValue::Bool)
}

fn comparison(
    one: &HclValue,
    two: &HclValue,
    holds: fn(Ordering) -> bool,
) -> Result<HclValue, NoValue> {
    let order = one
        .to_number()?
        .partial_cmp(&two.to_number()?)
        .ok_or("these numbers are not compared")?;
    Ok(HclValue::Bool(holds(order)))
}

fn arithmetic(
    one: &HclValue,
    two: &HclValue,
    make: fn(f64, f64) -> f64,
) -> Result<HclValue, NoValue> {
    let number = make(one.to_number()?, two.to_number()?);
    if number.is_finite() {
        Ok(HclValue::Number(number))
    } else {
        Err("the result is not a number".into())
    }
}
