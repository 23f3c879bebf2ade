//! Collects what the policy checks of a plan need: the sets that concern its project, their policies, and facts of the pull
//! request.

use std::sync::Arc;

use lockkeeper_policy::facts::{EarlierPlan, Facts, ProjectFacts};
use lockkeeper_policy::sets::PolicySet;

use super::Work;
use crate::clock::Clock as _;
use crate::errors::describe_error;
use crate::features::planning::CommandCx;
use crate::model::{ProjectKey, Subject};
use crate::workflow::{PolicySources, PolicyWork};

impl Work {
    /// Returns the policy checks of a project; `None` if its plans are not checked.
    pub(super) async fn policy_work(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
    ) -> Option<PolicyWork> {
        let rules = self.policies(project);
        let checks = rules.of_operator().policies(rules.config(), project)?;
        let version = checks.conftest_version;
        let sets: Vec<Arc<PolicySet>> = checks
            .sets
            .into_iter()
            .filter(|set| set.concerns(project, &cx.pull.labels))
            .collect();
        let sources = self.read_policies(cx, &sets).await;
        let sets = sets.into_iter().map(|set| {
            let digest = set.digest(version.as_ref());
            (set, digest)
        });
        Some(PolicyWork {
            sets: sets.collect(),
            facts: self.policy_facts(cx, project).await,
            sources,
            today: cx.ctx.clock.now().date_naive(),
            conftest_version: version,
        })
    }

    /// Returns the policies of sets. Each set is read once for the command, so that all projects are checked against the
    /// same policies.
    async fn read_policies(&self, cx: &CommandCx<'_>, sets: &[Arc<PolicySet>]) -> PolicySources {
        let mut known = self.policy_sources.lock().await;
        let unread: Vec<Arc<PolicySet>> = sets
            .iter()
            .filter(|set| !known.contains_key(&set.name))
            .cloned()
            .collect();
        if !unread.is_empty() {
            let repo = &cx.pull.at.repo;
            let read = Box::pin(cx.ctx.checkouts.policy_sources(repo, &unread)).await;
            known.extend(read);
        }
        let of_set = |set: &Arc<PolicySet>| {
            let ready = known.get(&set.name)?;
            Some((set.name.clone(), Arc::clone(ready)))
        };
        sets.iter().filter_map(of_set).collect()
    }

    /// Collects the facts for policies. A fact that is not known is an error: a policy would take the missing file or label for
    /// one that is not there.
    async fn policy_facts(
        &self,
        cx: &CommandCx<'_>,
        project: &ProjectKey,
    ) -> Result<Facts, String> {
        let (pull, source) = (cx.pull, self.source());
        let unknown = |what: &str, error: &str| {
            format!(
                "{what} cannot be determined, and policies may depend on them: {error}. Plan again"
            )
        };
        let changes = cx.ctx.checkouts.changed(source).await;
        let changes = changes
            .map_err(|error| unknown("the changed files", &describe_error(&error)))?
            .ok_or_else(|| unknown("the changed files", "there are too many of them"))?;
        let (number, approvals) = match pull.at.subject {
            Subject::Application(_) => (0, Vec::new()),
            Subject::Pull(number) => {
                let approval = self.findings.approval(cx).await;
                let approval =
                    approval.map_err(|error| unknown("the approvals", &describe_error(&error)))?;
                // An approval of an older commit says nothing about the planned one.
                let by: Vec<String> = approval
                    .by
                    .into_iter()
                    .filter(|(_, commit)| commit.as_ref() == Some(&pull.head))
                    .map(|(login, _)| login)
                    .collect();
                (u64::try_from(number.0).unwrap_or_default(), by)
            }
        };
        let plans = cx.ctx.store.plan_list(&pull.at).await;
        let plans = plans.map_err(|error| unknown("the earlier plans", &describe_error(&error)))?;
        let earlier = plans.into_iter().find(|plan| plan.project == *project);
        Ok(Facts {
            author: pull.author.clone(),
            labels: pull.labels.clone(),
            files: changes
                .files
                .iter()
                .flat_map(|file| [Some(&file.path), file.previous.as_ref()])
                .flatten()
                .map(ToString::to_string)
                .collect(),
            approvals,
            base_branch: pull.base_branch.to_string(),
            head_branch: pull.head_branch.to_string(),
            repository: pull.at.repo.to_string(),
            pull: number,
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
}
