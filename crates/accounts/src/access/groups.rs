//! `groups.config`: groups of accounts.

use std::collections::{BTreeMap, BTreeSet};

use crate::config_text::{ConfigEntry, ConfigText, KeyPath};
use crate::findings::Problem;
use crate::refs::AccountId;
use crate::text::{nearest, quoted, shown, suggestion};

/// All groups of the file, with their members and the groups that they include.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountGroups {
    groups: BTreeMap<String, AccountGroup>,
}

/// A group of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AccountGroup {
    /// Accounts, each with its line.
    members: BTreeMap<AccountId, usize>,
    /// Groups whose members are also members of this one, each with its line.
    includes: BTreeMap<String, usize>,
}

const SECTION: &str = "group";
const MEMBER: &str = "member";
const INCLUDE: &str = "include";

impl AccountGroups {
    /// The group of every account, and of everybody who has not signed in.
    pub const ANONYMOUS: &'static str = "Anonymous Users";
    /// The group of every account. It needs no section.
    pub const REGISTERED: &'static str = "Registered Users";
    /// The group that a new installation gives all capabilities. It exists without a section, and has no members then.
    pub const ADMINISTRATORS: &'static str = "Administrators";
    /// Longest chain of groups that include each other.
    pub const MAX_DEPTH: usize = 20;
    /// Maximum number of characters of a name.
    const MAX_NAME: usize = 100;

    /// Reads all groups, and lists the problems of the file.
    pub fn read(text: &ConfigText) -> (Self, Vec<Problem>) {
        let mut groups = Self::default();
        let mut problems = Vec::new();
        // A group without keys is a group without members.
        for header in text.sections() {
            let name = header.subsection.unwrap_or_default();
            if header.section != SECTION {
                let what = format!("unknown section `{}`", shown(header.section));
                let fix = suggestion(header.section, &[SECTION]);
                problems.push(Problem::warning(header.line, what, fix));
            } else if let Err(problem) = check_name(header.line, name) {
                problems.push(problem);
            } else {
                groups.groups.entry(name.to_owned()).or_default();
            }
        }
        for entry in text.entries() {
            problems.extend(groups.read_entry(entry).err());
        }
        problems.extend(groups.unknown_includes());
        problems.extend(groups.endless_includes());
        (groups, problems)
    }

    fn read_entry(&mut self, entry: ConfigEntry<'_>) -> Result<(), Problem> {
        if entry.section.is_empty() {
            return Err(entry.unknown_section(&[SECTION]));
        }
        let group = entry.subsection.filter(|_| entry.section == SECTION);
        // The header of a section without a usable name was reported above.
        let Some(group) = group.and_then(|name| self.groups.get_mut(name)) else {
            return Ok(());
        };
        if entry.key.eq_ignore_ascii_case(MEMBER) {
            let value = entry.text()?;
            let account = value.parse().map_err(|error| {
                let what = format!("`{}` is {error}", shown(value));
                Problem::error(entry.line, what, "write the number of an account")
            })?;
            group.members.insert(account, entry.line);
        } else if entry.key.eq_ignore_ascii_case(INCLUDE) {
            group.includes.insert(included(entry)?, entry.line);
        } else {
            return Err(entry.unknown_key(&[MEMBER, INCLUDE]));
        }
        Ok(())
    }

    fn unknown_includes(&self) -> Vec<Problem> {
        let includes = self.groups.values().flat_map(|group| &group.includes);
        let unknown = includes.filter(|(name, _)| !self.groups.contains_key(*name));
        unknown
            .map(|(name, line)| self.unknown(*line, name))
            .collect()
    }

    /// Returns an error if the group does not exist, or has no members of its own.
    pub fn check(&self, name: &str) -> Result<(), Problem> {
        check_name(None, name)?;
        if self.exists(name) {
            Ok(())
        } else {
            Err(self.unknown(None, name))
        }
    }

