//! Settings for commands in comments, and for the replies.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::problems::{StartupProblem, StartupWarning};
use super::reader::{ReadResult, SettingReader};
use crate::command::AddedArg;
use crate::model::CommandKind;

/// Commands of this version that can be switched on and off.
const COMMANDS: [CommandKind; 8] = [
    CommandKind::Plan,
    CommandKind::Apply,
    CommandKind::Unlock,
    CommandKind::Cancel,
    CommandKind::Explain,
    CommandKind::Version,
    CommandKind::Import,
    CommandKind::StateRm,
];

/// Commands of Atlantis that a later version will have (reference 1.7).
const COMMANDS_TO_COME: [&str; 1] = ["approve_policies"];

/// Settings for commands in comments, and for the replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommentConfig {
    /// Words that open a command, at least one. Hints use the first.
    pub executable_names: Vec<String>,
    /// First part of the names of commit statuses.
    pub status_name: String,
    /// First parts of the names of other programs' statuses that do not prevent a merge.
    pub ignored_status_names: Vec<String>,
    /// Commands that comments may contain.
    pub allowed: BTreeSet<CommandKind>,
    /// Arguments after `--` that are allowed in addition to the usual ones.
    pub added_extra_args: Vec<AddedArg>,
    /// Arguments after `--` that are refused.
    pub blocked_extra_args: Vec<String>,
    /// Folders from which a comment may name a `-var-file`; absolute.
    pub var_file_dirs: Vec<PathBuf>,
    /// Reaction to a comment whose command was accepted, in GitHub's words.
    pub reaction: Option<String>,
    /// Maximum number of comments for the output of one command. The rest is cut. `None` stands for no limit.
    pub max_comments: Option<u32>,
    /// Cases in which Lockkeeper does not reply.
    pub silence: SilenceConfig,
    /// True if the value of `-p` may be a regular expression.
    pub regexp: bool,
    /// Appearance of the replies.
    pub look: LookConfig,
}

/// Appearance of the replies, and the form of `apply`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct LookConfig {
    /// True if `apply` has to name a project.
    pub disable_apply_all: bool,
    /// True if replies fold nothing.
    pub disable_folding: bool,
    /// True if replies leave out projects without changes.
    pub hide_unchanged: bool,
    /// True if replies colour every change of a plan.
    pub diff_markdown: bool,
}

impl LookConfig {
    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let disable_apply_all = reader.switch("disable-apply-all");
        let disable_folding = reader.switch("disable-markdown-folding");
        let hide_unchanged = reader.switch("hide-unchanged-plan-comments");
        let diff_markdown = reader.switch("enable-diff-markdown-format");
        Ok(Self {
            disable_apply_all: disable_apply_all?,
            disable_folding: disable_folding?,
            hide_unchanged: hide_unchanged?,
            diff_markdown: diff_markdown?,
        })
    }
}

/// Cases in which Lockkeeper does not reply or sets no status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct SilenceConfig {
    /// No reply in repositories that are not served.
    pub allowlist_errors: bool,
    /// No reply on pulls from forks.
    pub fork_errors: bool,
    /// No reply when a pull touches no project.
    pub no_projects: bool,
    /// No statuses when a push touches no project.
    pub status_no_plans: bool,
    /// No statuses when a command touches no project, and no pending ones.
    pub status_no_projects: bool,
}

impl CommentConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let executable_names = read_names(reader);
        let status_name = read_status_name(reader);
        let ignored_status_names = reader.list("ignore-vcs-status-names");
        let allowed = read_allowed(reader);
        let added_extra_args = read_added_args(reader);
        let blocked_extra_args = reader.list("blocked-extra-args");
        let var_file_dirs = reader
            .list("var-file-allowlist")
            .iter()
            .map(|dir| reader.raw().absolute(dir))
            .collect();
        let max_comments = reader.number::<u32>("max-comments-per-command");
        let reaction = read_reaction(reader);
        let silence = SilenceConfig::read(reader);
        let regexp = reader.switch("enable-regexp-cmd");
        let look = LookConfig::read(reader);
        Ok(Self {
            executable_names: executable_names?,
            status_name: status_name?,
            ignored_status_names,
            allowed: allowed?,
            added_extra_args: added_extra_args?,
            blocked_extra_args,
            var_file_dirs,
            reaction: reaction?,
            max_comments: max_comments?.filter(|max| *max > 0),
            silence: silence?,
            regexp: regexp?,
            look: look?,
        })
    }
}

