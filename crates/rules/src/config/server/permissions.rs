//! Settings that permit actions.

use std::path::PathBuf;

use super::choice::choice;
use super::problems::{StartupProblem, StartupWarning};
use super::reader::{ReadResult, SettingReader};
use super::section::{chosen, section};
use crate::config::access::{TeamRules, WebRules};

choice! {
    /// Authors whose comments are commands, if neither a list of teams nor a program decides.
    pub enum Commenters {
        /// People with write access to the repository.
        Writers = "writers",
        /// Everybody who can comment. In public repositories, only people with write access.
        Everyone = "everyone",
    }
}

section! {
    /// Rules about permitted actions.
    pub struct PermissionConfig in Permissions {
        /// Commands that teams may use, as team:command; `*` stands for all teams or commands. A team is the slug
        /// of a team in the organisation that owns the repository, and includes the members of its child teams. Not
        /// set: --allow-commenters decides.
        pub teams: TeamRules = list("gh-team-allowlist", "LIST") => read_teams,

        /// People who may use commands in comments if neither --gh-team-allowlist nor `team_authz` decides:
        /// `writers`, people with write access to the repository on GitHub; or `everyone` who can comment, which is
        /// refused in public repositories.
        pub commenters: Commenters = choice("allow-commenters", "WHO", Commenters::WORDS).or("writers") => read_commenters,

        /// Actions that are permitted on the pages and in the API.
        pub web: WebRules = read_web from {
            /// Actions that are allowed on the pages, and for scripts with their password: `discard` (release an
            /// unused lock with its plans), `unlock_any` (release a lock by force, or hand it over), `apply_lock`,
            /// `lease`, `sync`, `owners` (change owners, applications and credentials) …, `peers` (change what the
            /// registry exchanges with other deployments), `all` (without `peers`, which has to be named, as in
            /// `all,peers`) or `none`. Without --web-basic-auth, the default is `none`.
            list("web-allow", "LIST").or("all"),

            /// Without --web-basic-auth: allow everyone who can reach the server to use the actions of --web-allow.
            /// Only `discard`, `unlock_any`, `apply_lock`, `sync` and `cancel` are possible.
            switch("allow-anonymous-web"),
        },

        /// File with accounts of the pages and the API for some owners only, one per line, as in `user=kim
        /// owners=net,dns allow=plan,apply password=…`. They see only the data of these owners, and can use only
        /// the actions in `allow`, by default none (docs/ownership.md). With `account=NUMBER` in place of `password=`,
        /// they sign in with the password of that account in Git (docs/accounts.md). --web-username stays the account
        /// for the whole server.
        pub accounts: Option<PathBuf> =
            path("web-accounts-file", "FILE").hidden_from_runs("the accounts") => read_accounts,
    }
}

fn read_teams(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<TeamRules> {
    let problems = match TeamRules::new(&reader.list(flag)) {
        Ok(rules) => return Ok(rules),
        Err(problems) => problems,
    };
    let recorded = problems.iter().map(|problem| {
        reader.record(StartupProblem::with(
            flag,
            problem.to_string(),
            problem.fix(),
        ))
    });
    Err(recorded.last().expect("a list is refused for a reason"))
}

/// Reads the authors of commands. A list of teams decides alone, so `everyone` beside it would have no effect.
fn read_commenters(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Commenters> {
    let has_list = read_teams(reader, "gh-team-allowlist").is_ok_and(|teams| !teams.is_empty());
    match chosen(reader, flag)? {
        Commenters::Everyone if has_list => reader.refuse(
            flag,
            "`everyone`, but --gh-team-allowlist already decides who may use which command",
            "remove one of the two; in the list, `*:plan` allows a command for everybody",
        ),
        commenters @ (Commenters::Writers | Commenters::Everyone) => Ok(commenters),
    }
}

/// Reads the actions of the web. Without a password the pages only show, unless the administrator allows changes to
/// every visitor.
fn read_web(reader: &mut SettingReader<'_>) -> ReadResult<WebRules> {
    let flag = "web-allow";
    let is_named = reader
        .given(flag)
        .is_some_and(|given| !given.text.trim().is_empty());
    let rules = WebRules::new(&reader.list(flag));
    let rules = rules.or_else(|problem| reader.refuse(flag, problem.to_string(), problem.fix()));
    let anonymous = reader.switch("allow-anonymous-web");
    let Ok(has_password) = reader.switch("web-basic-auth") else {
        return rules;
    };
    match (rules?, anonymous?) {
        (rules, false) if has_password => Ok(rules),
        (_, true) if has_password => reader.refuse(
            "allow-anonymous-web",
            "set, but the pages require a password (--web-basic-auth), so there are no anonymous visitors",
            "remove one of the two",
        ),
        (rules, true) if !is_named || rules.is_empty() => reader.refuse(
            "allow-anonymous-web",
            "set, but --web-allow names no actions for visitors",
            "name the actions in --web-allow, or remove --allow-anonymous-web",
        ),
        (rules, true) => read_anonymous(reader, rules),
        (rules, false) if is_named && !rules.is_empty() => reader.refuse(
            flag,
            format!(
                "names {}, but the pages require no password, so everyone who can reach them could use these actions",
                quoted(&rules)
            ),
            "set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD; to allow the actions for everyone who can reach the server, \
             set --allow-anonymous-web",
        ),
        (_, false) => Ok(WebRules::read_only()),
    }
}

fn read_anonymous(reader: &mut SettingReader<'_>, rules: WebRules) -> ReadResult<WebRules> {
    let kept: Vec<String> = rules
        .needing_account()
        .map(|action| format!("`{action}`"))
        .collect();
    if !kept.is_empty() {
        return reader.refuse(
            "web-allow",
            format!(
                "names {} without a password, but these actions always require that people sign in",
                kept.join(", ")
            ),
            "name only the other actions, or set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD",
        );
    }
    let what = format!(
        "everyone who can reach the server may use {} on its pages, and the audit log cannot name them",
        quoted(&rules)
    );
    reader.warn(StartupWarning::with("allow-anonymous-web", what));
    Ok(rules.without_account())
}

fn quoted(rules: &WebRules) -> String {
    let words: Vec<String> = rules
        .to_string()
        .split(',')
        .map(|word| format!("`{word}`"))
        .collect();
    words.join(", ")
}

/// Reads the file of accounts. It needs a password for the pages, because a visitor without one reaches the whole
/// server.
fn read_accounts(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Option<PathBuf>> {
    match (reader.path(flag), reader.switch("web-basic-auth")) {
        (Some(_), Ok(false)) => reader.refuse(
            flag,
            "set, but the pages require no password, so the limits would have no effect",
            "set --web-basic-auth and a password for the account of the whole server",
        ),
        (file, _) => Ok(file),
    }
}
