//! Evaluates one file of a configuration for one unit: its locals, its includes, and its values.
//!
//! Locals and includes are evaluated on demand, each once. Their order therefore does not matter, and a reference to
//! itself is found.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body, Structure};

use super::files::{Parsed, ParsedFile};
use super::includes::Include;
use super::paths;
use super::session::UnitEvaluation;
use super::value::{HclValue, NoValue, UnknownValue};
use crate::model::RepoPath;

/// A value, or the error in the expression.
pub(super) type Eval = Result<HclValue, Rc<UnknownValue>>;

/// Unit that the configuration is evaluated for.
pub(super) struct UnitOrigin {
    /// Directory in which Terragrunt runs the unit.
    pub(super) dir: RepoPath,
    /// Directory of its files in the repository, if a stack has yet to copy them to `dir`.
    pub(super) template: Option<RepoPath>,
    /// Values that a stack gives to the unit.
    pub(super) values: Option<HclValue>,
}

/// State of a value that is evaluated only once.
#[derive(Clone, Default)]
pub(super) enum LazyValue<T> {
    #[default]
    Fresh,
    Busy,
    Done(T),
}

/// A file as one unit sees it.
pub(super) struct Frame<'s> {
    pub(super) session: &'s UnitEvaluation<'s>,
    pub(super) source: Rc<ParsedFile>,
    /// File whose directory is that of the configuration; for an included file, the one that includes it.
    pub(super) config: RepoPath,
    pub(super) included: bool,
    pub(super) origin: Rc<UnitOrigin>,
    pub(super) includes: RefCell<LazyValue<Rc<Vec<Include<'s>>>>>,
    locals: RefCell<HashMap<String, LazyValue<Eval>>>,
    exposed: RefCell<LazyValue<HclValue>>,
    /// Variables of the surrounding `for` expressions, innermost last.
    pub(super) vars: RefCell<Vec<(String, HclValue)>>,
}

/// Parts of a configuration that other files may refer to, but that are not evaluated for them.
const UNEXPOSED: [&str; 12] = [
    "dependencies",
    "dependency",
    "engine",
    "errors",
    "exclude",
    "feature",
    "generate",
    "iam_role",
    "include",
    "remote_state",
    "skip",
    "terraform",
];

impl<'s> Frame<'s> {
    /// Creates the frame of a file that is evaluated on its own, as if it lay at `config`.
    pub(super) fn new(
        session: &'s UnitEvaluation<'s>,
        source: Rc<ParsedFile>,
        config: RepoPath,
        origin: Rc<UnitOrigin>,
    ) -> Self {
        Self {
            session,
            source,
            config,
            included: false,
            origin,
            includes: RefCell::default(),
            locals: RefCell::default(),
            exposed: RefCell::default(),
            vars: RefCell::default(),
        }
    }

    /// Returns the directory that paths in the configuration are relative to.
    pub(super) fn base(&self) -> RepoPath {
        self.config.parent()
    }

    /// Returns the place of a file in the repository. A stack copies the files of a unit, so they are still at their
    /// origin.
    pub(super) fn real(&self, path: RepoPath) -> RepoPath {
        let UnitOrigin {
            dir,
            template: Some(template),
            ..
        } = &*self.origin
        else {
            return path;
        };
        match path.as_str().strip_prefix(dir.as_str()) {
            Some("") => template.clone(),
            Some(rest) if rest.starts_with('/') => {
                template.join(rest.trim_start_matches('/')).unwrap_or(path)
            }
            _ => path,
        }
    }

    /// Returns the path in the repository that a text names, relative to a directory.
    pub(super) fn resolve(&self, text: &str, base: &RepoPath) -> Result<RepoPath, String> {
        paths::resolve(text, base).map(|path| self.real(path))
    }

    /// Describes an error at a place of this file.
    pub(super) fn fault(&self, place: &impl Span, what: impl Into<String>) -> Rc<UnknownValue> {
        Rc::new(UnknownValue {
            file: self.source.file.clone(),
            line: self.source.line(place),
            what: what.into(),
        })
    }

    pub(super) fn report(&self, place: &impl Span, what: impl Into<String>) {
        self.session.report(&self.fault(place, what));
    }

    /// Adds the place to the reason why a value could not be made.
    pub(super) fn placed(&self, place: &impl Span, value: Result<HclValue, NoValue>) -> Eval {
        match value {
            Ok(value) => Ok(value),
            Err(NoValue::Unknown(fault)) => Ok(HclValue::Unknown(fault)),
            Err(NoValue::Unsupported(what)) => Ok(HclValue::Unknown(self.fault(place, what))),
            Err(NoValue::Wrong(what)) => Err(self.fault(place, what)),
        }
    }

    /// Returns a value that the caller requires. If it is unknown, the reason is reported and the result is `None`,
    /// as for `null`.
    pub(super) fn needed(&self, expr: &Expression, what: &str) -> Option<HclValue> {
        match self.eval(expr) {
            Ok(HclValue::Null) => None,
            Ok(HclValue::Unknown(fault)) => {
                let UnknownValue {
                    file,
                    line,
                    what: cause,
                } = &*fault;
                self.report(
                    expr,
                    format!("{what} is not known: {cause} ({file}:{line})"),
                );
                None
            }
            Ok(value) => Some(value),
            Err(fault) => {
                self.session.report(&fault);
                None
            }
        }
    }

