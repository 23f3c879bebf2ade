//! Checks a push to `All-Users` whole, before any ref moves, and makes it one update.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use gix_hash::ObjectId;
use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::config_text::{ConfigText, KeyPath};
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::ExternalId;
use lockkeeper_accounts::findings::{
    AccountFindings, MAX_BRANCH_FILES, Problem, check_defaults, check_external_ids, check_notes,
    check_user_branch,
};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef, ChangeNumber};

use super::super::all_users::{
    AccountsActor, AccountsError, AllUsers, PushedBranch, check_new_access,
};
use super::super::check::KEYS;
use super::super::sign_in::AccountCaller;
use super::view::{View, ViewError};
use super::wire::{PushCommand, PushRequest, RefOutcome};
use crate::git::{PushContent, PushFault, PushedCommits, PushedNote, PushedPack};
use crate::model::Origin;
use tracing::error;

/// Maximum number of bytes that the commits of a push to one branch may lead to.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The same for external IDs. Git may write all directories of notes again.
const MAX_NOTE_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum size of the text of a sequence or a star in bytes.
const MAX_BLOB: u64 = 64 * 1024;
/// Maximum number of external IDs that one push changes. Each account gets a commit, in one update.
const MAX_CHANGED_IDS: usize = 1_000;

/// Size of the compressed history of an account that takes no more pushes, in bytes. Nothing can be removed from it. An
/// account that fetches several branches has this much for each of them.
const MAX_HISTORY: u64 = 32 * 1024 * 1024;

/// Answer to a push.
pub(super) struct CheckedPush {
    /// Lines that git prints after `remote: `.
    pub lines: Vec<String>,
    pub outcomes: Vec<RefOutcome>,
    /// True if the copy that the client pushed to has to be made again.
    pub is_copy_stale: bool,
}

/// Ref that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushTarget {
    Branch(BranchTarget),
    /// `refs/sequences/accounts`, the next free account number.
    Sequence,
    /// `refs/starred-changes/…`, the labels that an account gave a change.
    Star(ChangeNumber, AccountId),
}

/// Branch that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BranchTarget {
    User(AccountId),
    /// `refs/users/default`, the preferences of everybody.
    Defaults,
    /// `refs/meta/external-ids`, the external IDs of all accounts.
    ExternalIds,
    /// `refs/meta/config`, the access control.
    Access,
}

impl PushTarget {
    fn name(self) -> AllUsersRef {
        match self {
            Self::Branch(BranchTarget::User(account)) => AllUsersRef::User(account),
            Self::Branch(BranchTarget::Defaults) => AllUsersRef::UserDefault,
            Self::Branch(BranchTarget::ExternalIds) => AllUsersRef::ExternalIds,
            Self::Branch(BranchTarget::Access) => AllUsersRef::Config,
            Self::Sequence => AllUsersRef::AccountSequence,
            Self::Star(change, account) => AllUsersRef::StarredChange(change, account),
        }
    }
}

impl BranchTarget {
    /// Returns the reason of a refusal for its content, in a few words.
    fn invalid(self) -> &'static str {
        match self {
            Self::User(_) | Self::Defaults => "invalid account configuration",
            Self::ExternalIds => "invalid external IDs",
            Self::Access => "invalid configuration",
        }
    }
}

/// A command that may be carried out.
struct AcceptedCommand {
    seen: Option<ObjectId>,
    change: AcceptedChange,
}

/// Change that a command makes to its ref.
enum AcceptedChange {
    Branch {
        target: BranchTarget,
        branch: PushedBranch,
        /// External IDs that differ.
        notes: Vec<PushedNote>,
        /// Objects from before that the branch leads to.
        known: HashSet<ObjectId>,
    },
    Sequence(AccountSequence),
    /// Labels of a change. `None` removes all.
    Star(ChangeNumber, AccountId, Option<StarLabels>),
}

