//! Rules for the actions of teams of the forge: `--gh-team-allowlist` (reference 1.8).
//!
//! The format is `team:command,team:command`. Case does not matter, and `*` stands for every team or every command.
//! Rules only permit: a member of a team may do every action that one rule gives to the team. An action without a
//! rule is refused. An empty list is no rule, so that `--allow-commenters` decides (`authz`). Rules name
//! teams by their slug (`platform-eng`), never by their display name, because two teams can share a display name.

use std::fmt;

use super::Action;

/// Maximum number of teams. Lockkeeper may have to ask the forge about each team before a command begins.
const MAX_TEAMS: usize = 100;

/// A command in the lists of Atlantis that is a part of `plan` here.
const PART_OF_PLAN: &str = "policy_check";

/// An entry of the list is not a rule. `Display` describes the mistake, [`Self::fix`] the correction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTeamRule {
    /// The entry has no colon.
    #[error("the entry `{0}` names no command")]
    NoCommand(String),
    /// The entry has no team before the colon.
    #[error("the entry `{0}` names no team")]
    NoTeam(String),
    /// The entry has several colons.
    #[error("the entry `{0}` has more than one colon")]
    TwoColons(String),
    /// The name of the team is not a slug.
    #[error("in the entry `{entry}`, `{team}` is not the slug of a team")]
    Team {
        /// Entry of the list.
        entry: String,
        /// Text in the place of the team.
        team: String,
    },
    /// The command does not exist.
    #[error("in the entry `{entry}`, `{command}` is not a command")]
    Command {
        /// Entry of the list.
        entry: String,
        /// Text in the place of the command.
        command: String,
    },
    /// The list has too many teams.
    #[error("the list has {0} teams; the maximum is {MAX_TEAMS}")]
    TooMany(usize),
}

impl InvalidTeamRule {
    /// Returns the correction to suggest.
    pub fn fix(&self) -> String {
        match self {
            Self::NoCommand(entry) => {
                format!("write `{entry}:plan`, or `{entry}:*` for every command")
            }
            Self::NoTeam(entry) => format!("write `*{}` for every team", entry.trim()),
            Self::TwoColons(_) => {
                "separate entries with commas, such as `devs:plan,ops:apply`".to_owned()
            }
            Self::Team { team, .. } => format!(
                "write the last part of the team's address on GitHub (.../orgs/ORGANISATION/teams/SLUG), such as `{}`",
                slug_of(team)
            ),
            Self::Command { .. } => format!("choose from {}, or `*`", Action::words()),
            Self::TooMany(_) => {
                "list a parent team instead; it includes the members of its child teams".to_owned()
            }
        }
    }
}

/// Returns the slug that GitHub would make of a name: lower-case letters, with `-` for every other character.
fn slug_of(name: &str) -> String {
    let lower = name
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .trim()
        .to_lowercase();
    let slug: String = lower
        .chars()
        .map(|c| if is_slug_char(c) { c } else { '-' })
        .collect();
    let slug = slug.trim_matches('-');
    if slug.is_empty() {
        "platform-eng".to_owned()
    } else {
        slug.to_owned()
    }
}

fn is_slug_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_')
}

/// `None` stands for `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TeamRule {
    team: Option<String>,
    action: Option<Action>,
}

/// The list of rules. An empty list decides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeamRules(Vec<TeamRule>);

/// People to whom the rules give an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grantees<'a> {
    /// Every person, because a rule has `*` as its team.
    Everybody,
    /// Members of these teams, each named once, in the order of the list. The list can be empty.
    Teams(Vec<&'a str>),
}

impl TeamRules {
    /// Parses the entries. Reports every mistake in any of them.
    pub fn new(entries: &[impl AsRef<str>]) -> Result<Self, Vec<InvalidTeamRule>> {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        for entry in entries
            .iter()
            .map(|entry| entry.as_ref().trim())
            .filter(|entry| !entry.is_empty())
        {
            match read_rule(entry) {
                Ok(rule) => rules.push(rule),
                Err(problem) => problems.push(problem),
            }
        }
        let rules = Self(rules);
        let teams = rules.teams().len();
        if teams > MAX_TEAMS {
            problems.push(InvalidTeamRule::TooMany(teams));
        }
        if problems.is_empty() {
            Ok(rules)
        } else {
            Err(problems)
        }
    }

    /// Returns true if there are no rules, so that another setting decides.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns every team on the list once.
    pub fn teams(&self) -> Vec<&str> {
        distinct(self.0.iter().filter_map(|rule| rule.team.as_deref()))
    }

