//! `project.config`: rules for refs, and capabilities.

use std::collections::{BTreeMap, BTreeSet};

use super::AccessMember;
use super::groups::AccountGroups;
use super::pattern::RefPattern;
use crate::config_text::{ConfigEntry, ConfigText};
use crate::findings::Problem;
use crate::refs::{AccountId, AllUsersRef};
use crate::text::{shown, suggestion};

/// Use of a ref that a rule permits or forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefPermission {
    /// To fetch the ref.
    Read,
    /// To push to the ref.
    Push,
}

/// Right over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Changing the access control, the preferences for everybody, and everything about every account.
    AdministrateServer,
    /// Changing other accounts, and `active`.
    ModifyAccount,
    /// Reading all refs, and pushing external IDs, stars and the sequence.
    AccessDatabase,
}

/// Rules and capabilities of the file.
#[derive(Clone, Debug)]
pub(super) struct AccessRules {
    /// The most specific first.
    sections: Vec<AccessSection>,
    /// Names of the groups that have each capability.
    capabilities: BTreeMap<Capability, BTreeSet<String>>,
}

/// Rules for the refs of a pattern.
#[derive(Clone, Debug)]
pub(super) struct AccessSection {
    pattern: RefPattern,
    rules: Vec<(RefPermission, RuleAction, String)>,
    exclusive: BTreeSet<RefPermission>,
}

/// Consequence of a rule for the members of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleAction {
    Allow,
    /// Forbids it, unless a more specific section allows it.
    Deny,
    /// Forbids it, also if a more specific section allows it, unless an exclusive one shuts it out.
    Block,
}

/// Maximum number of sections with rules. Each request asks all of them.
const MAX_SECTIONS: usize = 200;
const ACCESS: &str = "access";
const CAPABILITY: &str = "capability";
const EXCLUSIVE: &str = "exclusiveGroupPermissions";

impl RefPermission {
    const ALL: [Self; 2] = [Self::Read, Self::Push];

    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Push => "push",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|known| known.as_str().eq_ignore_ascii_case(word))
    }
}

impl Capability {
    /// All capabilities in the order of the documentation.
    pub const ALL: [Self; 3] = [
        Self::AdministrateServer,
        Self::ModifyAccount,
        Self::AccessDatabase,
    ];

    /// Returns the key in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AdministrateServer => "administrateServer",
            Self::ModifyAccount => "modifyAccount",
            Self::AccessDatabase => "accessDatabase",
        }
    }
}

impl AccessRules {
    /// Reads all valid rules, and lists the problems of the file.
    pub(super) fn read(text: &ConfigText, groups: &AccountGroups) -> (Self, Vec<Problem>) {
        let mut rules = Self {
            sections: Vec::new(),
            capabilities: BTreeMap::new(),
        };
        let mut problems = Vec::new();
        let mut by_pattern: BTreeMap<&str, Option<AccessSection>> = BTreeMap::new();
        let mut headers = text.sections().filter(|header| header.section == ACCESS);
        if let Some(header) = headers.nth(MAX_SECTIONS) {
            let what = format!("there are more than {MAX_SECTIONS} sections with rules");
            let fix = "use a pattern for several refs";
            return (rules, vec![Problem::error(header.line, what, fix)]);
        }
        for header in text.sections().filter(|header| header.section == ACCESS) {
            let Some(name) = header
                .subsection
                .filter(|name| !by_pattern.contains_key(name))
            else {
                continue;
            };
            let section = match RefPattern::parse(name) {
                Ok(pattern) => {
                    problems.extend(pattern.warning(header.line, name));
                    Some(AccessSection {
                        pattern,
                        rules: Vec::new(),
                        exclusive: BTreeSet::new(),
                    })
                }
                Err((what, fix)) => {
                    problems.push(Problem::error(header.line, what, fix));
                    None
                }
            };
            by_pattern.insert(name, section);
        }
        for entry in text.entries() {
            let read = match (entry.section, entry.subsection) {
                (ACCESS, Some(name)) => match by_pattern.get_mut(name) {
                    Some(Some(section)) => section.read_entry(entry, groups),
                    // The header was reported.
                    _ => Ok(()),
                },
                (CAPABILITY, None) => rules.read_capability(entry, groups),
                _ => Err(entry.unknown_section(&["access \"refs/…\"", CAPABILITY])),
            };
            problems.extend(read.err());
        }
        rules.sections = by_pattern.into_values().flatten().collect();
        rules.sections.sort_by_key(|section| section.pattern.rank());
        (rules, problems)
    }

