//! Formats the rules of a project as lines to read: a label, values, and the source of each value. Projects with the
//! same rules share one group.

use std::collections::HashMap;
use std::fmt;

use lockkeeper_policy::sets::{PolicyEngine, PolicySet, PolicySource};

use super::{OrderPosition, Planned};
use crate::config::repo::{quoted, shown};
use crate::config::repos::{Decided, Decider, Demands, LockPolicy};
use crate::model::{LockMode, RunKind};

/// One line with a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRow {
    /// Subject of the line.
    pub label: &'static str,
    /// Decided values, in order.
    pub parts: Vec<ExplainedValue>,
}

/// A value and the sources of its decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedValue {
    /// The value as text.
    pub text: String,
    /// Sources of the decision: none, one, or several lines of one file.
    by: Vec<Decider>,
}

impl ExplainedValue {
    fn new(text: impl Into<String>, by: &Decider) -> Self {
        Self {
            text: text.into(),
            by: vec![by.clone()],
        }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            by: Vec::new(),
        }
    }

    /// Returns a phrase that names the sources of the decision.
    pub fn by(&self) -> Option<String> {
        const SHOWN: usize = 3;
        let mut lines: Vec<(&str, usize)> = self.by.iter().filter_map(line).collect();
        lines.sort_unstable();
        let Some((file, _)) = lines.first().filter(|_| lines.len() > 1) else {
            return self.by.first().map(ToString::to_string);
        };
        let mut numbers: Vec<String> = lines
            .iter()
            .take(SHOWN)
            .map(|(_, line)| line.to_string())
            .collect();
        if lines.len() > SHOWN {
            numbers.push("…".to_owned());
        }
        Some(format!("lines {} of `{}`", numbers.join(", "), shown(file)))
    }
}

fn line(by: &Decider) -> Option<(&str, usize)> {
    match by {
        Decider::Repo { file, line } => Some((file, *line)),
        Decider::Default | Decider::Flag(_) | Decider::Server { .. } => None,
    }
}

impl fmt::Display for ExplainedRow {
    /// Writes the values. Neighbouring values with the same source share one phrase about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            f.write_str(&part.text)?;
            let is_said_later = self
                .parts
                .get(index + 1)
                .is_some_and(|next| next.by == part.by);
            if let Some(by) = part.by().filter(|_| !is_said_later) {
                write!(f, " ({by})")?;
            }
        }
        Ok(())
    }
}

/// Returns the rules of a project as lines.
pub fn rows(planned: &Planned) -> Vec<ExplainedRow> {
    let rules = &planned.rules;
    let mut rows = vec![ExplainedRow {
        label: "workflow",
        parts: vec![ExplainedValue::new(
            format!("`{}`", shown(&rules.workflow.value.name)),
            &rules.workflow.by,
        )],
    }];
    rows.extend(requirements(planned));
    rows.push(ExplainedRow {
        label: "tool",
        parts: tool(planned),
    });
    rows.push(ExplainedRow {
        label: "lock",
        parts: lock(&rules.lock),
    });
    rows.extend(
        rules
            .environment_profile
            .as_ref()
            .map(|profile| ExplainedRow {
                label: "environment",
                parts: vec![ExplainedValue::new(
                    format!("profile `{}`", shown(&profile.value)),
                    &profile.by,
                )],
            }),
    );
    rows.extend(policies(planned));
    rows.extend(order(planned));
    if !rules.silenced.value.is_empty() {
        let kinds = quoted(
            rules
                .silenced
                .value
                .iter()
                .map(|kind: &RunKind| kind.as_str()),
        );
        rows.push(ExplainedRow {
            label: "silenced",
            parts: vec![ExplainedValue::new(kinds, &rules.silenced.by)],
        });
    }
    rows
}

fn requirements(planned: &Planned) -> Vec<ExplainedRow> {
    let rules = &planned.rules;
    let all = [
        ("plan needs", &rules.plan_requirements),
        ("apply needs", &rules.apply_requirements),
        ("import needs", &rules.import_requirements),
    ];
    if all.iter().all(|(_, demands)| demands.is_empty()) {
        return vec![ExplainedRow {
            label: "needs",
            parts: vec![ExplainedValue::plain("nothing for plan, apply or import")],
        }];
    }
    all.into_iter()
        .map(|(label, demands)| ExplainedRow {
            label,
            parts: demanded(demands),
        })
        .collect()
}

fn demanded(demands: &Demands) -> Vec<ExplainedValue> {
    if demands.is_empty() {
        return vec![ExplainedValue::plain("nothing")];
    }
    demands
        .iter()
        .map(|demand| ExplainedValue::new(format!("`{}`", demand.value), &demand.by))
        .collect()
}

fn tool(planned: &Planned) -> Vec<ExplainedValue> {
    let tool = &planned.tool;
    let version = match &tool.version {
        Some(version) => ExplainedValue::new(format!("version {}", version.value), &version.by),
        None if tool.code.is_empty() => ExplainedValue::plain("any version of the server"),
        None if tool.code.unreadable().is_some() => {
            ExplainedValue::plain(format!("no version: {}", tool.code))
        }
        None => ExplainedValue::plain(format!("the newest version that matches: {}", tool.code)),
    };
    vec![
        ExplainedValue::new(tool.distribution.value.as_str(), &tool.distribution.by),
        version,
    ]
}

