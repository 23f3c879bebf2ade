//! Merges the files of one unit into facts: where its code is, which units it depends on, and whether it is excluded.

use std::collections::HashSet;
use std::rc::Rc;

use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Block;
use hcl_edit::template::Element;

use super::FileUse;
use super::files::label;
use super::frame::{Eval, Frame};
use super::paths::short;
use super::reading::CONFIG;
use super::source::{self, Code};
use super::value::{HclValue, NoValue};
use crate::model::RepoPath;

/// Facts that the files of a unit state together.
#[derive(Default)]
pub(super) struct UnitFacts {
    /// True if there is a `source`, known or not.
    pub(super) has_source: bool,
    /// True if Terragrunt writes code into the directory before it runs.
    pub(super) generates: bool,
    pub(super) code: Option<RepoPath>,
    /// Directories of other units, and the file and line that name each.
    pub(super) depends_on: Vec<(RepoPath, RepoPath, usize)>,
    pub(super) excluded: bool,
}

/// Facts while files are merged.
#[derive(Default)]
pub(super) struct Merged {
    facts: UnitFacts,
    labels: HashSet<String>,
    generated: HashSet<String>,
    has_exclude: bool,
}

impl Merged {
    /// Merges the facts of files; the file nearest to the unit comes first.
    pub(super) fn of<'f, 's: 'f>(frames: impl Iterator<Item = &'f Frame<'s>>) -> UnitFacts {
        let mut merged = Self::default();
        for frame in frames {
            frame
                .source
                .blocks("terraform")
                .for_each(|block| merged.terraform(frame, block));
            frame
                .source
                .blocks("dependency")
                .for_each(|block| merged.dependency(frame, block));
            frame
                .source
                .blocks("dependencies")
                .for_each(|block| merged.dependencies(frame, block));
            frame
                .source
                .blocks("exclude")
                .for_each(|block| merged.exclude(frame, block));
            frame
                .source
                .blocks("generate")
                .for_each(|block| merged.generate(frame, block));
            merged.facts.generates |= frame
                .source
                .attribute("generate")
                .is_some_and(|all| may_be_code_of_any(&frame.eval(&all.value)));
            if let Some(skip) = frame.source.attribute("skip").filter(|_| !frame.included)
                && let Some(value) = frame.needed(&skip.value, "`skip`")
            {
                merged.facts.excluded |= value.to_bool().unwrap_or(false);
            }
        }
        merged.facts
    }

    fn terraform(&mut self, frame: &Frame<'_>, block: &Block) {
        block
            .body
            .get_blocks("extra_arguments")
            .for_each(|arguments| var_files(frame, arguments));
        let Some(source) = block
            .body
            .get_attribute("source")
            .filter(|_| !self.facts.has_source)
        else {
            return;
        };
        self.facts.has_source = !source.value.is_null() && source.value.as_str() != Some("");
        let Some(text) = frame.needed_text(&source.value, "the `source`") else {
            return;
        };
        match source::code(frame.session.files.tree, &text, &frame.base()) {
            Code::Remote => {}
            Code::Local(dir) => {
                let dir = frame.real(dir);
                if !frame.session.files.tree.dir_exists(&dir) {
                    frame.report(
                        &source.value,
                        format!("there is no directory `{}`", short(dir.as_str())),
                    );
                }
                self.facts.code = Some(dir);
            }
            Code::Outside(what) => frame.report(&source.value, what),
        }
    }

    fn dependency(&mut self, frame: &Frame<'_>, block: &Block) {
        let enabled = block.body.get_attribute("enabled");
        let is_off = enabled
            .is_some_and(|enabled| matches!(frame.eval(&enabled.value), Ok(HclValue::Bool(false))));
        let Some(path) = block.body.get_attribute("config_path").filter(|_| !is_off) else {
            return;
        };
        if self.labels.insert(label(block).to_owned())
            && let Some(text) = frame.needed_text(&path.value, "the `config_path` of a dependency")
        {
            self.depend(frame, &text, &path.value);
        }
    }

    fn dependencies(&mut self, frame: &Frame<'_>, block: &Block) {
        let Some(paths) = block.body.get_attribute("paths") else {
            return;
        };
        for text in texts(frame, &paths.value, "the `paths` of `dependencies`") {
            self.depend(frame, &text, &paths.value);
        }
    }

    /// Adds a file that Terragrunt writes. The nearest block of a name counts.
    fn generate(&mut self, frame: &Frame<'_>, block: &Block) {
        if !self.generated.insert(label(block).to_owned()) {
            return;
        }
        let value = |name: &str| {
            block
                .body
                .get_attribute(name)
                .map(|attribute| frame.eval(&attribute.value))
        };
        self.facts.generates |= may_be_code(value("path").as_ref(), value("disable").as_ref());
    }

    fn depend(&mut self, frame: &Frame<'_>, text: &str, place: &impl Span) {
        match frame.resolve(text, &frame.base()) {
            Ok(path) => {
                let names_file = path.file_name() == CONFIG;
                let dir = if names_file { path.parent() } else { path };
                self.facts.depends_on.push((
                    dir,
                    frame.source.file.clone(),
                    frame.source.line(place),
                ));
            }
            Err(what) => frame.report(place, what),
        }
    }

    fn exclude(&mut self, frame: &Frame<'_>, block: &Block) {
        if std::mem::replace(&mut self.has_exclude, true) {
            return;
        }
        let (Some(condition), Some(actions)) = (
            block.body.get_attribute("if"),
            block.body.get_attribute("actions"),
        ) else {
            return;
        };
        let holds = frame
            .needed(&condition.value, "the condition of `exclude`")
            .is_some_and(|v| v.to_bool().unwrap_or(false));
        let planned = |action: &Rc<str>| ["all", "all_except_output", "plan"].contains(&&**action);
        if holds
            && texts(frame, &actions.value, "the `actions` of `exclude`")
                .iter()
                .any(planned)
        {
            self.facts.excluded = true;
        }
    }
}

