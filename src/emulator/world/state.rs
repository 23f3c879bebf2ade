//! The records.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};

use crate::emulator::EmulatorError;
use crate::model::{BranchName, MergeMethod, PullNumber};

use super::roles::USUAL_PEOPLE;
use super::{Comment, FullName, Protection, Pull, Role, Status, Team, User, UserKind};

/// Everything the emulated GitHub knows besides git.
#[derive(Default)]
pub(in crate::emulator) struct State {
    /// By [`FullName::key`].
    pub(in crate::emulator) repos: BTreeMap<String, Repo>,
    /// By token.
    pub(in crate::emulator) installation_tokens: HashMap<String, InstallationToken>,
    /// Names that repositories had before: by key, the id of the repository.
    pub(in crate::emulator) moved: BTreeMap<String, u64>,
    pub(super) teams: Vec<Team>,
    last_id: u64,
}

/// A token of the App's installation.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct InstallationToken {
    pub(in crate::emulator) expires_at: DateTime<Utc>,
    /// Keys of the repositories it is limited to.
    pub(in crate::emulator) repositories: Option<Vec<String>>,
}

/// A repository.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Repo {
    pub(in crate::emulator) id: u64,
    pub(in crate::emulator) name: FullName,
    pub(in crate::emulator) owner: User,
    /// Key of the repository it was forked from.
    pub(in crate::emulator) parent: Option<String>,
    pub(in crate::emulator) created_at: DateTime<Utc>,
    pub(in crate::emulator) pushed_at: DateTime<Utc>,
    pub(in crate::emulator) pulls: BTreeMap<PullNumber, Pull>,
    /// Oldest first.
    pub(in crate::emulator) statuses: Vec<Status>,
    pub(in crate::emulator) reactions: Vec<Reaction>,
    pub(in crate::emulator) protections: BTreeMap<BranchName, Protection>,
    /// What accounts may do in it, by login in small letters; others have no role.
    pub(in crate::emulator) roles: BTreeMap<String, Role>,
    /// Whether everybody may read it.
    pub(in crate::emulator) public: bool,
    /// Whether nothing in it can be changed any more.
    pub(in crate::emulator) archived: bool,
    /// Contents kept with Git LFS, by id.
    pub(in crate::emulator) lfs: BTreeMap<String, String>,
    /// The branch that answers name as the default one; what is pushed goes by [`DEFAULT_BRANCH`] all the same.
    pub(in crate::emulator) default_branch: String,
    /// Methods by which pulls may be merged.
    pub(in crate::emulator) merge_methods: Vec<MergeMethod>,
}

/// A reaction to a comment.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Reaction {
    pub(in crate::emulator) id: u64,
    pub(in crate::emulator) comment: u64,
    pub(in crate::emulator) login: String,
    pub(in crate::emulator) content: String,
    pub(in crate::emulator) at: DateTime<Utc>,
}

/// The branch every repository starts with.
pub(in crate::emulator) const DEFAULT_BRANCH: &str = "main";

impl State {
    /// A new id; one sequence for everything that has one.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(in crate::emulator) fn repo(&self, name: &str) -> Result<&Repo, EmulatorError> {
        self.repos
            .get(&name.to_ascii_lowercase())
            .ok_or_else(|| EmulatorError::NoRepo(name.to_owned()))
    }

    pub(super) fn repo_mut(&mut self, name: &str) -> Result<&mut Repo, EmulatorError> {
        self.repos
            .get_mut(&name.to_ascii_lowercase())
            .ok_or_else(|| EmulatorError::NoRepo(name.to_owned()))
    }

    /// Adds an empty repository.
    pub(super) fn add_repo(&mut self, name: &FullName, parent: Option<String>, now: DateTime<Utc>) {
        let kind = if parent.is_some() {
            UserKind::User
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
        self.repos.insert(name.key(), repo);
    }

    /// The repository with an id.
    pub(in crate::emulator) fn repo_by_id(&self, id: u64) -> Option<&Repo> {
        self.repos.values().find(|repo| repo.id == id)
    }
}

impl Repo {
    pub(in crate::emulator) fn pull(&self, number: PullNumber) -> Result<&Pull, EmulatorError> {
        self.pulls
            .get(&number)
            .ok_or_else(|| EmulatorError::NoPull(self.name.to_string(), number))
    }

    pub(super) fn pull_mut(&mut self, number: PullNumber) -> Result<&mut Pull, EmulatorError> {
        let missing = EmulatorError::NoPull(self.name.to_string(), number);
        self.pulls.get_mut(&number).ok_or(missing)
    }

    pub(super) fn next_number(&self) -> PullNumber {
        PullNumber(
            self.pulls
                .last_key_value()
                .map_or(1, |(last, _)| last.0 + 1),
        )
    }

    /// A comment and the pull it belongs to.
    pub(in crate::emulator) fn comment(&self, id: u64) -> Option<(&Pull, &Comment)> {
        self.pulls
            .values()
            .find_map(|pull| Some((pull, pull.comments.iter().find(|comment| comment.id == id)?)))
    }

    pub(in crate::emulator) fn open_pulls(&self) -> impl Iterator<Item = &Pull> {
        self.pulls.values().filter(|pull| pull.is_open())
    }
}
