//! `lockkeeper apps (add | change | list | remove)`: registered projects.

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::list::{PART, may_go_on, owner, owner_arg};
use super::{Desk, at_desk, cause, flags, json_arg, plain, time};
use crate::claims::{ApplicationSaved, application_add, application_change, application_remove};
use crate::cli::{Exit, Outcome, Subcommand, Terminal};
use crate::model::{ApplicationFields, ApplicationId, ApplicationProblem, OwnerName};
use crate::store::Application;

pub(in crate::cli) const APPS: Subcommand = Subcommand { name: "apps", command, run };

fn command() -> Command {
    let add = Command::new("add")
        .about("Register a project, and claim its repository for its owner")
        .long_about(
            "Registers a project and claims its repository.\n\nExit code 1: the repository is another owner's, who is \
             named, or the same project is registered already; nothing was changed.",
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
    let list = Command::new("list").about("Show registered projects").arg(owner_arg()).arg(json_arg());
    let remove = Command::new("remove")
        .about("Remove a registered project, and the claim on its repository if nothing else needs that")
        .arg(id_arg())
        .arg(json_arg());
    Command::new("apps")
        .about("Register, change, show and remove projects of owners")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([add, change, list, remove].map(|command| command.args(flags())))
}

fn field_args() -> [Arg; 5] {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    [
        text("url", "URL", "Address of the repository, in whatever way it is written"),
        text("branch", "NAME", "Branch"),
        text("dir", "PATH", "Directory; the root if it is not given"),
        text("workspace", "NAME", "Workspace; `default` if it is not given"),
        text("name", "NAME", "What people call it; empty for none"),
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
    }
}

async fn run_add(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let owner: &OwnerName = matches.get_one("owner").expect("clap demands it");
    let spec = match fields(matches).spec(&desk.forges) {
        Ok(spec) => spec,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved = application_add(&desk.store, owner, &spec, &cause()).await;
    ended(saved.context("the application could not be added")?, matches, terminal)
}

async fn run_change(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let change = match fields(matches).change(&desk.forges) {
        Ok(change) => change,
        Err(problems) => return Ok(terminal.usage(&wrong(&problems))),
    };
    let saved = application_change(&desk.store, id(matches), &change, &cause()).await;
    ended(saved.context("the application could not be changed")?, matches, terminal)
}

async fn run_list(desk: &Desk, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    let (owner, as_json) = (owner(desk, matches).await?, matches.get_flag("json"));
    let (mut after, mut is_empty) = (None, true);
    loop {
        let part =
            desk.store.application_list(owner, after, PART).await.context("the applications could not be read")?;
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
    let removed =
        application_remove(&desk.store, id, &cause()).await.context("the application could not be removed")?;
    let Some(app) = removed else {
        return ended(ApplicationSaved::NotThere(id), matches, terminal);
    };
    show(&app, matches.get_flag("json"), terminal).map(|()| Exit::Success)
}

fn id(matches: &ArgMatches) -> ApplicationId {
    *matches.get_one("id").expect("clap demands it")
}

fn ended(saved: ApplicationSaved, matches: &ArgMatches, terminal: &mut Terminal<'_>) -> Outcome {
    match saved.or_why() {
        Ok(app) => show(&app, matches.get_flag("json"), terminal).map(|()| Exit::Success),
        Err(why) => {
            terminal.note(plain(&format!("error: nothing was changed. {why}")));
            Ok(Exit::Failure)
        }
    }
}

fn wrong(problems: &[ApplicationProblem]) -> String {
    let lines = problems.iter().map(|problem| format!("error: --{}: {}\n", problem.field, problem.text));
    lines.collect::<Vec<_>>().concat()
}

fn show(app: &Application, as_json: bool, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
    let line = if as_json { as_object(app).to_string() } else { as_text(app) };
    Ok(terminal.line(line)?)
}

fn as_text(app: &Application) -> String {
    plain(&format!("{} {}: {}", app.id, app.owner, app.spec))
}

fn as_object(app: &Application) -> Value {
    let spec = &app.spec;
    json!({
        "id": app.id, "owner": app.owner, "url": spec.url, "branch": spec.branch, "dir": spec.dir,
        "workspace": spec.workspace, "name": spec.name, "created_by": app.created_by,
        "created_at": time(app.created_at), "updated_at": time(app.updated_at),
    })
}
