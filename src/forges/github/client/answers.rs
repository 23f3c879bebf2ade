//! Defines the fields of GitHub's answers that Lockkeeper reads, and converts them to the types of the model.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::cut_chars;
use crate::forges::{PostedComment, RepoFacts};
use crate::model::{
    BranchName, CommitSha, ForgeRepo, HostName, Pull, PullRef, PullState, RepoId, Subject,
};
use crate::render::has_marker;

/// Maximum length of a title; GitHub allows 256 characters.
const MAX_TITLE: usize = 256;

/// Answer of `GET /repos/{owner}/{repo}/pulls/{number}`.
#[derive(Deserialize)]
pub(super) struct PullAnswer {
    pub number: i64,
    html_url: String,
    title: String,
    state: String,
    #[serde(default)]
    draft: Option<bool>,
    #[serde(default)]
    merged: Option<bool>,
    #[serde(default)]
    merged_at: Option<String>,
    #[serde(default)]
    user: Option<UserAnswer>,
    #[serde(default)]
    labels: Vec<LabelAnswer>,
    head: EndAnswer,
    base: EndAnswer,
    #[serde(default)]
    pub updated_at: Option<DateTime<Utc>>,
    /// Result of GitHub's merge check; `null` while GitHub computes it.
    #[serde(default)]
    mergeable: Option<bool>,
    #[serde(default)]
    mergeable_state: Option<String>,
}

/// State of a pull in GitHub's merge check (`mergeable_state`). GitHub's REST API does not describe it: the words are
/// those of GraphQL's `MergeStateStatus` in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MergeState {
    /// GitHub has not computed the state yet.
    Unsettled,
    /// The pull may be merged.
    Free,
    /// The pull is a draft.
    Draft,
    /// The pull conflicts with the base branch.
    Conflicts,
    /// The branch requires the newest commit of the base branch, and the pull does not contain it.
    Behind,
    /// A rule of the base branch forbids the merge.
    Blocked,
    /// GitHub sent an unknown word.
    Other(String),
}

/// Head or base of a pull.
#[derive(Deserialize)]
struct EndAnswer {
    #[serde(rename = "ref")]
    branch: String,
    sha: String,
    /// Repository of this end; `null` once it is deleted.
    #[serde(default)]
    repo: Option<RepoAnswer>,
}

/// Repository, alone or as an end of a pull.
#[derive(Deserialize)]
pub(super) struct RepoAnswer {
    #[serde(default)]
    id: Option<u64>,
    full_name: String,
    #[serde(default)]
    default_branch: String,
    /// True if the repository is archived, so that nothing in it can change.
    #[serde(default)]
    archived: Option<bool>,
    #[serde(default)]
    private: Option<bool>,
    /// Visibility: `public`, `private` or `internal`; GitHub Enterprise leaves it out.
    #[serde(default)]
    visibility: Option<String>,
}

impl RepoAnswer {
    /// Converts the answer to the type of the model. The error describes the invalid part of the answer.
    pub fn into_facts(self, host: &HostName) -> Result<RepoFacts, String> {
        let id = self.id.ok_or("the repository has no identifier")?;
        let repo = RepoId::new(host.clone(), &self.full_name).map_err(|error| error.to_string())?;
        let default_branch =
            BranchName::new(&self.default_branch).map_err(|error| error.to_string())?;
        Ok(RepoFacts {
            at: ForgeRepo::new(id, repo),
            archived: self.archived.unwrap_or(false),
            default_branch,
        })
    }

    /// Returns true if everybody may read the repository. Missing information counts as public.
    pub fn is_public(&self) -> bool {
        self.private != Some(true) || self.visibility.as_deref() == Some("public")
    }
}

#[derive(Deserialize)]
struct LabelAnswer {
    name: String,
}

#[derive(Deserialize)]
pub(super) struct UserAnswer {
    pub login: String,
}