impl AcceptedCommand {
    /// Returns the objects from before that the command needs.
    fn known(&self) -> impl Iterator<Item = &ObjectId> {
        let known = match &self.change {
            AcceptedChange::Branch { known, .. } => Some(known),
            AcceptedChange::Sequence(_) | AcceptedChange::Star(..) => None,
        };
        known.into_iter().flatten()
    }

    fn is_star(&self) -> bool {
        matches!(self.change, AcceptedChange::Star(..))
    }

    fn is_on(&self, branch: BranchTarget) -> bool {
        matches!(&self.change, AcceptedChange::Branch { target, .. } if *target == branch)
    }
}

/// Reason why a command is refused: in a few words, and in lines with the way out.
struct RefusedPush {
    reason: String,
    lines: Vec<String>,
}

impl RefusedPush {
    fn new(reason: &str, lines: impl IntoIterator<Item = String>) -> Self {
        Self {
            reason: reason.to_owned(),
            lines: lines.into_iter().collect(),
        }
    }
}

/// Checks all commands, and stores what they change. A refused push leaves nothing behind.
pub(super) async fn push(
    users: &AllUsers,
    caller: &AccountCaller,
    view: &View,
    request: &PushRequest<'_>,
    pack: Option<&Arc<PushedPack>>,
    (host, remote): (&str, Option<String>),
) -> Result<CheckedPush, ViewError> {
    let mut checked = CheckedPush {
        lines: Vec::new(),
        outcomes: Vec::new(),
        is_copy_stale: false,
    };
    let branches = view.refs.iter().filter_map(account_of).count() as u64;
    let is_full = !caller.reads_everything() && view.repo.size()? > MAX_HISTORY * branches.max(1);
    let (mut accepted, mut named) = (Vec::new(), BTreeSet::new());
    for command in &request.commands {
        let check = PushChecker {
            users,
            caller,
            view,
            pack,
            host,
            is_full,
        };
        let verdict = check.command(command, &mut named, &mut checked.lines).await;
        checked.outcomes.push(RefOutcome {
            name: command.name.clone(),
            refused: verdict.as_ref().err().map(|refused| refused.reason.clone()),
        });
        match verdict {
            Ok(command) => accepted.push(command),
            Err(refused) => checked.lines.extend(refused.lines),
        }
    }
    let is_refused = checked
        .outcomes
        .iter()
        .any(|outcome| outcome.refused.is_some());
    if request.is_atomic && is_refused {
        checked.refuse_rest("atomic push failed");
        return Ok(checked);
    }
    if accepted.is_empty() {
        return Ok(checked);
    }
    // A copy from before a backup was restored can have objects that the database lacks.
    for id in accepted.iter().flat_map(AcceptedCommand::known) {
        if users.store().account_object_update(*id).await?.is_none() {
            checked.is_copy_stale = true;
            checked.refuse_rest("failed to update ref: lock failure, fetch first");
            return Ok(checked);
        }
    }
    let actor = caller.actor(host, Origin::Git, remote);
    match store(users, (caller, &actor), &accepted).await {
        Ok(()) => {}
        Err(error @ AccountsError::NoAccount(_))
            if accepted.iter().any(AcceptedCommand::is_star) =>
        {
            checked.lines.push(format!("error: {error}"));
            checked.refuse_rest("invalid star");
        }
        Err(AccountsError::Moved | AccountsError::NoAccount(_) | AccountsError::Busy) => {
            checked.refuse_rest("failed to update ref: lock failure, fetch first");
        }
        Err(error @ AccountsError::LockedOut) => {
            checked.lines.push(format!("error: {error}; sign in again"));
            checked.refuse_rest("prohibited");
        }
        Err(error @ AccountsError::RightsChanged) => {
            checked.lines.push(format!("error: {error}"));
            checked.refuse_rest("prohibited");
        }
        // Accounts or external IDs have changed since the push was checked.
        Err(AccountsError::Refused(findings)) => {
            checked.lines.extend(findings.lines());
            let is_access = |command: &AcceptedCommand| command.is_on(BranchTarget::Access);
            checked.refuse_rest(if accepted.iter().any(is_access) {
                BranchTarget::Access.invalid()
            } else {
                BranchTarget::Defaults.invalid()
            });
        }
        Err(AccountsError::Sequence(problem)) => {
            checked.lines.push(format!("error: {problem}"));
            checked.refuse_rest("invalid sequence");
        }
        Err(error @ AccountsError::NoChange(_)) => {
            checked.lines.push(format!("error: {error}"));
            checked.refuse_rest("invalid star");
        }
        Err(AccountsError::EmailTaken(email, owner)) => {
            let place = place_of(&email, owner, &accepted).unwrap_or_default();
            let error = AccountsError::EmailTaken(email, owner);
            checked.lines.push(format!("error: {place}{error}"));
            checked.refuse_rest("invalid external IDs");
        }
        Err(error @ (AccountsError::ExternalIdTaken(..) | AccountsError::Invalid(_))) => {
            checked.lines.push(format!("error: {error}"));
            checked.refuse_rest("invalid external IDs");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(checked)
}

/// Stores all accepted commands in one update.
async fn store(
    users: &AllUsers,
    (caller, actor): (&AccountCaller, &AccountsActor),
    accepted: &[AcceptedCommand],
) -> Result<(), AccountsError> {
    let changes_ids = |command: &AcceptedCommand| command.is_on(BranchTarget::ExternalIds);
    let message = if accepted.iter().any(changes_ids) {
        "Push External IDs"
    } else {
        "Push"
    };
    let update = users.update(actor, message).await?;
    loop {
        let mut edit = update.begin();
        for AcceptedCommand { seen, change } in accepted {
            match change {
                AcceptedChange::Branch {
                    target,
                    branch,
                    notes,
                    ..
                } => {
                    let branch = branch.clone();
                    match *target {
                        BranchTarget::User(number) => {
                            let account = edit.account(number).await?;
                            account.push(*seen, branch, caller.rights_on(number))?;
                        }
                        BranchTarget::Defaults => edit.push_defaults(*seen, branch).await?,
                        BranchTarget::Access => edit.push_access(*seen, branch).await?,
                        BranchTarget::ExternalIds => {
                            edit.push_external_ids(*seen, branch, notes).await?;
                        }
                    }
                }
                AcceptedChange::Sequence(next) => edit.push_sequence(*seen, *next).await?,
                AcceptedChange::Star(change, account, labels) => {
                    edit.push_star(*seen, (*account, *change), labels.as_ref())
                        .await?;
                }
            }
        }
        if update.store(edit).await? {
            return Ok(());
        }
    }
}

/// Returns the note, and its line, that gives somebody else an address of this account.
fn place_of(
    email: &AccountEmail,
    owner: AccountId,
    accepted: &[AcceptedCommand],
) -> Option<String> {
    let mut notes = accepted.iter().flat_map(|command| match &command.change {
        AcceptedChange::Branch { notes, .. } => notes.as_slice(),
        AcceptedChange::Sequence(_) | AcceptedChange::Star(..) => &[],
    });
    notes.find_map(|note| {
        let text = ConfigText::parse(note.after.as_deref()?).ok()?;
        let id = ExternalId::read(&text).0?;
        let is_given = id.account != owner && id.email?.key() == email.key();
        let path = KeyPath::within("externalId", id.key.as_str(), "email");
        let line = text.value(path).filter(|_| is_given)?.line;
        Some(format!("{}:{line}: ", note.name))
    })
}

impl CheckedPush {
    /// Refuses every command that was not refused for a reason of its own.
    fn refuse_rest(&mut self, reason: &str) {
        for outcome in &mut self.outcomes {
            outcome.refused.get_or_insert_with(|| reason.to_owned());
        }
    }
}

/// Everything that the verdict on a command depends on.
struct PushChecker<'a> {
    users: &'a AllUsers,
    caller: &'a AccountCaller,
    view: &'a View,
    pack: Option<&'a Arc<PushedPack>>,
    host: &'a str,
    /// True if the history has no room for more.
    is_full: bool,
}

impl PushChecker<'_> {
    /// Checks a command. `named` are the refs of earlier commands. Warnings are added to `lines`.
    async fn command(
        &self,
        command: &PushCommand,
        named: &mut BTreeSet<AllUsersRef>,
        lines: &mut Vec<String>,
    ) -> Result<AcceptedCommand, RefusedPush> {
        let target = self.target(&command.name)?;
        let name = target.name();
        if !named.insert(name) {
            return Err(RefusedPush::new(
                "prohibited",
                [format!("error: {name} is named twice; push to it once")],
            ));
        }
        let present = self.view.find(&name.to_string());
        let is_user = matches!(target, PushTarget::Branch(BranchTarget::User(_)));
        if present.is_none() && !self.caller.may_read(name) {
            let line = format!("error: you may not read {name}, and a push takes that, too");
            return Err(RefusedPush::new("prohibited", [line]));
        }
        if present.is_none() && is_user {
            return Err(RefusedPush::new(
                "not allowed to create user branch",
                [format!(
                    "error: {name} does not exist; `lockkeeper accounts create` makes an account"
                )],
            ));
        }
        if command.old != present {
            return Err(RefusedPush::new(
                "failed to update ref: lock failure, fetch first",
                [],
            ));
        }
        let change = match (target, command.new) {
            (PushTarget::Branch(BranchTarget::User(_)), None) => {
                return Err(RefusedPush::new(
                    "not allowed to delete user branch",
                    [format!(
                        "error: {name} stays as long as its account; `lockkeeper accounts deactivate` locks the account out"
                    )],
                ));
            }
            (PushTarget::Branch(_), None) => {
                let fix = "error: push a commit that removes the files, so that the history stays";
                return Err(RefusedPush::new("prohibited", [fix.to_owned()]));
            }
            (PushTarget::Branch(branch), Some(new)) => {
                self.branch((branch, present, new), lines).await?
            }
            (PushTarget::Sequence, None) => {
                let fix = "error: without the sequence, a number could be given twice";
                return Err(RefusedPush::new("invalid sequence", [fix.to_owned()]));
            }
            (PushTarget::Sequence, Some(new)) => AcceptedChange::Sequence(self.blob(
                new,
                "invalid sequence",
                AccountSequence::parse,
            )?),
            (PushTarget::Star(change, account), new) => {
                let labels = new.map(|new| self.blob(new, "invalid star", StarLabels::parse));
                AcceptedChange::Star(change, account, labels.transpose()?)
            }
        };
        Ok(AcceptedCommand {
            seen: present,
            change,
        })
    }

    /// Checks the commits that are pushed to a branch. Warnings are added to `lines`.
    async fn branch(
        &self,
        (target, old, new): (BranchTarget, Option<ObjectId>, ObjectId),
        lines: &mut Vec<String>,
    ) -> Result<AcceptedChange, RefusedPush> {
        if self.is_full {
            let limit = MAX_HISTORY / 1024 / 1024;
            return Err(RefusedPush::new(
                "the account is full",
                [format!(
                    "error: the history of the account has more than {limit} MiB, so it takes no more pushes; change the \
                     account with the API or `lockkeeper accounts`, or let somebody with `accessDatabase` push"
                )],
            ));
        }
        let commits = self.commits(target, old, new).await?;
        self.committers(&commits)?;
        // The update checks again, by the external IDs at that moment. Here each ref gets its own reason, and warnings.
        let findings = match target {
            BranchTarget::Defaults => self.files(old, &commits.files, check_defaults).await?,
            BranchTarget::ExternalIds => self.external_ids(&commits.notes),
            BranchTarget::Access => self.access(&commits.files).await?,
            // Of others, the update knows the external IDs.
            BranchTarget::User(account) => match self.caller.external_ids_of(account) {
                Some(external_ids) => {
                    let check = |files: &_| check_user_branch(files, external_ids, KEYS);
                    self.files(old, &commits.files, check).await?
                }
                None => AccountFindings::default(),
            },
        };
        if !findings.is_accepted() {
            return Err(RefusedPush::new(target.invalid(), findings.lines()));
        }
        lines.extend(findings.lines());
        let objects = commits
            .objects
            .into_iter()
            .map(|(id, kind, content)| GitObject { id, kind, content });
        Ok(AcceptedChange::Branch {
            target,
            branch: PushedBranch {
                tip: new,
                files: commits.files,
                objects: objects.collect(),
            },
            notes: commits.notes,
            known: commits.known,
        })
    }

    /// Reads the blob that a ref shall point to.
    fn blob<T: ToString>(
        &self,
        id: ObjectId,
        invalid: &str,
        read: impl Fn(&[u8]) -> Result<T, Problem>,
    ) -> Result<T, RefusedPush> {
        let refused = |line: String| RefusedPush::new(invalid, [format!("error: {line}")]);
        let Some(pack) = self.pack else {
            return Err(refused("the object was not pushed".to_owned()));
        };
        let content = pack.blob(id, MAX_BLOB);
        let content = content.map_err(|fault| refused(fault.to_string()))?;
        let value = read(&content).map_err(|problem| refused(problem.to_string()))?;
        if value.to_string().as_bytes() != content {
            let why = "the text has blanks or line breaks around it; write it without them";
            return Err(refused(why.to_owned()));
        }
        Ok(value)
    }

    /// Returns the ref with this name, if the caller may push to it.
    fn target(&self, name: &str) -> Result<PushTarget, RefusedPush> {
        let prohibited = |line: String| RefusedPush::new("prohibited", [line]);
        let own = self.caller.own_ref();
        let wanted = match name.parse::<AllUsersRef>() {
            Ok(AllUsersRef::UserSelf) => own.ok_or_else(|| {
                prohibited("error: refs/users/self is the branch of an account, and you have none; name the branch".to_owned())
            })?,
            Ok(known) => known,
            Err(error) if name.starts_with("refs/users/") => {
                return Err(RefusedPush::new("not a user branch", [format!("error: {error}")]));
            }
            Err(error) => return Err(prohibited(format!("error: {error}"))),
        };
        if !self.caller.may_push(wanted) {
            return Err(prohibited(format!(
                "error: {}",
                self.caller.why_not(wanted)
            )));
        }
        match wanted {
            AllUsersRef::User(account) => Ok(PushTarget::Branch(BranchTarget::User(account))),
            AllUsersRef::UserDefault => Ok(PushTarget::Branch(BranchTarget::Defaults)),
            AllUsersRef::ExternalIds => Ok(PushTarget::Branch(BranchTarget::ExternalIds)),
            AllUsersRef::Config => Ok(PushTarget::Branch(BranchTarget::Access)),
            AllUsersRef::AccountSequence => Ok(PushTarget::Sequence),
            AllUsersRef::StarredChange(change, account) => Ok(PushTarget::Star(change, account)),
            // It was replaced by the branch that it stands for.
            AllUsersRef::UserSelf => {
                Err(prohibited(format!("error: {wanted} stands for no branch")))
            }
        }
    }

    /// Checks the files of a branch. What had no effect in its old commit, because it was imported, may stay.
    async fn files(
        &self,
        old: Option<ObjectId>,
        files: &BTreeMap<String, Vec<u8>>,
        check: impl Fn(&BTreeMap<String, Vec<u8>>) -> AccountFindings,
    ) -> Result<AccountFindings, RefusedPush> {
        let findings = check(files);
        match old {
            Some(old) if !findings.is_accepted() => {
                let old = self.users.files(old).await;
                let old = old.map_err(|error| unread(&error))?;
                Ok(findings.except_old(&check(&old)))
            }
            Some(_) | None => Ok(findings),
        }
    }

    /// Checks the access control.
    async fn access(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<AccountFindings, RefusedPush> {
        let findings = check_new_access(self.users.store(), files).await;
        findings.map_err(|error| unread(&error))
    }

    /// Checks the external IDs that differ by themselves. The update checks them together with the others of their
    /// accounts.
    fn external_ids(&self, notes: &[PushedNote]) -> AccountFindings {
        let accounts: HashSet<AccountId> = self.view.refs.iter().filter_map(account_of).collect();
        let contents = notes
            .iter()
            .filter_map(|note| Some((note.name, note.after.as_deref()?)));
        check_external_ids(contents, |account| accounts.contains(&account))
    }

    async fn commits(
        &self,
        target: BranchTarget,
        old: Option<ObjectId>,
        new: ObjectId,
    ) -> Result<PushedCommits, RefusedPush> {
        let Some(pack) = self.pack.map(Arc::clone) else {
            return Err(RefusedPush::new("non-fast-forward", []));
        };
        let (content, bytes) = match target {
            BranchTarget::User(_) | BranchTarget::Defaults | BranchTarget::Access => {
                let files = PushContent::Files {
                    most: MAX_BRANCH_FILES,
                    max_old_bytes: ConfigText::MAX_BYTES as u64,
                };
                (files, MAX_BYTES)
            }
            BranchTarget::ExternalIds => (PushContent::Notes(MAX_CHANGED_IDS), MAX_NOTE_BYTES),
        };
        let walk = move || pack.commits(old, new, content, bytes);
        let commits = tokio::task::spawn_blocking(walk).await;
        let commits = commits.unwrap_or_else(|error| Err(PushFault::Unreadable(error.to_string())));
        commits.map_err(|fault| match fault {
            PushFault::NotForward => RefusedPush::new(
                "non-fast-forward",
                ["error: the history of this branch is never rewritten; rebase on the branch as it is here".to_owned()],
            ),
            PushFault::Notes(faults) => {
                RefusedPush::new(target.invalid(), check_notes(&faults).lines())
            }
            PushFault::Merge(commit) => RefusedPush::new(
                target.invalid(),
                [format!(
                    "error: the commit {commit} is a merge; rebase, so that each commit has one parent"
                )],
            ),
            fault @ (PushFault::Large(_) | PushFault::Unreadable(_)) => {
                RefusedPush::new(target.invalid(), [format!("error: {fault}")])
            }
        })
    }

    /// Checks that the caller is the committer of each commit.
    fn committers(&self, commits: &PushedCommits) -> Result<(), RefusedPush> {
        let addresses = self.caller.addresses(self.host);
        let is_own = |address: &str| {
            addresses
                .iter()
                .any(|own| own.eq_ignore_ascii_case(address))
        };
        match commits
            .commits
            .iter()
            .find(|commit| !is_own(&commit.committer))
        {
            None => Ok(()),
            Some(foreign) => Err(RefusedPush::new(
                "invalid committer",
                [format!(
                    "error: the committer of {} is <{}>, which is not your address; run `git config user.email {}`, and make \
                     the commit again with `git commit --amend --reset-author --no-edit`",
                    foreign.id,
                    crate::kit::web::text::shown(&foreign.committer),
                    addresses.first().map_or("", String::as_str)
                )],
            )),
        }
    }
}

fn unread(error: &AccountsError) -> RefusedPush {
    error!(%error, "Could not read the accounts that a push is compared with");
    let line = "error: the accounts cannot be read now; try again";
    RefusedPush::new("failed", [line.to_owned()])
}

/// Returns the account of a branch.
fn account_of((name, _): &(String, ObjectId)) -> Option<AccountId> {
    match name.parse() {
        Ok(AllUsersRef::User(account)) => Some(account),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