impl SilenceConfig {
    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let allowlist_errors = reader.switch("silence-allowlist-errors");
        let fork_errors = reader.switch("silence-fork-pr-errors");
        let no_projects = reader.switch("silence-no-projects");
        let status_no_plans = reader.switch("silence-vcs-status-no-plans");
        let status_no_projects = reader.switch("silence-vcs-status-no-projects");
        Ok(Self {
            allowlist_errors: allowlist_errors?,
            fork_errors: fork_errors?,
            no_projects: no_projects?,
            status_no_plans: status_no_plans?,
            status_no_projects: status_no_projects?,
        })
    }
}

/// Contents of a reaction in the REST API of GitHub.
const REACTIONS: [&str; 8] = [
    "eyes", "+1", "-1", "laugh", "confused", "heart", "hooray", "rocket",
];

fn read_reaction(reader: &mut SettingReader<'_>) -> ReadResult<Option<String>> {
    let Some(name) = reader.text("emoji-reaction") else {
        return Ok(None);
    };
    if name == "none" {
        return Ok(None);
    }
    let name = name.trim_matches(':').to_owned();
    if REACTIONS.contains(&name.as_str()) {
        return Ok(Some(name));
    }
    let fix = format!("choose {} or none", REACTIONS.join(", "));
    reader.refuse(
        "emoji-reaction",
        format!("GitHub has no reaction `{name}`"),
        fix,
    )
}

fn read_added_args(reader: &mut SettingReader<'_>) -> ReadResult<Vec<AddedArg>> {
    let mut added = Vec::new();
    let mut result = Ok(());
    for entry in reader.list("allow-extra-args") {
        match entry.parse::<AddedArg>() {
            Ok(arg) => added.push(arg),
            Err(error) => {
                result = Err(reader.record(StartupProblem::with(
                    "allow-extra-args",
                    error.to_string(),
                    error.fix(),
                )));
            }
        }
    }
    result.map(|()| added)
}

fn read_names(reader: &mut SettingReader<'_>) -> ReadResult<Vec<String>> {
    let names = reader.list("executable-name");
    let is_odd = |name: &&String| name.starts_with('-') || !name.chars().all(is_word_character);
    match names.iter().find(is_odd) {
        None if names.is_empty() => reader.refuse(
            "executable-name",
            "the list is empty",
            "write at least one word",
        ),
        None => Ok(names),
        Some(odd) => reader.refuse(
            "executable-name",
            format!("`{odd}` cannot begin a command"),
            "use words of letters, digits, `-`, `_` and `.`",
        ),
    }
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn read_status_name(reader: &mut SettingReader<'_>) -> ReadResult<String> {
    let name = reader
        .text("vcs-status-name")
        .expect("the name has a default");
    if name.chars().count() > 60 || name.chars().any(char::is_control) {
        return reader.refuse(
            "vcs-status-name",
            "longer than 60 characters or more than one line",
            "write at most 60 characters in one line",
        );
    }
    Ok(name)
}

fn read_allowed(reader: &mut SettingReader<'_>) -> ReadResult<BTreeSet<CommandKind>> {
    let mut allowed = BTreeSet::new();
    let mut result = Ok(());
    for name in reader.list("allow-commands") {
        match (name.as_str(), COMMANDS.iter().find(|kind| is_called(**kind, &name))) {
            ("all", _) => allowed.extend(COMMANDS),
            (_, Some(kind)) => drop(allowed.insert(*kind)),
            (to_come, None) if COMMANDS_TO_COME.contains(&to_come) => reader.warn(StartupWarning::with(
                "allow-commands",
                format!("`{to_come}` is not available in this version yet; the reply to such a comment says so"),
            )),
            (_, None) => result = Err(reader.record(unknown_command(&name))),
        }
    }
    result.map(|()| allowed)
}

/// Compares with both names of a command: Atlantis says `state`, and everything else here says `state_rm`.
fn is_called(kind: CommandKind, name: &str) -> bool {
    kind.classic_name() == name || kind.as_str() == name
}

fn unknown_command(name: &str) -> StartupProblem {
    let names = COMMANDS.map(CommandKind::classic_name).join(", ");
    StartupProblem::with(
        "allow-commands",
        format!("the command `{name}` does not exist"),
        format!("choose from {names}, or `all`"),
    )
}
