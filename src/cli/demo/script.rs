//! The script of the demo: the steps of the story, and the checks after each step.

use lockkeeper_registry::states::VersionState;

use crate::emulator::StatusState;
use crate::model::{CommandOutcome, ProjectOutcome};

use super::accounts::AccountPush;
use super::modules::ModuleRelease;
use super::sample;

/// The account of the bot.
pub(super) const BOT: &str = "lockkeeper-bot";
/// The project that Alice and Bob change.
pub(super) const PROJECT: &str = "network";

/// The pull requests of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullRole {
    Alice,
    Bob,
    Dave,
}

impl PullRole {
    /// Returns the login of the author.
    pub fn login(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Dave => "dave",
        }
    }

    /// Returns the project that the pull request changes.
    pub fn project(self) -> &'static str {
        match self {
            Self::Alice | Self::Bob => PROJECT,
            Self::Dave => "app",
        }
    }

    /// Returns the number of the pull request: the emulated GitHub counts from 1, and Alice is first.
    pub fn number(self) -> i64 {
        match self {
            Self::Alice => 1,
            Self::Bob => 2,
            Self::Dave => 3,
        }
    }

    /// Returns the name of the head branch.
    pub fn branch(self) -> &'static str {
        match self {
            Self::Alice => "database-subnet",
            Self::Bob => "dns-zone",
            Self::Dave => "placement",
        }
    }

    /// Returns the title of the pull request.
    pub fn title(self) -> &'static str {
        match self {
            Self::Alice => "Add a subnet for the database",
            Self::Bob => "Add a DNS zone",
            Self::Dave => "Run the shop in a subnet of the module",
        }
    }

    /// Returns the changed file and its new content.
    pub fn change(self) -> (&'static str, &'static str) {
        match self {
            Self::Alice => sample::DATABASE_SUBNET,
            Self::Bob => sample::DNS_ZONE,
            Self::Dave => sample::MODULE_USE,
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
    /// Registers the repository of the module for a team, and gives the team a namespace.
    AddNamespace(DemoTeam),
    /// Tags a version of the module.
    Release(ModuleRelease),
    /// Deprecates the first version of the module.
    Deprecate,
    /// Takes the first version of the module down.
    TakeDown,
    /// Lets another deployment join.
    Join,
}

impl DemoAction {
    /// Returns the author of the pull request that the action is about, if any.
    pub fn role(self) -> Option<PullRole> {
        match self {
            Self::Open(role) | Self::Say(role, _) | Self::Merge(role) | Self::Wait(role) => {
                Some(role)
            }
            Self::Register(_)
            | Self::Push
            | Self::EditAccount(_)
            | Self::AddNamespace(_)
            | Self::Release(_)
            | Self::Deprecate
            | Self::TakeDown
            | Self::Join => None,
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
    /// State of a status of the head commit, or of the newest commit of the module.
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
    /// Owner of the namespace of the module.
    NamespaceOf(DemoTeam),
    /// State of a version in the registry, with its package if it has one.
    Module(ModuleRelease, VersionState),
    /// The same in the registry of the other deployment.
    Copy(ModuleRelease, VersionState),
    /// The pull request whose plan uses a version.
    UsedBy(ModuleRelease, PullRole),
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
    Then a module of the registry is published, used and taken down, and another company has all of it. The server, the database, git, the webhooks and Terraform are real; only GitHub is emulated. Nothing leaves this \
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
        why: "A push is checked before anything changes. git prints the file, the line, and the way out.",
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
    ScriptStep {
        title: "The network team gets a namespace for its modules",
        why: "A plan is only as repeatable as the modules that it uses. The registry serves modules to `terraform`, and a \
              published version never changes. Only the repositories of the team publish in its namespace, so it registers \
              the one with its module.",
        act: DemoAction::AddNamespace(DemoTeam::Network),
        checks: &[(
            Expectation::NamespaceOf(DemoTeam::Network),
            "all names that begin with `acme/` belong to the network team",
        )],
    },
    ScriptStep {
        title: "Emil tags a commit, and the version is published",
        why: "The repository `terraform-aws-vpc` is the module `acme/vpc/aws`. Lockkeeper publishes the files of the tagged \
              commit, because the default branch has it. A status of the commit tells the outcome.",
        act: DemoAction::Release(ModuleRelease::First),
        checks: &[
            (
                Expectation::Module(ModuleRelease::First, VersionState::Added),
                "the registry has version 1.0.0",
            ),
            (
                Expectation::Status(
                    "lockkeeper/publish: acme/vpc/aws 1.0.0",
                    StatusState::Success,
                ),
                "the status of the commit says that the version is published",
            ),
        ],
    },
    ScriptStep {
        title: "Dave uses the module in another repository",
        why: "His code names the module by `source = \"modules.acme.example/acme/vpc/aws\"`. Runs use the registry \
              automatically, without a token in a repository. Nothing was applied in `app` before.",
        act: DemoAction::Open(PullRole::Dave),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Planned),
                "`app` is planned",
            ),
            (Expectation::Adds(2), "Terraform would add 2 resources"),
            (
                Expectation::Words("public-staging"),
                "the subnet comes from the module",
            ),
            (
                Expectation::UsedBy(ModuleRelease::First, PullRole::Dave),
                "the registry knows that the plan of #3 uses version 1.0.0",
            ),
        ],
    },
    ScriptStep {
        title: "Emil publishes a version with another subnet",
        why: "Version 1.0.0 puts services into the public subnet. It stays as it is, and the corrected files get a number of \
              their own.",
        act: DemoAction::Release(ModuleRelease::Fix),
        checks: &[
            (
                Expectation::Module(ModuleRelease::Fix, VersionState::Added),
                "the registry has version 1.1.0",
            ),
            (
                Expectation::Status(
                    "lockkeeper/publish: acme/vpc/aws 1.1.0",
                    StatusState::Success,
                ),
                "the status of the new commit says that the version is published",
            ),
        ],
    },
    ScriptStep {
        title: "Emil deprecates the old version",
        why: "A deprecated version is still served, so nothing breaks. It warns everyone who uses it.",
        act: DemoAction::Deprecate,
        checks: &[(
            Expectation::Module(ModuleRelease::First, VersionState::Deprecated),
            "version 1.0.0 is deprecated",
        )],
    },
    ScriptStep {
        title: "Dave plans again, and the comment warns him",
        why: "Lockkeeper stores which versions a plan uses, and its comment names those that should not be used any more.",
        act: DemoAction::Say(PullRole::Dave, "lockkeeper plan"),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Planned),
                "`app` is planned: the version is still served",
            ),
            (
                Expectation::Words("`acme/vpc/aws` `1.0.0` was **deprecated** on"),
                "the comment names the deprecated version and the reason",
            ),
            (
                Expectation::Words("Use `acme/vpc/aws` `1.1.0` instead."),
                "the comment names the version to use instead",
            ),
        ],
    },
    ScriptStep {
        title: "Emil takes the old version down",
        why: "Nobody gets it any more. Its package is removed for good, and its number is never used again. The record in the \
              log stays, and clients get the reason.",
        act: DemoAction::TakeDown,
        checks: &[(
            Expectation::Module(ModuleRelease::First, VersionState::Deleted),
            "version 1.0.0 is a tombstone",
        )],
    },
    ScriptStep {
        title: "Dave applies the plan that he has, and is refused",
        why: "His plan was made with the version that was taken down since. Lockkeeper compares the plan with the registry \
              in the moment in which the apply would begin.",
        act: DemoAction::Say(PullRole::Dave, "lockkeeper apply"),
        checks: &[
            (
                Expectation::Project(ProjectOutcome::Refused),
                "`app` is not applied",
            ),
            (
                Expectation::Words("which was taken down (security)"),
                "the answer says that the version was taken down, and why",
            ),
            (
                Expectation::Words("Use `acme/vpc/aws 1.1.0` instead of `acme/vpc/aws 1.0.0`."),
                "the answer names the way out",
            ),
        ],
    },
    ScriptStep {
        title: "Another deployment joins, and has it all",
        why: "A partner runs a registry with its own database and log. Both exchange keys over a one-time word. Then the \
              partner reads the log, verifies every record and package, and serves them from its own storage.",
        act: DemoAction::Join,
        checks: &[
            (
                Expectation::Copy(ModuleRelease::Fix, VersionState::Added),
                "the partner has version 1.1.0, with its package",
            ),
            (
                Expectation::Copy(ModuleRelease::First, VersionState::Deleted),
                "the partner has the tombstone of version 1.0.0, so nobody can publish that number there",
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
