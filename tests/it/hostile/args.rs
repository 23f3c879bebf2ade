//! Attacks with words of a comment that would reach Terraform as flags, applies that apply nothing, and links out of
//! the checkout. Terraform is the fake of `tests/fakes`, which lets a flag take the next word as Go does. `interop`
//! does the same with real OpenTofu.

use lockkeeper::emulator::{Change, NewPull};
use lockkeeper::model::{PlanState, PullNumber};
use serde_json::json;

use crate::support::bot::{Bot, REPO};
use crate::support::db::{Backend, story};

story!(
    the_reviewed_plan_is_not_swapped_for_a_destroy,
    files_of_the_server_are_neither_written_nor_read_by_a_plan,
    only_allowed_words_reach_the_tool_whatever_is_commented,
    an_operator_allows_more_and_never_what_swaps_plans,
    arguments_of_the_other_tool_are_refused_by_name,
    an_apply_that_reports_nothing_is_no_apply,
    an_import_and_a_removal_that_report_nothing_are_failures,
    a_project_with_a_link_out_of_the_checkout_does_not_run,
    a_link_out_of_the_checkout_in_a_module_stops_the_projects_that_use_it,
    a_link_in_the_place_of_the_tools_directory_is_refused,
    files_that_the_server_reads_itself_are_not_behind_links,
);

const NETWORK: (&str, &str) = ("network/main.tf", "resource \"terraform_data\" \"it\" {}\n");
const APP: (&str, &str) = ("app/main.tf", "resource \"terraform_data\" \"app\" {}\n");
const WIDER: (&str, &str) = ("network/main.tf", "# fake: add 2 change 1 destroy 0\n");
const LOCK: &str = "acme/infra/network/default by #1";
const ALL: (&str, &str) = ("allow-commands", "all");

async fn planned(backend: Backend, flags: &[(&str, &str)], code: &str) -> (Bot, PullNumber) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[&[ALL], flags].concat()).await;
    let pull = bot.open_pull("wider", &[("network/main.tf", code)]).await;
    bot.answer(pull);
    (bot, pull)
}

/// Opens a pull request with links, on a branch that contains only these files.
async fn with_links(bot: &mut Bot, files: &[(&str, &str)], links: &[(&str, &str)]) -> PullNumber {
    let files = files.iter().map(|(path, text)| Change::write(path, text));
    let changes: Vec<Change> = files
        .chain(
            links
                .iter()
                .map(|(path, target)| Change::symlink(path, target)),
        )
        .collect();
    bot.github.push(REPO, "linked", &changes).await.unwrap();
    let pull = bot
        .github
        .open_pull(REPO, NewPull::from_branch("linked"))
        .await
        .unwrap();
    bot.settle().await;
    pull
}

async fn the_reviewed_plan_is_not_swapped_for_a_destroy(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    for (words, part) in [
        (
            "-destroy -auto-approve -json-into",
            "`-destroy` is not possible for an apply, because a plan is applied as a whole",
        ),
        (
            "-json-into -auto-approve",
            "`-json-into` may not be passed to Terraform",
        ),
        (
            "-auto-approve",
            "`-auto-approve` may not be passed to Terraform: it is not needed",
        ),
        (
            "-parallelism",
            "`-parallelism` needs a value in the same word",
        ),
        (
            "-lock-timeout -json-into",
            "`-lock-timeout` needs a value in the same word",
        ),
        (
            "-help",
            "`-help` may not be passed to Terraform: nothing would be planned or applied",
        ),
        ("-h", "`-h` may not be passed to Terraform"),
        ("-version", "`-version` may not be passed to Terraform"),
        ("plan.tfplan", "`plan.tfplan` is not allowed after `--`"),
    ] {
        bot.say(pull, &format!("lockkeeper apply -- {words}")).await;
        let said = bot.answer(pull);
        assert!(
            said.starts_with("**Nothing was run**") && said.contains(part),
            "{words}: {said}"
        );
    }
    assert!(
        !bot.tools.join("swapped").exists(),
        "a destroy that nobody has seen"
    );
    assert_eq!(bot.calls(), ["init network", "plan network"]);
    bot.say(pull, "lockkeeper apply -- --parallelism=3").await;
    assert!(bot.answer(pull).contains(": applied\n"));
    let arguments = bot.arguments();
    let last = arguments.lines().last().unwrap();
    assert!(
        last.starts_with("apply -input=false -parallelism=3 -- /")
            && last.ends_with("/plan.tfplan"),
        "{last}"
    );
    bot.end(&[LOCK]).await;
}

