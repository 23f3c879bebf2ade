//! The script of the demo: the steps of the story, and the checks after each step.

use crate::emulator::StatusState;
use crate::model::{CommandOutcome, ProjectOutcome};

use super::accounts::AccountPush;
use super::sample;

/// The account of the bot.
pub(super) const BOT: &str = "lockkeeper-bot";
/// The project that both pull requests change.
pub(super) const PROJECT: &str = "network";

/// The two pull requests of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullRole {
    Alice,
    Bob,
}

impl PullRole {
    /// Returns the login of the author.
    pub fn login(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
        }
    }

    /// Returns the number of the pull request: the emulated GitHub counts from 1, and Alice is first.
    pub fn number(self) -> i64 {
        match self {
            Self::Alice => 1,
            Self::Bob => 2,
        }
    }

    /// Returns the name of the head branch.
    pub fn branch(self) -> &'static str {
        match self {
            Self::Alice => "database-subnet",
            Self::Bob => "dns-zone",
        }
    }

    /// Returns the title of the pull request.
    pub fn title(self) -> &'static str {
        match self {
            Self::Alice => "Add a subnet for the database",
            Self::Bob => "Add a DNS zone",
        }
    }

    /// Returns the changed file and its new content.
    pub fn change(self) -> (&'static str, &'static str) {
        match self {
            Self::Alice => sample::DATABASE_SUBNET,
            Self::Bob => sample::DNS_ZONE,
        }
    }
}

/// Two teams that share the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoTeam {
    Network,
    Database,
}

impl DemoTeam {
    /// Returns the name of the owner.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network-team",
            Self::Database => "database-team",
        }
    }

    /// Returns the URL of the repository as the team writes it.
    pub fn address(self) -> &'static str {
        match self {
            Self::Network => "https://github.com/acme/infrastructure",
            Self::Database => "git@GitHub.com:Acme/Infrastructure.git",
        }
    }
}

/// Action of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoAction {
    /// Pushes a branch and opens a pull request.
    Open(PullRole),
    /// Comments on the person's own pull request.
    Say(PullRole, &'static str),
    /// Merges the person's own pull request.
    Merge(PullRole),
    /// Does nothing, and waits for a comment on the person's own pull request.
    Wait(PullRole),
    /// Registers the project for a team.
    Register(DemoTeam),
    /// Pushes to `main`, without a pull request.
    Push,
    /// Pushes a change of an account.
    EditAccount(AccountPush),
}

impl DemoAction {
    /// Returns the author of the pull request that the action is about, if any.
    pub fn role(self) -> Option<PullRole> {
        match self {
            Self::Open(role) | Self::Say(role, _) | Self::Merge(role) | Self::Wait(role) => {
                Some(role)
            }
            Self::Register(_) | Self::Push | Self::EditAccount(_) => None,
        }
    }
}

/// Check after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The answer is about this project only, with this outcome.
    Project(ProjectOutcome),
    /// The plan adds this number of resources, and changes or destroys none.
    Adds(u32),
    /// Outcome of the command.
    Command(CommandOutcome),
    /// Text in the answer.
    Words(&'static str),
    /// State of a status of the head commit.
    Status(&'static str, StatusState),
    /// Description of a status of the head commit.
    StatusText(&'static str, &'static str),
    /// The lock of the project belongs to the pull request.
    LockOf(PullRole),
    /// Number of resources in Terraform's state.
    Resources(usize),
    /// Owner of the repository.
    OwnedBy(DemoTeam),
    /// Mirrors of both servers with the current commit of `main`.
    MirrorsInStep,
    /// Number of repositories that the account watches.
    Watches(usize),
    /// Preferred address of the account.
    Address(&'static str),
}

/// One step of the story.
pub(super) struct ScriptStep {
    pub title: &'static str,
    /// Explanation of the step.
    pub why: &'static str,
    pub act: DemoAction,
    /// Checks, each with its text.
    pub checks: &'static [(Expectation, &'static str)],
}

/// Introduction that the demo prints before the first step.
pub(super) const INTRO: &str = "Two people change the same infrastructure at the same time, without a conflict. \
    The server, the database, git, the webhooks and Terraform are real; only GitHub is emulated. Nothing leaves this \
    machine.";