    /// Error for a group that does not exist.
    pub(super) fn unknown(&self, line: impl Into<Option<usize>>, name: &str) -> Problem {
        let what = format!("there is no group `{}`", shown(name));
        let known = self.names().chain([Self::REGISTERED, Self::ANONYMOUS]);
        let fix = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add it to groups.config".to_owned(),
        };
        Problem::error(line, what, fix)
    }

    /// Finds groups that include each other in a circle, and chains that are too long.
    fn endless_includes(&self) -> Option<Problem> {
        let mut open: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, group) in &self.groups {
            let known = group.includes.keys().map(String::as_str);
            let known = known.filter(|name| self.groups.contains_key(*name));
            open.insert(name, known.collect());
        }
        // Each round removes the groups that include no other one that is left.
        for _ in 0..Self::MAX_DEPTH {
            let ends: Vec<&str> = open
                .iter()
                .filter(|(_, includes)| includes.is_empty())
                .map(|(name, _)| *name)
                .collect();
            open.retain(|name, _| !ends.contains(name));
            for includes in open.values_mut() {
                includes.retain(|name| !ends.contains(name));
            }
        }
        if open.is_empty() {
            return None;
        }
        let names: Vec<&str> = open.keys().take(5).copied().collect();
        let what = format!(
            "groups include each other in a circle, or more than {} deep: {}",
            Self::MAX_DEPTH,
            quoted(&names)
        );
        Some(Problem::error(None, what, "remove an `include` of these"))
    }

    /// Returns true if the group is in the file, or exists without being there.
    pub fn exists(&self, name: &str) -> bool {
        self.groups.contains_key(name)
            || [Self::ANONYMOUS, Self::REGISTERED, Self::ADMINISTRATORS].contains(&name)
    }

    /// Returns the names of all groups that have members of their own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.groups.keys().map(String::as_str);
        let administrators = Some(Self::ADMINISTRATORS);
        names.chain(administrators.filter(|name| !self.groups.contains_key(*name)))
    }

    /// Returns the accounts that the file names as members of a group, without those of groups that it includes.
    pub fn members_of(&self, name: &str) -> impl Iterator<Item = AccountId> {
        let members = self.groups.get(name).map(|group| group.members.keys());
        members.into_iter().flatten().copied()
    }

    /// Returns the groups that a group includes.
    pub fn includes_of(&self, name: &str) -> impl Iterator<Item = &str> {
        let includes = self.groups.get(name).map(|group| group.includes.keys());
        includes.into_iter().flatten().map(String::as_str)
    }

    /// Returns all members of groups, each as often as the file names it.
    pub fn members(&self) -> impl Iterator<Item = AccountId> {
        self.members_with_lines().map(|(account, _)| account)
    }

    /// Returns all members of groups, each with its line.
    pub(crate) fn members_with_lines(&self) -> impl Iterator<Item = (AccountId, usize)> {
        let members = self.groups.values().flat_map(|group| &group.members);
        members.map(|(account, line)| (*account, *line))
    }

    /// Returns the groups of an account, with those that it is in because they include another one.
    pub(super) fn of(&self, account: AccountId) -> BTreeSet<String> {
        let direct = self.groups.iter();
        let direct = direct.filter(|(_, group)| group.members.contains_key(&account));
        let mut found: BTreeSet<String> = direct.map(|(name, _)| name.clone()).collect();
        loop {
            let more = self.groups.iter().filter(|(name, group)| {
                !found.contains(*name) && group.includes.keys().any(|name| found.contains(name))
            });
            let more: Vec<String> = more.map(|(name, _)| name.clone()).collect();
            if more.is_empty() {
                break;
            }
            found.extend(more);
        }
        found.extend([Self::ANONYMOUS, Self::REGISTERED].map(str::to_owned));
        found
    }

    /// Adds a member to a group in the text of the file. Begins the group if it is not there.
    pub fn add_member(
        text: &mut ConfigText,
        group: &str,
        account: AccountId,
    ) -> Result<(), Problem> {
        check_name(None, group)?;
        if Self::read(text)
            .0
            .members_of(group)
            .any(|known| known == account)
        {
            return Ok(());
        }
        let path = KeyPath::within(SECTION, group, MEMBER);
        text.add(path, &account.to_string())
    }

    /// Removes a member from a group in the text of the file. Returns false if it is none.
    pub fn remove_member(
        text: &mut ConfigText,
        group: &str,
        account: AccountId,
    ) -> Result<bool, Problem> {
        let path = KeyPath::within(SECTION, group, MEMBER);
        let account = account.to_string();
        let values: Vec<String> = text
            .values(path)
            .filter_map(|entry| entry.value.map(str::to_owned))
            .collect();
        let kept: Vec<&str> = values
            .iter()
            .map(String::as_str)
            .filter(|value| *value != account)
            .collect();
        if kept.len() == values.len() {
            return Ok(false);
        }
        text.set_values(path, &kept).map(|()| true)
    }
}

/// Reads the value of an `include`.
fn included(entry: ConfigEntry<'_>) -> Result<String, Problem> {
    let value = entry.text()?;
    let Some(name) = value.strip_prefix("group ").map(str::trim) else {
        let what = format!("`{}` cannot be included", shown(value));
        let fix =
            "write `group NAME`; teams of a forge and groups of a provider are not supported yet";
        return Err(Problem::error(entry.line, what, fix));
    };
    if [AccountGroups::ANONYMOUS, AccountGroups::REGISTERED].contains(&name) {
        let what = format!("`{name}` cannot be included: every account is in it");
        let fix = "name the members, or use the group itself in the rules";
        return Err(Problem::error(entry.line, what, fix));
    }
    Ok(name.to_owned())
}

/// Checks the name of a group in the file.
fn check_name(line: impl Into<Option<usize>>, name: &str) -> Result<(), Problem> {
    let line = line.into();
    if [AccountGroups::ANONYMOUS, AccountGroups::REGISTERED].contains(&name) {
        let what = format!("`{name}` is there already, with every account");
        return Err(Problem::error(line, what, "choose another name"));
    }
    let is_usable = !name.is_empty()
        && name == name.trim()
        && name.chars().count() <= AccountGroups::MAX_NAME
        && !name.contains(char::is_control);
    if is_usable {
        return Ok(());
    }
    let what = format!("`{}` is not the name of a group", shown(name));
    let fix = format!(
        "write `[group \"NAME\"]` with a name of 1 to {} characters in one line",
        AccountGroups::MAX_NAME
    );
    Err(Problem::error(line, what, fix))
}
