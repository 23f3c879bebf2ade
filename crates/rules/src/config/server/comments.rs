//! Settings for commands in comments, and for the replies.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::problems::{StartupProblem, StartupWarning};
use super::reader::{ReadResult, SettingReader};
use super::section::{section, unless_zero};
use crate::command::{AddedArg, BlockedArgs, ExtraArgs};
use crate::model::CommandKind;

/// Commands of this version that can be switched on and off.
const COMMANDS: [CommandKind; 9] = [
    CommandKind::Plan,
    CommandKind::Apply,
    CommandKind::Unlock,
    CommandKind::Cancel,
    CommandKind::Explain,
    CommandKind::ApprovePolicies,
    CommandKind::Version,
    CommandKind::Import,
    CommandKind::StateRm,
];

section! {
    /// Settings for commands in comments, and for the replies.
    pub struct CommentConfig in Comments {
        /// Words that begin a command in a comment; hints show the first one.
        pub executable_names: Vec<String> =
            list("executable-name", "NAMES").or_with_compat("lockkeeper", "atlantis") => read_names,

        /// First part of the names of commit statuses.
        pub status_name: String =
            text("vcs-status-name", "NAME").or_with_compat("lockkeeper", "atlantis") => read_status_name,

        /// First parts of the names of other servers' statuses. They do not prevent a pull request from being
        /// mergeable.
        pub ignored_status_names: Vec<String> = list("ignore-vcs-status-names", "NAMES"),

        /// Commands that are allowed in comments; `all` allows all of them.
        pub allowed: BTreeSet<CommandKind> =
            list("allow-commands", "LIST").or("version,plan,apply,unlock,approve_policies,cancel,explain") => read_allowed,

        /// Additional arguments that are allowed after `--` in comments: `-name`, or `-name=` with a value;
        /// `plan:-name=` for one command.
        pub added_extra_args: Vec<AddedArg> = list("allow-extra-args", "LIST") => read_added_args,

        /// Arguments that are refused after `--` in comments.
        pub blocked_extra_args: Vec<String> =
            list("blocked-extra-args", "LIST").or("-chdir,--chdir,-plugin-dir,--plugin-dir"),

        /// Folders outside the checkout from which a comment may name a -var-file.
        pub var_file_dirs: Vec<PathBuf> = list("var-file-allowlist", "FOLDERS"),

        /// Maximum number of comments for one command, of at most 65,536 bytes each; 0: no limit. The middle of
        /// longer output is left out, with a link to all of it.
        pub max_comments: Option<u32> =
            number("max-comments-per-command", "NUMBER", 0, 10_000).or("100") => unless_zero,

        /// Maximum number of projects of one command that get statuses of their own. A command on more projects sets
        /// only the combined statuses; 0: every command.
        pub project_statuses: usize =
            number("max-project-statuses", "NUMBER", 0, 10_000).or("30"),

        /// Reaction to a comment with an accepted command: eyes, rocket, +1 …; `none` for none.
        pub reaction: Option<String> = text("emoji-reaction", "NAME").or("eyes") => read_reaction,

        /// Cases in which Lockkeeper does not reply.
        pub silence: SilenceConfig = section,

        /// Allow a regular expression after -p that matches the whole names of several projects.
        pub regexp: bool = switch("enable-regexp-cmd"),

        /// Appearance of the replies, and the form of `apply`.
        pub look: LookConfig = section,

        /// Label of pull requests on which `unlock` is refused.
        pub no_unlock_label: Option<String> = text("disable-unlock-label", "LABEL"),
    }
}

section! {
    /// Cases in which Lockkeeper does not reply or sets no status.
    pub struct SilenceConfig in Comments {
        /// Do not answer in repositories that are not served.
        pub allowlist_errors: bool = switch("silence-allowlist-errors"),

        /// Do not answer on pull requests from forks.
        pub fork_errors: bool = switch("silence-fork-pr-errors"),

        /// Do not answer when a pull request changes no project.
        pub no_projects: bool = switch("silence-no-projects"),

        /// Set no statuses on a commit that changes no project, unless somebody requested a plan.
        pub status_no_plans: bool = switch("silence-vcs-status-no-plans"),

        /// Set no statuses on a commit that changes no project, and never set the combined ones to pending.
        pub status_no_projects: bool = switch("silence-vcs-status-no-projects"),
    }
}