impl PullAnswer {
    /// Converts the answer to the type of the model. The error describes the invalid part of the answer.
    pub fn into_pull(self, asked: &PullRef) -> Result<Pull, String> {
        let told = self
            .base
            .repo(asked.repo.host())?
            .ok_or("the pull request has no base repository")?;
        // Numbers below 1 are stored for applications, so a forge must not choose them.
        if self.number < 1 {
            return Err(format!(
                "{} is not the number of a pull request",
                self.number
            ));
        }
        let at = PullRef {
            repo: told,
            subject: Subject::pull(self.number),
        };
        if at != *asked {
            return Err(format!(
                "the answer is about {at}: was the repository renamed or transferred?"
            ));
        }
        if !self.html_url.starts_with("https://") && !self.html_url.starts_with("http://") {
            return Err("the address of its page is not an HTTP URL".to_owned());
        }
        let base = self.base.repo.as_ref();
        Ok(Pull {
            state: self.state()?,
            repo_id: base.and_then(|repo| repo.id),
            archived: base.and_then(|repo| repo.archived).unwrap_or(false),
            at,
            title: cut_chars(&self.title, MAX_TITLE),
            author: self
                .user
                .map_or_else(|| "ghost".to_owned(), |user| user.login),
            url: self.html_url,
            head: sha(&self.head.sha)?,
            head_branch: branch(&self.head.branch)?,
            head_repo: self.head.repo(asked.repo.host())?,
            base_branch: branch(&self.base.branch)?,
            base: sha(&self.base.sha)?,
            draft: self.draft.unwrap_or(false),
            labels: self.labels.into_iter().map(|label| label.name).collect(),
        })
    }

    /// Returns the merge state. Missing or contradictory information counts as unsettled.
    pub fn merge_state(&self) -> MergeState {
        let Some(word) = self.mergeable_state.as_deref() else {
            return MergeState::Unsettled;
        };
        if self.draft == Some(true) || word == "draft" {
            return MergeState::Draft;
        }
        match (word, self.mergeable) {
            ("dirty", _) | (_, Some(false)) => MergeState::Conflicts,
            ("unknown", _) | (_, None) => MergeState::Unsettled,
            ("clean" | "unstable" | "has_hooks", Some(true)) => MergeState::Free,
            ("behind", Some(true)) => MergeState::Behind,
            ("blocked", Some(true)) => MergeState::Blocked,
            (other, Some(true)) => MergeState::Other(cut_chars(other, 40)),
        }
    }

    /// Returns the login of the author, or `None` if the account is deleted.
    pub fn author(&self) -> Option<&str> {
        self.user.as_ref().map(|user| user.login.as_str())
    }

    /// Returns true if everybody may read the pull, and so review it. Missing information counts as public.
    pub fn is_public(&self) -> bool {
        self.base.repo.as_ref().is_none_or(RepoAnswer::is_public)
    }

    fn state(&self) -> Result<PullState, String> {
        let merged = self.merged.unwrap_or(false) || self.merged_at.is_some();
        match self.state.as_str() {
            "open" => Ok(PullState::Open),
            "closed" if merged => Ok(PullState::Merged),
            "closed" => Ok(PullState::Closed),
            other => Err(format!(
                "a pull request cannot be `{}`",
                cut_chars(other, 40)
            )),
        }
    }
}

impl EndAnswer {
    fn repo(&self, host: &HostName) -> Result<Option<RepoId>, String> {
        let name = self
            .repo
            .as_ref()
            .map(|repo| RepoId::new(host.clone(), &repo.full_name));
        name.transpose().map_err(|error| error.to_string())
    }
}

fn sha(text: &str) -> Result<CommitSha, String> {
    CommitSha::new(text).map_err(|error| error.to_string())
}

fn branch(text: &str) -> Result<BranchName, String> {
    BranchName::new(text).map_err(|error| error.to_string())
}

/// Entry of `GET /repos/{owner}/{repo}/issues/{number}/comments`, and answer to a new comment.
#[derive(Deserialize)]
pub(super) struct CommentAnswer {
    pub id: u64,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    user: Option<UserAnswer>,
    created_at: DateTime<Utc>,
}

impl CommentAnswer {
    /// Returns true if the comment was posted with this login since that time and contains the marker.
    pub fn is_ours(&self, login: &str, marker: &str, since: DateTime<Utc>) -> bool {
        self.created_at >= since
            && self
                .user
                .as_ref()
                .is_some_and(|user| user.login.eq_ignore_ascii_case(login))
            && self
                .body
                .as_ref()
                .is_some_and(|body| has_marker(body, marker))
    }
}

