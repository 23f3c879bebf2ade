//! Everything the demo tells: the steps of the story, and what has to hold after each.

use crate::emulator::StatusState;
use crate::model::{CommandOutcome, ProjectOutcome};

use super::sample;

/// The account of the bot.
pub(super) const BOT: &str = "lockkeeper-bot";
/// The project that both pull requests change.
pub(super) const PROJECT: &str = "network";

/// The two pull requests of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Alice,
    Bob,
}

impl Role {
    /// Login.
    pub fn login(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
        }
    }

    /// Number of the pull request: the emulated GitHub counts from 1, and Alice is first.
    pub fn number(self) -> i64 {
        match self {
            Self::Alice => 1,
            Self::Bob => 2,
        }
    }

    /// Branch.
    pub fn branch(self) -> &'static str {
        match self {
            Self::Alice => "database-subnet",
            Self::Bob => "dns-zone",
        }
    }

    /// Title of the pull request.
    pub fn title(self) -> &'static str {
        match self {
            Self::Alice => "Add a subnet for the database",
            Self::Bob => "Add a DNS zone",
        }
    }

    /// The file that it changes, and its new content.
    pub fn change(self) -> (&'static str, &'static str) {
        match self {
            Self::Alice => sample::DATABASE_SUBNET,
            Self::Bob => sample::DNS_ZONE,
        }
    }
}

/// Two teams that share the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Team {
    Network,
    Database,
}

impl Team {
    /// As the server knows them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network-team",
            Self::Database => "database-team",
        }
    }

    /// How they write the address of the repository.
    pub fn address(self) -> &'static str {
        match self {
            Self::Network => "https://github.com/acme/infrastructure",
            Self::Database => "git@GitHub.com:Acme/Infrastructure.git",
        }
    }
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Pushes a branch and opens a pull request.
    Open(Role),
    /// Comments on the own pull request.
    Say(Role, &'static str),
    /// Merges the own pull request.
    Merge(Role),
    /// Does nothing, and hears of the own pull request all the same.
    Wait(Role),
    /// Registers the project for a team.
    Register(Team),
    /// Pushes to `main`, without a pull request.
    Push,
}

impl Act {
    /// Whose pull request it is about, if it is about one.
    pub fn role(self) -> Option<Role> {
        match self {
            Self::Open(role) | Self::Say(role, _) | Self::Merge(role) | Self::Wait(role) => {
                Some(role)
            }
            Self::Register(_) | Self::Push => None,
        }
    }
}

/// What can be asked of the world after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// The answer is about this project and no other, which ended so.
    Project(ProjectOutcome),
    /// The plan would add so many resources, and change or destroy none.
    Adds(u32),
    /// The command ended so.
    Command(CommandOutcome),
    /// The answer has these words.
    Words(&'static str),
    /// This status of the head commit is so.
    Status(&'static str, StatusState),
    /// This status of the head commit says so.
    StatusText(&'static str, &'static str),
    /// The pull request holds the lock of the project.
    LockOf(Role),
    /// So many resources are in Terraform's state.
    Resources(usize),
    /// The repository is this team's.
    OwnedBy(Team),
    /// The mirrors of both servers have what `main` is now.
    MirrorsInStep,
}

/// One step of the story.
pub(super) struct Step {
    pub title: &'static str,
    /// What happens, and why it matters.
    pub why: &'static str,
    pub act: Act,
    /// What has to hold, each with the words for it.
    pub checks: &'static [(Expect, &'static str)],
}

/// What is about to happen.
pub(super) const INTRO: &str = "Two people change the same infrastructure at the same time, and nothing goes wrong. \
    The server, the database, git, the webhooks and Terraform are real; only GitHub is emulated. Nothing leaves this \
    machine.";

