//! Teams of organisations, which form trees. GitHub counts the members of a team's child teams as its own (GitHub REST:
//! "Get team membership for a user").

use std::collections::BTreeMap;

use crate::emulator::EmulatorError;

use super::{State, UserKind, World};

/// A team to make.
#[derive(Clone, Debug)]
pub struct NewTeam {
    name: String,
    parent: Option<String>,
    members: BTreeMap<String, MembershipState>,
}

impl NewTeam {
    /// A team without members; its slug follows from the name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parent: None,
            members: BTreeMap::new(),
        }
    }

    /// Puts it below the team with this slug.
    #[must_use]
    pub fn below(mut self, parent: &str) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// With these people.
    #[must_use]
    pub fn with(self, logins: &[&str]) -> Self {
        self.and(logins, MembershipState::Active)
    }

    /// With people who have not accepted their invitation yet.
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

/// Whether somebody has accepted to be a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::emulator) enum MembershipState {
    Pending,
    Active,
}

/// A team.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Team {
    pub(in crate::emulator) id: u64,
    /// Login of the organisation, as it writes itself.
    pub(in crate::emulator) org: String,
    pub(in crate::emulator) name: String,
    pub(in crate::emulator) slug: String,
    /// Slug of the team above.
    pub(in crate::emulator) parent: Option<String>,
    /// By login in small letters.
    members: BTreeMap<String, MembershipState>,
}

impl State {
    /// Whether the login is an organisation; owners of repositories are, unless they forked them.
    pub(in crate::emulator) fn org(&self, login: &str) -> Option<&str> {
        let is_org = |owner: &&super::User| {
            owner.kind == UserKind::Organization && owner.login.eq_ignore_ascii_case(login)
        };
        self.repos
            .values()
            .map(|repo| &repo.owner)
            .find(is_org)
            .map(|owner| owner.login.as_str())
    }

    /// The teams of an organisation, oldest first.
    pub(in crate::emulator) fn teams_of(&self, org: &str) -> impl Iterator<Item = &Team> {
        self.teams
            .iter()
            .filter(move |team| team.org.eq_ignore_ascii_case(org))
    }

    pub(in crate::emulator) fn team(&self, org: &str, slug: &str) -> Option<&Team> {
        self.teams_of(org)
            .find(|team| team.slug.eq_ignore_ascii_case(slug))
    }

    fn set_team(&mut self, org: &str, new: NewTeam) -> Result<(), EmulatorError> {
        let known = self.org(org).map(str::to_owned);
        let org = known.ok_or_else(|| {
            EmulatorError::Refused(format!("`{org}` owns no repository as an organisation"))
        })?;
        let slug = slug(&new.name);
        let is_unfit =
            |parent: &&str| self.team(&org, parent).is_none() || self.is_below(&org, parent, &slug);
        if let Some(parent) = new.parent.as_deref().filter(is_unfit) {
            return Err(EmulatorError::Refused(format!(
                "`{org}` has no team `{parent}` that `{slug}` could be below"
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

    /// Whether a team is the other one, or below it.
    fn is_below(&self, org: &str, slug: &str, other: &str) -> bool {
        let parent = self.team(org, slug).and_then(|team| team.parent.as_deref());
        slug == other || parent.is_some_and(|parent| self.is_below(org, parent, other))
    }

    /// How somebody belongs to a team or one below it; the best of several ways counts.
    pub(in crate::emulator) fn membership(
        &self,
        team: &Team,
        login: &str,
    ) -> Option<MembershipState> {
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

impl World {
    /// Makes a team, or gives the team of this name other members.
    pub(in crate::emulator) fn set_team(
        &self,
        org: &str,
        new: NewTeam,
    ) -> Result<(), EmulatorError> {
        self.change(|state| state.set_team(org, new))
    }
}

/// Small letters, and `-` for what is no letter, digit or `_`.
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
