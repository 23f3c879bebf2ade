//! Reads stacks: files that list the units which Terragrunt generates, and the directories of their files.
//!
//! A stack is one project, because its units exist only after `terragrunt stack generate`. It therefore depends on
//! all files that its units would depend on.

use std::collections::BTreeMap;
use std::rc::Rc;

use hcl_edit::structure::Block;

use super::facts::UnitFacts;
use super::files::{Parsed, UnitFiles, label};
use super::frame::{Frame, UnitOrigin};
use super::limits::MAX_STACKS;
use super::paths::short;
use super::projects::is_own_language;
use super::reading::CONFIG;
use super::session::UnitEvaluation;
use super::source::{self, Code};
use super::unit::{self, Draft};
use super::value::{HclValue, UnknownValue};
use super::{DirRole, FileUse, GENERATED, STACK, UnitCode, has, is_generated};
use crate::model::RepoPath;

/// Names that units look for in the directories above. Such a file also concerns them when it appears or disappears.
const USUAL: [&str; 5] = ["account.hcl", "env.hcl", "region.hcl", "root.hcl", CONFIG];

/// Returns true if a unit below the file could include it.
fn is_included(file: &RepoPath) -> bool {
    let name = file.file_name();
    is_own_language(file) && name != STACK && !name.ends_with(".lock.hcl")
}

/// A stack while it is read.
struct Stack<'s> {
    session: &'s UnitEvaluation<'s>,
    facts: UnitFacts,
    watches: BTreeMap<RepoPath, UnitCode>,
    templates: Vec<RepoPath>,
}

/// Examines one directory with a `terragrunt.stack.hcl`.
pub(super) fn draft(files: &UnitFiles<'_>, dir: &RepoPath) -> Draft {
    let session = UnitEvaluation::new(files);
    let values = unit::values(&session, dir);
    let watches = BTreeMap::from([(dir.clone(), UnitCode::Own)]);
    let mut stack = Stack {
        session: &session,
        facts: UnitFacts::default(),
        watches,
        templates: vec![],
    };
    let origin = UnitOrigin {
        dir: dir.clone(),
        template: None,
        values,
    };
    stack.read(dir, &Rc::new(origin), FileUse::Own, 0);
    let Stack {
        mut facts,
        watches,
        templates,
        ..
    } = stack;
    facts
        .depends_on
        .retain(|(named, _, _)| !dir.contains(named) || has(files.tree, named, CONFIG));
    Draft {
        templates,
        ..unit::finish(session, dir, DirRole::Stack, watches, facts)
    }
}

