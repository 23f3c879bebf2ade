//! Collects what the policy checks of a plan need: the sets that concern the project, their policies from trusted
//! places, and facts of the pull request.
//!
//! Nothing here fails a plan. A set without its policies, or a plan without its facts, is not evaluated, and cannot be
//! applied (P6).

use std::collections::HashMap;
use std::sync::Arc;

use lockkeeper_policy::facts::{EarlierPlan, Facts, ProjectFacts};
use lockkeeper_policy::sets::PolicySet;
use tokio::sync::{Mutex, OnceCell};

use super::Work;
use crate::errors::describe_error;
use crate::features::planning::CommandCx;
use crate::features::planning::policy_checks::CurrentSet;
use crate::model::ProjectKey;
use crate::workflow::{PolicySources, PolicyWork, ReadyPolicies};

/// Inputs of policy checks that the projects of a command share.
#[derive(Default)]
pub(super) struct SharedPolicyInputs {
    /// Policies that were read, by the digest of the definition of their set.
    read: Mutex<HashMap<String, Arc<ReadyPolicies>>>,
    /// Files that the pull request changes.
    files: OnceCell<Result<Vec<String>, String>>,
}

impl Work {
    /// Returns the policy checks for the plan of a project; `None` if no policy set concerns it.
    pub(super) async fn policy_work(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
    ) -> Option<PolicyWork> {
        let rules = self.policies(project);
        let sets = rules.sets(project, &cx.pull.labels)?;
        if sets.is_empty() {
            return None;
        }
        Some(PolicyWork {
            step_sets: rules.step_sets(project),
            conftest_version: rules.conftest_version(project),
            facts: self.policy_facts(cx, project).await,
            sources: self.policy_sources(cx, &sets).await,
            today: cx.ctx.clock.now().date_naive(),
            sets,
        })
    }

    /// Reads the policies of the sets, each once for a command.
    async fn policy_sources(&self, cx: &CommandCx<'_>, sets: &[CurrentSet]) -> PolicySources {
        let mut known = self.policy_inputs.read.lock().await;
        let unread: Vec<Arc<PolicySet>> = sets
            .iter()
            .filter(|(_, definition)| !known.contains_key(definition.0.as_str()))
            .map(|(set, _)| Arc::clone(set))
            .collect();
        if !unread.is_empty() {
            let pull = cx.pull;
            // An application has no branch of its own.
            let own_branch =
                (!pull.is_fork() && !pull.at.subject.is_application()).then_some(&pull.head_branch);
            let reading = cx
                .ctx
                .checkouts
                .policy_sources(&pull.at.repo, own_branch, &unread);
            let read = Box::pin(reading).await;
            for (set, definition) in sets {
                if let Some(ready) = read.get(&set.name) {
                    known.insert(definition.0.as_str().to_owned(), Arc::clone(ready));
                }
            }
        }
        let of_set = |(set, definition): &CurrentSet| {
            let ready = known.get(definition.0.as_str())?;
            Some((set.name.clone(), Arc::clone(ready)))
        };
        sets.iter().filter_map(of_set).collect()
    }

    /// Collects the facts for policies; an error says which of them cannot be determined.
    async fn policy_facts(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
    ) -> Result<Facts, String> {
        let pull = cx.pull;
        let is_application = pull.at.subject.is_application();
        let (files, approvals) = if is_application {
            (Vec::new(), Vec::new())
        } else {
            let files = self.policy_inputs.files.get_or_init(|| self.changes(cx));
            (files.await.clone()?, self.approvals(cx).await?)
        };
        let plans = cx.ctx.store.plan_list(&pull.at).await.map_err(|error| {
            format!(
                "the earlier plan of the project cannot be read: {}",
                describe_error(&error)
            )
        })?;
        let earlier = plans.into_iter().find(|plan| plan.project == *project);
        Ok(Facts {
            author: pull.author.clone(),
            labels: pull.labels.clone(),
            files,
            approvals,
            base_branch: pull.base_branch.to_string(),
            head_branch: pull.head_branch.to_string(),
            repository: pull.at.repo.to_string(),
            pull: if is_application {
                0
            } else {
                u64::try_from(pull.at.subject.stored()).unwrap_or_default()
            },
            project: ProjectFacts {
                dir: project.dir.to_string(),
                workspace: project.workspace.to_string(),
                name: project.name.as_ref().map(ToString::to_string),
            },
            earlier_plan: earlier.map(|plan| EarlierPlan {
                id: plan.id.to_string(),
                counts: Some(plan.counts),
                at: plan.created_at,
            }),
        })
    }

    /// Lists the files that the pull request changes. Git is asked, because the forge does not list all files of a large
    /// change.
    async fn changes(&self, cx: &CommandCx<'_>) -> Result<Vec<String>, String> {
        let unknown = "the changed files of the pull request cannot be determined";
        let changes = cx.ctx.checkouts.changed(self.source()).await;
        let changes = changes.map_err(|error| format!("{unknown}: {}", describe_error(&error)))?;
        let Some(changes) = changes else {
            return Err(format!("{unknown}: there are too many"));
        };
        let mut files: Vec<String> = changes
            .files
            .into_iter()
            .flat_map(|file| [Some(file.path), file.previous])
            .flatten()
            .map(|path| path.to_string())
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// Lists the people who approve the commit that is planned.
    async fn approvals(&self, cx: &CommandCx<'_>) -> Result<Vec<String>, String> {
        let approval = self.findings.approval(cx).await.map_err(|error| {
            format!(
                "the approvals of the pull request cannot be determined: {}",
                describe_error(&error)
            )
        })?;
        let of_head = approval
            .by
            .into_iter()
            .filter(|(_, commit)| commit.as_ref() == Some(&cx.pull.head));
        Ok(of_head.map(|(login, _)| login).collect())
    }
}
