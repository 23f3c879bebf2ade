//! Finds the functions that policies call, before anything is evaluated.
//!
//! The evaluator notices an unknown function only when it calls it: a policy with `http.send` behind a condition would
//! pass on the plans that do not meet the condition, although conftest refuses or fetches. So every call is resolved
//! here. The evaluator also does not know functions of imported packages (`import data.lib`, then `lib.f(x)`); such
//! calls are written out as `data.lib.f(x)`.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{
    AssignOp, BUILTINS, Expr, Literal, Module, Query, Ref, Rule, RuleAssign, RuleHead, Span,
};
use regorus::utils::{gather_functions, get_path_string};

use super::{EvalError, plain};

/// Resolves all calls. Returns the text of each module whose calls have to be written out, in the order of the modules.
pub(super) fn resolve(modules: &[Ref<Module>]) -> Result<Vec<Option<String>>, EvalError> {
    let mut known: BTreeSet<String> = gather_functions(modules)
        .map_err(|error| EvalError::Policy(plain(&error)))?
        .into_keys()
        .collect();
    for module in modules {
        let package = path(&module.package.refr, Some("data"))?;
        for rule in &module.policy {
            if let Rule::Default { refr, args, .. } = &**rule
                && !args.is_empty()
            {
                known.insert(path(refr, Some(&package))?);
            }
        }
    }
    modules
        .iter()
        .map(|module| resolve_module(module, &known))
        .collect()
}

fn resolve_module(module: &Module, known: &BTreeSet<String>) -> Result<Option<String>, EvalError> {
    let package = path(&module.package.refr, Some("data"))?;
    let imports = imports(module)?;
    let mut calls = FoundCalls::default();
    for rule in &module.policy {
        calls.rule(rule);
    }
    let mut edits: Vec<(usize, usize, &str)> = Vec::new();
    for FunctionCall {
        function,
        arguments,
    } in calls.found
    {
        let name = path(function, None)?;
        if known.contains(&format!("{package}.{name}"))
            || (name.starts_with("data.") && known.contains(&name))
        {
            continue;
        }
        let (first, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
        let imported = imports
            .get(first)
            .filter(|target| known.contains(&format!("{target}{rest}")));
        if let (Some(target), Some(root)) = (imported, root(function)) {
            let range = (usize::try_from(root.start), usize::try_from(root.end));
            if let (Ok(start), Ok(end)) = range {
                edits.push((start, end, target.as_str()));
            }
            continue;
        }
        let Some(arguments) = arguments else {
            // The target of `with` may be a part of `input` or `data`.
            continue;
        };
        let is_builtin = match BUILTINS.get(name.as_str()) {
            // A last argument more takes the result.
            Some((_, arity)) => {
                let arity = usize::from(*arity);
                arguments == arity || arguments == arity + 1
            }
            None => name == "print",
        };
        if !is_builtin {
            return Err(EvalError::UnknownFunction {
                name,
                arguments,
                place: place(function.span()),
            });
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    let mut text = module.package.span.source.contents().clone();
    edits.sort_unstable();
    edits.dedup();
    for (start, end, target) in edits.into_iter().rev() {
        if text.get(start..end).is_some() {
            text.replace_range(start..end, target);
        }
    }
    Ok(Some(text))
}

/// Returns the imported packages and rules, by the names that the module gives them.
fn imports(module: &Module) -> Result<BTreeMap<String, String>, EvalError> {
    let mut imports = BTreeMap::new();
    for import in &module.imports {
        let target = path(&import.refr, None)?;
        if !target.starts_with("data.") {
            continue;
        }
        let name = match &import.r#as {
            Some(name) => name.text(),
            None => target.rsplit('.').next().unwrap_or_default(),
        };
        imports.insert(name.to_owned(), target);
    }
    Ok(imports)
}

/// Returns a reference as `data.lib.f`.
pub(super) fn path(reference: &Expr, document: Option<&str>) -> Result<String, EvalError> {
    get_path_string(reference, document)
        .map_err(|_| EvalError::Policy(format!("{}: this is not a name", place(reference.span()))))
}

/// Returns the place as `deny.rego:3`.
pub(super) fn place(span: &Span) -> String {
    format!("{}:{}", span.source.file(), span.line)
}

/// Returns the first word of a reference.
fn root(mut reference: &Expr) -> Option<&Span> {
    loop {
        if let Expr::Var { span, .. } = reference {
            return Some(span);
        }
        let (Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. }) = reference else {
            return None;
        };
        reference = refr;
    }
}

/// Function in a module.
struct FunctionCall<'a> {
    function: &'a Expr,
    /// Number of arguments; `None` for a target of `with`, which is not called.
    arguments: Option<usize>,
}

