//! Handles a comment on a pull request, which may be a command.

use super::{DeliveryEnd, renew_locks};
use crate::command::{
    ApplyCommand, ApprovePoliciesCommand, Command, CommentReading, ImportCommand, PlanCommand,
    StateRmCommand, VersionCommand,
};
use crate::context::Ctx;
use crate::features::accounts;
use crate::features::owners::{self, Service, UnclaimedNotice};
use crate::features::planning::{CancelCommands, CommandSpec, RunCommand};
use crate::features::replies::AddReaction;
use crate::model::{Actor, CommandId, CommandKind, CommentEvent, CommitSha, DeliveryId, PullRef};
use crate::queue::{Job, JobError};
use crate::store::{CreateCommand, NewCommand, NewJob};

pub(super) async fn handle(
    ctx: &Ctx,
    delivery: DeliveryId,
    event: &CommentEvent,
) -> Result<DeliveryEnd, JobError> {
    if is_own(ctx, event).await {
        return Ok(DeliveryEnd::ignored("the comment is Lockkeeper's own"));
    }
    if crate::render::PartLine::find(&event.body).is_some() {
        return Ok(DeliveryEnd::ignored(
            "the comment ends with the hidden line of a Lockkeeper, so it is not a command",
        ));
    }
    let service = owners::service(ctx, &event.pull.repo).await?;
    let account = accounts::of_forge_user(ctx, event.pull.repo.host(), event.author_id).await?;
    let actor =
        Actor::commenter(&event.author).with_account(account.as_ref().map(|row| row.number));
    if service == Service::Served {
        renew_locks(ctx, &event.pull, &actor, "somebody commented").await?;
    }
    let spec = match ctx.settings.grammar(&event.pull.repo).read(&event.body) {
        CommentReading::Ignored(why) => return Ok(DeliveryEnd::ignored(why.to_string())),
        CommentReading::Command(command) => {
            CommandSpec::Command(with_facts(ctx, event, command).await?)
        }
        CommentReading::Mistake(mistake) => CommandSpec::Mistake(mistake.markdown().to_owned()),
    };
    match service {
        Service::Served => {
            let spec = match account.filter(|account| !account.active) {
                Some(account) => CommandSpec::Mistake(accounts::inactive_reply(&account)),
                None => spec,
            };
            create(ctx, delivery, event, actor, &spec).await?;
            Ok(DeliveryEnd::handled())
        }
        Service::NotAllowlisted => {
            if !ctx.settings.comments.silence.allowlist_errors {
                create(ctx, delivery, event, actor, &CommandSpec::NotServed).await?;
            }
            Ok(DeliveryEnd::not_served())
        }
        Service::Unclaimed => {
            let (pull, comment) = (&event.pull, Some(event.comment.clone()));
            owners::notify_unclaimed(
                ctx,
                UnclaimedNotice {
                    delivery,
                    pull,
                    comment,
                    actor,
                },
            )
            .await?;
            Ok(DeliveryEnd::unclaimed())
        }
    }
}

/// Adds the facts about the comment that the command needs, and that its text does not have.
async fn with_facts(
    ctx: &Ctx,
    event: &CommentEvent,
    command: Command,
) -> Result<Command, JobError> {
    Ok(match command {
        Command::ApprovePolicies(command) => Command::ApprovePolicies(ApprovePoliciesCommand {
            person: event.author_id,
            written_at: event.written_at,
            ..command
        }),
        Command::Apply(command) => Command::Apply(ApplyCommand {
            written_at: event.written_at,
            ..command
        }),
        Command::Plan(command) if ctx.settings.repos.allow_forks => Command::Plan(PlanCommand {
            head: known_head(ctx, event).await?,
            ..command
        }),
        Command::Version(command) if ctx.settings.repos.allow_forks => {
            Command::Version(VersionCommand {
                head: known_head(ctx, event).await?,
                ..command
            })
        }
        Command::Import(command) => Command::Import(ImportCommand {
            head: known_head(ctx, event).await?,
            ..command
        }),
        Command::StateRm(command) => Command::StateRm(StateRmCommand {
            head: known_head(ctx, event).await?,
            ..command
        }),
        other @ (Command::Plan(_)
        | Command::Unlock
        | Command::Cancel(_)
        | Command::Explain(_)
        | Command::Version(_)
        | Command::Help(_)) => other,
    })
}

