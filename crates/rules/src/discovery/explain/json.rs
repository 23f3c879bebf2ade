//! Writes an [`PlanExplanation`] for programs, with stable keys that `docs/check.md` documents.

use lockkeeper_policy::sets::PolicySet;
use serde::Serialize;

use super::rows::{engine, source};
use super::{Autodiscovery, FileVerdict, PlanExplanation, Planned, Skipped};
use crate::config::BranchFilter;
use crate::config::repos::{Decided, Decider, Demands, LockPolicy};
use crate::model::{ProjectKey, ProjectName, Requirement};

/// JSON form of an [`PlanExplanation`].
#[derive(Debug, Serialize)]
pub struct ExplanationJson<'a> {
    /// Rule that excludes pull requests into this branch.
    not_served: Option<ValueJson<String>>,
    autodiscover: AutodiscoverJson,
    /// Number of hooks that a plan would run first, and that did not run for this explanation.
    hooks_not_run: usize,
    projects: Vec<PlannedJson<'a>>,
    skipped: Vec<SkippedJson<'a>>,
    files: Vec<FileJson<'a>>,
}

impl<'a> ExplanationJson<'a> {
    /// Converts the whole explanation.
    pub fn of(explanation: &'a PlanExplanation) -> Self {
        let filter = |branch: &Decided<BranchFilter>| ValueJson {
            value: format!("/{}/", branch.value.as_str()),
            by: DeciderJson::from(&branch.by),
        };
        Self {
            not_served: explanation.not_served.as_ref().map(filter),
            autodiscover: AutodiscoverJson::of(&explanation.autodiscover),
            hooks_not_run: explanation.hooks,
            projects: explanation.planned.iter().map(PlannedJson::of).collect(),
            skipped: explanation.skipped.iter().map(SkippedJson::of).collect(),
            files: explanation.files.iter().map(FileJson::of).collect(),
        }
    }
}

/// Source of a decision.
#[derive(Debug, Serialize)]
#[serde(tag = "who", rename_all = "snake_case")]
pub enum DeciderJson {
    /// Nobody, because the value is the default.
    Default,
    /// A flag of the server, without dashes.
    Flag {
        /// Name of the flag.
        flag: &'static str,
    },
    /// An entry of the server's file.
    Server {
        /// Name of the file.
        file: String,
        /// Line of the entry.
        line: usize,
        /// Value of `id` of the entry.
        id: String,
    },
    /// The repository's file.
    Repo {
        /// Name of the file.
        file: String,
        /// Line of the entry.
        line: usize,
    },
}

impl From<&Decider> for DeciderJson {
    fn from(by: &Decider) -> Self {
        match by {
            Decider::Default => Self::Default,
            Decider::Flag(flag) => Self::Flag { flag },
            Decider::Server { file, line, id } => Self::Server {
                file: file.to_string(),
                line: *line,
                id: id.clone(),
            },
            Decider::Repo { file, line } => Self::Repo {
                file: file.clone(),
                line: *line,
            },
        }
    }
}

/// A value and the source of its decision.
#[derive(Debug, Serialize)]
struct ValueJson<T> {
    value: T,
    by: DeciderJson,
}

fn value<T: ToString>(decided: &Decided<T>) -> ValueJson<String> {
    ValueJson {
        value: decided.value.to_string(),
        by: DeciderJson::from(&decided.by),
    }
}

#[derive(Debug, Serialize)]
struct AutodiscoverJson {
    mode: ValueJson<String>,
    active: bool,
}

impl AutodiscoverJson {
    fn of(autodiscover: &Autodiscovery) -> Self {
        Self {
            mode: value(&autodiscover.mode),
            active: autodiscover.is_active,
        }
    }
}

/// Name, directory and workspace of a project.
#[derive(Debug, Serialize)]
struct KeyJson<'a> {
    name: Option<&'a ProjectName>,
    dir: &'a str,
    workspace: &'a str,
}

impl<'a> KeyJson<'a> {
    fn of(key: &'a ProjectKey) -> Self {
        Self {
            name: key.name.as_ref(),
            dir: key.dir.as_str(),
            workspace: key.workspace.as_str(),
        }
    }
}

#[derive(Debug, Serialize)]
struct PlannedJson<'a> {
    #[serde(flatten)]
    key: KeyJson<'a>,
    /// True if a push plans the project.
    autoplan: bool,
    autoplan_by: Option<DeciderJson>,
    configured: Option<DeciderJson>,
    why: ReasonJson<'a>,
    workflow: ValueJson<String>,
    requirements: RequirementsJson,
    tool: ToolJson,
    lock: ExplainedLockJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment_profile: Option<ValueJson<String>>,
    /// Policy sets, if the plans of the project are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<ValueJson<Vec<PolicySetJson<'a>>>>,
    execution_order_group: i32,
    depends_on: Vec<&'a str>,
    silenced: ValueJson<Vec<&'static str>>,
}

