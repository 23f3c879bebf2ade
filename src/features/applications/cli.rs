//! `lockkeeper apps (add | change | list | remove)`: registered projects.

mod runs;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use crate::claims::{application_add, application_change, application_remove};
use crate::features::owners::cli::{
    AdminSession, PART, cause, flags, in_admin_session, json_arg, may_go_on, owner, owner_arg,
};
use crate::handlers::applications::ApplicationAction;
use crate::kit::term::{ExitResult, ExitStatus, Subcommand, Terminal, safe, time};
use crate::model::{ApplicationFields, ApplicationId, ApplicationProblem, OwnerName, Rights};
use crate::store::Application;

pub(super) const SUBCOMMAND: Subcommand = Subcommand {
    name: "apps",
    command,
    run,
};

fn command() -> Command {
    let add = Command::new("add")
        .about("Register a project, and claim its repository for its owner")
        .long_about(
            "Registers a project and claims its repository.\n\nExit code 1: another owner has claimed the repository, the \
             same project is already registered, or the owner has too many. The message says which, and nothing was changed.",
        )
        .arg(owner_arg().required(true).help("Owner of the project"))
        .args(field_args())
        .arg(json_arg())
        .mut_arg("url", |arg| arg.required(true))
        .mut_arg("branch", |arg| arg.required(true));
    let change = Command::new("change")
        .about("Change a registered project; values that are not given stay unchanged")
        .arg(id_arg())
        .args(field_args())
        .arg(json_arg());
    let list = Command::new("list")
        .about("Show registered projects")
        .arg(owner_arg())
        .arg(json_arg());
    let remove = Command::new("remove")
        .about(
            "Remove a registered project, and the claim on its repository if nothing else needs it",
        )
        .arg(id_arg())
        .arg(json_arg());
    Command::new("apps")
        .about("Register, change, show, plan, apply, cancel and remove projects of owners")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([add, change, list].map(|command| command.args(flags())))
        .subcommands(at_work().map(|command| command.args(flags())))
        .subcommand(remove.args(flags()))
}

fn at_work() -> [Command; 5] {
    let plan = Command::new("plan")
        .about("Plan a registered project, as it is on its branch")
        .long_about(
            "Queues a plan of the project, which a running server starts. `show` shows the result.\n\nExit code 1: nothing was \
             queued; the message says why.",
        )
        .arg(id_arg())
        .arg(json_arg());
    let apply = Command::new("apply")
        .about("Apply the last plan of a registered project")
        .long_about(
            "Queues an apply of exactly the last plan, which a running server starts. If the branch has changed since the \
             plan, nothing is applied. `show` shows the result.\n\nExit code 1: nothing was queued; the message says why.",
        )
        .arg(id_arg())
        .arg(json_arg());
    let cancel = Command::new("cancel")
        .about("Cancel the queued or running run of a registered project")
        .long_about(
            "Asks the run of the project to stop. A running server ends it: a queued run does not begin, and a running plan is \
             interrupted. A running apply is only interrupted with --force, because that can leave the infrastructure half \
             changed. `show` shows the result.\n\nExit code 1: nothing was changed; the message says why.",
        )
        .arg(id_arg())
        .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help("Also interrupt a running apply"))
        .arg(json_arg());
    let discard = Command::new("discard")
        .about("Discard the last plan of a registered project, and release its lock")
        .arg(id_arg())
        .arg(json_arg());
    let show = Command::new("show")
        .about("Show a registered project and its newest runs")
        .arg(id_arg())
        .arg(json_arg());
    [show, plan, apply, cancel, discard]
}

fn field_args() -> [Arg; 6] {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    [
        text("url", "URL", "Address of the repository, in any form"),
        text("branch", "NAME", "Branch"),
        text("dir", "PATH", "Directory; the default is the root"),
        text("workspace", "NAME", "Workspace; the default is `default`"),
        text("name", "NAME", "Name of the project; empty for none"),
        Arg::new("any-branch")
            .long("any-branch")
            .value_name("BOOL")
            .value_parser(value_parser!(bool))
            .help("Allow a branch that is not the default branch of the repository"),
    ]
}

