//! Examines units: the files that one directory depends on, and the directories that are no units.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::facts::{Merged, UnitFacts};
use super::files::{Parsed, UnitFiles};
use super::frame::{Frame, UnitOrigin};
use super::limits::{MAX_MODULES, MAX_READS};
use super::paths::short;
use super::reading::CONFIG;
use super::session::UnitEvaluation;
use super::source::is_code;
use super::value::{HclValue, UnknownValue};
use super::{DirRole, FileUse, GENERATED, SkippedDir, Unit, UnitCode, Unresolved, has};
use crate::model::RepoPath;

/// Name of the file next to a unit with the values that a stack gave it.
const VALUES: &str = "terragrunt.values.hcl";

/// Facts about one directory before it is compared with the others.
pub(super) struct Draft {
    pub(super) dir: RepoPath,
    pub(super) kind: DirRole,
    pub(super) reads: BTreeMap<RepoPath, FileUse>,
    pub(super) watches: BTreeMap<RepoPath, UnitCode>,
    pub(super) facts: UnitFacts,
    pub(super) unresolved: Vec<Unresolved>,
    /// Directories from which a stack makes units.
    pub(super) templates: Vec<RepoPath>,
}

/// Examines one directory with a `terragrunt.hcl`.
pub(super) fn draft(files: &UnitFiles<'_>, dir: &RepoPath) -> Draft {
    let session = UnitEvaluation::new(files);
    let mut watches = BTreeMap::from([(dir.clone(), UnitCode::Own)]);
    watch(files, dir, UnitCode::Own, &mut watches);
    let mut facts = UnitFacts::default();
    if let Ok(file) = dir.join(CONFIG) {
        let values = values(&session, dir);
        let origin = UnitOrigin {
            dir: dir.clone(),
            template: None,
            values,
        };
        facts = evaluate(&session, &file, file.clone(), Rc::new(origin), FileUse::Own);
        if let Some(code) = &facts.code {
            watch(files, code, UnitCode::Source, &mut watches);
        }
    }
    finish(session, dir, DirRole::Unit, watches, facts)
}

pub(super) fn finish(
    session: UnitEvaluation<'_>,
    dir: &RepoPath,
    kind: DirRole,
    watches: BTreeMap<RepoPath, UnitCode>,
    facts: UnitFacts,
) -> Draft {
    session.report_limits(dir);
    let (reads, unresolved) = session.into_parts();
    Draft {
        dir: dir.clone(),
        kind,
        reads,
        watches,
        facts,
        unresolved,
        templates: vec![],
    }
}

/// Returns the attributes of `terragrunt.values.hcl`.
pub(super) fn values(session: &UnitEvaluation<'_>, dir: &RepoPath) -> Option<HclValue> {
    let file = dir.join(VALUES).ok()?;
    if !session.files.tree.has_file(&file) {
        return None;
    }
    session.note(file.clone(), FileUse::File);
    let Parsed::Read(source) = session.files.source(&file) else {
        return None;
    };
    let origin = UnitOrigin {
        dir: dir.clone(),
        template: None,
        values: None,
    };
    let frame = Frame::new(session, Rc::clone(&source), file, Rc::new(origin));
    let value = |attribute: &hcl_edit::structure::Attribute| {
        let value = frame
            .eval(&attribute.value)
            .unwrap_or_else(HclValue::Unknown);
        (Rc::from(attribute.key.as_str()), value)
    };
    HclValue::object(source.body.attributes().map(value).collect()).ok()
}

/// Evaluates the configuration of a unit, which lies in `file` and runs as if it lay at `config`.
pub(super) fn evaluate(
    session: &UnitEvaluation<'_>,
    file: &RepoPath,
    config: RepoPath,
    origin: Rc<UnitOrigin>,
    how: FileUse,
) -> UnitFacts {
    session.note(file.clone(), how);
    session.configs.borrow_mut().clear();
    let source = match session.files.source(file) {
        Parsed::Read(source) => source,
        Parsed::Missing => {
            session.report(&UnknownValue {
                file: file.clone(),
                line: 1,
                what: "it cannot be read".to_owned(),
            });
            return UnitFacts {
                has_source: true,
                ..UnitFacts::default()
            };
        }
        Parsed::Broken(line, what) => {
            session.report(&UnknownValue {
                file: file.clone(),
                line,
                what: format!("it is not valid: {what}"),
            });
            // The meaning of the file is unknown, so a change of it must stay visible.
            return UnitFacts {
                has_source: true,
                ..UnitFacts::default()
            };
        }
    };
    let frame = Frame::new(session, source, config, origin);
    frame.walk();
    let includes = frame.includes().unwrap_or_default();
    includes
        .iter()
        .filter_map(|include| include.frame.as_ref())
        .for_each(|include| include.walk());
    let merged = includes
        .iter()
        .filter(|include| include.merged)
        .filter_map(|include| include.frame.as_deref());
    // Files nearer to the unit count first.
    Merged::of(std::iter::once(&frame).chain(merged.collect::<Vec<_>>().into_iter().rev()))
}

