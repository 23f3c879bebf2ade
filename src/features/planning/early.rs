//! Requests to the forge whose answers a command probably needs. They are sent together with the one for the pull
//! request, because over the internet one request takes longer than everything that Lockkeeper does between two of them.
//!
//! They are about the head and the base branch that were known before. An answer counts only if the pull request still
//! has both. Otherwise, and without an answer, the command asks again.

use super::{CommandSpec, permission};
use crate::boxed::boxed;
use crate::command::Command;
use crate::context::RunCtx;
use crate::model::{BranchName, Pull, PullRef};
use crate::store::{CommandRow, KnownHead};
use crate::workflow::Source;

/// Answers of the forge from before the current state of the pull request was known.
#[derive(Debug, Default)]
pub(super) struct EarlyAnswers {
    /// Newest commits of head and base branch, if the mirror has both.
    source: Option<Source>,
    /// Base branch, if it exists.
    base: Option<BranchName>,
}

impl EarlyAnswers {
    /// Asks the forge. `known` is the pull request as an earlier event or command has found it.
    pub async fn ask(
        ctx: &RunCtx,
        row: &CommandRow,
        spec: &CommandSpec,
        known: Option<&KnownHead>,
    ) -> Self {
        let (answers, ()) = tokio::join!(
            boxed(|| of_base(ctx, &row.pull, spec, known)),
            boxed(|| permission::ask_early(ctx, row, spec)),
        );
        answers
    }

    /// Returns the commits to plan, if they are here.
    pub fn source(&self, pull: &Pull) -> Option<Source> {
        let is_current = |source: &&Source| {
            source.pull == pull.at
                && source.head == pull.head
                && source.base_branch == pull.base_branch
        };
        self.source.as_ref().filter(is_current).cloned()
    }

    /// Returns true if the base branch of the pull request exists.
    pub fn has_base(&self, pull: &Pull) -> bool {
        self.base.as_ref() == Some(&pull.base_branch)
    }
}

async fn of_base(
    ctx: &RunCtx,
    pull: &PullRef,
    spec: &CommandSpec,
    known: Option<&KnownHead>,
) -> EarlyAnswers {
    let Some(known) = known else {
        return EarlyAnswers::default();
    };
    let (head, base) = (&known.at.head, &known.at.base_branch);
    match BaseQuestion::of(spec) {
        BaseQuestion::None => EarlyAnswers::default(),
        BaseQuestion::IsHere => EarlyAnswers {
            // If it fails, the fetch of the command says why.
            source: ctx
                .checkouts
                .source_if_here(pull, head, base)
                .await
                .ok()
                .flatten(),
            base: None,
        },
        BaseQuestion::Exists => {
            let tip = async {
                ctx.forges
                    .of(&pull.repo)?
                    .branch_tip(&pull.repo, base)
                    .await
            }
            .await;
            EarlyAnswers {
                source: None,
                base: tip.ok().flatten().map(|_| base.clone()),
            }
        }
    }
}

/// Question of a command about the base branch.
enum BaseQuestion {
    None,
    /// Does the mirror have its newest commit?
    IsHere,
    Exists,
}

impl BaseQuestion {
    fn of(spec: &CommandSpec) -> Self {
        match spec {
            CommandSpec::Autoplan
            | CommandSpec::Turn(_)
            | CommandSpec::Command(
                Command::Plan(_)
                | Command::Explain(_)
                | Command::Version(_)
                | Command::Import(_)
                | Command::StateRm(_),
            ) => Self::IsHere,
            CommandSpec::Command(Command::Apply(_)) => Self::Exists,
            CommandSpec::Command(
                Command::Unlock
                | Command::ApprovePolicies(_)
                | Command::Cancel(_)
                | Command::Help(_),
            )
            | CommandSpec::Mistake(_)
            | CommandSpec::NotServed
            | CommandSpec::Unclaimed => Self::None,
        }
    }
}
