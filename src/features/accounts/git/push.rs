//! Judges a push to `All-Users` whole, before any ref moves, and makes it one update.

use std::collections::BTreeSet;

use gix_hash::ObjectId;
use lockkeeper_accounts::account_config::AccountConfig;
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::findings::{AccountFindings, Problem, judge_user_branch};
use lockkeeper_accounts::objects::GitObject;
use lockkeeper_accounts::refs::{AccountId, AllUsersRef};

use super::super::all_users::{AccountsActor, AccountsError, AllUsers, PushedBranch};
use super::super::check::KEYS;
use super::access::GitCaller;
use super::view::{View, ViewError};
use super::wire::{PushCommand, PushRequest, RefOutcome};
use crate::git::{PushFault, PushedCommits, PushedPack};

/// Maximum number of files in a user branch that are read. More are refused.
const MAX_FILES: usize = 100;
/// Maximum number of bytes that the commits of a push to one branch may lead to.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Answer to a push.
pub(super) struct JudgedPush {
    /// Lines that git prints after `remote: `.
    pub lines: Vec<String>,
    pub outcomes: Vec<RefOutcome>,
}

/// A command that may be carried out.
struct AcceptedCommand {
    account: AccountId,
    seen: ObjectId,
    branch: PushedBranch,
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

/// Judges all commands, and stores what they change. A refused push leaves nothing behind.
pub(super) async fn push(
    users: &AllUsers,
    caller: &GitCaller,
    view: &View,
    request: &PushRequest<'_>,
    pack: Option<&PushedPack>,
    (host, remote): (&str, Option<String>),
) -> Result<JudgedPush, ViewError> {
    let mut judged = JudgedPush {
        lines: Vec::new(),
        outcomes: Vec::new(),
    };
    let (mut accepted, mut named) = (Vec::new(), BTreeSet::new());
    for command in &request.commands {
        let judge = PushJudge {
            caller,
            view,
            pack,
            host,
        };
        let verdict = judge.command(command, &mut named, &mut judged.lines);
        judged.outcomes.push(RefOutcome {
            name: command.name.clone(),
            refused: verdict.as_ref().err().map(|refused| refused.reason.clone()),
        });
        match verdict {
            Ok((account, seen, branch)) => accepted.push(AcceptedCommand {
                account,
                seen,
                branch,
            }),
            Err(refused) => judged.lines.extend(refused.lines),
        }
    }
    let is_refused = judged
        .outcomes
        .iter()
        .any(|outcome| outcome.refused.is_some());
    if request.is_atomic && is_refused {
        judged.refuse_rest("atomic push failed");
        return Ok(judged);
    }
    if accepted.is_empty() {
        return Ok(judged);
    }
    let actor = caller.actor(host, remote);
    match store(users, &actor, &accepted).await {
        Ok(()) => {}
        Err(AccountsError::Moved | AccountsError::NoAccount(_)) => {
            judged.refuse_rest("failed to update ref: lock failure, fetch first");
        }
        // The external IDs have changed since the caller signed in.
        Err(AccountsError::Refused(findings)) => {
            judged.lines.extend(findings.lines());
            judged.refuse_rest("invalid account configuration");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(judged)
}

/// Stores all accepted commands in one update.
async fn store(
    users: &AllUsers,
    actor: &AccountsActor,
    accepted: &[AcceptedCommand],
) -> Result<(), AccountsError> {
    let update = users.update(actor, "Push").await;
    loop {
        let mut edit = update.begin();
        for command in accepted {
            let account = edit.account(command.account).await?;
            account.push(command.seen, command.branch.clone())?;
        }
        if update.store(edit).await? {
            return Ok(());
        }
    }
}

impl JudgedPush {
    /// Refuses every command that was not refused for a reason of its own.
    fn refuse_rest(&mut self, reason: &str) {
        for outcome in &mut self.outcomes {
            outcome.refused.get_or_insert_with(|| reason.to_owned());
        }
    }
}

/// Everything that the verdict on a command depends on.
struct PushJudge<'a> {
    caller: &'a GitCaller,
    view: &'a View,
    pack: Option<&'a PushedPack>,
    host: &'a str,
}

impl PushJudge<'_> {
    /// Judges a command. `named` are the refs of earlier commands. Warnings are added to `lines`.
    fn command(
        &self,
        command: &PushCommand,
        named: &mut BTreeSet<AllUsersRef>,
        lines: &mut Vec<String>,
    ) -> Result<(AccountId, ObjectId, PushedBranch), RefusedPush> {
        let account = self.account(&command.name)?;
        let name = AllUsersRef::User(account);
        if !named.insert(name) {
            return Err(RefusedPush::new(
                "prohibited",
                [format!("error: {name} is named twice; push to it once")],
            ));
        }
        let present = self
            .view
            .refs
            .iter()
            .find(|(known, _)| *known == name.to_string());
        let Some((_, present)) = present else {
            return Err(RefusedPush::new(
                "not allowed to create user branch",
                [format!(
                    "error: {name} does not exist; `lockkeeper accounts create` makes an account"
                )],
            ));
        };
        let Some(new) = command.new else {
            return Err(RefusedPush::new(
                "not allowed to delete user branch",
                [format!(
                    "error: {name} stays as long as its account; `lockkeeper accounts deactivate` locks the account out"
                )],
            ));
        };
        if command.old != Some(*present) {
            return Err(RefusedPush::new(
                "failed to update ref: lock failure, fetch first",
                [],
            ));
        }
        let commits = self.commits(*present, new)?;
        self.committers(&commits)?;
        let findings = self.files(account, &commits);
        if !findings.is_accepted() {
            return Err(RefusedPush::new(
                "invalid account configuration",
                findings.lines(),
            ));
        }
        lines.extend(findings.lines());
        let objects = commits
            .objects
            .into_iter()
            .map(|(id, kind, content)| GitObject { id, kind, content });
        let branch = PushedBranch {
            tip: new,
            files: commits.files,
            objects: objects.collect(),
        };
        Ok((account, *present, branch))
    }

    /// Returns the account whose branch the name is, if the caller may push to it.
    fn account(&self, name: &str) -> Result<AccountId, RefusedPush> {
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
        match (wanted, own) {
            (AllUsersRef::User(account), Some(own)) if own == wanted => Ok(account),
            (AllUsersRef::User(account), None) => Ok(account),
            (_, Some(own)) => Err(prohibited(format!(
                "error: you may push to your own branch only, {own} or refs/users/self"
            ))),
            (_, None) => Err(prohibited(format!(
                "error: {wanted} cannot be pushed to; `lockkeeper accounts` changes it"
            ))),
        }
    }

    fn commits(&self, old: ObjectId, new: ObjectId) -> Result<PushedCommits, RefusedPush> {
        let Some(pack) = self.pack else {
            return Err(RefusedPush::new("non-fast-forward", []));
        };
        pack.commits(old, new, MAX_FILES, MAX_BYTES).map_err(|fault| match fault {
            PushFault::NotForward => RefusedPush::new(
                "non-fast-forward",
                ["error: the history of an account is never rewritten; rebase on the branch as it is here".to_owned()],
            ),
            PushFault::Merge(commit) => RefusedPush::new(
                "invalid account configuration",
                [format!(
                    "error: the commit {commit} is a merge; rebase, so that each commit has one parent"
                )],
            ),
            fault @ (PushFault::Large(_) | PushFault::Unreadable(_)) => RefusedPush::new(
                "invalid account configuration",
                [format!("error: {fault}")],
            ),
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
                    "error: the committer of {} is <{}>, which is not your address; commit with `git -c user.email={} commit`",
                    foreign.id,
                    crate::kit::web::text::shown(&foreign.committer),
                    addresses.first().map_or("", String::as_str)
                )],
            )),
        }
    }

    fn files(&self, account: AccountId, commits: &PushedCommits) -> AccountFindings {
        let GitCaller::Account { row, external_ids } = self.caller else {
            return AccountFindings::default();
        };
        let mut findings = judge_user_branch(&commits.files, external_ids, KEYS);
        let config = commits.files.get(AccountConfig::FILE);
        let text = config.and_then(|content| ConfigText::parse(content).ok());
        let active = text.is_none_or(|text| AccountConfig::read(&text).0.active);
        if row.number == account && active != row.active {
            let what = "`active` cannot be changed by a push to one's own branch";
            let fix = "remove the line; an administrator uses `lockkeeper accounts deactivate`";
            findings.add(AccountConfig::FILE, [Problem::error(None, what, fix)]);
        }
        findings
    }
}
