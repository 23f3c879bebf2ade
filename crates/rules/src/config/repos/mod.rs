//! Reads the administrator's rules for repositories: `repos.yaml`, given by `--repo-config` or `--repo-config-json`
//! (reference 5).
//!
//! The file is read strictly. An unknown key is an error, and so is a feature that this version does not support.
//! Ignoring one of them could allow an apply that should not happen.
//!
//! [`ServerRepos::rules`] merges the entries of `repos` for one repository. [`RepoRules::project`] adds the allowed
//! settings of the repository itself.

mod config_source;
mod entry;
mod environment;
mod id;
mod keys;
mod merge;
mod policies;
mod policy;
mod project_merge;
mod project_rules;

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_policy::sets::{PolicyConfig, SetName};

use super::access::TeamAuthz;
use super::workflow::{FileVersion, PolicyStage, WorkflowOrigin, read_workflows};
use super::yaml::{self, Field, FileReader, Mapping, Syntax, YamlErrors, YamlNode, YamlNote};
use crate::model::RepoId;

pub use config_source::{ConfigSource, InvalidSource};
pub use environment::{EnvironmentProfile, EnvironmentProfiles, ProfileVariable, sources};
pub(super) use keys::{EntryMapping, ServerFileMapping};
pub use merge::{Autodiscover, RepoRules};
pub use policies::{NoPolicySets, ProjectPolicies};
pub use policy::{DecidedBy, Decider, LockPolicy};
pub use project_rules::{Decided, Demands, ProjectRules};

use entry::{Defined, ReposEntry, Workflows};
use id::Match;
use keys::TeamAuthzMapping;
use policies::DefinedPolicies;

/// The administrator's rules for repositories, checked. Without a file, the defaults are in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerRepos {
    /// Name of the file without its folders, for messages that are not only for the administrator.
    file: Arc<str>,
    entries: Vec<ReposEntry>,
    /// Program that decides which actions are permitted.
    pub team_authz: Option<TeamAuthz>,
    /// Workflows that the administrator defines.
    workflows: Arc<Workflows>,
    environment_profiles: EnvironmentProfiles,
    policies: Arc<DefinedPolicies>,
    /// `--enable-policy-checks`.
    policy_checks: bool,
    /// `--disable-repo-locking`.
    locking_is_off: bool,
    warnings: Vec<(usize, String)>,
    /// Parts of the file that have no effect.
    without_effect: Vec<YamlNote>,
}

impl ServerRepos {
    /// Maximum size of the file, in bytes.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Maximum number of entries of `repos`.
    pub const MAX_ENTRIES: usize = 1_000;

    /// Parses the file. `name` is its path, for the errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, YamlErrors> {
        Self::parse_as(Syntax::Yaml, name, text)
    }

    /// Parses the same content as JSON.
    pub fn parse_json(name: &str, text: &str) -> Result<Self, YamlErrors> {
        Self::parse_as(Syntax::Json, name, text)
    }

    fn parse_as(syntax: Syntax, name: &str, text: &str) -> Result<Self, YamlErrors> {
        let mut reader = FileReader::default();
        let repos = read(&mut reader, syntax, text);
        let file = name.rsplit('/').next().unwrap_or(name).into();
        if reader.problems.is_empty() {
            reader.without_effect.sort();
            Ok(Self {
                file,
                warnings: reader.warnings,
                without_effect: reader.without_effect,
                ..repos
            })
        } else {
            Err(YamlErrors::new(name, text, reader.problems))
        }
    }

    /// Disables all locks, even if a file enables them (`--disable-repo-locking`).
    #[must_use]
    pub fn without_locking(self) -> Self {
        Self {
            locking_is_off: true,
            ..self
        }
    }

    /// Checks the plans of all projects against the policy sets, unless a file switches that off
    /// (`--enable-policy-checks`).
    ///
    /// # Errors
    ///
    /// Fails if there are no sets: every plan would pass without a check.
    pub fn with_policy_checks(self) -> Result<Self, NoPolicySets> {
        if self.policies.is_empty() {
            return Err(NoPolicySets);
        }
        Ok(Self {
            policy_checks: true,
            ..self
        })
    }

    /// Returns the policy sets, as they are for projects without `custom_policy_check`.
    pub fn policies(&self) -> PolicyConfig {
        self.policies.config()
    }

    /// Returns true if the file has policy sets, although neither the flag nor an entry switches checks on. A project
    /// with permission still can.
    pub fn has_idle_policies(&self) -> bool {
        let is_on = |entry: &ReposEntry| entry.said.policy_check == Some(true);
        !self.policies.is_empty() && !self.policy_checks && !self.entries.iter().any(is_on)
    }

    /// Returns the policy sets without owners. Nobody may approve their violations, except for rules that name teams. Empty
    /// if nothing is checked.
    pub fn sets_without_owners(&self) -> Vec<SetName> {
        if self.has_idle_policies() {
            return Vec::new();
        }
        let sets = self.policies().sets.into_iter();
        sets.filter(|set| set.owners.users.is_empty() && set.owners.teams.is_empty())
            .map(|set| set.name)
            .collect()
    }

    /// Returns the rules for one repository. For each key, the last entry that sets it is in effect (reference 5.2).
    pub fn rules(&self, repo: &RepoId) -> RepoRules {
        let id = repo.to_string();
        let mut rules = RepoRules::new(self);
        for entry in &self.entries {
            match entry.id.matches(repo, &id) {
                Match::Whole => rules.add(entry, &self.file),
                Match::Part => rules.miss(entry, &self.file),
                Match::No => {}
            }
        }
        rules
    }

    /// Returns the shortest time limit of locks that any entry sets.
    pub fn shortest_ttl(&self) -> Option<Duration> {
        self.entries
            .iter()
            .filter_map(|entry| entry.said.locks.ttl.as_ref()?.0)
            .min()
    }

    /// Returns the additional variables for the runs of some projects. The entries that select the projects may
    /// change while the server runs. The profiles themselves stay those of its start.
    pub fn environment_profiles(&self) -> &EnvironmentProfiles {
        &self.environment_profiles
    }

    /// Returns warnings about deprecated settings, and about settings that mean less than they seem to, one sentence
    /// each.
    pub fn warnings(&self) -> Vec<String> {
        let idle = self
            .without_effect
            .iter()
            .map(|remark| (remark.line, remark.to_string()));
        let mut warnings: Vec<(usize, String)> =
            self.warnings.iter().cloned().chain(idle).collect();
        warnings.sort();
        warnings
            .iter()
            .map(|(line, sentence)| format!("{} line {line}: {sentence}", self.file))
            .collect()
    }

    /// Returns the name of the file, and its parts that are accepted without effect.
    pub fn without_effect(&self) -> (&str, &[YamlNote]) {
        (&self.file, &self.without_effect)
    }
}