/// The story.
pub(super) const STORY: &[Step] = &[
    Step {
        title: "Alice opens a pull request, and it is planned",
        why: "Her change adds a subnet to the project `network`. Nobody has to ask for a plan. Nothing has ever been \
              applied here, so Terraform is going to make the whole network.",
        act: Act::Open(Role::Alice),
        checks: &[
            (
                Expect::Project(ProjectOutcome::Planned),
                "only `network` is planned, because only its files changed",
            ),
            (Expect::Adds(3), "Terraform would add 3 resources"),
            (
                Expect::Status("lockkeeper/plan", StatusState::Success),
                "the commit says that the plan succeeded",
            ),
            (
                Expect::LockOf(Role::Alice),
                "#1 holds the lock of `network`",
            ),
        ],
    },
    Step {
        title: "Bob opens another one on the same project, and has to wait",
        why: "Were both planned, whoever applies last would undo the work of the other. The lock lets one pull \
              request through at a time, and tells everybody else who has it.",
        act: Act::Open(Role::Bob),
        checks: &[
            (
                Expect::Project(ProjectOutcome::Waiting),
                "Terraform is not run for `network`",
            ),
            (
                Expect::Words("[#1]("),
                "the answer names #1 as the holder and links to it",
            ),
            (
                Expect::Words("**next in the queue**"),
                "#2 is next in the queue, and need not come back to ask",
            ),
            (
                Expect::StatusText(
                    "lockkeeper/plan",
                    "Waiting for #1 (alice), next in the queue.",
                ),
                "the commit says for whom its plan waits",
            ),
            (Expect::LockOf(Role::Alice), "#1 still holds the lock"),
        ],
    },
    Step {
        title: "Alice mistypes a command",
        why: "A slip gets an answer that helps, and never a guess: nothing is run.",
        act: Act::Say(Role::Alice, "lockkeeper aply"),
        checks: &[
            (
                Expect::Words("Did you mean `apply`?"),
                "the answer suggests the nearest command",
            ),
            (Expect::Resources(0), "nothing was applied"),
        ],
    },
    Step {
        title: "Alice applies",
        why: "Applied is exactly the plan that everybody could read above, not a new one. Lockkeeper checks that the \
              commit, the plan file and the Terraform version are still the same.",
        act: Act::Say(Role::Alice, "lockkeeper apply"),
        checks: &[
            (
                Expect::Project(ProjectOutcome::Applied),
                "`network` is applied",
            ),
            (
                Expect::Status("lockkeeper/apply", StatusState::Success),
                "the commit says so",
            ),
            (
                Expect::Resources(3),
                "Terraform's state has the 3 resources",
            ),
            (
                Expect::LockOf(Role::Alice),
                "#1 keeps the lock until it is merged: `main` does not have its code yet",
            ),
        ],
    },
    Step {
        title: "Alice merges, and her lock is gone",
        why: "The lock ends with the pull request. Nobody has to remember it, and nobody who comes by can be faster than \
              those who waited.",
        act: Act::Merge(Role::Alice),
        checks: &[
            (Expect::Command(CommandOutcome::Success), "#1 is told"),
            (
                Expect::LockOf(Role::Bob),
                "#2 was next in the queue and holds the lock now",
            ),
        ],
    },
    Step {
        title: "It is Bob's turn, and his change is planned automatically",
        why: "His branch does not have Alice's subnet. Planned is what `main` will be once his pull request is \
              merged, so her work stays where it is.",
        act: Act::Wait(Role::Bob),
        checks: &[
            (
                Expect::Project(ProjectOutcome::Planned),
                "`network` is planned",
            ),
            (
                Expect::Adds(1),
                "Terraform would add the DNS zone and touch nothing of Alice's",
            ),
            (
                Expect::Status("lockkeeper/plan", StatusState::Success),
                "the commit says that the plan succeeded",
            ),
            (Expect::LockOf(Role::Bob), "#2 holds the lock"),
        ],
    },
    Step {
        title: "The network team registers the project",
        why: "Many teams can share a server. Whoever registers a project of a repository owns that repository there, until \
              nothing refers to it any more.",
        act: Act::Register(Team::Network),
        checks: &[(
            Expect::OwnedBy(Team::Network),
            "the repository is the network team's",
        )],
    },
    Step {
        title: "The database team registers the same repository, and is refused",
        why: "Two teams must never drive the same repository by accident. They write its address in another way; that it \
              is the same repository is known all the same.",
        act: Act::Register(Team::Database),
        checks: &[
            (
                Expect::Words("is owned by `network-team`"),
                "the answer names the owner",
            ),
            (
                Expect::OwnedBy(Team::Network),
                "the repository is still the network team's",
            ),
        ],
    },
    Step {
        title: "Somebody pushes, and the mirrors of two servers follow",
        why: "A second server works on the same database, with a disk of its own. GitHub tells only one of them; both \
              bring their mirror in step and compare it with what GitHub has.",
        act: Act::Push,
        checks: &[(
            Expect::MirrorsInStep,
            "both mirrors have the new commit, and are verified",
        )],
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
        assert_eq!(STORY[0].act, Act::Open(Role::Alice));
    }
}
