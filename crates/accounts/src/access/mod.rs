//! The access control of `All-Users`: who may read and push which ref, and who has which capability. It stands in
//! `refs/meta/config`.
//!
//! ```text
//! project.config                                     groups.config
//!   [access "refs/users/*"]                            [group "Administrators"]
//!     read = group Auditors                              member = 1000856
//!   [capability]                                       [group "Auditors"]
//!     administrateServer = group Administrators          include = group Administrators
//! ```

mod groups;
mod pattern;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

pub use self::groups::AccountGroups;
use self::rules::{AccessRules, RuleAction};
pub use self::rules::{Capability, RefPermission};
use crate::config_text::ConfigText;
use crate::findings::{AccountFindings, Problem};
use crate::refs::{AccountId, AllUsersRef};

/// Rules, capabilities and groups. Without a file, the rules of a new installation are in effect.
#[derive(Clone, Debug)]
pub struct AccessControl {
    rules: AccessRules,
    groups: AccountGroups,
}

/// An account with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessMember {
    account: AccountId,
    groups: BTreeSet<String>,
}

/// Answer of the rules to the question whether somebody may read or push a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    /// A rule permits it.
    Granted,
    /// A rule forbids it, or an exclusive section does not name the account.
    Refused,
    /// No rule concerns the account.
    Undecided,
}

impl AccessControl {
    /// Name of the file with rules and capabilities.
    pub const RULES_FILE: &'static str = "project.config";
    /// Name of the file with groups.
    pub const GROUPS_FILE: &'static str = "groups.config";
    /// Name of a file that this version has no use for. Who pushes it believes that it gives or takes rights.
    pub const RIGHTS_FILE: &'static str = "rights.config";
    /// Rules of a new installation. The first section is the one that Gerrit begins with.
    pub const FIRST_RULES: &'static str = "\
[access \"refs/users/${shardeduserid}\"]
\texclusiveGroupPermissions = read push submit
\tread = group Registered Users
\tpush = group Registered Users
\tlabel-Code-Review = -2..+2 group Registered Users
\tsubmit = group Registered Users
[capability]
\tadministrateServer = group Administrators
\tmodifyAccount = group Administrators
\taccessDatabase = group Administrators
";

    /// Returns the access control of a new installation: nobody is an administrator.
    pub fn first() -> Self {
        Self::read(&BTreeMap::new()).0
    }

    /// Reads the files of a commit by path, and lists their problems. What has an error is left out.
    pub fn read(files: &BTreeMap<String, Vec<u8>>) -> (Self, AccountFindings) {
        let mut findings = AccountFindings::default();
        let mut text_of = |path: &str, otherwise: &str| {
            let content = files.get(path).map_or(otherwise.as_bytes(), Vec::as_slice);
            ConfigText::parse(content).unwrap_or_else(|problem| {
                findings.add(path, [problem]);
                ConfigText::default()
            })
        };
        let groups = text_of(Self::GROUPS_FILE, "");
        let rules = text_of(Self::RULES_FILE, Self::FIRST_RULES);
        let (groups, problems) = AccountGroups::read(&groups);
        findings.add(Self::GROUPS_FILE, problems);
        let (rules, problems) = AccessRules::read(&rules, &groups);
        findings.add(Self::RULES_FILE, problems);
        if files.contains_key(Self::RIGHTS_FILE) {
            let what = "this version has no rights that are kept here";
            let fix = "remove the file; docs/permissions.md says where rights are set";
            findings.add(Self::RIGHTS_FILE, [Problem::error(None, what, fix)]);
        }
        (Self { rules, groups }, findings)
    }

    /// Returns the groups of accounts.
    pub fn groups(&self) -> &AccountGroups {
        &self.groups
    }

    /// Returns an account with the groups that it is in.
    pub fn member(&self, account: AccountId) -> AccessMember {
        AccessMember {
            account,
            groups: self.groups.of(account),
        }
    }

    /// Returns true if the account has the capability itself. Administrators also may modify accounts.
    pub fn has(&self, member: &AccessMember, capability: Capability) -> bool {
        let given = |capability| {
            let mut groups = self.rules.groups_with(capability);
            groups.any(|group| member.groups.contains(group))
        };
        given(capability)
            || capability == Capability::ModifyAccount && given(Capability::AdministrateServer)
    }

    /// Returns true if the rules let some group administrate the server.
    pub fn names_administrators(&self) -> bool {
        let mut groups = self.rules.groups_with(Capability::AdministrateServer);
        groups.next().is_some()
    }

    /// Returns all accounts that a group names and that administrate the server.
    pub fn administrators(&self) -> impl Iterator<Item = AccountId> {
        let accounts: BTreeSet<AccountId> = self.groups.members().collect();
        accounts
            .into_iter()
            .filter(|account| self.has(&self.member(*account), Capability::AdministrateServer))
    }

    /// Asks the rules for a ref. The most specific section with a rule for a group of the account decides. A section
    /// that is exclusive for the permission shuts out all broader ones. Short of that, a block counts against more specific ones.
    pub fn verdict(
        &self,
        member: &AccessMember,
        permission: RefPermission,
        name: AllUsersRef,
    ) -> AccessVerdict {
        let mut verdict = AccessVerdict::Undecided;
        for section in self.rules.sections_for(name, member.account) {
            let actions = section.actions(permission, &member.groups);
            if actions.contains(&RuleAction::Block) {
                return AccessVerdict::Refused;
            }
            if verdict == AccessVerdict::Undecided {
                if actions.contains(&RuleAction::Deny) {
                    verdict = AccessVerdict::Refused;
                } else if actions.contains(&RuleAction::Allow) {
                    verdict = AccessVerdict::Granted;
                }
            }
            if section.is_exclusive(permission) {
                return match verdict {
                    AccessVerdict::Undecided | AccessVerdict::Refused => AccessVerdict::Refused,
                    AccessVerdict::Granted => AccessVerdict::Granted,
                };
            }
        }
        verdict
    }

    /// Returns the refs that rules can permit an account to read, if they name each of them. `None`: a pattern is among
    /// the names, and all refs have to be looked at.
    pub fn readable_names(&self, member: &AccessMember) -> Option<BTreeSet<AllUsersRef>> {
        self.rules.names_permitting(RefPermission::Read, member)
    }
}

impl AccessMember {
    /// Returns the names of all groups of the account, with those that everybody is in.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