fn id_arg() -> Arg {
    Arg::new("id")
        .value_name("ID")
        .required(true)
        .value_parser(value_parser!(ApplicationId))
        .help("Identifier, as `list` shows it")
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> ExitResult {
    let (command, matches) = matches.subcommand().expect("clap demands a subcommand");
    in_admin_session(matches, terminal, async |session, terminal| match command {
        "add" => run_add(session, matches, terminal).await,
        "change" => run_change(session, matches, terminal).await,
        "list" => run_list(session, matches, terminal).await,
        "show" => runs::show(session, matches, terminal).await,
        "plan" => runs::ask(session, ApplicationAction::Plan, matches, terminal).await,
        "apply" => runs::ask(session, ApplicationAction::Apply, matches, terminal).await,
        "cancel" => runs::cancel(session, matches, terminal).await,
        "discard" => runs::discard(session, matches, terminal).await,
        _ => run_remove(session, matches, terminal).await,
    })
}

fn fields(matches: &ArgMatches) -> ApplicationFields<'_> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    ApplicationFields {
        url: given("url"),
        branch: given("branch"),
        dir: given("dir"),
        workspace: given("workspace"),
        name: given("name"),
        any_branch: matches.get_one("any-branch").copied(),
    }
}

async fn run_add(
    session: &AdminSession,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let owner: &OwnerName = matches.get_one("owner").expect("clap demands it");
    let spec = match fields(matches).spec(&session.forges) {
        Ok(spec) => spec,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved = application_add(&session.store, owner, &spec, (Rights::Whole, &cause())).await;
    ended(
        saved
            .context("the application could not be added")?
            .or_why(),
        matches,
        terminal,
    )
}

async fn run_change(
    session: &AdminSession,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let change = match fields(matches).change(&session.forges) {
        Ok(change) => change,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved = application_change(
        &session.store,
        id(matches),
        &change,
        (Rights::Whole, &cause()),
    )
    .await;
    ended(
        saved
            .context("the application could not be changed")?
            .or_why(),
        matches,
        terminal,
    )
}

async fn run_list(
    session: &AdminSession,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let (owner, as_json) = (owner(session, matches).await?, matches.get_flag("json"));
    let (mut after, mut is_empty) = (None, true);
    loop {
        let part = session
            .store
            .application_list(owner, after, PART)
            .await
            .context("the applications could not be read")?;
        for app in &part {
            show(app, as_json, terminal)?;
        }
        is_empty &= part.is_empty();
        if !may_go_on(&part) {
            break;
        }
        after = part.last().map(|app| app.id);
    }
    if is_empty && !as_json {
        terminal.line("No projects are registered.")?;
    }
    Ok(ExitStatus::Success)
}

async fn run_remove(
    session: &AdminSession,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let id = id(matches);
    let removed = application_remove(&session.store, id, &cause())
        .await
        .context("the application could not be removed")?;
    ended(removed.or_why(), matches, terminal)
}

pub(super) fn id(matches: &ArgMatches) -> ApplicationId {
    *matches.get_one("id").expect("clap demands it")
}

pub(super) fn ended(
    saved: Result<Application, String>,
    matches: &ArgMatches,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    match saved {
        Ok(app) => show(&app, matches.get_flag("json"), terminal).map(|()| ExitStatus::Success),
        Err(why) => {
            terminal.note(safe(&format!("error: nothing was changed. {why}")));
            Ok(ExitStatus::Failure)
        }
    }
}

fn wrong(problems: &[ApplicationProblem]) -> String {
    let lines = problems
        .iter()
        .map(|problem| format!("error: --{}: {}\n", problem.field, problem.text));
    lines.collect::<Vec<_>>().concat()
}

fn show(app: &Application, as_json: bool, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    let line = if as_json {
        as_object(app).to_string()
    } else {
        as_text(app)
    };
    Ok(terminal.line(line)?)
}

pub(super) fn as_text(app: &Application) -> String {
    safe(&format!("{} {}: {}", app.id, app.owner, app.spec))
}

pub(super) fn as_object(app: &Application) -> Value {
    let spec = &app.spec;
    json!({
        "id": app.id, "owner": app.owner, "url": spec.url, "branch": spec.branch, "dir": spec.dir,
        "workspace": spec.workspace, "name": spec.name, "any_branch": spec.any_branch, "created_by": app.created_by,
        "created_at": time(app.created_at), "updated_at": time(app.updated_at),
    })
}
