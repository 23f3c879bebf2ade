//! Stories about submodules and Git LFS (`--checkout-submodules`, `--checkout-lfs`), from a push to the comment.

use std::time::Duration;

use async_trait::async_trait;
use insta::assert_snapshot;
use lockkeeper::credential::GitAccess;
use lockkeeper::emulator::{Change, Delivering, Fault, NewPull};
use lockkeeper::git::{SubmoduleAdmission, SubmoduleRules};
use lockkeeper::model::{CommitSha, OwnerName, PullNumber, PullRef, RepoId, RepoUrl, Rights};
use lockkeeper::queue::Tick;
use lockkeeper::secret::Secret;
use lockkeeper::store::Acquired;
use lockkeeper::workflow::Source;

use crate::stories::APP;
use crate::stories::claims::key_file;
use crate::stories::repositories::infra;
use crate::support::bot::{Bot, REPO, TEAM_TOKEN};
use crate::support::db::{Backend, by, story};
use crate::support::rows::recent_runs;

story!(
    a_module_in_a_submodule_is_there_for_plan_and_apply,
    a_push_while_the_code_of_an_apply_is_fetched_refuses_it,
    another_repository_of_the_name_while_the_code_of_an_apply_is_fetched_refuses_it,
    without_the_flag_a_submodule_is_an_empty_directory,
    a_submodule_from_elsewhere_is_refused,
    a_submodule_of_another_owner_is_refused_unless_the_owner_gave_the_credential,
    a_submodule_that_is_claimed_is_refused_where_nobody_has_claimed_its_parent,
    a_submodule_that_nobody_has_claimed_is_refused_where_claims_are_demanded,
    a_submodule_that_cannot_be_had_is_refused,
    a_file_kept_with_lfs_is_there_for_the_plan,
    without_the_flag_a_file_kept_with_lfs_is_the_text_that_stands_for_it,
    a_file_that_was_not_uploaded_is_named,
    a_commit_without_submodules_and_lfs_does_not_wait_for_a_sync,
);

const SUBMODULES: [(&str, &str); 1] = [("checkout-submodules", "true")];
const LFS: [(&str, &str); 1] = [("checkout-lfs", "true")];
/// Code that reads the module of a submodule.
const USES_VPC: &str =
    "# fake: reads ../lib/vpc/main.tf\nmodule \"vpc\" {\n  source = \"../lib/vpc\"\n}\n";
const READS_BUNDLE: &str = "# fake: reads bundle.pem\n";

/// Returns the changes of a commit with the submodule `lib`.
fn with_submodule(url: &str, commit: &CommitSha) -> [Change; 3] {
    let list = format!("[submodule \"lib\"]\n\tpath = lib\n\turl = {url}\n");
    [
        Change::write("app/main.tf", USES_VPC),
        Change::write(".gitmodules", &list),
        Change::submodule("lib", commit),
    ]
}

/// Returns the changes of a commit with a file in LFS, which this pointer represents.
fn with_lfs(pointer: &str) -> [Change; 3] {
    [
        Change::write("app/main.tf", READS_BUNDLE),
        Change::write(
            ".gitattributes",
            "*.pem filter=lfs diff=lfs merge=lfs -text\n",
        ),
        Change::write("app/bundle.pem", pointer),
    ]
}

impl Bot {
    /// Creates a repository with a module. Returns its commit.
    async fn modules(&self, name: &str) -> CommitSha {
        self.github
            .create_repo(name, &[("vpc/main.tf", "# the module\n")])
            .await
            .unwrap()
    }

    async fn open_pull_of(&self, changes: &[Change]) -> PullNumber {
        self.github.push(REPO, "change", changes).await.unwrap();
        let pull = self
            .github
            .open_pull(REPO, NewPull::from_branch("change"))
            .await
            .unwrap();
        self.settle().await;
        pull
    }

    /// Pushes another commit to the pull request. Returns the answer of the bot.
    async fn answer_to(&mut self, pull: PullNumber, changes: &[Change]) -> String {
        self.github.push(REPO, "change", changes).await.unwrap();
        self.settle().await;
        self.answer(pull)
    }
}