/// Returns the head commit of the pull request, as far as events have reported it.
async fn known_head(ctx: &Ctx, event: &CommentEvent) -> Result<Option<CommitSha>, JobError> {
    let known = ctx.store.head_get(&event.pull).await?;
    Ok(known.map(|known| known.at.head))
}

/// Returns true for Lockkeeper's own comments, because the bot never answers itself. Every comment of the bot also
/// ends with a hidden line. So no two Lockkeepers answer each other forever, even if the forge does not report our
/// own name or both serve the repository.
async fn is_own(ctx: &Ctx, event: &CommentEvent) -> bool {
    let grammar = ctx.settings.grammar(&event.pull.repo);
    if grammar.is_own(&event.author) {
        return true;
    }
    let Ok(forge) = ctx.forges.of(&event.pull.repo) else {
        return false;
    };
    forge
        .login()
        .await
        .is_ok_and(|login| login.eq_ignore_ascii_case(&event.author))
}

/// Creates the command. A comment or delivery that was accepted before has no effect.
async fn create(
    ctx: &Ctx,
    delivery: DeliveryId,
    event: &CommentEvent,
    actor: Actor,
    spec: &CommandSpec,
) -> Result<(), JobError> {
    let new = NewCommand {
        kind: kind_of(spec),
        pull: event.pull.clone(),
        comment: Some(event.comment.clone()),
        delivery: Some(delivery),
        actor,
        spec: spec.to_json(),
    };
    let jobs = |command| {
        let work = work(command, new.kind, &event.pull);
        reaction(ctx, event, spec)
            .into_iter()
            .chain([work])
            .collect()
    };
    match ctx.store.command_create(&new, jobs).await? {
        CreateCommand::Created(_) | CreateCommand::Known => Ok(()),
    }
}

/// Builds the reaction, which shows at once that the command was read, even while another command of the pull request
/// runs.
fn reaction(ctx: &Ctx, event: &CommentEvent, spec: &CommandSpec) -> Option<NewJob> {
    let is_accepted = matches!(spec, CommandSpec::Command(_));
    let content = ctx
        .settings
        .comments
        .reaction
        .clone()
        .filter(|_| is_accepted)?;
    Some(
        AddReaction {
            repo: event.pull.repo.clone(),
            number: event.pull.subject,
            comment: event.comment.clone(),
            content,
        }
        .to_new(),
    )
}

/// Builds the job that carries a command out.
fn work(command: CommandId, kind: CommandKind, pull: &PullRef) -> NewJob {
    let pull = pull.clone();
    match kind {
        CommandKind::Cancel => CancelCommands { command, pull }.to_new(),
        CommandKind::Plan
        | CommandKind::Autoplan
        | CommandKind::Apply
        | CommandKind::Unlock
        | CommandKind::Explain
        | CommandKind::Version
        | CommandKind::Import
        | CommandKind::StateRm
        | CommandKind::ApprovePolicies
        | CommandKind::Help => RunCommand {
            command,
            pull,
            kind,
        }
        .to_new(),
    }
}

fn kind_of(spec: &CommandSpec) -> CommandKind {
    match spec {
        CommandSpec::Command(Command::Plan(_)) => CommandKind::Plan,
        CommandSpec::Command(Command::Apply(_)) => CommandKind::Apply,
        CommandSpec::Command(Command::Unlock) => CommandKind::Unlock,
        CommandSpec::Command(Command::Cancel(_)) => CommandKind::Cancel,
        CommandSpec::Command(Command::Explain(_)) => CommandKind::Explain,
        CommandSpec::Command(Command::Version(_)) => CommandKind::Version,
        CommandSpec::Command(Command::Import(_)) => CommandKind::Import,
        CommandSpec::Command(Command::StateRm(_)) => CommandKind::StateRm,
        CommandSpec::Command(Command::ApprovePolicies(_)) => CommandKind::ApprovePolicies,
        CommandSpec::Autoplan | CommandSpec::Turn(_) => CommandKind::Autoplan,
        CommandSpec::Command(Command::Help(_))
        | CommandSpec::Mistake(_)
        | CommandSpec::NotServed
        | CommandSpec::Unclaimed => CommandKind::Help,
    }
}