fn lock(policy: &LockPolicy) -> Vec<ExplainedValue> {
    let mode = ExplainedValue::new(format!("`{}`", policy.mode), &policy.decided_by.mode);
    if policy.mode == LockMode::Disabled {
        return vec![mode];
    }
    let scope = ExplainedValue::new(
        format!("scope `{}`", policy.scope),
        &policy.decided_by.scope,
    );
    let ttl = policy.ttl.map_or_else(
        || "no time limit".to_owned(),
        |ttl| format!("{} without activity", hours(ttl)),
    );
    vec![
        mode,
        scope,
        ExplainedValue::new(ttl, &policy.decided_by.ttl),
    ]
}

/// Names the policy sets of a project; `None` if its plans are not checked.
fn policies(planned: &Planned) -> Option<ExplainedRow> {
    let Decided { value, by } = planned.rules.policies.as_ref()?;
    let mut parts: Vec<ExplainedValue> = value
        .sets
        .iter()
        .map(|set| ExplainedValue::new(policy_set(planned, set), by))
        .collect();
    if parts.is_empty() {
        parts.push(ExplainedValue::new("no set concerns it", by));
    }
    Some(ExplainedRow {
        label: "policies",
        parts,
    })
}

/// Describes a policy set: "`basics` (`conftest`, `/etc/policies`)".
fn policy_set(planned: &Planned, set: &PolicySet) -> String {
    let name = shown(set.name.as_str());
    let (engine, source) = (engine(set.engine), source(&set.source));
    // The labels of the pull request are no part of an explanation.
    let labels = if set.concerns(&planned.key, &[]) {
        ""
    } else {
        ", if the pull request has one of its labels"
    };
    format!("`{name}` (`{engine}`, {source}{labels})")
}

/// Returns the engine of a policy set, as the file of the server names it.
pub(super) fn engine(engine: PolicyEngine) -> &'static str {
    match engine {
        PolicyEngine::Conftest => "conftest",
        PolicyEngine::Embedded => "embedded",
        PolicyEngine::Steps(_) => "steps",
    }
}

/// Names the place of policies.
pub(super) fn source(source: &PolicySource) -> String {
    match source {
        PolicySource::Local(path) => format!("`{}`", shown(&path.to_string_lossy())),
        PolicySource::Relative(path) => {
            format!(
                "the relative path `{}`, from which nothing is read",
                shown(path)
            )
        }
        PolicySource::Branch { branch, path } => format!(
            "`{}` on the branch `{}`",
            shown(path.as_str()),
            shown(branch)
        ),
        PolicySource::Repository {
            repository,
            reference,
            path,
        } => format!(
            "`{}` of `{}` at `{}`",
            shown(path.as_str()),
            shown(repository),
            shown(reference)
        ),
        PolicySource::Steps => "steps of the workflow".to_owned(),
    }
}

fn hours(time: std::time::Duration) -> String {
    match time.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

fn order(planned: &Planned) -> Option<ExplainedRow> {
    let OrderPosition { group, after } = &planned.order;
    let Some(by) = &planned.configured else {
        let text = format!("in group {group}, after its dependencies");
        return (*group != 0).then(|| ExplainedRow {
            label: "order",
            parts: vec![ExplainedValue::plain(text)],
        });
    };
    let mut parts = Vec::new();
    if *group != 0 {
        parts.push(ExplainedValue::new(format!("in group {group}"), by));
    }
    if !after.is_empty() {
        let names = quoted(after.iter().map(|name| shown(name.as_str())));
        parts.push(ExplainedValue::new(format!("after {names}"), by));
    }
    (!parts.is_empty()).then_some(ExplainedRow {
        label: "order",
        parts,
    })
}

/// Projects with the same rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedGroup<'a> {
    /// Lines that describe the rules.
    pub rows: Vec<ExplainedRow>,
    /// Projects of the group, in their order.
    pub projects: Vec<&'a Planned>,
}

/// Groups projects with the same rules, in the order of the first project of each group. The lines of the
/// repository's file that set the rules may differ.
pub fn groups(planned: &[Planned]) -> Vec<PlannedGroup<'_>> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<PlannedGroup<'_>> = Vec::new();
    for one in planned {
        let rows = rows(one);
        let at = *index.entry(same(&rows)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(PlannedGroup {
                rows,
                projects: vec![one],
            });
        } else {
            groups[at].add(one, rows);
        }
    }
    groups
}

impl<'a> PlannedGroup<'a> {
    fn add(&mut self, one: &'a Planned, rows: Vec<ExplainedRow>) {
        self.projects.push(one);
        let new = rows.into_iter().flat_map(|row| row.parts);
        for (part, new) in self.rows.iter_mut().flat_map(|row| &mut row.parts).zip(new) {
            let unheard: Vec<Decider> = new
                .by
                .into_iter()
                .filter(|by| !part.by.contains(by))
                .collect();
            part.by.extend(unheard);
        }
    }
}

/// Returns a text that is equal for rows with the same content, even if they come from different lines of the
/// repository's file.
fn same(rows: &[ExplainedRow]) -> String {
    let without_line = |by: &Decider| match by {
        Decider::Repo { file, .. } => file.clone(),
        Decider::Default | Decider::Flag(_) | Decider::Server { .. } => by.to_string(),
    };
    let mut pieces = Vec::new();
    for row in rows {
        pieces.push(row.label.to_owned());
        for part in &row.parts {
            pieces.push(part.text.clone());
            pieces.extend(part.by.iter().map(without_line));
        }
    }
    pieces.join("\n")
}