fn url_of(repo: &str) -> RepoUrl {
    RepoUrl::of(&format!("github.test/{repo}").parse::<RepoId>().unwrap()).unwrap()
}

impl Bot {
    async fn claim_for(&self, owner: &str, repo: &str) {
        let name = OwnerName::new(owner).unwrap();
        drop(self.store().owner_create(&name, by()).await.unwrap());
        let owner = self.store().owner_get(&name).await.unwrap().unwrap();
        let acquired = self
            .store()
            .claim_acquire(owner.id, &url_of(repo), by())
            .await
            .unwrap();
        assert!(matches!(acquired, Acquired::Claimed(_)));
    }
}

fn first_line(comment: &str) -> String {
    comment.lines().next().unwrap_or_default().to_owned()
}

/// Returns the first line of the comment, and the lines that the fake has read.
fn read_in(comment: &str) -> String {
    let lines = comment
        .lines()
        .enumerate()
        .filter(|(at, line)| *at == 0 || line.contains(": ") && line.contains("main.tf"));
    lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

async fn a_module_in_a_submodule_is_there_for_plan_and_apply(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &SUBMODULES).await;
    let commit = bot.modules("acme/modules").await;
    let pull = bot
        .open_pull_of(&with_submodule("../modules.git", &commit))
        .await;
    assert_snapshot!(read_in(&bot.answer(pull)), @"
    Ran Plan for dir: `app` workspace: `default`: planned
    ../lib/vpc/main.tf: # the module
    ");
    std::fs::remove_dir_all(bot.db.dir.path().join("data/checkouts")).unwrap();
    bot.say(pull, "lockkeeper apply").await;
    assert!(
        bot.answer(pull)
            .starts_with("Ran Apply for dir: `app` workspace: `default`: applied\n")
    );
    let module = bot
        .db
        .dir
        .path()
        .join("data/checkouts/github.test/acme/infra/1/default/lib/vpc/main.tf");
    assert_eq!(
        std::fs::read_to_string(module).unwrap(),
        "# the module\n",
        "an apply has it too"
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_push_while_the_code_of_an_apply_is_fetched_refuses_it(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &SUBMODULES).await;
    let commit = bot.modules("acme/modules").await;
    let pull = bot
        .open_pull_of(&with_submodule("../modules.git", &commit))
        .await;
    bot.read_comments(pull);
    // The other server has nothing on its disk yet, and the submodule comes last.
    let other = bot.replica_beside().await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.github
        .fault("GET /acme/modules.git/info/refs", 1, Fault::Hang);
    let apply = tokio::spawn(async move { other.tick_command().await.unwrap() });
    bot.github.hanging(1).await;
    bot.github
        .push(
            REPO,
            "change",
            &[Change::write("app/more.tf", "# nobody has planned this\n")],
        )
        .await
        .unwrap();
    bot.github.clear_faults();
    assert_eq!(apply.await.unwrap(), Tick::Worked);
    bot.settle().await;
    let told = bot.read_comments(pull);
    assert_snapshot!(told[0].lines().take(3).collect::<Vec<_>>().join("\n"), @"
    Ran Apply for dir: `app` workspace: `default`: refused

    **Apply refused**: the plan was made for commit `154b1da1`, and the pull request is at `5ac47eeb` now. Nothing was applied.
    ");
    assert!(
        !bot.calls().contains(&"apply app".to_owned()),
        "{:?}",
        bot.calls()
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn another_repository_of_the_name_while_the_code_of_an_apply_is_fetched_refuses_it(
    backend: Backend,
) {
    let mut bot = Bot::with(backend, &[APP], &SUBMODULES).await;
    let commit = bot.modules("acme/modules").await;
    let changes = with_submodule("../modules.git", &commit);
    let pull = bot.open_pull_of(&changes).await;
    bot.read_comments(pull);
    let planned = bot.github.pull(REPO, pull).unwrap().head;
    let other = bot.replica_beside().await;
    bot.github
        .comment(REPO, pull, "alice", "lockkeeper apply")
        .await
        .unwrap();
    bot.settle_short().await;
    bot.github
        .fault("GET /acme/modules.git/info/refs", 1, Fault::Hang);
    let apply = tokio::spawn(async move { other.tick_command().await.unwrap() });
    bot.github.hanging(1).await;
    // A new repository has the same commit in a pull request with the same number.
    bot.github.set_delivering(Delivering::Held).await;
    bot.github.delete_repo(REPO, "alice").await.unwrap();
    bot.github.create_repo(REPO, &[APP]).await.unwrap();
    assert_eq!(
        bot.github.push(REPO, "change", &changes).await.unwrap(),
        planned
    );
    assert_eq!(
        bot.github
            .open_pull(REPO, NewPull::from_branch("change"))
            .await
            .unwrap(),
        pull
    );
    while bot.github.lose_next().is_some() {}
    bot.github.clear_faults();
    assert_eq!(apply.await.unwrap(), Tick::Worked);
    assert!(
        !bot.calls().contains(&"apply app".to_owned()),
        "{:?}",
        bot.calls()
    );
    let why = "github.test/acme/infra is a different repository now than at the time of the plan";
    let runs = recent_runs(bot.store(), 1).await;
    assert!(
        runs[0]
            .message
            .as_ref()
            .is_some_and(|message| message.contains(why)),
        "{runs:?}"
    );
}

async fn without_the_flag_a_submodule_is_an_empty_directory(backend: Backend) {
    let mut bot = Bot::new(backend, &[APP]).await;
    let commit = bot.modules("acme/modules").await;
    let pull = bot
        .open_pull_of(&with_submodule("../modules.git", &commit))
        .await;
    assert_snapshot!(bot.answer(pull), @"
    Ran Plan for dir: `app` workspace: `default`: failed

    **Plan failed**: `terraform plan` ended with exit code 1.

    * The submodules of this repository are not checked out. If the file is in one of them, ask an administrator to enable `--checkout-submodules`, then plan again.

    ```text
    Error: Unreadable file

    open ../lib/vpc/main.tf: no such file or directory
    ```

    * To **plan** this project again, comment:
      ```shell
      lockkeeper plan -d app
      ```

    [Output](https://locks.example.com/jobs/ID)

    <sub>Commit `154b1da1` · 0 s</sub>
    ");
    bot.end(&[]).await;
}

async fn a_submodule_from_elsewhere_is_refused(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &SUBMODULES).await;
    let commit = bot.modules("other/modules").await;
    let pull = bot
        .open_pull_of(&with_submodule("../../other/modules.git", &commit))
        .await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: it comes from github.test/other/modules, which `--repo-allowlist` does not allow. Ask an administrator to add github.test/other/modules to `--repo-allowlist` or to disable `--checkout-submodules`, or name another repository in `.gitmodules`.

    <sub>Commit `7bbe809e` · 0 s</sub>
    ");
    assert_eq!(bot.locks().await, [""; 0]);
    let said = bot
        .answer_to(pull, &with_submodule("/srv/git/acme/modules.git", &commit))
        .await;
    assert_snapshot!(said, @"
    **Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: its URL begins with `/srv/git/acme/modules.git`, but it must be a URL of the same forge: `https://…`, `git@…` or `../…`. Fix `.gitmodules`, or ask an administrator to turn off `--checkout-submodules`.

    <sub>Commit `9b229790` · 0 s</sub>
    ");
    let said = bot
        .answer_to(
            pull,
            &with_submodule("https://evil.example/acme/modules.git", &commit),
        )
        .await;
    assert_snapshot!(said, @"
    **Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: its URL leads to `https://evil.example`, not to the host and port of the repository. Fix `.gitmodules`, or ask an administrator to turn off `--checkout-submodules`.

    <sub>Commit `5742eb44` · 0 s</sub>
    ");
    assert_eq!(bot.calls(), [""; 0], "nothing has run");
    bot.end(&[]).await;
}

async fn a_submodule_of_another_owner_is_refused_unless_the_owner_gave_the_credential(
    backend: Backend,
) {
    let keys = tempfile::tempdir().unwrap();
    let flags = [
        ("checkout-submodules", "true"),
        ("encryption-key-file", &key_file(&keys)),
    ];
    let mut bot = Bot::with(backend, &[APP], &flags).await;
    bot.claim_for("net", REPO).await;
    bot.claim_for("dns", "acme/dns-secrets").await;
    bot.claim_for("net", "acme/modules").await;
    let (secrets, own) = (
        bot.modules("acme/dns-secrets").await,
        bot.modules("acme/modules").await,
    );
    let pull = bot
        .open_pull_of(&with_submodule("../dns-secrets.git", &secrets))
        .await;
    assert_snapshot!(first_line(&bot.answer(pull)), @"**Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: it comes from github.test/acme/dns-secrets, which is owned by `dns`, and the server's own credential is not used for that. Give github.test/acme/infra a credential that may read both (`lockkeeper credentials add --owner net --url https://github.test/acme/infra`), or name another repository in `.gitmodules`.");
    assert_eq!(
        (bot.calls(), bot.locks().await),
        (vec![], vec![]),
        "nothing has run"
    );
    let mirror = bot
        .db
        .dir
        .path()
        .join("data/mirrors/github.test/acme/infra.git");
    assert!(!mirror.join("modules").exists(), "nothing was fetched");

    let said = bot
        .answer_to(pull, &with_submodule("../modules.git", &own))
        .await;
    assert_eq!(
        first_line(&said),
        "Ran Plan for dir: `app` workspace: `default`: planned",
        "one of its own"
    );

    let (net, token) = (
        OwnerName::new("net").unwrap(),
        GitAccess::Token {
            user: None,
            token: Secret::new(TEAM_TOKEN),
        },
    );
    bot.replica
        .ctx
        .credentials
        .add(&net, &url_of(REPO), &token, (Rights::Whole, by()))
        .await
        .unwrap();
    bot.github
        .push(
            REPO,
            "change",
            &with_submodule("../dns-secrets.git", &secrets),
        )
        .await
        .unwrap();
    bot.settle().await;
    let said = bot.github.comments(REPO, pull).unwrap().pop().unwrap().body;
    assert!(
        said.contains("Ran Plan for dir: `app` workspace: `default`: planned\n"),
        "what `net` may read: {said}"
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_submodule_that_is_claimed_is_refused_where_nobody_has_claimed_its_parent(
    backend: Backend,
) {
    let mut bot = Bot::with(backend, &[APP], &SUBMODULES).await;
    bot.claim_for("dns", "acme/dns-secrets").await;
    let secrets = bot.modules("acme/dns-secrets").await;
    let pull = bot
        .open_pull_of(&with_submodule("../dns-secrets.git", &secrets))
        .await;
    let said = bot.answer(pull);
    assert!(
        said.contains("which is owned by `dns`") && said.contains("--owner TEAM --url"),
        "{said}"
    );
    assert_eq!(bot.calls(), [""; 0], "nothing has run");
    bot.end(&[]).await;
}

async fn a_submodule_that_nobody_has_claimed_is_refused_where_claims_are_demanded(
    backend: Backend,
) {
    let flags = [("checkout-submodules", "true"), ("require-claims", "true")];
    let mut bot = Bot::with(backend, &[APP], &flags).await;
    bot.claim_for("net", REPO).await;
    let commit = bot.modules("acme/modules").await;
    let pull = bot
        .open_pull_of(&with_submodule("../modules.git", &commit))
        .await;
    assert_snapshot!(first_line(&bot.answer(pull)), @"**Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: it comes from github.test/acme/modules, which has no owner, and this server only serves claimed repositories (`--require-claims`). Claim it (`lockkeeper credentials add --owner net --url https://github.test/acme/modules`, or `lockkeeper apps add`), or name another repository in `.gitmodules`.");
    assert_eq!(bot.calls(), [""; 0], "nothing has run");
    bot.claim_for("net", "acme/modules").await;
    bot.say(pull, "lockkeeper plan").await;
    assert_eq!(
        first_line(&bot.answer(pull)),
        "Ran Plan for dir: `app` workspace: `default`: planned"
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_submodule_that_cannot_be_had_is_refused(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &SUBMODULES).await;
    bot.modules("acme/modules").await;
    let gone: CommitSha = "ab".repeat(20).parse().unwrap();
    let pull = bot
        .open_pull_of(&with_submodule("../modules.git", &gone))
        .await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: github.test/acme/modules does not have the commit `abababab` (any more). Push it there, or select another commit here.

    <sub>Commit `f703f7bc` · 0 s</sub>
    ");
    let said = bot
        .answer_to(pull, &with_submodule("../none.git", &gone))
        .await;
    assert_snapshot!(said.replace(bot.github.base_url().trim_start_matches("http://"), "FORGE"), @"
    **Plan refused**: cannot check out the submodule `lib` of github.test/acme/infra: the account or App that reads this repository cannot read github.test/acme/none (remote: Repository not found. fatal: repository 'http:&#8203;//FORGE/acme/none.git/' not found). Give it access to github.test/acme/none, fix `.gitmodules`, or ask an administrator to turn off `--checkout-submodules`.

    <sub>Commit `27b5c248` · 0 s</sub>
    ");
    assert_eq!(bot.calls(), [""; 0], "nothing has run");
    bot.end(&[]).await;
}

async fn a_file_kept_with_lfs_is_there_for_the_plan(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &LFS).await;
    let pointer = bot
        .github
        .keep_lfs(REPO, &"the bundle\n".repeat(200))
        .unwrap();
    let pull = bot.open_pull_of(&with_lfs(&pointer)).await;
    let planned = bot.answer(pull);
    assert!(planned.contains("bundle.pem: the bundle\n"), "{planned}");
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn without_the_flag_a_file_kept_with_lfs_is_the_text_that_stands_for_it(backend: Backend) {
    let mut bot = Bot::new(backend, &[APP]).await;
    let pointer = bot
        .github
        .keep_lfs(REPO, &"the bundle\n".repeat(200))
        .unwrap();
    let pull = bot.open_pull_of(&with_lfs(&pointer)).await;
    let planned = bot.answer(pull);
    assert!(
        planned.contains("bundle.pem: version https://git-lfs.github.com/spec/v1\n"),
        "{planned}"
    );
    bot.end(&["acme/infra/app/default by #1"]).await;
}

async fn a_file_that_was_not_uploaded_is_named(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &LFS).await;
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 8\n",
        "ab".repeat(32)
    );
    let pull = bot.open_pull_of(&with_lfs(&pointer)).await;
    assert_snapshot!(bot.answer(pull), @"
    **Plan refused**: cannot fetch the LFS files of github.test/acme/infra: the forge does not have the content of `app/bundle.pem`. Push it with `git lfs push --all origin` from a clone that has it, or ask an administrator to turn off `--checkout-lfs`.

    <sub>Commit `7de93705` · 0 s</sub>
    ");
    assert_eq!(bot.calls(), [""; 0], "nothing has run");
    bot.end(&[]).await;
}

/// Allows no repository as a submodule.
struct Nobody;

#[async_trait]
impl SubmoduleRules for Nobody {
    async fn admission(&self, repo: &RepoId, _by_owner: bool) -> SubmoduleAdmission {
        SubmoduleAdmission::Refused(format!("{repo} may not"))
    }
}

async fn a_commit_without_submodules_and_lfs_does_not_wait_for_a_sync(backend: Backend) {
    let mut bot = Bot::with(backend, &[APP], &[SUBMODULES[0], LFS[0]]).await;
    let pull = bot
        .open_pull_of(&[Change::write("app/main.tf", "# wider\n")])
        .await;
    assert_eq!(
        first_line(&bot.answer(pull)),
        "Ran Plan for dir: `app` workspace: `default`: planned"
    );
    let plans = bot
        .store()
        .plan_list(&PullRef {
            repo: infra(),
            subject: pull.into(),
        })
        .await
        .unwrap();
    let (ctx, source) = (&bot.replica.ctx, Source::of_plan(&plans[0]));
    let gate = ctx.server.syncer.gate(&infra()).await;
    let parts = ctx.checkouts.bring_parts(&source, &Nobody);
    tokio::time::timeout(Duration::from_mins(1), parts)
        .await
        .expect("it does not wait")
        .unwrap();
    drop(gate);
    bot.end(&["acme/infra/app/default by #1"]).await;
}