async fn files_of_the_server_are_neither_written_nor_read_by_a_plan(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    let calls = bot.calls();
    for flag in [
        "json-into",
        "target-file",
        "exclude-file",
        "out",
        "state",
        "state-out",
        "backup",
        "generate-config-out",
        "config",
        "chdir",
        "plugin-dir",
    ] {
        for (command, dashes) in [
            ("plan", "-"),
            ("plan", "--"),
            ("import a.b id", "-"),
            ("state rm a.b", "-"),
        ] {
            bot.say(
                pull,
                &format!("lockkeeper {command} -- {dashes}{flag}=/etc/passwd"),
            )
            .await;
            let said = bot.answer(pull);
            assert!(
                said.contains(&format!(
                    "`{dashes}{flag}=/etc/passwd` may not be passed to Terraform"
                )),
                "{said}"
            );
        }
    }
    assert_eq!(bot.calls(), calls);
    bot.end(&[LOCK]).await;
}

async fn only_allowed_words_reach_the_tool_whatever_is_commented(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    let words = [
        "-destroy",
        "--destroy",
        "-target=a.b",
        "-target a.b",
        "-var=a=$(id)",
        "-var 'a=b'",
        "\u{2014}destroy",
        "-lock=x",
        "-no-color",
        "-no-color=1",
        "a.b",
        "-json-into=x -destroy",
        "-lock-timeout=1s",
        "---destroy",
        "--",
        "'-destroy '",
    ];
    for word in words {
        for command in [
            "plan -d network",
            "import -d network a.b id",
            "state rm -d network a.b",
        ] {
            bot.say(pull, &format!("lockkeeper {command} -- {word}"))
                .await;
            bot.read_comments(pull);
        }
    }
    let allowed = [
        "-destroy",
        "-target=a.b",
        "-var=a=$(id)",
        "-no-color",
        "-lock-timeout=1s",
        "-input=false",
        "-refresh",
        "-upgrade",
    ];
    for line in bot.arguments().lines() {
        let (flags, operands) = line.split_once(" -- ").unwrap_or((line, ""));
        for flag in flags.split(' ').skip_while(|word| !word.starts_with('-')) {
            let is_plan_file = flag.starts_with("-out=/") && flag.ends_with("/plan.tfplan");
            assert!(
                is_plan_file || allowed.contains(&flag),
                "`{flag}` in `{line}`"
            );
        }
        assert!(["", "a.b", "a.b id"].contains(&operands), "{line}");
    }
    assert!(
        bot.arguments().contains(" -target=a.b")
            && bot.arguments().contains("import -no-color -- a.b id")
    );
    bot.end(&[LOCK]).await;
}

