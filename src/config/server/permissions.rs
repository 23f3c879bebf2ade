//! Who may do what.

use super::problems::Problem;
use super::reader::{Read, Reader};
use crate::config::access::{TeamRules, WebRules};

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionConfig {
    /// Which team of the forge may give which command.
    pub teams: TeamRules,
    /// What the pages and the API may be used for.
    pub web: WebRules,
}

impl PermissionConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let teams = read_teams(reader);
        let web = read_web(reader);
        Ok(Self { teams: teams?, web: web? })
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

fn read_web(reader: &mut Reader<'_>) -> Read<WebRules> {
    let flag = "web-allow";
    WebRules::new(&reader.list(flag)).or_else(|problem| reader.refuse(flag, problem.to_string(), problem.fix()))
}
