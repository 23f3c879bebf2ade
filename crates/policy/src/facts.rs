//! Facts of the pull request, for policies: `data.lockkeeper` in Rego, with the embedded engine and with conftest.
//!
//! Policies combine them with the plan. The forge and this server state them. The author of the pull request chooses only
//! the name of the head branch and the paths of files, and labels with the permission to label.

use chrono::{DateTime, Utc};
use lockkeeper_model::model::PlanCounts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Facts of a pull request and of the project whose plan is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Facts {
    /// Login of the author.
    pub author: String,
    /// Labels of the pull request.
    pub labels: Vec<String>,
    /// Changed files, as paths in the repository.
    pub files: Vec<String>,
    /// Logins of the people whose approvals of the pull request are in effect.
    pub approvals: Vec<String>,
    /// Branch that the pull request is merged into.
    pub base_branch: String,
    /// Branch of the pull request.
    pub head_branch: String,
    /// Repository, such as `github.com/acme/infra`.
    pub repository: String,
    /// Number of the pull request.
    pub pull: u64,
    pub project: ProjectFacts,
    /// Plan of the same project and pull request before this one.
    pub earlier_plan: Option<EarlierPlan>,
}

/// Project whose plan is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProjectFacts {
    /// Directory in the repository; `.` for the top.
    pub dir: String,
    pub workspace: String,
    pub name: Option<String>,
}

/// Plan before the one that is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlierPlan {
    pub id: String,
    /// Numbers of changes; `None` if Terraform did not report them.
    #[serde(default)]
    pub counts: Option<PlanCounts>,
    /// Time of the plan.
    pub at: DateTime<Utc>,
}

impl Facts {
    /// Returns the document that policies see below `data`.
    pub fn to_data(&self) -> Value {
        json!({ "lockkeeper": self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_find_every_fact_below_lockkeeper() {
        let facts = Facts {
            author: "alice".to_owned(),
            labels: vec!["urgent".to_owned()],
            files: vec!["prod/main.tf".to_owned()],
            approvals: vec!["bob".to_owned()],
            base_branch: "main".to_owned(),
            head_branch: "topic".to_owned(),
            repository: "github.com/acme/infra".to_owned(),
            pull: 7,
            project: ProjectFacts {
                dir: "prod".to_owned(),
                workspace: "default".to_owned(),
                name: None,
            },
            earlier_plan: Some(EarlierPlan {
                id: "p1".to_owned(),
                counts: Some(PlanCounts {
                    add: 1,
                    ..PlanCounts::default()
                }),
                at: DateTime::UNIX_EPOCH,
            }),
        };
        assert_eq!(
            facts.to_data(),
            json!({"lockkeeper": {
                "author": "alice",
                "labels": ["urgent"],
                "files": ["prod/main.tf"],
                "approvals": ["bob"],
                "base_branch": "main",
                "head_branch": "topic",
                "repository": "github.com/acme/infra",
                "pull": 7,
                "project": {"dir": "prod", "workspace": "default", "name": null},
                "earlier_plan": {
                    "id": "p1",
                    "counts": {"add": 1, "change": 0, "destroy": 0, "import": 0, "forget": 0},
                    "at": "1970-01-01T00:00:00Z",
                },
            }})
        );
        let read: Facts = serde_json::from_value(facts.to_data()["lockkeeper"].clone()).unwrap();
        assert_eq!(read, facts);
    }

    #[test]
    fn a_file_of_facts_may_be_short_but_not_misspelt() {
        let facts: Facts = serde_json::from_str(r#"{"author": "alice"}"#).unwrap();
        assert_eq!((facts.author.as_str(), facts.pull), ("alice", 0));
        assert!(serde_json::from_str::<Facts>(r#"{"autor": "alice"}"#).is_err());
    }
}
