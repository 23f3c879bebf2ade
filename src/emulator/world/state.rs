//! Defines the records of the world. Events share them; a change copies a record that an event still holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::emulator::EmulatorError;
use crate::model::{BranchName, MergeMethod, PullNumber};

use super::roles::USUAL_PEOPLE;
use super::{
    EmulatedComment, EmulatedPull, FullName, Protection, Role, ShaStatus, Team, User, UserKind,
};

/// All data of the world except git.
#[derive(Default)]
pub(in crate::emulator) struct WorldState {
    /// Repositories, by key ([`FullName::key`]).
    pub(in crate::emulator) repos: BTreeMap<String, Arc<Repo>>,
    /// Former names of repositories: id of the repository by key.
    pub(in crate::emulator) moved: BTreeMap<String, u64>,
    pub(super) teams: Vec<Team>,
    last_id: u64,
}

/// Records of one repository.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Repo {
    pub(in crate::emulator) id: u64,
    pub(in crate::emulator) name: FullName,
    pub(in crate::emulator) owner: User,
    /// Key of the repository that it was forked from.
    pub(in crate::emulator) parent: Option<String>,
    pub(in crate::emulator) created_at: DateTime<Utc>,
    pub(in crate::emulator) pushed_at: DateTime<Utc>,
    pub(in crate::emulator) pulls: BTreeMap<PullNumber, Arc<EmulatedPull>>,
    /// Statuses of commits, the oldest first.
    pub(in crate::emulator) statuses: Vec<ShaStatus>,
    pub(in crate::emulator) reactions: Vec<Reaction>,
    pub(in crate::emulator) protections: BTreeMap<BranchName, Protection>,
    /// Roles of accounts, by login in lower case. Other accounts have no role.
    pub(in crate::emulator) roles: BTreeMap<String, Role>,
    /// True if everybody may read the repository.
    pub(in crate::emulator) public: bool,
    /// True if the repository is archived, so that nothing in it can be changed.
    pub(in crate::emulator) archived: bool,
    /// Contents stored with Git LFS, by id.
    pub(in crate::emulator) lfs: BTreeMap<String, String>,
    /// Default branch in answers. Pushes always use [`DEFAULT_BRANCH`].
    pub(in crate::emulator) default_branch: String,
    /// Methods to merge pull requests that are allowed.
    pub(in crate::emulator) merge_methods: Vec<MergeMethod>,
}

/// Reaction to a comment.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Reaction {
    pub(in crate::emulator) id: u64,
    pub(in crate::emulator) comment: u64,
    pub(in crate::emulator) login: String,
    pub(in crate::emulator) content: String,
    pub(in crate::emulator) at: DateTime<Utc>,
}

/// Branch that every repository starts with.
pub(in crate::emulator) const DEFAULT_BRANCH: &str = "main";

impl WorldState {
    /// Returns a new id. All kinds of records share one sequence.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(in crate::emulator) fn repo(&self, name: &str) -> Result<&Arc<Repo>, EmulatorError> {
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
    pub(in crate::emulator) fn repo_by_id(&self, id: u64) -> Option<&Arc<Repo>> {
        self.repos.values().find(|repo| repo.id == id)
    }

    /// Returns the repository of a pull request's head; `None` if it was deleted.
    pub(in crate::emulator) fn head_repo(&self, pull: &EmulatedPull) -> Option<&Arc<Repo>> {
        self.repos.get(&pull.head_repo)
    }
}

impl Repo {
    pub(in crate::emulator) fn pull(
        &self,
        number: PullNumber,
    ) -> Result<&Arc<EmulatedPull>, EmulatorError> {
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
    pub(in crate::emulator) fn comment(
        &self,
        id: u64,
    ) -> Option<(&Arc<EmulatedPull>, &EmulatedComment)> {
        self.pulls
            .values()
            .find_map(|pull| Some((pull, pull.comments.iter().find(|comment| comment.id == id)?)))
    }

    pub(in crate::emulator) fn open_pulls(&self) -> impl Iterator<Item = &Arc<EmulatedPull>> {
        self.pulls.values().filter(|pull| pull.is_open())
    }
}
