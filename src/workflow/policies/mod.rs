//! Checks a plan against policies (reference 13), as a part of the run that makes it.
//!
//! - [`sources`] reads the policies: from a directory of the server, or from a commit of a mirror. It never reads the head
//!   of the pull request.
//! - [`conftest`] runs the program conftest and reads its report, [`engine`] runs the engine of this program, and
//!   [`custom`] reads the reports of steps.
//! - The steps of the stage `policy_check` are driven by `steps/policy_check.rs` and its folder.
//!
//! Every set of the work gets a verdict. A set that cannot be evaluated, for any reason, has one that says why (P6).

pub(super) mod conftest;
pub(super) mod custom;
pub(super) mod engine;
pub(super) mod files;
mod sources;

use std::collections::HashMap;
use std::sync::Arc;

use chrono::NaiveDate;
use lockkeeper_policy::facts::Facts;
use lockkeeper_policy::findings::PolicyFinding;
use lockkeeper_policy::sets::{PolicySet, SetDigest, SetName};
use lockkeeper_policy::verdict::Verdict;
use lockkeeper_policy::waivers::{self, Waiver};
use semver::Version;

use crate::model::Sha256Digest;
use files::PolicyFiles;

/// Policy sets of one project, with everything that their evaluation needs.
pub struct PolicyWork {
    /// Sets that concern the project, each with the digest of its definition.
    pub sets: Vec<(Arc<PolicySet>, SetDigest)>,
    /// All sets of the server that steps check in projects such as this one, in their order, also those that do not concern
    /// the project.
    pub step_sets: Vec<SetName>,
    /// Required version of conftest.
    pub conftest_version: Option<Version>,
    /// Facts of the pull request; an error says why they are unknown.
    pub facts: Result<Facts, String>,
    /// Policies of the sets.
    pub sources: PolicySources,
    /// Day of the evaluation, for waivers.
    pub today: NaiveDate,
}

/// Policies by the names of their sets.
pub type PolicySources = HashMap<SetName, Arc<ReadyPolicies>>;

/// Policies of one set.
pub struct ReadyPolicies {
    /// The files; an error says why there are none, and the way out.
    pub(super) read: Result<ReadFiles, String>,
    /// Waivers of the set; an error says why their file cannot be used.
    pub(super) waivers: Result<Vec<Waiver>, String>,
}

/// Files of policies, with their origin.
pub(super) struct ReadFiles {
    pub files: PolicyFiles,
    /// Directory, or commit, for people.
    pub origin: String,
    /// Digest of the files, if it is known.
    pub content: Option<Sha256Digest>,
}

/// A policy set with the digest of its definition.
pub(super) type DefinedSet = (Arc<PolicySet>, SetDigest);

/// Findings of a set with the text for people, or the reason why it cannot be evaluated, with what was printed.
pub(super) struct PolicyEvaluation {
    pub found: Result<Vec<PolicyFinding>, String>,
    pub output: String,
    /// Program that evaluated the set or tried to, with its version; `None` if it is unknown.
    pub tool: Option<String>,
}

impl PolicyEvaluation {
    /// Creates a value for a set that cannot be evaluated.
    pub fn missing(why: impl Into<String>, output: impl Into<String>) -> Self {
        Self {
            found: Err(why.into()),
            output: output.into(),
            tool: None,
        }
    }

    /// Returns the same with the program that evaluated the set.
    pub fn by(self, tool: String) -> Self {
        Self {
            tool: Some(tool),
            ..self
        }
    }
}

impl PolicyWork {
    /// Returns the policies of a set.
    pub(super) fn policies_of(&self, set: &PolicySet) -> Result<&ReadFiles, String> {
        let ready = self.sources.get(&set.name);
        let ready = ready.ok_or_else(|| "its policies were not read".to_owned())?;
        ready.read.as_ref().map_err(Clone::clone)
    }