/// All steps of the story, in order.
pub(super) const STORY: &[ScriptStep] = &[
    ScriptStep {
        title: "Alice opens a pull request, and it is planned",
        why: "Her change adds a subnet to the project `network`. Lockkeeper plans it automatically. Nothing was \
              applied here before, so Terraform plans to create the whole network.",
        act: DemoAction::Open(PullRole::Alice),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Planned),
                "only `network` is planned, because only its files changed",
            ),
            (Expectation::Adds(3), "Terraform would add 3 resources"),
            (
                Expectation::Status("lockkeeper/plan", StatusState::Success),
                "the status of the commit says that the plan succeeded",
            ),
            (
                Expectation::LockOf(PullRole::Alice),
                "#1 holds the lock of `network`",
            ),
        ],
    },
    ScriptStep {
        title: "Bob opens a pull request for the same project, and has to wait",
        why: "If both were planned, the second apply would undo the changes of the first. The lock admits one pull \
              request at a time, and the comment names the holder.",
        act: DemoAction::Open(PullRole::Bob),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Waiting),
                "Terraform does not run for `network`",
            ),
            (
                Expectation::Words("[#1]("),
                "the answer names #1 as the holder and links to it",
            ),
            (
                Expectation::Words("**next in the queue**"),
                "#2 is next in the queue, and will be planned automatically",
            ),
            (
                Expectation::StatusText(
                    "lockkeeper/plan",
                    "Waiting for #1 (alice), next in the queue.",
                ),
                "the status of the commit names the pull request that it waits for",
            ),
            (
                Expectation::LockOf(PullRole::Alice),
                "#1 still holds the lock",
            ),
        ],
    },
    ScriptStep {
        title: "Alice mistypes a command",
        why: "Lockkeeper suggests the right command. It never guesses, so nothing runs.",
        act: DemoAction::Say(PullRole::Alice, "lockkeeper aply"),
        checks: &[
            (
                Expectation::Words("Did you mean `apply`?"),
                "the answer suggests the nearest command",
            ),
            (Expectation::Resources(0), "nothing was applied"),
        ],
    },
    ScriptStep {
        title: "Alice applies",
        why: "Lockkeeper applies exactly the plan that is shown above, and makes no new one. It checks that the \
              commit, the plan file and the Terraform version are still the same.",
        act: DemoAction::Say(PullRole::Alice, "lockkeeper apply"),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Applied),
                "`network` is applied",
            ),
            (
                Expectation::Status("lockkeeper/apply", StatusState::Success),
                "the status of the commit says that the apply succeeded",
            ),
            (
                Expectation::Resources(3),
                "Terraform's state has the 3 resources",
            ),
            (
                Expectation::LockOf(PullRole::Alice),
                "#1 keeps the lock until it is merged: `main` does not have its code yet",
            ),
        ],
    },
    ScriptStep {
        title: "Alice merges, and her lock is released",
        why: "Lockkeeper releases the lock when the pull request is merged. The lock goes to the first pull request in the \
              queue.",
        act: DemoAction::Merge(PullRole::Alice),
        checks: &[
            (
                Expectation::Command(CommandOutcome::Success),
                "a comment on #1 reports the release",
            ),
            (
                Expectation::LockOf(PullRole::Bob),
                "#2 was next in the queue and now holds the lock",
            ),
        ],
    },
    ScriptStep {
        title: "It is Bob's turn, and his change is planned automatically",
        why: "His branch does not have Alice's subnet. Lockkeeper plans `main` as it will be after the merge of his pull \
              request, so her subnet stays.",
        act: DemoAction::Wait(PullRole::Bob),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Planned),
                "`network` is planned",
            ),
            (
                Expectation::Adds(1),
                "Terraform would add the DNS zone and leave Alice's subnet unchanged",
            ),
            (
                Expectation::Status("lockkeeper/plan", StatusState::Success),
                "the status of the commit says that the plan succeeded",
            ),
            (Expectation::LockOf(PullRole::Bob), "#2 holds the lock"),
        ],
    },
    ScriptStep {
        title: "The network team registers the project",
        why: "Many teams can share a server. The first team that registers a project of a repository becomes the owner of the \
              repository, until no project refers to it any more.",
        act: DemoAction::Register(DemoTeam::Network),
        checks: &[(
            Expectation::OwnedBy(DemoTeam::Network),
            "the network team owns the repository",
        )],
    },
    ScriptStep {
        title: "The database team registers the same repository, and the server refuses",
        why: "Two teams must not manage the same repository by accident. The database team writes the URL in another way, but \
              Lockkeeper recognizes the repository.",
        act: DemoAction::Register(DemoTeam::Database),
        checks: &[
            (
                Expectation::Words("is owned by `network-team`"),
                "the answer names the owner",
            ),
            (
                Expectation::OwnedBy(DemoTeam::Network),
                "the network team still owns the repository",
            ),
        ],
    },
    ScriptStep {
        title: "Carol pushes, and the mirrors of two servers are updated",
        why: "A second server uses the same database, with its own disk. GitHub notifies only one of them. Both servers \
              sync their mirrors and compare them with GitHub.",
        act: DemoAction::Push,
        checks: &[(
            Expectation::MirrorsInStep,
            "both mirrors have the new commit and are verified",
        )],
    },
    ScriptStep {
        title: "Olga edits her account with plain git",
        why: "Accounts of people are branches of a Git repository on the server. Olga has fetched hers with her HTTP \
              password, adds a repository whose events she wants to hear of, and pushes.",
        act: DemoAction::EditAccount(AccountPush::Watch),
        checks: &[
            (
                Expectation::Words("HEAD -> refs/users/self"),
                "the push is accepted",
            ),
            (
                Expectation::Watches(1),
                "her account watches the repository",
            ),
        ],
    },
    ScriptStep {
        title: "She takes the address of somebody else, and the push is refused",
        why: "A push is judged before anything changes. git prints the file, the line, and the way out.",
        act: DemoAction::EditAccount(AccountPush::ForeignAddress),
        checks: &[
            (
                Expectation::Words(
                    "remote: error: account.config:3: `alice@example.com` is on no external ID",
                ),
                "the answer names the line with the problem",
            ),
            (
                Expectation::Words("[remote rejected] HEAD -> refs/users/self"),
                "the push is refused",
            ),
            (
                Expectation::Address("olga@example.com"),
                "her account is unchanged",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_checks_something_and_alice_is_first() {
        assert!(
            STORY
                .iter()
                .all(|step| !step.checks.is_empty() && !step.why.is_empty())
        );
        assert_eq!(STORY[0].act, DemoAction::Open(PullRole::Alice));
    }
}