impl<'a> PlannedJson<'a> {
    fn of(planned: &'a Planned) -> Self {
        let rules = &planned.rules;
        let workflow = &rules.workflow;
        let silenced = rules
            .silenced
            .value
            .iter()
            .map(|kind| kind.as_str())
            .collect();
        Self {
            key: KeyJson::of(&planned.key),
            autoplan: planned.only_asked.is_none(),
            autoplan_by: planned.only_asked.as_ref().map(DeciderJson::from),
            configured: planned.configured.as_ref().map(DeciderJson::from),
            why: ReasonJson::of(planned),
            workflow: ValueJson {
                value: workflow.value.name.clone(),
                by: DeciderJson::from(&workflow.by),
            },
            requirements: RequirementsJson {
                plan: demands(&rules.plan_requirements),
                apply: demands(&rules.apply_requirements),
                import: demands(&rules.import_requirements),
            },
            tool: ToolJson {
                distribution: value(&planned.tool.distribution),
                version: planned.tool.version.as_ref().map(value),
                code: planned.tool.code.iter().map(ToString::to_string).collect(),
            },
            lock: ExplainedLockJson::of(&rules.lock),
            environment_profile: rules.environment_profile.as_ref().map(value),
            policies: rules.policies.as_ref().map(|decided| ValueJson {
                value: decided
                    .value
                    .sets
                    .iter()
                    .map(|set| PolicySetJson::of(planned, set))
                    .collect(),
                by: DeciderJson::from(&decided.by),
            }),
            execution_order_group: planned.order.group,
            depends_on: planned
                .order
                .after
                .iter()
                .map(ProjectName::as_str)
                .collect(),
            silenced: ValueJson {
                value: silenced,
                by: DeciderJson::from(&rules.silenced.by),
            },
        }
    }
}

/// A policy set that concerns a project.
#[derive(Debug, Serialize)]
struct PolicySetJson<'a> {
    name: &'a str,
    engine: &'static str,
    source: String,
    /// True if the set only concerns pull requests with certain labels.
    needs_label: bool,
}

impl<'a> PolicySetJson<'a> {
    fn of(planned: &Planned, set: &'a PolicySet) -> Self {
        Self {
            name: set.name.as_str(),
            engine: engine(set.engine),
            source: source(&set.source),
            needs_label: !set.concerns(&planned.key, &[]),
        }
    }
}

#[derive(Debug, Serialize)]
struct ReasonJson<'a> {
    rule: &'static str,
    file: Option<&'a str>,
    text: String,
}

impl<'a> ReasonJson<'a> {
    fn of(planned: &'a Planned) -> Self {
        let why = &planned.why;
        Self {
            rule: why.word(),
            file: why.file().map(crate::model::RepoPath::as_str),
            text: why.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct RequirementsJson {
    plan: Vec<ValueJson<String>>,
    apply: Vec<ValueJson<String>>,
    import: Vec<ValueJson<String>>,
}

fn demands(demands: &Demands) -> Vec<ValueJson<String>> {
    demands.iter().map(value::<Requirement>).collect()
}

#[derive(Debug, Serialize)]
struct ToolJson {
    distribution: ValueJson<String>,
    version: Option<ValueJson<String>>,
    /// Versions that the code requires, if no setting names a version.
    code: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ExplainedLockJson {
    mode: ValueJson<String>,
    scope: ValueJson<String>,
    /// Time limit in seconds; `null` means no limit.
    ttl: ValueJson<Option<u64>>,
}

impl ExplainedLockJson {
    fn of(policy: &LockPolicy) -> Self {
        let LockPolicy {
            mode,
            scope,
            ttl,
            decided_by,
        } = policy;
        Self {
            mode: ValueJson {
                value: mode.to_string(),
                by: DeciderJson::from(&decided_by.mode),
            },
            scope: ValueJson {
                value: scope.to_string(),
                by: DeciderJson::from(&decided_by.scope),
            },
            ttl: ValueJson {
                value: ttl.map(|ttl| ttl.as_secs()),
                by: DeciderJson::from(&decided_by.ttl),
            },
        }
    }
}

#[derive(Debug, Serialize)]
struct SkippedJson<'a> {
    #[serde(flatten)]
    key: KeyJson<'a>,
    configured: Option<DeciderJson>,
    reason: &'static str,
    text: String,
    /// Patterns of the reason `no_match`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<&'a str>,
}

impl<'a> SkippedJson<'a> {
    fn of(skipped: &'a Skipped) -> Self {
        Self {
            key: KeyJson::of(&skipped.key),
            configured: skipped.configured.as_ref().map(DeciderJson::from),
            reason: skipped.why_not.word(),
            text: skipped.why_not.to_string(),
            patterns: skipped.why_not.patterns(),
        }
    }
}

#[derive(Debug, Serialize)]
struct FileJson<'a> {
    path: &'a str,
    projects: Vec<KeyJson<'a>>,
    reason: Option<&'static str>,
    text: Option<String>,
}

impl<'a> FileJson<'a> {
    fn of(file: &'a FileVerdict) -> Self {
        Self {
            path: file.path.as_str(),
            projects: file.concerns.iter().map(KeyJson::of).collect(),
            reason: file.why_not.as_ref().map(super::FileExclusion::word),
            text: file.why_not.as_ref().map(ToString::to_string),
        }
    }
}