impl Stack<'_> {
    /// Reads the stack file in a directory for a given origin.
    fn read(&mut self, dir: &RepoPath, origin: &Rc<UnitOrigin>, how: FileUse, depth: usize) {
        let Ok(file) = dir.join(STACK) else { return };
        self.session.note(file.clone(), how);
        let source = match self.session.files.source(&file) {
            Parsed::Read(source) => source,
            Parsed::Missing => {
                return self.session.report(&UnknownValue {
                    file,
                    line: 1,
                    what: "it cannot be read".to_owned(),
                });
            }
            Parsed::Broken(line, what) => {
                return self.session.report(&UnknownValue {
                    file,
                    line,
                    what: format!("it is not valid: {what}"),
                });
            }
        };
        let Ok(config) = origin.dir.join(STACK) else {
            return;
        };
        let frame = Frame::new(self.session, Rc::clone(&source), config, Rc::clone(origin));
        frame.walk();
        for block in source.blocks("unit").chain(source.blocks("stack")) {
            self.component(&frame, block, depth);
        }
    }

    /// Reads the block of a unit or stack to generate.
    fn component(&mut self, frame: &Frame<'_>, block: &Block, depth: usize) {
        let text = |name: &str| {
            let attribute = block.body.get_attribute(name)?;
            Some((
                frame.needed_text(
                    &attribute.value,
                    &format!("the `{name}` of a {}", block.ident.as_str()),
                )?,
                attribute,
            ))
        };
        let (source, path) = (text("source"), text("path"));
        let (Some((source, place)), Some((path, _))) = (source, path) else {
            return self.may_include_above(frame, &frame.base());
        };
        match source::code(self.session.files.tree, &source, &frame.base()) {
            Code::Remote => {
                let what = format!(
                    "the {} `{}` is not in this repository, so the files that it reads are unknown: only changes of \
                     `*.hcl` in the directories above it are noticed",
                    block.ident.as_str(),
                    short(label(block)),
                );
                frame.report(&place.value, what);
                let dir = target(frame, block, &path).unwrap_or_else(|_| frame.base());
                self.may_include_above(frame, &dir);
            }
            Code::Outside(what) => frame.report(&place.value, what),
            Code::Local(template) => {
                let template = frame.real(template);
                if !self.session.files.tree.dir_exists(&template) {
                    let what = format!("there is no directory `{}`", short(template.as_str()));
                    return frame.report(&place.value, what);
                }
                match target(frame, block, &path) {
                    Ok(dir) => self.generate(frame, block, &template, &dir, depth),
                    Err(what) => frame.report(block, what),
                }
            }
        }
    }

    /// Notes the files that a unit or stack without files in this repository may include from the directories above.
    /// Most units include files such as `root.hcl`, `account.hcl`, `region.hcl`, so all files of that kind count.
    fn may_include_above(&self, frame: &Frame<'_>, dir: &RepoPath) {
        let mut above = dir.clone();
        loop {
            // A unit looks above itself, and a directory of the stack is above it, too.
            if !is_generated(&above) {
                let usual = USUAL.iter().filter_map(|name| above.join(name).ok());
                let there = self
                    .session
                    .files
                    .tree
                    .files_in(&above)
                    .iter()
                    .filter(|file| is_included(file))
                    .cloned();
                for file in usual.chain(there) {
                    self.session.note(frame.real(file), FileUse::AboveForeign);
                }
            }
            if above.is_root() {
                return;
            }
            above = above.parent();
        }
    }

    fn generate(
        &mut self,
        frame: &Frame<'_>,
        block: &Block,
        template: &RepoPath,
        dir: &RepoPath,
        depth: usize,
    ) {
        let values = block
            .body
            .get_attribute("values")
            .map(|values| frame.eval(&values.value));
        let values = values.map_or_else(|| HclValue::object(BTreeMap::new()).ok(), Result::ok);
        let origin = Rc::new(UnitOrigin {
            dir: dir.clone(),
            template: Some(template.clone()),
            values,
        });
        self.templates.push(template.clone());
        if self.session.enter().is_err() {
            return;
        }
        if block.has_ident("unit") {
            self.unit(template, dir, origin);
        } else if depth < MAX_STACKS {
            self.read(template, &origin, FileUse::Template, depth + 1);
        } else {
            frame.report(block, "stacks are nested too deeply");
        }
        self.session.leave();
    }

    fn unit(&mut self, template: &RepoPath, dir: &RepoPath, origin: Rc<UnitOrigin>) {
        let (Ok(file), Ok(config)) = (template.join(CONFIG), dir.join(CONFIG)) else {
            return;
        };
        let facts = unit::evaluate(self.session, &file, config, origin, FileUse::Template);
        unit::watch(
            self.session.files,
            template,
            UnitCode::Source,
            &mut self.watches,
        );
        if let Some(code) = &facts.code {
            unit::watch(
                self.session.files,
                code,
                UnitCode::Source,
                &mut self.watches,
            );
        }
        self.facts.depends_on.extend(facts.depends_on);
    }
}

/// Returns the directory that a unit or stack is generated in.
fn target(frame: &Frame<'_>, block: &Block, path: &str) -> Result<RepoPath, String> {
    let plain = block.body.get_attribute("no_dot_terragrunt_stack");
    let plain =
        plain.is_some_and(|plain| matches!(frame.eval(&plain.value), Ok(HclValue::Bool(true))));
    let base = frame.base();
    let base = if plain {
        base
    } else {
        base.join(GENERATED[1]).map_err(|error| error.to_string())?
    };
    super::paths::resolve(path, &base)
}
