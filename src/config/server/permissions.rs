//! Who may do what.

use std::path::PathBuf;

use super::choice::choice;
use super::problems::Problem;
use super::reader::{Read, Reader};
use crate::config::access::{TeamRules, WebRules};

choice! {
    /// Whose comments are commands where neither a list of teams nor a program says who may do what.
    pub enum Commenters {
        /// Those of people who may write to the repository.
        Writers = "writers",
        /// Those of everybody who can comment; in public repositories those of people who may write.
        Everyone = "everyone",
    }
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionConfig {
    /// Which team of the forge may give which command.
    pub teams: TeamRules,
    /// Who may give commands where there is no such list.
    pub commenters: Commenters,
    /// What the pages and the API may be used for.
    pub web: WebRules,
    /// The file of accounts that are limited to owners; absolute.
    pub accounts: Option<PathBuf>,
}

impl PermissionConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let teams = read_teams(reader);
        let commenters = read_commenters(reader, teams.as_ref().is_ok_and(|teams| !teams.is_empty()));
        let web = read_web(reader);
        let accounts = read_accounts(reader);
        Ok(Self { teams: teams?, commenters: commenters?, web: web?, accounts: accounts? })
    }
}

fn read_teams(reader: &mut Reader<'_>) -> Read<TeamRules> {
    let flag = "gh-team-allowlist";
    let problems = match TeamRules::new(&reader.list(flag)) {
        Ok(rules) => return Ok(rules),
        Err(problems) => problems,
    };
    let recorded =
        problems.iter().map(|problem| reader.record(Problem::with(flag, problem.to_string(), problem.fix())));
    Err(recorded.last().expect("a list is refused for a reason"))
}

/// A list of teams decides alone, so that `everyone` beside it would do nothing.
fn read_commenters(reader: &mut Reader<'_>, has_list: bool) -> Read<Commenters> {
    let flag = "allow-commenters";
    match reader.choice(flag)?.expect("the setting has a default") {
        Commenters::Everyone if has_list => reader.refuse(
            flag,
            "`everyone`, but --gh-team-allowlist says who may give which command",
            "remove one of the two; in the list, `*:plan` gives a command to everybody",
        ),
        commenters => Ok(commenters),
    }
}

fn read_web(reader: &mut Reader<'_>) -> Read<WebRules> {
    let flag = "web-allow";
    WebRules::new(&reader.list(flag)).or_else(|problem| reader.refuse(flag, problem.to_string(), problem.fix()))
}

/// Whoever needs no password is the whole server.
fn read_accounts(reader: &mut Reader<'_>) -> Read<Option<PathBuf>> {
    let flag = "web-accounts-file";
    match (reader.path(flag), reader.switch("web-basic-auth")) {
        (Some(_), Ok(false)) => reader.refuse(
            flag,
            "set, but the pages ask for no password: nobody would be limited",
            "set --web-basic-auth and a password for the account of the whole server",
        ),
        (file, _) => Ok(file),
    }
}
