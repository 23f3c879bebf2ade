//! Reads the conditions of a branch for merges: rulesets and classic protection (GitHub REST: "Get rules for a
//! branch", "Get a branch", "Get branch protection"). An App may always read the first. It needs to read contents for
//! the second, and administration for the third. The third is requested only if the second says that the branch is
//! protected.

use serde::Deserialize;
use serde_json::Value;

use super::call::{Call, RequestFailure};
use super::merging::hidden_by;
use super::pages::Pages;
use super::{GitHub, cut_chars, repo_path, segment};
use crate::model::{BranchName, MergeObstacle, RepoId, code_span};

/// Check that has to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequiredCheck {
    pub context: String,
    /// App that has to set the check; `None` allows any.
    pub app: Option<i64>,
}

/// Conditions of a branch from all rules together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BranchRules {
    pub checks: Vec<RequiredCheck>,
    /// True if the pull has to contain the newest commit of the branch.
    pub strict: bool,
    /// True if pulls have to be reviewed.
    pub wants_reviews: bool,
    /// Required number of approvals.
    pub approvals: u32,
    /// Rules that cannot be read.
    pub hidden: Vec<MergeObstacle>,
}

/// Entry of `GET /repos/{owner}/{repo}/rules/branches/{branch}`.
#[derive(Deserialize)]
struct RuleAnswer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Option<Value>,
}

#[derive(Deserialize)]
struct ChecksRule {
    required_status_checks: Vec<RuleCheck>,
    #[serde(default)]
    strict_required_status_checks_policy: bool,
}

#[derive(Deserialize)]
struct RuleCheck {
    context: String,
    #[serde(default)]
    integration_id: Option<i64>,
}

#[derive(Deserialize)]
struct ReviewRule {
    #[serde(default, alias = "required_approving_review_count")]
    count: u32,
    #[serde(
        default,
        alias = "require_code_owner_review",
        alias = "require_code_owner_reviews"
    )]
    owners: bool,
    #[serde(default, alias = "require_last_push_approval")]
    last_push: bool,
    #[serde(default, alias = "required_review_thread_resolution")]
    threads: bool,
    #[serde(default, alias = "required_reviewers")]
    reviewers: Vec<Value>,
}

/// Answer of `GET /repos/{owner}/{repo}/branches/{branch}`.
#[derive(Deserialize)]
struct BranchAnswer {
    protected: bool,
    #[serde(default)]
    protection: Option<Enabled>,
}

#[derive(Deserialize)]
struct Enabled {
    #[serde(default)]
    enabled: Option<bool>,
}

/// Answer of `GET /repos/{owner}/{repo}/branches/{branch}/protection`.
#[derive(Deserialize)]
struct ProtectionAnswer {
    #[serde(default)]
    required_status_checks: Option<ProtectedChecks>,
    #[serde(default)]
    required_pull_request_reviews: Option<ReviewRule>,
    #[serde(default)]
    required_conversation_resolution: Option<Enabled>,
    #[serde(default)]
    required_signatures: Option<Enabled>,
    #[serde(default)]
    lock_branch: Option<Enabled>,
}

#[derive(Deserialize)]
struct ProtectedChecks {
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    contexts: Vec<String>,
    #[serde(default)]
    checks: Vec<ProtectedCheck>,
}

#[derive(Deserialize)]
struct ProtectedCheck {
    context: String,
    #[serde(default)]
    app_id: Option<i64>,
}

const NOT_TOLD: &str = "GitHub's REST API does not return it";

/// Fetches all rules of a branch.
pub(super) async fn of(
    github: &GitHub,
    repo: &RepoId,
    branch: &BranchName,
) -> Result<BranchRules, RequestFailure> {
    let mut rules = BranchRules::default();
    let path = format!(
        "{}/rules/branches/{}",
        repo_path(repo),
        segment(branch.as_str())
    );
    let what = format!("the rules of the branch `{branch}` of {}", repo.full_name());
    let mut pages = Pages::new(github, repo, &path, "", what);
    loop {
        match pages.next::<RuleAnswer>().await {
            Ok(Some(page)) => page.into_iter().for_each(|rule| rules.add(rule)),
            Ok(None) => break,
            Err(failure) => {
                rules
                    .hidden
                    .push(hidden_by(&failure, "every ruleset of the branch")?);
                break;
            }
        }
    }
    match classic(github, repo, branch).await {
        Ok(Some(protection)) => rules.add_protection(protection),
        Ok(None) => {}
        Err(failure) => rules
            .hidden
            .push(hidden_by(&failure, "the classic protection of the branch")?),
    }
    Ok(rules)
}

