//! Decides what accounts of the pages and the API may reach if they are limited to owners.
//!
//! A repository belongs to the owner who claims it at this moment, according to the database. A repository that
//! nobody has claimed belongs to nobody, so only the account for the whole server sees it. Things that concern no
//! repository and no owner belong to the whole server, too.

use super::{AuthzError, Decision, Denial, Reserved, ReservedAction, Resource};
use crate::config::access::{AccessScope, Action, Identity, WebAccounts};
use crate::model::{OwnerName, RepoUrl, code_span};
use crate::store::Store;

/// Reason why something is outside the limits of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideScope {
    /// Rule as a clause.
    pub rule: String,
    /// Value found, as a clause.
    pub actual: String,
    /// People who can do it, as sentences.
    pub who_can: Vec<String>,
}

impl OutsideScope {
    /// Returns one sentence with the reason, and who can do it.
    pub fn message(&self, who: &str, verb: &str) -> String {
        let who_can = self.who_can.join(" ");
        format!(
            "{} may not {verb}: {}, and {}. {who_can}",
            code_span(who),
            self.rule,
            self.actual
        )
    }

    pub(super) fn denial(self, who: &Identity, action: Action) -> Decision {
        let Self {
            rule,
            actual,
            who_can,
        } = self;
        Decision::Denied(Box::new(Denial {
            who: who.clone(),
            action,
            rule,
            actual,
            who_can,
        }))
    }
}

/// Checks whether something is within the limits of a user of the pages or the API, for every action.
pub async fn within(
    store: &Store,
    accounts: &WebAccounts,
    name: &str,
    on: &Resource<'_>,
) -> Result<Result<(), OutsideScope>, AuthzError> {
    let account = match accounts.scope_of(name) {
        AccessScope::Whole => return Ok(Ok(())),
        AccessScope::Limited(account) => account,
        AccessScope::Unknown => return Ok(Err(unknown())),
    };
    if let Resource::Reserved(reserved) = on {
        return Ok(Err(reserved_for_server_account(reserved)));
    }
    let (actual, owner) = match (on, on.repo()) {
        (Resource::Owner(owner), _) if account.owners.contains(*owner) => return Ok(Ok(())),
        (Resource::Owner(owner), _) => (
            format!("this belongs to {}", code_span(owner.as_str())),
            Some((*owner).clone()),
        ),
        (_, Some(repo)) => {
            // A repository without an address in normal form cannot be claimed either.
            let owner = match RepoUrl::of(repo) {
                Ok(url) => store.claim_owner(&url).await?,
                Err(_) => None,
            };
            match owner {
                Some(owner) if account.owners.contains(&owner) => return Ok(Ok(())),
                Some(owner) => (
                    format!("{repo} is claimed by {}", code_span(owner.as_str())),
                    Some(owner),
                ),
                None => (format!("nobody has claimed {repo}"), None),
            }
        }
        (_, None) => ("this concerns the whole server".to_owned(), None),
    };
    let rule = format!(
        "this account is limited to the resources of {}",
        account.owners_quoted()
    );
    Ok(Err(OutsideScope {
        rule,
        actual,
        who_can: who_can(owner.as_ref().map(OwnerName::as_str)),
    }))
}

fn reserved_for_server_account(reserved: &Reserved<'_>) -> OutsideScope {
    let Reserved { owner, url, what } = reserved;
    let (rule, actual, who_can) = match what {
        ReservedAction::FirstClaim => (
            "only the account of the whole server can make the first claim of a repository",
            format!("nobody has claimed {url}"),
            format!(
                "That account can register the first application or credential of the repository for {}. Then \
                 accounts of this owner can add more.",
                code_span(owner.as_str())
            ),
        ),
        ReservedAction::OtherBranch(branch, default) => (
            "only the account of the whole server can let an application use another branch than the default branch",
            default.map_or_else(
                || format!("this requests it (`any_branch`) for {}", code_span(branch.as_str())),
                |default| {
                    let (branch, default) = (code_span(branch.as_str()), code_span(default.as_str()));
                    format!("the default branch of {url} is {default}, not {branch}")
                },
            ),
            "Register it for the default branch, or ask a user of that account to allow the other branch \
             (`any_branch`)."
                .to_owned(),
        ),
    };
    OutsideScope {
        rule: rule.to_owned(),
        actual,
        who_can: vec![who_can],
    }
}

fn who_can(owner: Option<&str>) -> Vec<String> {
    let of_owner = owner.map(|owner| format!("An account of {} can do it.", code_span(owner)));
    let main = "The account of the whole server can do it, and an administrator can change the limits of this account \
                (--web-accounts-file).";
    of_owner.into_iter().chain([main.to_owned()]).collect()
}

fn unknown() -> OutsideScope {
    OutsideScope {
        rule: "only the accounts of --web-accounts-file and --web-username have permissions"
            .to_owned(),
        actual: "this account is not one of them (any more)".to_owned(),
        who_can: vec!["An administrator can add the account.".to_owned()],
    }
}
