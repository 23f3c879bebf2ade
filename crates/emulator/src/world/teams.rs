//! Implements teams of organisations, which form trees. The members of a team's child teams count as its own (GitHub
//! REST: "Get team membership for a user").

use std::collections::BTreeMap;

use crate::EmulatorError;

use super::{EmulatedWorld, UserKind, WorldState};

/// Data of a team to create.
#[derive(Clone, Debug)]
pub struct NewTeam {
    name: String,
    parent: Option<String>,
    members: BTreeMap<String, MembershipState>,
}

impl NewTeam {
    /// Creates a team without members; its slug is derived from the name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parent: None,
            members: BTreeMap::new(),
        }
    }

    /// Sets the parent team, by slug.
    #[must_use]
    pub fn below(mut self, parent: &str) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Adds members to the team.
    #[must_use]
    pub fn with(self, logins: &[&str]) -> Self {
        self.and(logins, MembershipState::Active)
    }

    /// Adds people who have not accepted their invitation yet.
    #[must_use]
    pub fn inviting(self, logins: &[&str]) -> Self {
        self.and(logins, MembershipState::Pending)
    }

    fn and(mut self, logins: &[&str], state: MembershipState) -> Self {
        self.members.extend(
            logins
                .iter()
                .map(|login| (login.to_ascii_lowercase(), state)),
        );
        self
    }
}

/// State of a membership: invited or accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MembershipState {
    Pending,
    Active,
}

/// Team of an organisation.
#[derive(Clone, Debug)]
pub(crate) struct Team {
    pub(crate) id: u64,
    /// Login of the organisation, in its own spelling.
    pub(crate) org: String,
    pub(crate) name: String,
    pub(crate) slug: String,
    /// Slug of the parent team.
    pub(crate) parent: Option<String>,
    /// State of each member, by login in lower case.
    members: BTreeMap<String, MembershipState>,
}

impl WorldState {
    /// Returns the organisation with this login. Owners of repositories are organisations, except owners of forks.
    pub(crate) fn org(&self, login: &str) -> Option<&str> {
        let is_org = |owner: &&super::User| {
            owner.kind == UserKind::Organization && owner.login.eq_ignore_ascii_case(login)
        };
        self.repos
            .values()
            .map(|repo| &repo.owner)
            .find(is_org)
            .map(|owner| owner.login.as_str())
    }

    /// Returns the teams of an organisation, the oldest first.
    pub(crate) fn teams_of(&self, org: &str) -> impl Iterator<Item = &Team> {
        self.teams
            .iter()
            .filter(move |team| team.org.eq_ignore_ascii_case(org))
    }

    pub(crate) fn team(&self, org: &str, slug: &str) -> Option<&Team> {
        self.teams_of(org)
            .find(|team| team.slug.eq_ignore_ascii_case(slug))
    }

    fn set_team(&mut self, org: &str, new: NewTeam) -> Result<(), EmulatorError> {
        let known = self.org(org).map(str::to_owned);
        let org = known.ok_or_else(|| {
            EmulatorError::Refused(format!("no organisation `{org}` owns a repository"))
        })?;
        let slug = slug(&new.name);
        let is_unfit =
            |parent: &&str| self.team(&org, parent).is_none() || self.is_below(&org, parent, &slug);
        if let Some(parent) = new.parent.as_deref().filter(is_unfit) {
            return Err(EmulatorError::Refused(format!(
                "`{org}` has no team `{parent}` as the parent of `{slug}`"
            )));
        }
        let id = match self.team(&org, &slug) {
            Some(known) => known.id,
            None => self.next_id(),
        };
        self.teams.retain(|team| team.id != id);
        self.teams.push(Team {
            id,
            org,
            name: new.name,
            slug,
            parent: new.parent,
            members: new.members,
        });
        Ok(())
    }

    /// Returns true if a team is the other one, or below it.
    fn is_below(&self, org: &str, slug: &str, other: &str) -> bool {
        let parent = self.team(org, slug).and_then(|team| team.parent.as_deref());
        slug == other || parent.is_some_and(|parent| self.is_below(org, parent, other))
    }

    /// Returns the membership of an account in a team or in one below it. An accepted membership takes precedence.
    pub(crate) fn membership(&self, team: &Team, login: &str) -> Option<MembershipState> {
        let own = team.members.get(&login.to_ascii_lowercase()).copied();
        let children = self
            .teams_of(&team.org)
            .filter(|child| child.parent.as_deref() == Some(&*team.slug));
        children
            .filter_map(|child| self.membership(child, login))
            .chain(own)
            .max()
    }
}

impl EmulatedWorld {
    /// Creates a team, or replaces the team of this name.
    pub(crate) fn set_team(&self, org: &str, new: NewTeam) -> Result<(), EmulatorError> {
        self.change(|state| state.set_team(org, new))
    }
}

/// Derives a slug: lower case, with `-` in place of all characters except letters, digits and `_`.
fn slug(name: &str) -> String {
    let kept = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    name.chars().map(kept).collect()
}