fn read(reader: &mut FileReader, syntax: Syntax, text: &str) -> ServerRepos {
    if text.len() > ServerRepos::MAX_BYTES {
        let what = format!("the file is larger than {} bytes", ServerRepos::MAX_BYTES);
        reader.problem_of_file(
            what,
            "use one regular expression for repositories with the same rules",
        );
        return ServerRepos::default();
    }
    match yaml::read_as(syntax, text) {
        Ok(Some(node)) => return read_top(reader, &node),
        Ok(None) => reader.problem_of_file(
            "the file is empty".to_owned(),
            "write `repos:` and its entries, or start the server without this file",
        ),
        Err(problem) => reader.problems.push(problem),
    }
    ServerRepos::default()
}

fn read_top(reader: &mut FileReader, node: &YamlNode) -> ServerRepos {
    let Some(file) = reader.mapping::<ServerFileMapping>(node) else {
        return ServerRepos::default();
    };
    let known = reader.problems.len();
    let policies = policies::read(reader, &file.policies);
    // Sets with mistakes are there too, and have been reported.
    let has_policies = !policies.is_empty() || reader.problems.len() > known;
    let stage = if has_policies {
        PolicyStage::Runs
    } else {
        PolicyStage::Idle("the file has no policy sets")
    };
    let workflows = read_workflows(
        reader,
        &file.workflows,
        FileVersion::Three,
        stage,
        WorkflowOrigin::Server,
    );
    if has_policies && reader.problems.len() == known {
        policies.check_steps(reader, &workflows);
    }
    let environment_profiles = environment::read_profiles(reader, &file.environment_profiles);
    let defined = Defined {
        workflows: &workflows,
        profiles: &environment_profiles,
        has_policies,
    };
    let entries = read_entries(reader, defined, &file.repos);
    let team_authz = read_team_authz(reader, &file.team_authz);
    let workflows = Arc::new(workflows);
    ServerRepos {
        entries,
        team_authz,
        workflows,
        environment_profiles,
        policies: Arc::new(policies),
        ..ServerRepos::default()
    }
}

fn read_entries(
    reader: &mut FileReader,
    defined: Defined<'_>,
    repos: &Field<Vec<EntryMapping>>,
) -> Vec<ReposEntry> {
    let nodes = repos.items(reader).unwrap_or_default();
    if nodes.len() > ServerRepos::MAX_ENTRIES {
        let what = format!(
            "there are {} entries of `repos`; the maximum is {}",
            nodes.len(),
            ServerRepos::MAX_ENTRIES
        );
        reader.problem_of_file(
            what,
            "use one regular expression for repositories with the same rules",
        );
        return Vec::new();
    }
    let mut entries = Vec::with_capacity(nodes.len());
    for node in nodes {
        let entry = entry::read(reader, defined, node, &entries);
        entries.extend(entry);
    }
    entries
}

fn read_team_authz(
    reader: &mut FileReader,
    team_authz: &Field<TeamAuthzMapping>,
) -> Option<TeamAuthz> {
    const HELP: &str = "name the command that decides about permissions, or remove `team_authz`";
    let team_authz = team_authz.read(reader)?;
    let args = team_authz
        .args
        .read(reader)
        .unwrap_or_default()
        .into_iter()
        .map(|arg| arg.text)
        .collect();
    if !team_authz.command.is_set() {
        let what = "`team_authz` has no `command`, so there is no program to ask".to_owned();
        reader.problem(team_authz.place(), what, HELP);
    }
    let command = team_authz.command.read(reader)?;
    if command.text.trim().is_empty() {
        let what =
            "the `command` of `team_authz` is empty, so there is no program to ask".to_owned();
        reader.problem(command.place, what, HELP);
    }
    Some(TeamAuthz {
        command: command.text,
        args,
    })
}

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;