async fn an_operator_allows_more_and_never_what_swaps_plans(backend: Backend) {
    let flags = [
        ("allow-extra-args", "plan:-consolidate-errors,-lock-id="),
        ("blocked-extra-args", "-destroy"),
    ];
    let (mut bot, pull) = planned(backend, &flags, WIDER.1).await;
    bot.say(pull, "lockkeeper plan -- -consolidate-errors -lock-id=7")
        .await;
    assert!(bot.answer(pull).contains(": planned\n"));
    assert!(
        bot.arguments()
            .lines()
            .last()
            .unwrap()
            .ends_with("/plan.tfplan -consolidate-errors -lock-id=7")
    );
    bot.say(pull, "lockkeeper plan -- -destroy").await;
    assert!(
        bot.answer(pull)
            .contains("forbids `destroy` (`--blocked-extra-args`)")
    );
    bot.say(pull, "lockkeeper apply -- -consolidate-errors")
        .await;
    assert!(bot.answer(pull).contains(
        "`-consolidate-errors` is not possible for an apply, because a plan is applied as a whole"
    ));
    assert_eq!(bot.calls().last().unwrap(), "plan network");
    bot.end(&[LOCK]).await;
}

async fn arguments_of_the_other_tool_are_refused_by_name(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], WIDER.1).await;
    let calls = bot.calls();
    bot.say(pull, "lockkeeper apply -- -concise").await;
    let said = bot.answer(pull);
    assert!(
        said.contains(
            "only OpenTofu supports the argument `-concise`, and this project uses Terraform"
        ),
        "{said}"
    );
    bot.say(pull, "lockkeeper plan -- -exclude=a.b").await;
    let said = bot.answer(pull);
    assert!(
        said.contains(
            "only OpenTofu supports the argument `-exclude=a.b`, and this project uses Terraform"
        ),
        "{said}"
    );
    assert_eq!(bot.calls(), calls);
    let locks = bot.locks().await;
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}

async fn an_apply_that_reports_nothing_is_no_apply(backend: Backend) {
    let (mut bot, pull) = planned(backend, &[], "# fake: silent apply\n").await;
    bot.say(pull, "lockkeeper apply").await;
    let said = bot.answer(pull);
    assert!(said.contains(": failed\n"), "{said}");
    assert!(
        said.contains("ended with exit code 0 but did not report `Apply complete! Resources: …`"),
        "{said}"
    );
    assert!(
        said.contains("Compare the infrastructure with the state, then plan again"),
        "{said}"
    );
    let plan = bot
        .store()
        .plan_list(&Bot::pull_ref(pull))
        .await
        .unwrap()
        .remove(0);
    assert_eq!(plan.state, PlanState::ApplyFailed);
    assert!(
        bot.statuses(pull).contains("lockkeeper/apply: Failure"),
        "{}",
        bot.statuses(pull)
    );
    bot.end(&[LOCK]).await;
}

async fn an_import_and_a_removal_that_report_nothing_are_failures(backend: Backend) {
    let code = "# fake: silent import\n# fake: silent state rm\n";
    let (mut bot, pull) = planned(backend, &[], code).await;
    for (command, line) in [
        ("import -d network a.b id", "Import successful!"),
        (
            "state rm -d network a.b",
            "Successfully removed … resource instance(s).",
        ),
    ] {
        bot.say(pull, &format!("lockkeeper {command}")).await;
        let said = bot.answer(pull);
        assert!(
            said.contains(": failed\n") && said.contains(&format!("did not report `{line}`")),
            "{said}"
        );
    }
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.answer(pull)
            .starts_with("**Apply refused**: there is no plan to apply"),
        "the state may have changed"
    );
    bot.end(&[LOCK]).await;
}

async fn a_project_with_a_link_out_of_the_checkout_does_not_run(backend: Backend) {
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[ALL]).await;
    let files = [
        ("network/main.tf", "# fake: reads secret.tf\n"),
        ("app/main.tf", "# changed\n"),
    ];
    let links = [
        ("network/secret.tf", "/etc/passwd"),
        ("app/same.tf", "main.tf"),
    ];
    let pull = with_links(&mut bot, &files, &links).await;
    let said = bot.answer(pull);
    assert!(
        said.contains("uses the symbolic link `network/secret.tf`, which leads to `/etc/passwd`"),
        "{said}"
    );
    assert!(!said.contains("root:"), "{said}");
    assert_eq!(
        bot.calls(),
        ["init app", "plan app"],
        "a link that stays inside is fine"
    );
    for command in [
        "import -d network a.b id",
        "state rm -d network a.b",
        "version -d network",
    ] {
        bot.say(pull, &format!("lockkeeper {command}")).await;
        let said = bot.answer(pull);
        assert!(
            said.contains("uses the symbolic link `network/secret.tf`"),
            "{command}: {said}"
        );
    }
    assert_eq!(bot.calls(), ["init app", "plan app"]);
    let locks = bot.locks().await;
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}