/// Returns true if a generated file may be code. A file with an unknown name may be.
fn may_be_code(path: Option<&Eval>, disable: Option<&Eval>) -> bool {
    let is_off = matches!(disable, Some(Ok(HclValue::Bool(true))));
    let is_code = match path {
        Some(Ok(HclValue::Text(path))) => source::is_code(path),
        Some(Ok(HclValue::Unknown(_)) | Err(_)) => true,
        Some(Ok(
            HclValue::Null
            | HclValue::Bool(_)
            | HclValue::Number(_)
            | HclValue::List(_)
            | HclValue::Object(_),
        ))
        | None => false,
    };
    is_code && !is_off
}

/// Returns true if any file of the attribute `generate` may be code.
fn may_be_code_of_any(all: &Eval) -> bool {
    let all = match all {
        Ok(HclValue::Unknown(_)) | Err(_) => return true,
        Ok(all) => all.to_attributes(),
    };
    let Ok(all) = all else { return false };
    all.values().any(|file| {
        if let HclValue::Unknown(_) = file {
            return true;
        }
        let Ok(file) = file.to_attributes() else {
            return false;
        };
        let value = |name: &str| file.get(name).cloned().map(Ok);
        may_be_code(value("path").as_ref(), value("disable").as_ref())
    })
}

/// Returns the texts of a list that the caller requires.
fn texts(frame: &Frame<'_>, expr: &Expression, what: &str) -> Vec<Rc<str>> {
    let Some(value) = frame.needed(expr, what) else {
        return vec![];
    };
    let items = match value.to_items() {
        Ok(items) => items,
        Err(_) => Rc::new(vec![value]),
    };
    let known = |item: &HclValue| match item.to_text() {
        Ok(text) => Some(text),
        Err(NoValue::Unknown(fault)) => {
            let cause = format!("{} ({}:{})", fault.what, fault.file, fault.line);
            frame.report(expr, format!("one of {what} is not known: {cause}"));
            None
        }
        Err(NoValue::Wrong(_) | NoValue::Unsupported(_)) => None,
    };
    items.iter().filter_map(known).collect()
}

/// Adds the files of variables that `extra_arguments` names.
fn var_files(frame: &Frame<'_>, block: &Block) {
    for name in ["required_var_files", "optional_var_files"] {
        let Some(files) = block.body.get_attribute(name) else {
            continue;
        };
        for text in texts(frame, &files.value, &format!("`{name}`")) {
            var_file(frame, &text, &files.value);
        }
    }
    let arguments = block
        .body
        .get_attribute("arguments")
        .and_then(|arguments| arguments.value.as_array());
    for argument in arguments
        .into_iter()
        .flatten()
        .filter(|argument| names_var_file(argument))
    {
        if let Some(text) = frame.needed_text(argument, "a `-var-file`") {
            var_file(frame, text.trim_start_matches(VAR_FILE), argument);
        }
    }
}

const VAR_FILE: &str = "-var-file=";

fn names_var_file(argument: &Expression) -> bool {
    let first = argument
        .as_template()
        .and_then(|template| template.get(0))
        .and_then(Element::as_literal);
    let text = argument.as_str().or(first.map(|literal| literal.as_str()));
    text.is_some_and(|text| text.starts_with(VAR_FILE))
}

fn var_file(frame: &Frame<'_>, text: &str, place: &impl Span) {
    match frame.resolve(text, &frame.base()) {
        Ok(file) => frame.session.note(file, FileUse::VarFile),
        Err(what) => frame.report(place, what),
    }
}