/// Collects the calls of a module, and what else is rewritten.
#[derive(Default)]
pub(super) struct FoundCalls<'a> {
    found: Vec<FunctionCall<'a>>,
    /// Collections of `some x in` and `every x in`.
    pub collections: Vec<&'a Expr>,
    /// Objects that a value is compared with, part by part.
    pub patterns: Vec<&'a Expr>,
}

impl<'a> FoundCalls<'a> {
    pub fn rule(&mut self, rule: &'a Rule) {
        match rule {
            Rule::Default { value, .. } => self.expr(value),
            Rule::Spec { head, bodies, .. } => {
                match head {
                    RuleHead::Compr { refr, assign, .. } => {
                        self.expr(refr);
                        self.assign(assign.as_ref());
                    }
                    RuleHead::Set { refr, key, .. } => {
                        self.expr(refr);
                        self.exprs(key.iter());
                    }
                    RuleHead::Func {
                        refr, args, assign, ..
                    } => {
                        self.expr(refr);
                        self.exprs(args.iter());
                        self.patterns_in(args.iter());
                        self.assign(assign.as_ref());
                    }
                }
                for body in bodies {
                    self.assign(body.assign.as_ref());
                    self.query(&body.query);
                }
            }
        }
    }

    fn assign(&mut self, assign: Option<&'a RuleAssign>) {
        if let Some(assign) = assign {
            self.expr(&assign.value);
        }
    }

    fn query(&mut self, query: &'a Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key,
                    value,
                    collection,
                    ..
                } => {
                    self.exprs(key.iter().chain([value, collection]));
                    self.patterns_in(key.iter().chain([value]));
                    self.collections.push(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every { domain, query, .. } => {
                    self.expr(domain);
                    self.collections.push(domain);
                    self.query(query);
                }
            }
            for with in &statement.with_mods {
                self.found.push(FunctionCall {
                    function: &with.refr,
                    arguments: None,
                });
                self.expr(&with.r#as);
            }
        }
    }

    fn patterns_in(&mut self, exprs: impl IntoIterator<Item = &'a Ref<Expr>>) {
        for expr in exprs {
            if let Expr::Array { items, .. } = &**expr {
                self.patterns_in(items);
            } else if matches!(&**expr, Expr::Object { fields, .. } if !fields.is_empty()) {
                self.patterns.push(expr);
            }
        }
    }

    fn exprs(&mut self, exprs: impl IntoIterator<Item = &'a Ref<Expr>>) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
            | Expr::Var { .. } => {}
            Expr::Array { items, .. } | Expr::Set { items, .. } => self.exprs(items),
            Expr::Object { fields, .. } => {
                for (_, key, value) in fields {
                    self.exprs([key, value]);
                }
            }
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.expr(term);
                self.query(query);
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => {
                self.exprs([key, value]);
                self.query(query);
            }
            Expr::Call { fcn, params, .. } => {
                self.found.push(FunctionCall {
                    function: fcn,
                    arguments: Some(params.len()),
                });
                self.exprs(params);
            }
            Expr::UnaryExpr { expr, .. } => self.expr(expr),
            Expr::RefDot { refr, .. } => self.expr(refr),
            Expr::RefBrack { refr, index, .. } => self.exprs([refr, index]),
            Expr::BinExpr { lhs, rhs, .. }
            | Expr::BoolExpr { lhs, rhs, .. }
            | Expr::ArithExpr { lhs, rhs, .. } => self.exprs([lhs, rhs]),
            Expr::AssignExpr { op, lhs, rhs, .. } => {
                self.exprs([lhs, rhs]);
                self.patterns_in([lhs]);
                // `x = {...}` gives a variable its value.
                if matches!(op, AssignOp::Eq) && !matches!(**lhs, Expr::Var { .. }) {
                    self.patterns_in([rhs]);
                }
            }
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => self.exprs(key.iter().chain([value, collection])),
        }
    }
}