/// Adds a directory with code, and those of the local modules that the code calls, and so on.
pub(super) fn watch(
    files: &UnitFiles<'_>,
    dir: &RepoPath,
    why: UnitCode,
    watches: &mut BTreeMap<RepoPath, UnitCode>,
) {
    let mut left = vec![(dir.clone(), why)];
    while let Some((dir, why)) = left.pop() {
        let modules = files.modules(&dir);
        let known = watches.insert(
            dir.clone(),
            watches.get(&dir).map_or(why, |known| why.max(*known)),
        );
        if (known.is_none() || why == UnitCode::Own) && watches.len() < MAX_MODULES {
            let new = modules
                .iter()
                .filter(|module| !watches.contains_key(*module));
            left.extend(new.map(|module| (module.clone(), UnitCode::Module)));
        }
    }
}

/// Returns the units among all drafts, and the reasons why the others are none.
pub(super) fn chosen(
    drafts: Vec<Draft>,
    files: &UnitFiles<'_>,
    unresolved: &mut BTreeSet<Unresolved>,
) -> (Vec<Unit>, BTreeMap<RepoPath, SkippedDir>) {
    let verdicts: Vec<Option<SkippedDir>> = {
        let (included, templates) = (included(&drafts), templates(&drafts));
        drafts
            .iter()
            .map(|draft| verdict(draft, files, &included, &templates))
            .collect()
    };
    let kept: HashMap<RepoPath, DirRole> = drafts
        .iter()
        .zip(&verdicts)
        .filter(|(_, verdict)| verdict.is_none())
        .map(|(draft, _)| (draft.dir.clone(), draft.kind))
        .collect();
    let (mut units, mut passed_over) = (Vec::new(), BTreeMap::new());
    for (draft, verdict) in drafts.into_iter().zip(verdicts) {
        match verdict {
            Some(why) => drop(passed_over.insert(draft.dir, why)),
            None => units.push(finished(draft, files, &kept, unresolved)),
        }
    }
    (units, passed_over)
}

/// Returns the files that any draft includes.
fn included(drafts: &[Draft]) -> HashSet<RepoPath> {
    let includes = |draft: &Draft| -> Vec<RepoPath> {
        draft
            .reads
            .iter()
            .filter(|(_, how)| **how == FileUse::Include)
            .map(|(file, _)| file.clone())
            .collect()
    };
    drafts.iter().flat_map(includes).collect()
}

/// Returns the directories from which stacks make units or stacks.
fn templates(drafts: &[Draft]) -> HashSet<RepoPath> {
    drafts
        .iter()
        .flat_map(|draft| draft.templates.iter().cloned())
        .collect()
}

fn verdict(
    draft: &Draft,
    files: &UnitFiles<'_>,
    included: &HashSet<RepoPath>,
    templates: &HashSet<RepoPath>,
) -> Option<SkippedDir> {
    if templates.contains(&draft.dir) {
        return Some(SkippedDir::Template);
    }
    if draft.kind == DirRole::Stack {
        return None;
    }
    if draft.facts.excluded {
        return Some(SkippedDir::Excluded);
    }
    if files
        .tree
        .files_in(&draft.dir)
        .iter()
        .any(|file| is_code(file.file_name()))
    {
        return None;
    }
    if draft.facts.has_source {
        return None;
    }
    // A root generates files for the units that include it: a provider, a backend.
    if draft
        .dir
        .join(CONFIG)
        .is_ok_and(|file| included.contains(&file))
    {
        return Some(SkippedDir::Included);
    }
    (!draft.facts.generates).then_some(SkippedDir::NoCode)
}

fn finished(
    draft: Draft,
    files: &UnitFiles<'_>,
    kept: &HashMap<RepoPath, DirRole>,
    unresolved: &mut BTreeSet<Unresolved>,
) -> Unit {
    let Draft {
        dir,
        kind,
        mut reads,
        watches,
        facts,
        unresolved: own,
        ..
    } = draft;
    let mut own = BTreeSet::from_iter(own);
    let mut depends_on = BTreeSet::new();
    for (named, file, line) in facts.depends_on.into_iter().take(MAX_READS) {
        let target = generating_stack(&named).unwrap_or_else(|| named.clone());
        if target == dir {
            continue;
        }
        if kept.contains_key(&target) {
            depends_on.insert(target);
            continue;
        }
        reads.extend(
            named
                .join(CONFIG)
                .ok()
                .map(|config| (config, FileUse::Dependency)),
        );
        if !has(files.tree, &named, CONFIG) {
            let what = format!(
                "it depends on `{}`, but there is no unit",
                short(named.as_str())
            );
            own.insert(Unresolved { file, line, what });
        }
    }
    unresolved.extend(own.iter().cloned());
    Unit {
        dir,
        kind,
        reads,
        watches,
        depends_on,
        order: 0,
        unresolved: own,
    }
}

/// Returns the directory of the stack that makes a unit.
fn generating_stack(dir: &RepoPath) -> Option<RepoPath> {
    let parts: Vec<&str> = dir.as_str().split('/').collect();
    let at = parts.iter().position(|part| *part == GENERATED[1])?;
    RepoPath::new(&parts[..at].join("/")).ok()
}
