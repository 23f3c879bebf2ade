//! One entry of `repos` (reference 5.2).

use super::id::IdPattern;
use crate::config::lock_block::{self, LockBlock};
use crate::config::overrides::AllowedOverrides;
use crate::config::yaml::{Fields, Keys, Node, Reader};

/// What an entry says about the repositories it is about; what it leaves out is left to the entries before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: IdPattern,
    pub(super) locks: LockBlock,
    /// `repo_locking`, the old form: `false` means that no lock is taken.
    pub(super) locking: Option<bool>,
    pub(super) allowed_overrides: Option<AllowedOverrides>,
    /// Line of the file where the entry begins, from 1.
    pub(super) line: usize,
}

pub(super) const ENTRY: Keys = Keys {
    of: "an entry of `repos`",
    here: &["id", "repo_locks", "repo_locking", "allowed_overrides"],
    later: &[
        "branch",
        "repo_config_file",
        "plan_requirements",
        "apply_requirements",
        "import_requirements",
        "pre_workflow_hooks",
        "post_workflow_hooks",
        "workflow",
        "allowed_workflows",
        "allow_custom_workflows",
        "delete_source_branch_on_merge",
        "policy_check",
        "custom_policy_check",
        "autodiscover",
        "silence_pr_comments",
    ],
    of_server: &[],
};

/// Reads one entry; `None` when it cannot be told what it is about.
pub(super) fn read(reader: &mut Reader, node: &Node) -> Option<Entry> {
    let fields = reader.fields(node, &ENTRY)?;
    let locks = lock_block::read_of_server(reader, &fields).unwrap_or_default();
    let locking = reader.boolean(&fields, "repo_locking");
    let allowed_overrides = AllowedOverrides::read(reader, &fields);
    let id = read_id(reader, node, &fields)?;
    Some(Entry { id, locks, locking, allowed_overrides, line: node.place.line })
}

fn read_id(reader: &mut Reader, node: &Node, fields: &Fields<'_>) -> Option<IdPattern> {
    if fields.get("id").is_none() {
        let what = "an entry of `repos` has no `id`".to_owned();
        reader.problem(
            node.place,
            what,
            "say which repositories it is about: `id: github.com/acme/infra`, or `id: /.*/`",
        );
    }
    let id = reader.text(fields, "id")?;
    let refuse = |error: super::id::InvalidId| reader.problem(id.place, error.to_string(), error.help());
    IdPattern::new(&id.text).map_err(refuse).ok()
}
