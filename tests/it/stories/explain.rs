//! Stories about `explain`: which projects would be planned and why, by comment and on the command line.

use serde_json::Value;

use crate::stories::{APP, DB, NETWORK};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};
use crate::support::program::WorkingTree;

story!(
    an_explanation_runs_nothing_and_takes_no_lock,
    one_project_is_explained_by_its_name,
    what_cannot_be_explained_is_refused_as_a_plan_is,
    a_comment_says_the_same_as_the_command_line,
    the_operator_can_leave_it_out,
    hooks_that_were_not_run_are_told,
);

const CONFIG: (&str, &str) = (
    "lockkeeper.yaml",
    "version: 3\nprojects:\n- name: net\n  dir: network\n  autoplan: {enabled: false}\n- name: app\n  dir: app\n\
     - dir: gone\n",
);
const CHANGE: [(&str, &str); 2] = [
    ("network/main.tf", "# fake: add 2\n"),
    ("docs/x.md", "Read me.\n"),
];

async fn an_explanation_runs_nothing_and_takes_no_lock(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP, DB, CONFIG]).await;
    let pull = bot.open_pull("net", &CHANGE).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper explain").await;
    let line = bot.machine_line(pull);
    let answer = bot.answer(pull);
    for part in [
        "Ran Explain: 1 of 4 projects would be planned, only when a comment requests it\n",
        "* project: `net` dir: `network` workspace: `default`: `network/main.tf` changed and matches `**/*.tf*` of \
         `when_modified`; a push does not plan it, only a comment does (line 3 of `lockkeeper.yaml`)\n",
        "* **lock**: `on_plan`, scope `workspace`, no time limit (the default)\n",
        "<details><summary>3 projects would not be planned</summary>",
        "* its directory does not exist: `gone/default`\n",
        "* `docs/x.md`: it matches `when_modified` of no project\n",
    ] {
        assert!(answer.contains(part), "{part}\n{answer}");
    }
    assert!(
        line.contains(r#""command":"explain""#) && line.contains(r#""outcome":"success""#),
        "{line}"
    );
    let project = r#""projects":[{"name":"net","dir":"network","workspace":"default","outcome":null,"plan":null}]"#;
    assert!(line.contains(project), "{line}");
    assert_eq!(bot.calls(), [""; 0]);
    bot.end(&[]).await;
}

async fn one_project_is_explained_by_its_name(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP, CONFIG]).await;
    let pull = bot.open_pull("docs", &[("docs/x.md", "Read me.\n")]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper explain -p app").await;
    let answer = bot.answer(pull);
    assert!(
        answer.starts_with("Ran Explain: 1 project would be planned\n"),
        "{answer}"
    );
    assert!(
        answer.contains(
            "* project: `app` dir: `app` workspace: `default`: it was requested by name\n"
        ),
        "{answer}"
    );
    bot.end(&[]).await;
}

async fn what_cannot_be_explained_is_refused_as_a_plan_is(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, CONFIG]).await;
    let pull = bot
        .open_pull(
            "bad",
            &[(
                "lockkeeper.yaml",
                "version: 3\nprojects:\n- nmae: net\n  dir: network\n",
            )],
        )
        .await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper explain").await;
    let answer = bot.answer(pull);
    assert!(
        answer.starts_with("**Explain failed**: the configuration of this repository has errors.")
    );
    assert!(answer.contains("did you mean `name`?"), "{answer}");
    bot.say(pull, "lockkeeper explain -p ntw --verbose").await;
    assert!(
        bot.answer(pull)
            .starts_with("**Nothing was run**: `--verbose` is not a flag of `explain`.")
    );
    bot.end(&[]).await;
}

async fn a_comment_says_the_same_as_the_command_line(backend: Backend) {
    let base = [NETWORK, APP, DB, CONFIG];
    let mut bot = Bot::new(backend, &base).await;
    let change = [CHANGE[0], CHANGE[1], ("app/main.tf", "# fake: add 1\n")];
    let pull = bot.open_pull("both", &change).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper explain").await;

    let tree = WorkingTree::new(&base);
    tree.write(&change);
    let json = tree.check(&["--json"]).json();
    let explanation = &json["explanation"];
    let line = bot.machine_line(pull);
    let answer = bot.answer(pull);
    let list = |key: &str| explanation[key].as_array().cloned().unwrap_or_default();
    let names = |it: &Value| {
        (
            it["name"].clone(),
            it["dir"].clone(),
            it["workspace"].clone(),
        )
    };
    let object = line
        .trim_start_matches("<!-- lockkeeper ")
        .trim_end_matches(" -->");
    let machine: Value = serde_json::from_str(object).unwrap();
    let said: Vec<_> = machine["projects"]
        .as_array()
        .unwrap()
        .iter()
        .map(names)
        .collect();
    assert_eq!(said, list("projects").iter().map(names).collect::<Vec<_>>());
    for project in list("projects") {
        assert!(
            answer.contains(project["why"]["text"].as_str().unwrap()),
            "{project}\n{answer}"
        );
    }
    for skipped in list("skipped") {
        assert!(
            answer.contains(skipped["text"].as_str().unwrap()),
            "{skipped}\n{answer}"
        );
    }
    for file in list("files").iter().filter(|file| !file["text"].is_null()) {
        assert!(answer.contains(&format!(
            "{}`: {}",
            file["path"].as_str().unwrap(),
            file["text"].as_str().unwrap()
        )));
    }
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn the_operator_can_leave_it_out(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK], &[("allow-commands", "plan,apply")]).await;
    let pull = bot.open_pull("docs", &[("docs/x.md", "Read me.\n")]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper explain").await;
    assert!(bot.answer(pull).starts_with("**Nothing was run**: "));
    bot.end(&[]).await;
}

async fn hooks_that_were_not_run_are_told(backend: Backend) {
    const HOOKS: &str =
        "{\"repos\": [{\"id\": \"/.*/\", \"pre_workflow_hooks\": [{\"run\": \"exit 1\"}]}]}";
    let mut bot = Bot::with(backend, &[NETWORK], &[("repo-config-json", HOOKS)]).await;
    let pull = bot.open_pull("docs", &[("docs/x.md", "Read me.\n")]).await;
    bot.read_comments(pull);
    bot.say(pull, "lockkeeper explain").await;
    let answer = bot.answer(pull);
    assert!(
        answer.contains("\n\nHooks were not run. Before a plan, the server runs 1 hook."),
        "{answer}"
    );
    bot.end(&[]).await;
}