impl From<CommentAnswer> for PostedComment {
    fn from(comment: CommentAnswer) -> Self {
        Self {
            id: comment.id.into(),
            created_at: comment.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked() -> PullRef {
        PullRef {
            repo: "github.com/acme/infra".parse().unwrap(),
            subject: Subject::pull(12),
        }
    }

    fn pull(change: impl FnOnce(&mut Value)) -> Result<Pull, String> {
        let end = |branch: &str| json!({"ref": branch, "sha": "a1".repeat(20), "repo": {"full_name": "Acme/Infra"}});
        let mut answer = json!({
            "number": 12, "html_url": "https://github.com/acme/infra/pull/12", "title": "Add a subnet", "state": "open",
            "draft": false, "merged": false, "merged_at": null, "user": {"login": "jane"},
            "head": end("subnet"), "base": end("main"), "labels": [{"name": "Do not plan", "color": "fff"}],
        });
        change(&mut answer);
        serde_json::from_value::<PullAnswer>(answer)
            .unwrap()
            .into_pull(&asked())
    }

    /// A stored number below 0 would be an application of an owner.
    #[test]
    fn a_forge_cannot_answer_with_the_number_of_an_application() {
        for number in [-3, 0] {
            let error = pull(|answer| answer["number"] = json!(number)).unwrap_err();
            assert_eq!(
                error,
                format!("{number} is not the number of a pull request")
            );
        }
    }

    #[test]
    fn labels_are_compared_without_case() {
        let pull = pull(|_| {}).unwrap();
        assert_eq!(
            [pull.has_label("do not PLAN"), pull.has_label("plan")],
            [true, false]
        );
    }

    #[test]
    fn merged_and_closed_are_told_apart() {
        let state = |state: &str, merged: Value, at: Value| {
            pull(|answer| {
                answer["state"] = json!(state);
                answer["merged"] = merged;
                answer["merged_at"] = at;
            })
            .unwrap()
            .state
        };
        assert_eq!(state("open", json!(false), Value::Null), PullState::Open);
        assert_eq!(
            state("closed", json!(false), Value::Null),
            PullState::Closed
        );
        assert_eq!(state("closed", json!(true), Value::Null), PullState::Merged);
        assert_eq!(
            state("closed", Value::Null, json!("2026-01-01T00:00:00Z")),
            PullState::Merged
        );
    }

    #[test]
    fn forks_and_deleted_forks_are_forks() {
        assert!(!pull(|_| {}).unwrap().is_fork());
        assert!(
            pull(|answer| answer["head"]["repo"]["full_name"] = json!("eve/infra"))
                .unwrap()
                .is_fork()
        );
        let deleted = pull(|answer| answer["head"]["repo"] = Value::Null).unwrap();
        assert!(deleted.head_repo.is_none() && deleted.is_fork());
    }

    #[test]
    fn answers_that_cannot_be_are_explained() {
        let told = |place: &str, value: Value| {
            pull(|answer| *answer.pointer_mut(place).unwrap() = value).unwrap_err()
        };
        insta::assert_snapshot!(
            told("/number", json!(13)),
            @"the answer is about github.com/acme/infra#13: was the repository renamed or transferred?"
        );
        insta::assert_snapshot!(
            told("/base/repo/full_name", json!("acme/other")),
            @"the answer is about github.com/acme/other#12: was the repository renamed or transferred?"
        );
        insta::assert_snapshot!(told("/base/repo", Value::Null), @"the pull request has no base repository");
        insta::assert_snapshot!(told("/state", json!("odd")), @"a pull request cannot be `odd`");
        insta::assert_snapshot!(
            told("/head/ref", json!("--upload-pack=x")),
            @r#""--upload-pack=x" is not a branch name"#
        );
        insta::assert_snapshot!(told("/head/sha", json!("abc")), @r#""abc" is not a full commit id"#);
        insta::assert_snapshot!(
            told("/html_url", json!("javascript:alert(1)")),
            @"the address of its page is not an HTTP URL"
        );
    }

    #[test]
    fn a_comment_is_found_by_its_hidden_line_alone() {
        let said = |body: &str| -> CommentAnswer {
            let comment = json!({"id": 7, "user": {"login": "Lockbot"}, "created_at": "2026-03-01T12:00:05Z", "body": body});
            serde_json::from_value(comment).unwrap()
        };
        let (marker, since) = (r#""id":"x","part":2,"#, DateTime::UNIX_EPOCH);
        let line = |part: u32| {
            format!(
                r#"<!-- lockkeeper {{"v":1,"command":"plan","id":"x","part":{part},"parts":2}} -->"#
            )
        };
        let quoted = format!("+ note = {marker}\n{}\n\n{}", line(2), line(1));
        assert!(
            !said(&quoted).is_ours("lockbot", marker, since),
            "the first part quotes the marker of the second"
        );
        assert!(said(&format!("the second part\n\n{}", line(2))).is_ours("lockbot", marker, since));
        assert!(!said(&line(2)).is_ours("eve", marker, since));
    }
}