/// Fetches the classic protection; `None` if the branch has none.
async fn classic(
    github: &GitHub,
    repo: &RepoId,
    branch: &BranchName,
) -> Result<Option<ProtectionAnswer>, RequestFailure> {
    let path = format!("{}/branches/{}", repo_path(repo), segment(branch.as_str()));
    let call = Call::get(
        path.clone(),
        format!("the branch `{branch}` of {}", repo.full_name()),
    );
    let answer: BranchAnswer = github
        .credentials
        .send(&github.wire, repo, &call)
        .await?
        .json(&github.wire.host, &call.what)?;
    // A branch that only rulesets protect is `protected` as well.
    let is_on = answer
        .protection
        .and_then(|protection| protection.enabled)
        .unwrap_or(answer.protected);
    if !is_on {
        return Ok(None);
    }
    let what = format!(
        "the protection of the branch `{branch}` of {}, which requires the permission to read administration",
        repo.full_name()
    );
    let call = Call::get(format!("{path}/protection"), what);
    let answer = github.credentials.send(&github.wire, repo, &call).await?;
    answer.json(&github.wire.host, &call.what).map(Some)
}

impl BranchRules {
    fn add(&mut self, rule: RuleAnswer) {
        let parameters = rule.parameters.unwrap_or_default();
        match rule.kind.as_str() {
            // These rules do not concern the merge of a pull. A merge by rebase satisfies the rule of a linear
            // history.
            "creation"
            | "deletion"
            | "non_fast_forward"
            | "required_linear_history"
            | "merge_queue" => {}
            "required_status_checks" => match serde_json::from_value::<ChecksRule>(parameters) {
                Ok(rule) => {
                    self.strict |= rule.strict_required_status_checks_policy;
                    let check = |check: RuleCheck| RequiredCheck {
                        context: check.context,
                        app: app(check.integration_id),
                    };
                    self.checks
                        .extend(rule.required_status_checks.into_iter().map(check));
                }
                Err(_) => self.hide(&rule.kind),
            },
            "pull_request" => match serde_json::from_value::<ReviewRule>(parameters) {
                Ok(rule) => self.add_reviews(&rule),
                Err(_) => self.hide(&rule.kind),
            },
            other => self.hide(other),
        }
    }

    fn add_protection(&mut self, protection: ProtectionAnswer) {
        if let Some(rule) = protection.required_status_checks {
            self.strict |= rule.strict;
            let named: Vec<String> = rule
                .checks
                .iter()
                .map(|check| check.context.clone())
                .collect();
            let check = |check: ProtectedCheck| RequiredCheck {
                context: check.context,
                app: app(check.app_id),
            };
            self.checks.extend(rule.checks.into_iter().map(check));
            // This is the old form of the same list.
            let old = rule
                .contexts
                .into_iter()
                .filter(|context| !named.contains(context));
            self.checks
                .extend(old.map(|context| RequiredCheck { context, app: None }));
        }
        if let Some(rule) = protection.required_pull_request_reviews {
            self.add_reviews(&rule);
        }
        for (rule, is_on) in [
            (
                "that every conversation is resolved",
                protection.required_conversation_resolution,
            ),
            (
                "that every commit is signed",
                protection.required_signatures,
            ),
            ("that the branch is not locked", protection.lock_branch),
        ] {
            if is_on.is_some_and(|on| on.enabled == Some(true)) {
                self.hide(rule);
            }
        }
    }

    fn add_reviews(&mut self, rule: &ReviewRule) {
        self.wants_reviews = true;
        self.approvals = self.approvals.max(rule.count);
        for (name, is_on) in [
            ("that owners of the code approve", rule.owners),
            (
                "that somebody else approves the newest push",
                rule.last_push,
            ),
            ("that every conversation is resolved", rule.threads),
            (
                "that the required reviewers approve",
                !rule.reviewers.is_empty(),
            ),
        ] {
            if is_on {
                self.hide(name);
            }
        }
    }

