//! Defines the records of the world. Events share them; a change copies a record that an event still holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::EmulatorError;
use crate::model::{BranchName, MergeMethod, PullNumber};

use super::roles::USUAL_PEOPLE;
use super::{
    EmulatedCheckRun, EmulatedComment, EmulatedPull, FullName, Protection, Role, ShaStatus, Team,
    User, UserKind,
};

/// All data of the world except git.
#[derive(Default)]
pub(crate) struct WorldState {
    /// Repositories, by key ([`FullName::key`]).
    pub(crate) repos: BTreeMap<String, Arc<Repo>>,
    /// Former names of repositories: id of the repository by key.
    pub(crate) moved: BTreeMap<String, u64>,
    pub(super) teams: Vec<Team>,
    last_id: u64,
}

/// Records of one repository.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    pub(crate) id: u64,
    pub(crate) name: FullName,
    pub(crate) owner: User,
    /// Key of the repository that it was forked from.
    pub(crate) parent: Option<String>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) pushed_at: DateTime<Utc>,
    pub(crate) pulls: BTreeMap<PullNumber, Arc<EmulatedPull>>,
    /// Statuses of commits, the oldest first.
    pub(crate) statuses: Vec<ShaStatus>,
    /// Check runs of commits, the oldest first.
    pub(crate) check_runs: Vec<EmulatedCheckRun>,
    pub(crate) reactions: Vec<Reaction>,
    pub(crate) protections: BTreeMap<BranchName, Protection>,
    /// Roles of accounts, by login in lower case. Other accounts have no role.
    pub(crate) roles: BTreeMap<String, Role>,
    /// True if everybody may read the repository.
    pub(crate) public: bool,
    /// True if the repository is archived, so that nothing in it can be changed.
    pub(crate) archived: bool,
    /// Contents stored with Git LFS, by id.
    pub(crate) lfs: BTreeMap<String, String>,
    /// Default branch in answers. Pushes always use [`DEFAULT_BRANCH`].
    pub(crate) default_branch: String,
    /// Methods to merge pull requests that are allowed.
    pub(crate) merge_methods: Vec<MergeMethod>,
}

/// Reaction to a comment.
#[derive(Clone, Debug)]
pub(crate) struct Reaction {
    pub(crate) id: u64,
    pub(crate) comment: u64,
    pub(crate) login: String,
    pub(crate) content: String,
    pub(crate) at: DateTime<Utc>,
}

/// Branch that every repository starts with.
pub(crate) const DEFAULT_BRANCH: &str = "main";

impl WorldState {
    /// Returns a new id. All kinds of records share one sequence.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn repo(&self, name: &str) -> Result<&Arc<Repo>, EmulatorError> {
        self.repos
            .get(&name.to_ascii_lowercase())
            .ok_or_else(|| EmulatorError::NoRepo(name.to_owned()))
    }

    pub(super) fn repo_mut(&mut self, name: &str) -> Result<&mut Repo, EmulatorError> {
        self.repos
            .get_mut(&name.to_ascii_lowercase())
            .map(Arc::make_mut)
            .ok_or_else(|| EmulatorError::NoRepo(name.to_owned()))
    }

    /// Adds an empty repository.
    pub(super) fn add_repo(&mut self, name: &FullName, parent: Option<String>, now: DateTime<Utc>) {
        let kind = if parent.is_some() {
            UserKind::Person
        } else {
            UserKind::Organization
        };
        let repo = Repo {
            id: self.next_id(),
            name: name.clone(),
            owner: User {
                login: name.owner.clone(),
                kind,
            },
            parent,
            created_at: now,
            pushed_at: now,
            pulls: BTreeMap::new(),
            statuses: Vec::new(),
            check_runs: Vec::new(),
            reactions: Vec::new(),
            protections: BTreeMap::new(),
            roles: USUAL_PEOPLE
                .iter()
                .map(|login| ((*login).to_owned(), Role::Write))
                .collect(),
            public: false,
            archived: false,
            lfs: BTreeMap::new(),
            default_branch: DEFAULT_BRANCH.to_owned(),
            merge_methods: MergeMethod::ALL.to_vec(),
        };
        self.moved.remove(&name.key());
        self.repos.insert(name.key(), Arc::new(repo));
    }

    /// Returns the repository with an id.
    pub(crate) fn repo_by_id(&self, id: u64) -> Option<&Arc<Repo>> {
        self.repos.values().find(|repo| repo.id == id)
    }

    /// Returns the repository of a pull request's head; `None` if it was deleted.
    pub(crate) fn head_repo(&self, pull: &EmulatedPull) -> Option<&Arc<Repo>> {
        self.repos.get(&pull.head_repo)
    }
}

impl Repo {
    pub(crate) fn pull(&self, number: PullNumber) -> Result<&Arc<EmulatedPull>, EmulatorError> {
        self.pulls
            .get(&number)
            .ok_or_else(|| EmulatorError::NoPull(self.name.to_string(), number))
    }

    pub(super) fn pull_mut(
        &mut self,
        number: PullNumber,
    ) -> Result<&mut EmulatedPull, EmulatorError> {
        let missing = EmulatorError::NoPull(self.name.to_string(), number);
        self.pulls
            .get_mut(&number)
            .map(Arc::make_mut)
            .ok_or(missing)
    }

    pub(super) fn next_number(&self) -> PullNumber {
        PullNumber(
            self.pulls
                .last_key_value()
                .map_or(1, |(last, _)| last.0 + 1),
        )
    }

    /// Returns a comment with its pull request.
    pub(crate) fn comment(&self, id: u64) -> Option<(&Arc<EmulatedPull>, &EmulatedComment)> {
        self.pulls
            .values()
            .find_map(|pull| Some((pull, pull.comments.iter().find(|comment| comment.id == id)?)))
    }

    pub(crate) fn open_pulls(&self) -> impl Iterator<Item = &Arc<EmulatedPull>> {
        self.pulls.values().filter(|pull| pull.is_open())
    }
}