async fn a_link_out_of_the_checkout_in_a_module_stops_the_projects_that_use_it(backend: Backend) {
    // One database uses whole checkouts, the other one sparse checkouts.
    let sparse = if backend == Backend::Postgres {
        "true"
    } else {
        "false"
    };
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[("sparse-checkout", sparse)]).await;
    let files = [
        (
            "network/main.tf",
            "module \"net\" {\n  source = \"../modules/net\"\n}\n",
        ),
        ("modules/net/main.tf", "# of all\n"),
        ("app/main.tf", "# changed\n"),
    ];
    let pull = with_links(
        &mut bot,
        &files,
        &[("modules/net/files", "../../../../outside")],
    )
    .await;
    let said = bot.read_comments(pull).join("\n");
    assert!(
        said.contains(
            "uses the symbolic link `modules/net/files`, which leads to `../../../../outside`"
        ),
        "{said}"
    );
    assert_eq!(
        bot.calls(),
        ["init app", "plan app"],
        "who does not use the module is planned"
    );
    let locks = bot.locks().await;
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}

async fn a_link_in_the_place_of_the_tools_directory_is_refused(backend: Backend) {
    let mut bot = Bot::new(backend, &[NETWORK, APP]).await;
    let links = [("network/.terraform", "../app")];
    let pull = with_links(&mut bot, &[("network/main.tf", "# changed\n")], &links).await;
    let said = bot.answer(pull);
    assert!(
        said.contains("uses the symbolic link `network/.terraform`"),
        "{said}"
    );
    assert_eq!(bot.calls(), [""; 0]);
    let locks = bot.locks().await;
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}

async fn files_that_the_server_reads_itself_are_not_behind_links(backend: Backend) {
    let hook = "[ ! -e network/hooked ] || { mkdir -p network/.terraform && \
                ln -sf /etc/hostname network/.terraform/environment; }";
    let config =
        json!({"repos": [{"id": "/.*/", "pre_workflow_hooks": [{"run": hook}]}]}).to_string();
    let mut bot = Bot::with(backend, &[NETWORK, APP], &[("repo-config-json", &config)]).await;
    let files = [
        ("network/main.tf", "# changed\n"),
        ("shared.tfvars", "a = 1\n"),
    ];
    let pull = with_links(
        &mut bot,
        &files,
        &[("network/env/default.tfvars", "../../shared.tfvars")],
    )
    .await;
    let said = bot.answer(pull);
    assert!(
        said.contains("`env/default.tfvars` is a symbolic link, lies behind one"),
        "{said}"
    );
    let changes = [
        Change::delete("network/env/default.tfvars"),
        Change::write("network/hooked", "yes\n"),
    ];
    bot.github.push(REPO, "linked", &changes).await.unwrap();
    bot.settle().await;
    // The directory of the tool is made again for each commit.
    assert!(bot.answer(pull).contains(": planned\n"));
    bot.say(pull, "lockkeeper plan").await;
    let said = bot.answer(pull);
    assert!(
        said.contains("the file `environment` in the directory of the tool"),
        "{said}"
    );
    assert_eq!(
        bot.calls(),
        [
            "init network",
            "init network",
            "plan network",
            "init network"
        ],
        "neither with the link nor with the file is anything planned"
    );
    let locks = bot.locks().await;
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    bot.end(&locks).await;
}