    /// Returns a text that the caller requires.
    pub(super) fn needed_text(&self, expr: &Expression, what: &str) -> Option<Rc<str>> {
        let value = self.needed(expr, what)?;
        value
            .to_text()
            .inspect_err(|_| self.report(expr, format!("{what} is {}, not a text", value.kind())))
            .ok()
    }

    /// Returns the value of `local.name`.
    pub(super) fn local(&self, name: &str, place: &impl Span) -> Eval {
        let state = self.locals.borrow().get(name).cloned().unwrap_or_default();
        match state {
            LazyValue::Done(value) => return value,
            LazyValue::Busy => {
                return Err(self.fault(place, format!("`local.{name}` refers to itself")));
            }
            LazyValue::Fresh => {}
        }
        let Some(expr) = self.source.local(name) else {
            return Err(self.fault(place, format!("there is no `local.{name}`")));
        };
        self.locals
            .borrow_mut()
            .insert(name.to_owned(), LazyValue::Busy);
        // The expression of a local does not see the variables of a surrounding `for`.
        let around = std::mem::take(&mut *self.vars.borrow_mut());
        let value = self.eval(expr);
        *self.vars.borrow_mut() = around;
        self.locals
            .borrow_mut()
            .insert(name.to_owned(), LazyValue::Done(value.clone()));
        value
    }

    /// Returns all locals; one with an error is unknown.
    pub(super) fn all_locals(&self) -> Result<HclValue, NoValue> {
        let local = |name: &&str| {
            let value = self.local(name, &self.source.body);
            (Rc::from(*name), value.unwrap_or_else(HclValue::Unknown))
        };
        HclValue::object(self.source.local_names().iter().map(local).collect())
    }

    /// Returns the values that other files see: `include.x`, or the value of `read_terragrunt_config`.
    pub(super) fn exposed(&self) -> Result<HclValue, NoValue> {
        match &*self.exposed.borrow() {
            LazyValue::Done(value) => return Ok(value.clone()),
            LazyValue::Busy => return Err("a configuration refers to itself".into()),
            LazyValue::Fresh => {}
        }
        *self.exposed.borrow_mut() = LazyValue::Busy;
        let value = self.expose();
        *self.exposed.borrow_mut() = value
            .as_ref()
            .map_or(LazyValue::Fresh, |value| LazyValue::Done(value.clone()));
        value
    }

    fn expose(&self) -> Result<HclValue, NoValue> {
        let hidden = |name: &&str| {
            let what = format!("`{name}` of a configuration that is read is not evaluated");
            (
                Rc::from(*name),
                HclValue::Unknown(self.fault(&self.source.body, what)),
            )
        };
        let mut parts: BTreeMap<Rc<str>, HclValue> = UNEXPOSED.iter().map(hidden).collect();
        parts.insert("locals".into(), self.all_locals()?);
        parts.insert("inputs".into(), self.inputs()?);
        HclValue::object(parts)
    }

    /// Returns the `inputs`, merged over those of the included files.
    fn inputs(&self) -> Result<HclValue, NoValue> {
        let mut all = BTreeMap::new();
        for include in self.includes()?.iter().filter(|include| include.merged) {
            let Some(frame) = &include.frame else {
                continue;
            };
            all.extend(frame.inputs()?.to_attributes()?.as_ref().clone());
        }
        let Some(own) = self.source.attribute("inputs") else {
            return HclValue::object(all);
        };
        match self.eval(&own.value) {
            Ok(own) => all.extend(own.to_attributes()?.as_ref().clone()),
            Err(fault) => return Ok(HclValue::Unknown(fault)),
        }
        HclValue::object(all)
    }

    /// Returns a file of the language, or reports why it cannot be read.
    pub(super) fn read_source(&self, file: &RepoPath, place: &impl Span) -> Option<Rc<ParsedFile>> {
        match self.session.files.source(file) {
            Parsed::Read(source) => return Some(source),
            Parsed::Missing => self.report(
                place,
                format!("`{}` cannot be read", paths::short(file.as_str())),
            ),
            Parsed::Broken(line, what) => {
                let what = format!("it is not valid: {what}");
                self.session.report(&UnknownValue {
                    file: file.clone(),
                    line,
                    what,
                });
            }
        }
        None
    }

    /// Evaluates all expressions, in order to find the files that they read.
    pub(super) fn walk(&self) {
        for name in self.source.local_names() {
            if let Err(fault) = self.local(name, &self.source.body) {
                self.session.report(&fault);
            }
        }
        if let Err(NoValue::Wrong(what) | NoValue::Unsupported(what)) = self.includes() {
            self.report(&self.source.body, what);
        }
        let rest = |block: &Block| !block.has_ident("locals") && !block.has_ident("include");
        self.walk_body(&self.source.body, &rest);
    }

    fn walk_body(&self, body: &Body, wanted: &dyn Fn(&Block) -> bool) {
        for structure in body {
            match structure {
                Structure::Attribute(attribute) => {
                    if let Err(fault) = self.eval(&attribute.value) {
                        self.session.report(&fault);
                    }
                }
                Structure::Block(block) if wanted(block) => self.walk_body(&block.body, &|_| true),
                Structure::Block(_) => {}
            }
        }
    }
}