    /// Returns the people who may do the action.
    pub fn grantees(&self, action: Action) -> Grantees<'_> {
        let giving: Vec<&TeamRule> = self
            .0
            .iter()
            .filter(|rule| rule.action.is_none_or(|given| given == action))
            .collect();
        if giving.iter().any(|rule| rule.team.is_none()) {
            return Grantees::Everybody;
        }
        Grantees::Teams(distinct(
            giving.into_iter().filter_map(|rule| rule.team.as_deref()),
        ))
    }

    /// Returns true if a member of exactly these teams may do the action.
    pub fn allows(&self, action: Action, member_of: &[impl AsRef<str>]) -> bool {
        let is_member = |team: &&str| {
            member_of
                .iter()
                .any(|own| own.as_ref().eq_ignore_ascii_case(team))
        };
        match self.grantees(action) {
            Grantees::Everybody => true,
            Grantees::Teams(teams) => teams.iter().any(is_member),
        }
    }
}

impl fmt::Display for TeamRules {
    /// Writes the rules in the syntax of the flag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.0.iter().enumerate() {
            let (comma, team) = (
                if at == 0 { "" } else { "," },
                rule.team.as_deref().unwrap_or("*"),
            );
            write!(
                f,
                "{comma}{team}:{}",
                rule.action.map_or("*", Action::as_str)
            )?;
        }
        Ok(())
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
    });
    seen
}

fn read_rule(entry: &str) -> Result<TeamRule, InvalidTeamRule> {
    let Some((team, command)) = entry.split_once(':') else {
        return Err(InvalidTeamRule::NoCommand(entry.to_owned()));
    };
    if command.contains(':') {
        return Err(InvalidTeamRule::TwoColons(entry.to_owned()));
    }
    let (team, command) = (team.trim(), command.trim());
    if team.is_empty() {
        return Err(InvalidTeamRule::NoTeam(entry.to_owned()));
    }
    if command.is_empty() {
        return Err(InvalidTeamRule::NoCommand(team.to_owned()));
    }
    Ok(TeamRule {
        team: read_team(entry, team)?,
        action: read_action(entry, command)?,
    })
}

fn read_team(entry: &str, team: &str) -> Result<Option<String>, InvalidTeamRule> {
    let slug = team.to_lowercase();
    match slug.as_str() {
        "*" => Ok(None),
        slug if slug.len() <= 255 && slug.chars().all(is_slug_char) => Ok(Some(slug.to_owned())),
        _ => Err(InvalidTeamRule::Team {
            entry: entry.to_owned(),
            team: team.to_owned(),
        }),
    }
}