    fn hide(&mut self, rule: &str) {
        let rule = match rule.split_once(' ') {
            Some(_) => format!("the rule {rule}"),
            None => format!("the rule {}", code_span(&cut_chars(rule, 60))),
        };
        let hidden = MergeObstacle::Hidden {
            rule,
            why: NOT_TOLD.to_owned(),
        };
        if !self.hidden.contains(&hidden) {
            self.hidden.push(hidden);
        }
    }
}

/// Returns the App of a check; GitHub writes -1 for any App.
fn app(id: Option<i64>) -> Option<i64> {
    id.filter(|id| *id > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(rules: &BranchRules) -> String {
        let name = |obstacle: &MergeObstacle| {
            let MergeObstacle::Hidden { rule, .. } = obstacle else {
                panic!("{obstacle:?}")
            };
            format!("{rule}\n")
        };
        rules.hidden.iter().map(name).collect()
    }

    fn rulesets(list: Value) -> BranchRules {
        let mut rules = BranchRules::default();
        let list: Vec<RuleAnswer> = serde_json::from_value(list).unwrap();
        for rule in list {
            rules.add(rule);
        }
        rules
    }

    #[test]
    fn rulesets_are_added_up() {
        let rules = rulesets(json!([
            {"type": "deletion", "ruleset_id": 1},
            {"type": "required_status_checks", "parameters": {
                "strict_required_status_checks_policy": true,
                "required_status_checks": [{"context": "ci/a"}, {"context": "ci/b", "integration_id": 7}],
            }},
            {"type": "pull_request", "parameters": {"required_approving_review_count": 2}},
            {"type": "pull_request", "parameters": {"required_approving_review_count": 1}},
        ]));
        let check = |context: &str, app| RequiredCheck {
            context: context.to_owned(),
            app,
        };
        assert_eq!(rules.checks, [check("ci/a", None), check("ci/b", Some(7))]);
        assert_eq!(
            (
                rules.strict,
                rules.wants_reviews,
                rules.approvals,
                rules.hidden.len()
            ),
            (true, true, 2, 0)
        );
    }

    #[test]
    fn what_cannot_be_looked_at_is_hidden_and_not_forgotten() {
        let all = rulesets(json!([
            {"type": "required_signatures"},
            {"type": "required_signatures"},
            {"type": "brand_new`", "parameters": {}},
            {"type": "required_status_checks", "parameters": {}},
            {"type": "pull_request", "parameters": {
                "require_code_owner_review": true, "require_last_push_approval": true,
                "required_review_thread_resolution": true, "required_reviewers": [{}],
            }},
        ]));
        insta::assert_snapshot!(hidden(&all), @"
        the rule `required_signatures`
        the rule `brand_new'`
        the rule `required_status_checks`
        the rule that owners of the code approve
        the rule that somebody else approves the newest push
        the rule that every conversation is resolved
        the rule that the required reviewers approve
        ");
    }

    #[test]
    fn classic_protection_is_added_to_the_rulesets() {
        let mut rules = BranchRules::default();
        rules.add_protection(
            serde_json::from_value(json!({
                "required_status_checks": {
                    "strict": true, "contexts": ["ci/a", "ci/b"],
                    "checks": [{"context": "ci/a", "app_id": 7}, {"context": "ci/c", "app_id": -1}],
                },
                "required_pull_request_reviews": {"required_approving_review_count": 1, "require_code_owner_reviews": true},
                "required_conversation_resolution": {"enabled": true},
                "required_signatures": {"enabled": false},
                "lock_branch": {"enabled": true},
            }))
            .unwrap(),
        );
        let checks: Vec<_> = rules
            .checks
            .iter()
            .map(|check| (check.context.as_str(), check.app))
            .collect();
        assert_eq!(checks, [("ci/a", Some(7)), ("ci/c", None), ("ci/b", None)]);
        assert_eq!((rules.strict, rules.approvals), (true, 1));
        insta::assert_snapshot!(hidden(&rules), @"
        the rule that owners of the code approve
        the rule that every conversation is resolved
        the rule that the branch is not locked
        ");
    }
}