section! {
    /// Appearance of the replies, and the form of `apply`.
    pub struct LookConfig in Comments {
        /// Refuse `apply` without a project. Each apply must name its project.
        pub disable_apply_all: bool = switch("disable-apply-all"),

        /// Show long outputs in comments without folding them.
        pub disable_folding: bool = switch("disable-markdown-folding"),

        /// Leave projects without changes out of the comment of a plan, except in its table.
        pub hide_unchanged: bool = switch("hide-unchanged-plan-comments"),

        /// Do not mention policy sets that passed.
        pub quiet_policy_checks: bool = switch("quiet-policy-checks"),

        /// Colour every changed attribute and block of a plan, not only whole resources.
        pub diff_markdown: bool = switch("enable-diff-markdown-format"),
    }
}

impl CommentConfig {
    /// Returns the arguments that comments may pass to Terraform.
    pub fn extra_args(&self) -> ExtraArgs {
        ExtraArgs::new(
            BlockedArgs::new(&self.blocked_extra_args),
            self.added_extra_args.clone(),
        )
    }

    /// Returns the name of the program in hints.
    pub fn executable(&self) -> &str {
        self.executable_names
            .first()
            .map_or("lockkeeper", String::as_str)
    }
}

/// Effect of a plan that concerns no project on the statuses of the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStatuses {
    /// Sets the statuses to success.
    #[default]
    Always,
    /// Sets the statuses only if a person requested the plan (`--silence-vcs-status-no-plans`).
    IfAsked,
    /// Sets no statuses, and never sets combined statuses to pending (`--silence-vcs-status-no-projects`).
    Never,
}

impl SilenceConfig {
    /// Returns the effect of a plan that concerns no project on the statuses of the commit.
    pub fn idle_statuses(&self) -> IdleStatuses {
        match (self.status_no_projects, self.status_no_plans) {
            (true, _) => IdleStatuses::Never,
            (false, true) => IdleStatuses::IfAsked,
            (false, false) => IdleStatuses::Always,
        }
    }
}

/// Contents of a reaction in the REST API of GitHub.
const REACTIONS: [&str; 8] = [
    "eyes", "+1", "-1", "laugh", "confused", "heart", "hooray", "rocket",
];

fn read_reaction(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Option<String>> {
    let Some(name) = reader.text(flag) else {
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
    reader.refuse(flag, format!("GitHub has no reaction `{name}`"), fix)
}

fn read_added_args(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Vec<AddedArg>> {
    let mut added = Vec::new();
    let mut result = Ok(());
    for entry in reader.list(flag) {
        match entry.parse::<AddedArg>() {
            Ok(arg) => added.push(arg),
            Err(error) => {
                result =
                    Err(reader.record(StartupProblem::with(flag, error.to_string(), error.fix())));
            }
        }
    }
    result.map(|()| added)
}

fn read_names(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Vec<String>> {
    let names = reader.list(flag);
    let is_odd = |name: &&String| name.starts_with('-') || !name.chars().all(is_word_character);
    match names.iter().find(is_odd) {
        None if names.is_empty() => {
            reader.refuse(flag, "the list is empty", "write at least one word")
        }
        None => Ok(names),
        Some(odd) => reader.refuse(
            flag,
            format!("`{odd}` cannot begin a command"),
            "use words of letters, digits, `-`, `_` and `.`",
        ),
    }
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn read_status_name(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<String> {
    let name = reader.text(flag).expect("the name has a default");
    if name.chars().count() > 60 || name.chars().any(char::is_control) {
        return reader.refuse(
            flag,
            "longer than 60 characters or more than one line",
            "write at most 60 characters in one line",
        );
    }
    Ok(name)
}

fn read_allowed(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<BTreeSet<CommandKind>> {
    let mut allowed = BTreeSet::new();
    let mut result = Ok(());
    for name in reader.list(flag) {
        match (
            name.as_str(),
            COMMANDS.iter().find(|kind| is_called(**kind, &name)),
        ) {
            ("all", _) => allowed.extend(COMMANDS),
            (_, Some(kind)) => drop(allowed.insert(*kind)),
            // Atlantis accepts the word, although no comment can have it.
            ("policy_check", None) => reader.warn(StartupWarning::with(
                flag,
                "`policy_check` has no effect: policies are checked by every plan",
            )),
            (_, None) => result = Err(reader.record(unknown_command(flag, &name))),
        }
    }
    result.map(|()| allowed)
}

/// Compares with both names of a command: Atlantis says `state`, and everything else here says `state_rm`.
fn is_called(kind: CommandKind, name: &str) -> bool {
    kind.classic_name() == name || kind.as_str() == name
}

fn unknown_command(flag: &'static str, name: &str) -> StartupProblem {
    let names = COMMANDS.map(CommandKind::classic_name).join(", ");
    StartupProblem::with(
        flag,
        format!("the command `{name}` does not exist"),
        format!("choose from {names}, or `all`"),
    )
}