fn read_action(entry: &str, command: &str) -> Result<Option<Action>, InvalidTeamRule> {
    // A team that may plan may also have its plans checked against policies.
    let word = if command.eq_ignore_ascii_case(PART_OF_PLAN) {
        "plan"
    } else {
        command
    };
    match Action::of_word(word) {
        _ if word == "*" => Ok(None),
        Some(action) => Ok(Some(action)),
        None => Err(InvalidTeamRule::Command {
            entry: entry.to_owned(),
            command: command.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(text: &str) -> TeamRules {
        TeamRules::new(&text.split(',').collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_rule_gives_its_command_to_its_team() {
        use Action::{Apply, CancelForce, Plan, StateRm, Unlock, UnlockAny};
        for (text, action, teams, expected) in [
            ("", Apply, &[][..], false),
            ("devs:plan", Plan, &["devs"], true),
            ("devs:plan", Plan, &[], false),
            ("devs:plan", Apply, &["devs"], false),
            ("devs:plan,ops:apply", Apply, &["devs", "ops"], true),
            (" Devs : PLAN , ops : Apply ", Plan, &["DEVS"], true),
            ("*:plan,ops:*", Plan, &[], true),
            ("*:plan,ops:*", Apply, &[], false),
            ("*:plan,ops:*", Apply, &["ops"], true),
            ("*:plan,ops:*", UnlockAny, &["ops"], true),
            ("*:*", CancelForce, &[], true),
            ("ops:cancel", CancelForce, &["ops"], false),
            ("ops:state", StateRm, &["ops"], true),
            ("ops:state_rm", StateRm, &["ops"], true),
            ("ops:unlock_any", Unlock, &["ops"], false),
            ("ops:policy_check", Plan, &["ops"], true),
            ("ops:apply", Apply, &["ops-emea"], false),
        ] {
            assert_eq!(
                rules(text).allows(action, teams),
                expected,
                "{text} {action} {teams:?}"
            );
        }
    }

    #[test]
    fn who_may_is_told_in_the_order_of_the_list_and_once() {
        let rules = rules("sre:apply,devs:plan,Ops:*,SRE:*");
        assert_eq!(
            rules.grantees(Action::Apply),
            Grantees::Teams(vec!["sre", "ops"])
        );
        assert_eq!(
            rules.grantees(Action::Plan),
            Grantees::Teams(vec!["devs", "ops", "sre"])
        );
        assert_eq!(rules.teams(), ["sre", "devs", "ops"]);
        assert_eq!(rules.to_string(), "sre:apply,devs:plan,ops:*,sre:*");
    }

    #[test]
    fn every_wrong_entry_is_named_with_the_way_out() {
        let list = "devs,:plan,devs:,a:b:c,Dev Ops:plan,acme/devs:plan,devs:aply,*:plan";
        let problems = TeamRules::new(&list.split(',').collect::<Vec<_>>()).unwrap_err();
        let told: Vec<String> = problems
            .iter()
            .map(|problem| format!("{problem}: {}", problem.fix()))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @"
        the entry `devs` names no command: write `devs:plan`, or `devs:*` for every command
        the entry `:plan` names no team: write `*:plan` for every team
        the entry `devs` names no command: write `devs:plan`, or `devs:*` for every command
        the entry `a:b:c` has more than one colon: separate entries with commas, such as `devs:plan,ops:apply`
        in the entry `Dev Ops:plan`, `Dev Ops` is not the slug of a team: write the last part of the team's address on GitHub (.../orgs/ORGANISATION/teams/SLUG), such as `dev-ops`
        in the entry `acme/devs:plan`, `acme/devs` is not the slug of a team: write the last part of the team's address on GitHub (.../orgs/ORGANISATION/teams/SLUG), such as `devs`
        in the entry `devs:aply`, `aply` is not a command: choose from plan, apply, unlock, unlock_any, discard, apply_lock, lease, sync, cancel, cancel_force, import, state_rm, approve_policies, version, owners, peers, or `*`
        ");
    }

    #[test]
    fn a_list_of_more_teams_than_can_be_asked_about_is_refused() {
        let entries: Vec<String> = (0..=MAX_TEAMS).map(|n| format!("team-{n}:plan")).collect();
        assert_eq!(
            TeamRules::new(&entries),
            Err(vec![InvalidTeamRule::TooMany(101)])
        );
        assert!(TeamRules::new(&entries[1..]).is_ok());
    }

    fn rule() -> impl Strategy<Value = String> {
        (
            "[abc*]",
            proptest::sample::select(vec!["plan", "apply", "unlock_any", "*"]),
        )
            .prop_map(|(team, command)| format!("{team}:{command}"))
    }

    fn action() -> impl Strategy<Value = Action> {
        proptest::sample::select(vec![
            Action::Plan,
            Action::Apply,
            Action::UnlockAny,
            Action::Unlock,
        ])
    }

    proptest! {
        #[test]
        fn no_list_can_crash_the_server(text in ".{0,60}") {
            drop(TeamRules::new(&text.split(',').collect::<Vec<_>>()));
        }

        #[test]
        fn a_list_that_was_read_is_read_again_as_the_same(list in proptest::collection::vec(rule(), 1..6)) {
            let read = TeamRules::new(&list).unwrap();
            prop_assert_eq!(rules(&read.to_string()), read);
        }

        #[test]
        fn another_rule_and_another_team_never_take_a_right_away(
            list in proptest::collection::vec(rule(), 1..6), more in rule(),
            teams in proptest::collection::vec("[abc]", 0..3), another in "[abc]", action in action(),
        ) {
            let before = TeamRules::new(&list).unwrap();
            let longer: Vec<String> = list.into_iter().chain([more]).collect();
            if before.allows(action, &teams) {
                prop_assert!(TeamRules::new(&longer).unwrap().allows(action, &teams));
                let teams: Vec<String> = teams.into_iter().chain([another]).collect();
                prop_assert!(before.allows(action, &teams));
            }
        }

        #[test]
        fn who_is_in_no_team_may_only_what_everybody_may(list in proptest::collection::vec(rule(), 1..6), action in action()) {
            let read = TeamRules::new(&list).unwrap();
            let everybody = list.iter().any(|rule| rule == "*:*" || *rule == format!("*:{action}"));
            prop_assert_eq!(read.allows(action, &[""; 0]), everybody);
        }
    }
}
