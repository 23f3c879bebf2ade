//! Texts of comments about versions that are deprecated or taken down.

use lockkeeper_registry::versions::VersionKey;

use super::VersionUse;
use crate::model::without_backticks;
use crate::render::{ModuleNote, UserText};

/// Maximum number of versions in a refusal. The comment of the plan lists more.
const MOST_NAMED: usize = 3;

/// Returns what the comment of a plan says about the modules that it uses: first those that were taken down.
pub(crate) fn module_notes(uses: &[VersionUse]) -> Vec<ModuleNote> {
    let named = |key: &VersionKey| (key.name().as_str().to_owned(), key.version());
    let note = |used: &VersionUse| {
        let (name, version) = named(&used.key);
        let notice = &used.notice;
        ModuleNote {
            name,
            version,
            takedown: notice.takedown.map(|kind| kind.to_string()),
            since: notice.at,
            reason: notice.notice.reason.as_str().to_owned(),
            instead: notice.notice.replacement.as_ref().map(named),
        }
    };
    let mut notes: Vec<ModuleNote> = uses.iter().map(note).collect();
    notes.sort_by_key(|note| note.takedown.is_none());
    notes
}

/// Returns the refusal of an apply whose plan uses versions that were taken down. Deprecated ones refuse nothing. Versions
/// that the pull request may not see are not named.
pub(crate) fn refused_apply(uses: &[VersionUse]) -> UserText {
    let notes = module_notes(uses);
    let taken_down: Vec<&ModuleNote> = notes
        .iter()
        .filter(|note| note.takedown.is_some())
        .collect();
    let mut named: Vec<String> = taken_down
        .iter()
        .take(MOST_NAMED)
        .map(|note| {
            let kind = note.takedown.as_deref().unwrap_or_default();
            let reason = without_backticks(&note.reason);
            let reason = reason.trim_end_matches(['.', '!', '?']);
            format!(
                "`{} {}`, which was taken down ({kind}) on {}: {reason}",
                note.name,
                note.version,
                note.since.format("%Y-%m-%d"),
            )
        })
        .collect();
    if taken_down.len() > MOST_NAMED {
        named.push(format!("{} more", taken_down.len() - MOST_NAMED));
    }
    let which = if named.is_empty() {
        String::new()
    } else {
        format!(": {}", named.join("; "))
    };
    let message = format!(
        "the plan uses a module that the registry does not serve any more{which}. Nothing was applied."
    );
    let mut hints: Vec<String> = taken_down
        .iter()
        .take(MOST_NAMED)
        .filter_map(|note| {
            let (name, version) = note.instead.as_ref()?;
            Some(format!(
                "Use `{name} {version}` instead of `{} {}`.",
                note.name, note.version
            ))
        })
        .collect();
    hints.push(
        "Change the module to another version in this pull request. Lockkeeper then plans again."
            .to_owned(),
    );
    UserText::new(message, hints)
}