    fn read_capability(
        &mut self,
        entry: ConfigEntry<'_>,
        groups: &AccountGroups,
    ) -> Result<(), Problem> {
        let mut all = Capability::ALL.into_iter();
        let known = all.find(|known| known.as_str().eq_ignore_ascii_case(entry.key));
        let Some(capability) = known else {
            let what = format!("unknown capability `{}`", shown(entry.key));
            let words = Capability::ALL.map(Capability::as_str);
            return Err(Problem::error(
                entry.line,
                what,
                suggestion(entry.key, &words),
            ));
        };
        let value = entry.text()?;
        let Some(group) = value.strip_prefix("group ") else {
            let what = format!("`{}` names no group", shown(value));
            return Err(Problem::error(entry.line, what, "write `group NAME`"));
        };
        let group = known_group(entry.line, group, groups)?;
        if [AccountGroups::ANONYMOUS, AccountGroups::REGISTERED].contains(&group.as_str()) {
            let name = capability.as_str();
            let what = format!("every account is in `{group}`, and would have `{name}`");
            let fix = "write a group of groups.config";
            return Err(Problem::error(entry.line, what, fix));
        }
        self.capabilities
            .entry(capability)
            .or_default()
            .insert(group);
        Ok(())
    }

    /// Returns the groups that have a capability.
    pub(super) fn groups_with(&self, capability: Capability) -> impl Iterator<Item = &String> {
        self.capabilities.get(&capability).into_iter().flatten()
    }

    /// Returns the sections for a ref, the most specific first.
    pub(super) fn sections_for(
        &self,
        name: AllUsersRef,
        account: AccountId,
    ) -> impl Iterator<Item = &AccessSection> {
        let name = name.to_string();
        let sections = self.sections.iter();
        sections.filter(move |section| section.pattern.fits(&name, account))
    }

    /// Returns the refs that sections with a rule for the member allow, if each section names a single one.
    pub(super) fn names_permitting(
        &self,
        permission: RefPermission,
        member: &AccessMember,
    ) -> Option<BTreeSet<AllUsersRef>> {
        let mut names = BTreeSet::new();
        for section in &self.sections {
            let actions = section.actions(permission, &member.groups);
            if actions.contains(&RuleAction::Allow) {
                names.extend(section.pattern.only_ref(member.account).ok()?);
            }
        }
        Some(names)
    }
}

impl AccessSection {
    fn read_entry(
        &mut self,
        entry: ConfigEntry<'_>,
        groups: &AccountGroups,
    ) -> Result<(), Problem> {
        if entry.key.eq_ignore_ascii_case(EXCLUSIVE) {
            let words = entry.text()?.split_whitespace();
            self.exclusive
                .extend(words.filter_map(RefPermission::parse));
            return Ok(());
        }
        let Some(permission) = RefPermission::parse(entry.key) else {
            return check_other(entry);
        };
        let value = entry.text()?;
        let (action, rest) = match value.split_once(' ') {
            Some(("deny", rest)) => (RuleAction::Deny, rest),
            Some(("block", rest)) => (RuleAction::Block, rest),
            _ => (RuleAction::Allow, value),
        };
        let Some(group) = rest.trim().strip_prefix("group ") else {
            let what = format!("`{}` is not a rule", shown(value));
            let fix = "write `group NAME`, with `deny` or `block` in front to forbid it";
            return Err(Problem::error(entry.line, what, fix));
        };
        let group = known_group(entry.line, group, groups)?;
        self.rules.push((permission, action, group));
        Ok(())
    }

    /// Returns what the rules for these groups say.
    pub(super) fn actions(
        &self,
        permission: RefPermission,
        groups: &BTreeSet<String>,
    ) -> Vec<RuleAction> {
        let rules = self.rules.iter();
        let rules = rules.filter(|(of, _, group)| *of == permission && groups.contains(group));
        rules.map(|(_, action, _)| *action).collect()
    }

    /// Returns true if broader sections do not count for the permission.
    pub(super) fn is_exclusive(&self, permission: RefPermission) -> bool {
        self.exclusive.contains(&permission)
    }
}

/// Looks at a permission that means nothing here. Those that Gerrit writes are accepted silently.
fn check_other(entry: ConfigEntry<'_>) -> Result<(), Problem> {
    let key = entry.key.to_ascii_lowercase();
    if key == "submit" || key.starts_with("label-") {
        return Ok(());
    }
    if key == "create" || key == "delete" {
        let what = format!("`{key}` has no effect");
        let fix =
            "branches come and go with their accounts: `lockkeeper accounts create` and `delete`";
        return Err(Problem::warning(entry.line, what, fix));
    }
    let words = RefPermission::ALL.map(RefPermission::as_str);
    Err(entry.unknown_key(&[words[0], words[1], EXCLUSIVE]))
}

/// Returns the name of a group that exists.
fn known_group(line: usize, name: &str, groups: &AccountGroups) -> Result<String, Problem> {
    let name = name.trim();
    if groups.exists(name) {
        return Ok(name.to_owned());
    }
    Err(groups.unknown(line, name))
}
