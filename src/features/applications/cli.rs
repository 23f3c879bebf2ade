//! `lockkeeper apps (add | change | list | remove)`: registered projects.

mod runs;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use crate::claims::{application_add, application_change, application_remove};
use crate::features::owners::cli::{
    Desk, PART, at_desk, cause, flags, json_arg, may_go_on, owner, owner_arg,
};
use crate::handlers::applications::Deed;
use crate::kit::term::{Exit, Outcome, Subcommand, Terminal, safe, time};
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
            "Registers a project and claims its repository.\n\nExit code 1: the repository is another owner's, who is \
             named, the same project is registered already, or the owner has too many; nothing was changed.",
        )
        .arg(owner_arg().required(true).help("Whose it is"))
        .args(field_args())
        .arg(json_arg())
        .mut_arg("url", |arg| arg.required(true))
        .mut_arg("branch", |arg| arg.required(true));
    let change = Command::new("change")
        .about("Change a registered project; what is not given stays as it is")
        .arg(id_arg())
        .args(field_args())
        .arg(json_arg());
    let list = Command::new("list")
        .about("Show registered projects")
        .arg(owner_arg())
        .arg(json_arg());
    let remove = Command::new("remove")
        .about("Remove a registered project, and the claim on its repository if nothing else needs that")
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
        .about("Ask for a plan of a registered project, as it is on its branch")
        .long_about(
            "Puts a plan of the project into the queue, which a running server takes up. `show` tells what came of it.\n\n\
             Exit code 1: nothing was put into the queue, and it says why.",
        )
        .arg(id_arg())
        .arg(json_arg());
    let apply = Command::new("apply")
        .about("Ask for the last plan of a registered project to be applied")
        .long_about(
            "Puts an apply of exactly the last plan into the queue, which a running server takes up. If the branch has moved \
             since, nothing is applied. `show` tells what came of it.\n\nExit code 1: nothing was put into the queue, and \
             it says why.",
        )
        .arg(id_arg())
        .arg(json_arg());
    let cancel = Command::new("cancel")
        .about("Cancel the run of a registered project that waits or is under way")
        .long_about(
            "Asks what works on the project to stop. A running server ends it: what waits is not begun, a plan is \
             interrupted, and an apply that is under way only with --force, because one that is cut off can leave the \
             infrastructure half changed. `show` tells what came of it.\n\nExit code 1: nothing was changed, and it says \
             why.",
        )
        .arg(id_arg())
        .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help("Also an apply that is under way"))
        .arg(json_arg());
    let discard = Command::new("discard")
        .about("Throw the last plan of a registered project away, and give its lock back")
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
        text("url", "URL", "Address of the repository, in whatever way it is written"),
        text("branch", "NAME", "Branch"),
        text("dir", "PATH", "Directory; the root if it is not given"),
        text("workspace", "NAME", "Workspace; `default` if it is not given"),
        text("name", "NAME", "What people call it; empty for none"),
        Arg::new("any-branch")
            .long("any-branch")
            .value_name("BOOL")
            .value_parser(value_parser!(bool))
            .help("Whether it may work on this branch although that is not the default branch of the repository"),
    ]
}

fn id_arg() -> Arg {
    Arg::new("id")
        .value_name("ID")
        .required(true)
        .value_parser(value_parser!(ApplicationId))
        .help("The one that `list` shows with this id")
}

fn run(matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let (command, matches) = matches.subcommand().expect("clap demands a subcommand");
    at_desk(matches, terminal, async |desk, terminal| match command {
        "add" => run_add(desk, matches, terminal).await,
        "change" => run_change(desk, matches, terminal).await,
        "list" => run_list(desk, matches, terminal).await,
        "show" => runs::show(desk, matches, terminal).await,
        "plan" => runs::ask(desk, Deed::Plan, matches, terminal).await,
        "apply" => runs::ask(desk, Deed::Apply, matches, terminal).await,
        "cancel" => runs::cancel(desk, matches, terminal).await,
        "discard" => runs::discard(desk, matches, terminal).await,
        _ => run_remove(desk, matches, terminal).await,
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

async fn run_add(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let owner: &OwnerName = matches.get_one("owner").expect("clap demands it");
    let spec = match fields(matches).spec(&desk.forges) {
        Ok(spec) => spec,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved = application_add(&desk.store, owner, &spec, (Rights::Whole, &cause())).await;
    ended(
        saved
            .context("the application could not be added")?
            .or_why(),
        matches,
        terminal,
    )
}

async fn run_change(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let change = match fields(matches).change(&desk.forges) {
        Ok(change) => change,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved =
        application_change(&desk.store, id(matches), &change, (Rights::Whole, &cause())).await;
    ended(
        saved
            .context("the application could not be changed")?
            .or_why(),
        matches,
        terminal,
    )
}

async fn run_list(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let (owner, as_json) = (owner(desk, matches).await?, matches.get_flag("json"));
    let (mut after, mut is_empty) = (None, true);
    loop {
        let part = desk
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
    Ok(Exit::Success)
}

async fn run_remove(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let id = id(matches);
    let removed = application_remove(&desk.store, id, &cause())
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
) -> Outcome {
    match saved {
        Ok(app) => show(&app, matches.get_flag("json"), terminal).map(|()| Exit::Success),
        Err(why) => {
            terminal.note(safe(&format!("error: nothing was changed. {why}")));
            Ok(Exit::Failure)
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
