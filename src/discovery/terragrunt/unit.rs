//! Examines units: the files that one directory depends on, and the directories that are no units.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::facts::{Facts, Merged};
use super::files::{Files, Parsed};
use super::frame::{Frame, Origin};
use super::limits::{MAX_MODULES, MAX_READS};
use super::paths::short;
use super::reading::CONFIG;
use super::session::Session;
use super::source::is_code;
use super::value::{Fault, Value};
use super::{GENERATED, How, Kind, PassedOver, Unit, Unresolved, Watch, has};
use crate::model::RepoPath;

/// Name of the file next to a unit with the values that a stack gave it.
const VALUES: &str = "terragrunt.values.hcl";

/// Facts about one directory before it is compared with the others.
pub(super) struct Draft {
    pub(super) dir: RepoPath,
    pub(super) kind: Kind,
    pub(super) reads: BTreeMap<RepoPath, How>,
    pub(super) watches: BTreeMap<RepoPath, Watch>,
    pub(super) facts: Facts,
    pub(super) unresolved: Vec<Unresolved>,
    /// Directories from which a stack makes units.
    pub(super) templates: Vec<RepoPath>,
}

/// Examines one directory with a `terragrunt.hcl`.
pub(super) fn draft(files: &Files<'_>, dir: &RepoPath) -> Draft {
    let session = Session::new(files);
    let mut watches = BTreeMap::from([(dir.clone(), Watch::Own)]);
    watch(files, dir, Watch::Own, &mut watches);
    let mut facts = Facts::default();
    if let Ok(file) = dir.join(CONFIG) {
        let values = values(&session, dir);
        let origin = Origin {
            dir: dir.clone(),
            template: None,
            values,
        };
        facts = evaluate(&session, &file, file.clone(), Rc::new(origin), How::Own);
        if let Some(code) = &facts.code {
            watch(files, code, Watch::Source, &mut watches);
        }
    }
    finish(session, dir, Kind::Unit, watches, facts)
}

pub(super) fn finish(
    session: Session<'_>,
    dir: &RepoPath,
    kind: Kind,
    watches: BTreeMap<RepoPath, Watch>,
    facts: Facts,
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
pub(super) fn values(session: &Session<'_>, dir: &RepoPath) -> Option<Value> {
    let file = dir.join(VALUES).ok()?;
    if !session.files.tree.has_file(&file) {
        return None;
    }
    session.note(file.clone(), How::File);
    let Parsed::Read(source) = session.files.source(&file) else {
        return None;
    };
    let origin = Origin {
        dir: dir.clone(),
        template: None,
        values: None,
    };
    let frame = Frame::new(session, Rc::clone(&source), file, Rc::new(origin));
    let value = |attribute: &hcl_edit::structure::Attribute| {
        let value = frame.eval(&attribute.value).unwrap_or_else(Value::Unknown);
        (Rc::from(attribute.key.as_str()), value)
    };
    Value::object(source.body.attributes().map(value).collect()).ok()
}

/// Evaluates the configuration of a unit, which lies in `file` and runs as if it lay at `config`.
pub(super) fn evaluate(
    session: &Session<'_>,
    file: &RepoPath,
    config: RepoPath,
    origin: Rc<Origin>,
    how: How,
) -> Facts {
    session.note(file.clone(), how);
    session.configs.borrow_mut().clear();
    let source = match session.files.source(file) {
        Parsed::Read(source) => source,
        Parsed::Missing => {
            session.report(&Fault {
                file: file.clone(),
                line: 1,
                what: "it cannot be read".to_owned(),
            });
            return Facts {
                has_source: true,
                ..Facts::default()
            };
        }
        Parsed::Broken(line, what) => {
            session.report(&Fault {
                file: file.clone(),
                line,
                what: format!("it is not valid: {what}"),
            });
            // The meaning of the file is unknown, so a change of it must stay visible.
            return Facts {
                has_source: true,
                ..Facts::default()
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
    files: &Files<'_>,
    dir: &RepoPath,
    why: Watch,
    watches: &mut BTreeMap<RepoPath, Watch>,
) {
    let mut left = vec![(dir.clone(), why)];
    while let Some((dir, why)) = left.pop() {
        let modules = files.modules(&dir);
        let known = watches.insert(
            dir.clone(),
            watches.get(&dir).map_or(why, |known| why.max(*known)),
        );
        if (known.is_none() || why == Watch::Own) && watches.len() < MAX_MODULES {
            let new = modules
                .iter()
                .filter(|module| !watches.contains_key(*module));
            left.extend(new.map(|module| (module.clone(), Watch::Module)));
        }
    }
}

/// Returns the units among all drafts, and the reasons why the others are none.
pub(super) fn chosen(
    drafts: Vec<Draft>,
    files: &Files<'_>,
    unresolved: &mut BTreeSet<Unresolved>,
) -> (Vec<Unit>, BTreeMap<RepoPath, PassedOver>) {
    let verdicts: Vec<Option<PassedOver>> = {
        let (included, templates) = (included(&drafts), templates(&drafts));
        drafts
            .iter()
            .map(|draft| verdict(draft, files, &included, &templates))
            .collect()
    };
    let kept: HashMap<RepoPath, Kind> = drafts
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
            .filter(|(_, how)| **how == How::Include)
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
    files: &Files<'_>,
    included: &HashSet<RepoPath>,
    templates: &HashSet<RepoPath>,
) -> Option<PassedOver> {
    if templates.contains(&draft.dir) {
        return Some(PassedOver::Template);
    }
    if draft.kind == Kind::Stack {
        return None;
    }
    if draft.facts.excluded {
        return Some(PassedOver::Excluded);
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
        return Some(PassedOver::Included);
    }
    (!draft.facts.generates).then_some(PassedOver::NoCode)
}

fn finished(
    draft: Draft,
    files: &Files<'_>,
    kept: &HashMap<RepoPath, Kind>,
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
                .map(|config| (config, How::Dependency)),
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
