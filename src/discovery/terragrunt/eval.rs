//! Values of expressions.

use std::collections::BTreeMap;
use std::rc::Rc;

use hcl_edit::expr::{
    BinaryOp, BinaryOperator, Conditional, Expression, ForExpr, FuncCall, Object, ObjectKey, Traversal,
    TraversalOperator, UnaryOp, UnaryOperator,
};
use hcl_edit::template::{Directive, Element, ForDirective, IfDirective, Template};
use hcl_edit::{Decorated, Span};

use super::frame::{Eval, Frame};
use super::functions;
use super::limits::MAX_ITEMS;
use super::value::{Fault, Stop, Value};

impl Frame<'_> {
    /// The value of an expression.
    pub(super) fn eval(&self, expr: &Expression) -> Eval {
        if let Err(what) = self.session.enter() {
            return Ok(Value::Unknown(self.fault(expr, what)));
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
            Expression::Null(_) => Ok(Value::Null),
            Expression::Bool(value) => Ok(Value::Bool(**value)),
            Expression::Number(number) => Ok(number.as_f64().map_or(Value::Null, Value::Number)),
            Expression::String(text) => self.placed(expr, Value::text(text)),
            Expression::Array(array) => {
                let items = array.iter().map(|item| self.eval(item)).collect::<Result<_, _>>()?;
                self.placed(expr, Value::list(items))
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
                ObjectKey::Ident(name) => Value::Text(name.as_str().into()),
                ObjectKey::Expression(key) => self.eval(key)?,
            };
            let value = self.eval(value.expr())?;
            match name.to_text() {
                Ok(name) => drop(items.insert(name, value)),
                Err(stop) => unknown = Some(self.unknown(object, stop)?),
            }
        }
        unknown.map_or_else(|| self.placed(object, Value::object(items)), |fault| Ok(Value::Unknown(fault)))
    }

    /// `"${x}"` alone is the value of `x`, whatever it is.
    fn whole_template(&self, expr: &Expression, template: &Template) -> Eval {
        if let Some(Element::Interpolation(only)) = template.as_single_element()
            && matches!(expr, Expression::StringTemplate(_))
        {
            return self.eval(&only.expr);
        }
        self.template(template)
    }

    fn template(&self, template: &Template) -> Eval {
        let (mut parts, mut unknown) = (Vec::new(), None);
        for element in template {
            let value = match element {
                Element::Literal(text) => Value::Text(text.as_str().into()),
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
            Some(fault) => Ok(Value::Unknown(fault)),
            None => self.placed(template, Value::joined(parts.iter().map(|part| &**part))),
        }
    }

    fn if_directive(&self, directive: &IfDirective) -> Eval {
        let then = || self.template(&directive.if_expr.template);
        let other = || {
            let other = directive.else_expr.as_ref();
            other.map_or(Ok(Value::Text("".into())), |other| self.template(&other.template))
        };
        self.choose(&directive.if_expr.cond_expr, then, other)
    }

    fn for_directive(&self, directive: &ForDirective) -> Eval {
        let header = &directive.for_expr;
        let (key, value) = (header.key_var.as_ref().map(|key| key.as_str()), header.value_var.as_str());
        let (mut parts, mut unknown) = (Vec::new(), None);
        self.each(&header.collection_expr, key, value, |known| {
            unknown = known.err().or(unknown.take());
            parts.push(self.template(&header.template)?);
            Ok(())
        })?;
        if let Some(fault) = unknown {
            return Ok(Value::Unknown(fault));
        }
        let texts: Result<Vec<Rc<str>>, Stop> = parts.iter().map(Value::to_text).collect();
        let joined = texts.and_then(|texts| Value::joined(texts.iter().map(|text| &**text)));
        self.placed(&header.collection_expr, joined)
    }

    fn conditional(&self, conditional: &Conditional) -> Eval {
        let Conditional { cond_expr, true_expr, false_expr, .. } = conditional;
        self.choose(cond_expr, || self.eval(true_expr), || self.eval(false_expr))
    }

    /// One of two. When the condition is not known, what both of them read is read, and neither is the value, unless
    /// they are the same.
    fn choose(&self, condition: &Expression, then: impl Fn() -> Eval, other: impl Fn() -> Eval) -> Eval {
        match self.eval(condition)?.to_bool() {
            Ok(true) => then(),
            Ok(false) => other(),
            Err(stop) => {
                let fault = self.unknown(condition, stop)?;
                match (self.session.attempt(then), self.session.attempt(other)) {
                    (Ok(one), Ok(two)) if one.equals(&two) == Some(true) => Ok(one),
                    _ => Ok(Value::Unknown(fault)),
                }
            }
        }
    }

    fn variable(&self, name: &str, place: &Expression) -> Eval {
        let bound = self.vars.borrow().iter().rev().find(|(var, _)| var == name).map(|(_, value)| value.clone());
        if let Some(value) = bound {
            return Ok(value);
        }
        let unknown = |what: &str| Ok(Value::Unknown(self.fault(place, what)));
        match name {
            "local" => self.placed(place, self.all_locals()),
            "include" => self.placed(place, self.include_value(None).map(|(value, _)| value)),
            "dependency" => unknown("what another unit puts out is known only after it was applied"),
            "feature" => unknown("a feature can be switched when Terragrunt is called"),
            "unit" | "stack" => unknown("where a stack puts its units is not evaluated"),
            "values" => match &self.origin.values {
                Some(values) => Ok(values.clone()),
                None => Err(self.fault(place, "there are no `values`: no `terragrunt.values.hcl` is here")),
            },
            _ => Err(self.fault(place, "there is no such variable")),
        }
    }

    fn traversal(&self, traversal: &Traversal) -> Eval {
        let Traversal { expr, operators, .. } = traversal;
        let first = match operators.first().map(|operator| &**operator) {
            Some(TraversalOperator::GetAttr(name)) => Some(name.as_str()),
            _ => None,
        };
        let (value, taken) = match (expr.as_variable().map(|name| name.as_str()), first) {
            (Some("local"), Some(name)) => (self.local(name, traversal)?, 1),
            (Some("include"), first) => match self.include_value(first) {
                Ok(found) => found,
                Err(stop) => return self.placed(traversal, Err(stop)),
            },
            _ => (self.eval(expr)?, 0),
        };
        self.follow(value, &operators[taken..], traversal)
    }

    fn follow(&self, mut value: Value, operators: &[Decorated<TraversalOperator>], place: &Traversal) -> Eval {
        for (at, operator) in operators.iter().enumerate() {
            if let Value::Unknown(_) = value {
                break;
            }
            let next = match &**operator {
                TraversalOperator::GetAttr(name) => value.attribute(name.as_str()),
                TraversalOperator::Index(index) => value.index(&self.eval(index)?),
                #[expect(clippy::cast_precision_loss, reason = "no list is that long")]
                TraversalOperator::LegacyIndex(index) => value.index(&Value::Number(**index as f64)),
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => {
                    return self.splat(&value, &operators[at + 1..], place);
                }
            };
            value = self.placed(place, next)?;
        }
        Ok(value)
    }

    fn splat(&self, value: &Value, rest: &[Decorated<TraversalOperator>], place: &Traversal) -> Eval {
        let items = match value {
            Value::List(list) => Rc::clone(&list.items),
            Value::Null => Rc::default(),
            single => Rc::new(vec![single.clone()]),
        };
        let mut all = Vec::new();
        for item in items.iter() {
            if let Err(what) = self.session.enter() {
                return Ok(Value::Unknown(self.fault(place, what)));
            }
            let followed = self.follow(item.clone(), rest, place);
            self.session.leave();
            all.push(followed?);
        }
        self.placed(place, Value::list(all))
    }

    fn unary(&self, operation: &UnaryOp) -> Eval {
        let value = self.eval(&operation.expr)?;
        let done = match *operation.operator {
            UnaryOperator::Not => value.to_bool().map(|value| Value::Bool(!value)),
            UnaryOperator::Neg => value.to_number().map(|value| Value::Number(-value)),
        };
        self.placed(operation, done)
    }

    fn binary(&self, operation: &BinaryOp) -> Eval {
        let (one, two) = (self.eval(&operation.lhs_expr)?, self.eval(&operation.rhs_expr)?);
        let result = match *operation.operator {
            BinaryOperator::Eq | BinaryOperator::NotEq => {
                let wanted = *operation.operator == BinaryOperator::Eq;
                self.equality(operation, &one, &two).map(|equal| Value::Bool(equal == wanted))
            }
            BinaryOperator::And => either(&one, &two, false),
            BinaryOperator::Or => either(&one, &two, true),
            operator => arithmetic(operator, &one, &two),
        };
        self.placed(operation, result)
    }

    fn equality(&self, operation: &BinaryOp, one: &Value, two: &Value) -> Result<bool, Stop> {
        let unknown = [one, two].into_iter().find_map(|value| match value {
            Value::Unknown(fault) => Some(Rc::clone(fault)),
            _ => None,
        });
        let not_compared = || self.fault(operation, "lists and objects are not compared");
        one.equals(two).ok_or_else(|| Stop::Unknown(unknown.unwrap_or_else(not_compared)))
    }

    /// Does something for each element of a collection, with its variables bound. Once, and with the reason, if it is
    /// not known which elements there are.
    fn each(
        &self,
        collection: &Expression,
        key: Option<&str>,
        value: &str,
        mut work: impl FnMut(Result<(), Rc<Fault>>) -> Result<(), Rc<Fault>>,
    ) -> Result<(), Rc<Fault>> {
        let (pairs, unknown) = match self.eval(collection)? {
            Value::List(list) => (numbered(&list.items), None),
            Value::Object(object) => {
                (object.items.iter().map(|(name, value)| (Value::Text(Rc::clone(name)), value.clone())).collect(), None)
            }
            Value::Unknown(fault) => {
                (vec![(Value::Unknown(Rc::clone(&fault)), Value::Unknown(Rc::clone(&fault)))], Some(fault))
            }
            other => return Err(self.fault(collection, format!("{} has no elements", other.kind()))),
        };
        for (index, element) in pairs {
            let before = self.vars.borrow().len();
            self.vars.borrow_mut().extend(key.map(|key| (key.to_owned(), index)));
            self.vars.borrow_mut().push((value.to_owned(), element));
            let done = work(unknown.clone().map_or(Ok(()), Err));
            self.vars.borrow_mut().truncate(before);
            done?;
        }
        Ok(())
    }

    fn for_expression(&self, expression: &ForExpr) -> Eval {
        let ForExpr { intro, key_expr, value_expr, grouping, cond, .. } = expression;
        let mut made = Made::default();
        let key_var = intro.key_var.as_ref().map(|key| key.as_str());
        self.each(&intro.collection_expr, key_var, intro.value_var.as_str(), |known| {
            made.unknown = known.err().or(made.unknown.take());
            let keep = cond.as_ref().map_or(Ok(Value::Bool(true)), |cond| self.eval(&cond.expr))?;
            match keep.to_bool() {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(stop) => made.unknown = Some(self.unknown(expression, stop)?),
            }
            let key = key_expr.as_ref().map(|key| self.eval(key)).transpose()?;
            let value = self.eval(value_expr)?;
            let added = made.add(key, value, *grouping);
            added.or_else(|stop| self.unknown(expression, stop).map(|fault| made.unknown = Some(fault)))
        })?;
        self.placed(expression, made.finish(key_expr.is_some(), *grouping))
    }

    fn call(&self, call: &FuncCall) -> Eval {
        let name = call.name.name.as_str();
        match name {
            _ if call.name.is_namespaced() => return Ok(self.not_evaluated(call, name)),
            "try" => return self.first_that_works(call),
            "can" => {
                let tried = call.args.get(0).map(|arg| self.session.attempt(|| self.eval(arg)));
                return Ok(match tried {
                    Some(Ok(Value::Unknown(fault))) => Value::Unknown(fault),
                    Some(outcome) => Value::Bool(outcome.is_ok()),
                    None => Value::Bool(false),
                });
            }
            _ => {}
        }
        let mut args = call.args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
        if call.args.expand_final()
            && let Some(last) = args.pop()
        {
            match last.to_items() {
                Ok(items) => args.extend(items.iter().cloned()),
                Err(stop) => return self.placed(call, Err(stop)),
            }
        }
        if let Some(value) = self.path_function(name, &args, call) {
            return self.placed(call, value);
        }
        if let Some(Value::Unknown(fault)) = args.iter().find(|arg| matches!(arg, Value::Unknown(_))) {
            return Ok(Value::Unknown(Rc::clone(fault)));
        }
        match self.decode(name, &args).or_else(|| functions::call(name, &args)) {
            Some(value) => self.placed(call, value),
            None => Ok(self.not_evaluated(call, name)),
        }
    }

    /// `try`: the first argument that is not wrong. What is not known may be wrong, so nothing after it is the value.
    fn first_that_works(&self, call: &FuncCall) -> Eval {
        let mut last = self.fault(call, "`try()` has no argument that works");
        for (at, arg) in call.args.iter().enumerate() {
            match self.session.attempt(|| self.eval(arg)) {
                Ok(value) => {
                    if let Value::Unknown(_) = value {
                        self.read_on(call.args.iter().skip(at + 1));
                    }
                    return Ok(value);
                }
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// Evaluates what may or may not be needed, for the files that it reads.
    fn read_on<'e>(&self, rest: impl Iterator<Item = &'e Expression>) {
        for expr in rest {
            // An attempt that fails is none that Terragrunt must make.
            drop(self.session.attempt(|| self.eval(expr)));
        }
    }

    /// Why something is not known; an error if it is wrong.
    fn unknown(&self, place: &impl Span, stop: Stop) -> Result<Rc<Fault>, Rc<Fault>> {
        match stop {
            Stop::Unknown(fault) => Ok(fault),
            Stop::Unsupported(what) => Ok(self.fault(place, what)),
            Stop::Wrong(what) => Err(self.fault(place, what)),
        }
    }

    fn not_evaluated(&self, call: &FuncCall, name: &str) -> Value {
        let why = match name {
            "run_cmd" => "runs a program",
            "get_env" => "depends on the environment",
            "sops_decrypt_file" => "decrypts a file",
            "get_terraform_command" | "get_terraform_cli_args" | "get_terragrunt_source_cli_flag" => {
                "depends on how Terragrunt is called"
            }
            name if name.starts_with("get_aws_") => "asks AWS",
            "timestamp" | "uuid" | "bcrypt" => "gives something else each time",
            _ => "is not evaluated",
        };
        Value::Unknown(self.fault(call, format!("`{name}()` {why}")))
    }
}

#[expect(clippy::cast_precision_loss, reason = "no list is that long")]
fn numbered(items: &[Value]) -> Vec<(Value, Value)> {
    items.iter().enumerate().map(|(index, value)| (Value::Number(index as f64), value.clone())).collect()
}

/// What a `for` expression has made so far.
#[derive(Default)]
struct Made {
    list: Vec<Value>,
    object: BTreeMap<Rc<str>, Vec<Value>>,
    unknown: Option<Rc<Fault>>,
}

impl Made {
    fn add(&mut self, key: Option<Value>, value: Value, grouping: bool) -> Result<(), Stop> {
        if self.list.len() + self.object.len() >= MAX_ITEMS {
            return Err(Stop::unsupported("a `for` makes too many elements"));
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

    fn finish(self, keyed: bool, grouping: bool) -> Result<Value, Stop> {
        if let Some(fault) = self.unknown {
            return Err(Stop::Unknown(fault));
        }
        if !keyed {
            return Value::list(self.list);
        }
        let one = |mut group: Vec<Value>| {
            if grouping { Value::list(group) } else { Ok(group.pop().unwrap_or(Value::Null)) }
        };
        let items = self.object.into_iter().map(|(key, group)| Ok((key, one(group)?)));
        Value::object(items.collect::<Result<_, Stop>>()?)
    }
}

/// `&&` and `||`: one side can decide, even if the other is not known.
fn either(one: &Value, two: &Value, deciding: bool) -> Result<Value, Stop> {
    let decides = |value: &Value| matches!(value.to_bool(), Ok(value) if value == deciding);
    if decides(one) || decides(two) {
        return Ok(Value::Bool(deciding));
    }
    one.to_bool()?;
    two.to_bool().map(Value::Bool)
}

fn arithmetic(operator: BinaryOperator, one: &Value, two: &Value) -> Result<Value, Stop> {
    let (one, two) = (one.to_number()?, two.to_number()?);
    Ok(match operator {
        BinaryOperator::Plus => Value::Number(one + two),
        BinaryOperator::Minus => Value::Number(one - two),
        BinaryOperator::Mul => Value::Number(one * two),
        BinaryOperator::Div | BinaryOperator::Mod if two == 0.0 => return Err("a number is divided by zero".into()),
        BinaryOperator::Div => Value::Number(one / two),
        BinaryOperator::Mod => Value::Number(one % two),
        BinaryOperator::Less => Value::Bool(one < two),
        BinaryOperator::LessEq => Value::Bool(one <= two),
        BinaryOperator::Greater => Value::Bool(one > two),
        BinaryOperator::GreaterEq => Value::Bool(one >= two),
        BinaryOperator::Eq | BinaryOperator::NotEq | BinaryOperator::And | BinaryOperator::Or => {
            return Err("this operator is not about numbers".into());
        }
    })
}