    /// Returns the verdict of a set. Waivers take findings out first. Remarks about them are no part of the output, whose
    /// items approvals cover.
    pub(super) fn verdict(
        &self,
        (set, digest): &DefinedSet,
        evaluated: PolicyEvaluation,
    ) -> Verdict {
        let ready = self.sources.get(&set.name);
        let read = ready.and_then(|ready| ready.read.as_ref().ok());
        let origin = read.map_or_else(
            || "a step of the workflow".to_owned(),
            |read| read.origin.clone(),
        );
        let content = read.and_then(|read| read.content.clone());
        let PolicyEvaluation {
            found,
            output,
            tool,
        } = evaluated;
        let mut findings = match found {
            Ok(findings) => findings,
            Err(why) => {
                return Verdict::not_evaluated(&set.name, digest.clone(), origin, why, output)
                    .by_tool(tool.as_deref());
            }
        };
        let notes = match ready.map(|ready| &ready.waivers) {
            None => Vec::new(),
            Some(Ok(waivers)) => waivers::apply(waivers, self.today, &mut findings),
            Some(Err(why)) => vec![format!("No waiver applies: {why}")],
        };
        Verdict::of_findings(set, digest.clone(), origin, content, findings, output)
            .with_notes(&notes)
            .by_tool(tool.as_deref())
    }
}

/// Sets and work for tests.
#[cfg(test)]
pub(super) mod testing {
    use lockkeeper_policy::sets::{ItemRegex, PolicyEngine, PolicyOwners, PolicySource, SetScope};

    use super::*;

    /// Returns a set of a directory of the server.
    pub(in crate::workflow) fn policy_set(name: &str, engine: PolicyEngine) -> PolicySet {
        PolicySet {
            name: SetName::parse(name).unwrap(),
            source: PolicySource::Local("/policies".into()),
            engine,
            namespaces: Vec::new(),
            scope: SetScope::default(),
            owners: PolicyOwners::default(),
            approve_count: 1,
            prevent_self_approve: false,
            sticky: false,
            item_regex: ItemRegex::default(),
            waivers: None,
        }
    }

    /// Returns the work for one set, which has these policies.
    pub(in crate::workflow) fn work_of(set: PolicySet, ready: ReadyPolicies) -> PolicyWork {
        let digest = set.digest(None);
        PolicyWork {
            sources: HashMap::from([(set.name.clone(), Arc::new(ready))]),
            sets: vec![(Arc::new(set), digest)],
            step_sets: Vec::new(),
            conftest_version: None,
            facts: Ok(Facts::default()),
            today: NaiveDate::from_ymd_opt(2027, 1, 1).unwrap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_policy::sets::{ItemRegex, PolicyEngine};
    use regex::Regex;

    use super::testing::{policy_set, work_of};
    use super::*;

    /// Returns the verdict of a set with one violation, whose waivers are these.
    fn violated(waivers: Result<Vec<Waiver>, String>) -> Verdict {
        let mut set = policy_set("a", PolicyEngine::Embedded);
        set.item_regex = ItemRegex(Regex::new("FAIL.*|waiver").unwrap());
        let read = Err("it is not needed here".to_owned());
        let work = work_of(set, ReadyPolicies { read, waivers });
        let evaluated = PolicyEvaluation {
            found: Ok(vec![PolicyFinding::deny("main.deny", "public")]),
            output: "FAIL public".to_owned(),
            tool: Some("conftest 0.62.0".to_owned()),
        };
        work.verdict(&work.sets[0], evaluated)
    }

    #[test]
    fn remarks_about_waivers_are_no_part_of_the_output() {
        let ended = waivers::read(
            "waivers: [{rule: main.deny, resource: '*', reason: r, owner: alice, until: 2026-12-31}]",
        );
        let ended = violated(Ok(ended.unwrap()));
        assert_eq!(
            ended.notes,
            ["The waiver of `main.deny` for `*` ended on 2026-12-31. Its owner is alice."]
        );
        let broken = violated(Err("the file is damaged".to_owned()));
        assert_eq!(broken.notes, ["No waiver applies: the file is damaged"]);
        let plain = violated(Ok(Vec::new()));
        assert_eq!(plain.notes, Vec::<String>::new());
        for verdict in [&ended, &broken, &plain] {
            assert!(verdict.is_failed());
            assert_eq!(verdict.output, "FAIL public");
            assert_eq!(verdict.tool.as_deref(), Some("conftest 0.62.0"));
            assert_eq!(verdict.items, [Sha256Digest::of(b"FAIL public")]);
        }
    }
}
