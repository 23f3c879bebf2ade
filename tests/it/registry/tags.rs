//! Stories about tags: from `git tag` at the forge to the version that is served.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use insta::assert_snapshot;
use lockkeeper::emulator::{Change, Fault};
use lockkeeper::features::registry::{
    ChangeNamespace, ForeignVersions, Published, RegistryVersion, TagPlace, VersionOrigin,
    Visibility,
};
use lockkeeper::model::{CommitSha, OwnerName, RepoId, RepoUrl};
use lockkeeper::store::Acquired;
use lockkeeper_registry::go_zip::{GO_LIMITS, check_go_zip};
use lockkeeper_registry::tf_archive::{TF_LIMITS, check_tf_archive};
use lockkeeper_registry::versions::VersionKey;
use regex::Regex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

use super::world::{HOST, RegistryAdmin, Replica, by_ops, go_mod_of_size, write_keys};
use crate::support::bot::Bot;
use crate::support::db::{Backend, story};
use crate::support::program::{ProgramOutput, lockkeeper, run};
use crate::support::server::find_terraform;

story!(
    tags_of_go_modules_become_versions,
    tags_of_terraform_modules_become_versions,
    a_tag_with_a_large_go_mod_file_is_refused,
    a_commit_beside_the_default_branch_is_published_once_it_is_merged,
    a_tag_that_moves_changes_nothing_and_is_reported,
    names_of_others_and_mistakes_are_refused_and_looked_at_again,
    what_fails_for_a_passing_reason_is_tried_again,
    nobody_waits_for_tags_and_a_lost_mirror_loses_none,
    any_commit_publishes_if_the_administrator_allows_it,
    a_tag_whose_version_has_other_files_is_not_called_published,
    a_tag_whose_files_have_a_token_is_refused,
    a_tag_that_stops_the_server_three_times_is_given_up,
    the_files_are_those_of_git_archive,
    a_module_brings_the_directories_that_it_uses,
    default_branches_tell_which_modules_they_use,
);

/// Time until the next look at a repository.
const LOOK: Duration = Duration::from_mins(6);

const TF: &str = "output \"size\" {\n  value = 1\n}\n";

/// A GitHub, a server with a registry, and the registry as its administrators see it.
pub struct Site {
    pub bot: Bot,
    pub admin: RegistryAdmin,
    _keys: TempDir,
}

impl Site {
    /// Starts a server whose owner `net` has namespaces of both kinds and has claimed these repositories.
    pub async fn open(
        backend: Backend,
        repos: &[(&str, &[(&str, &str)])],
        flags: &[(&str, &str)],
    ) -> Self {
        let keys = tempfile::tempdir().unwrap();
        let file = keys.path().join("keys");
        write_keys(&file);
        let file_text = file.display().to_string();
        let mut all = vec![
            ("registry", "true"),
            ("registry-name", HOST),
            ("encryption-key-file", &file_text),
        ];
        all.extend(flags);
        let bot = Box::pin(Bot::with(backend, &[("README.md", "Infra.\n")], &all)).await;
        let packages = bot.db.dir.path().join("data/registry");
        let admin = Box::pin(RegistryAdmin::with(bot.db.reopen().await, file, packages)).await;
        admin.namespace("module acme", Visibility::Public).await;
        admin
            .namespace("go example.com/net", Visibility::Public)
            .await;
        let site = Self {
            bot,
            admin,
            _keys: keys,
        };
        for (name, files) in repos {
            site.bot.github.create_repo(name, files).await.unwrap();
            site.claim(name, "net").await;
        }
        site
    }

    /// Claims a repository for an owner. No reconciler of a story removes the claim.
    async fn claim(&self, repo: &str, owner: &str) {
        let (store, name): (_, OwnerName) = (self.bot.store(), owner.parse().unwrap());
        drop(store.owner_create(&name, &by_ops()).await.unwrap());
        let owner = store.owner_get(&name).await.unwrap().unwrap();
        let url: RepoUrl = format!("https://github.test/{repo}").parse().unwrap();
        let claimed = store.claim_acquire(owner.id, &url, &by_ops()).await;
        assert!(matches!(claimed, Ok(Acquired::Claimed(_))), "{claimed:?}");
    }

    /// Returns the directory of a repository of the forge.
    pub fn forge_dir(&self, repo: &str) -> PathBuf {
        let git = self.bot.db.dir.path().join("github/git");
        git.join(format!("{repo}.git"))
    }

    /// Runs git in a repository of the forge, as a person does from elsewhere.
    fn git(&self, repo: &str, args: &[&str]) -> String {
        let who = ["-c", "user.name=kim", "-c", "user.email=kim@example.com"];
        let args: Vec<&str> = who.iter().chain(args).copied().collect();
        let variables = [("GIT_CONFIG_GLOBAL", "/dev/null")];
        let said = run("git", &self.forge_dir(repo), &args, &variables);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        said.out.trim().to_owned()
    }

    fn commit(&self, repo: &str, at: &str) -> CommitSha {
        self.git(repo, &["rev-parse", &format!("{at}^{{commit}}")])
            .parse()
            .unwrap()
    }

    /// Pushes a commit with these files to a branch at the forge.
    pub async fn push(&self, repo: &str, branch: &str, files: &[(&str, &str)]) -> CommitSha {
        let changes: Vec<Change> = files
            .iter()
            .map(|(path, text)| Change::write(path, text))
            .collect();
        self.bot.github.push(repo, branch, &changes).await.unwrap()
    }

    /// Lets mirrors follow the forge, and looks at tags twice: once, and after the time for a second look.
    pub async fn turn(&self) {
        for _ in 0..2 {
            self.bot.db.clock.advance(LOOK);
            self.bot.settle_short().await;
            self.mirrors().await;
            self.look().await;
        }
        self.bot.settle().await;
    }

    async fn mirrors(&self) {
        for _ in 0..2 {
            self.bot.replica.tick("repositories").await.unwrap();
            self.bot.replica.ctx.server.syncer.idle().await;
        }
    }

    async fn look(&self) {
        self.bot.replica.tick("registry_tags").await.unwrap();
    }

    /// Returns `context: state, description` of each status of a commit.
    fn statuses(&self, repo: &str, commit: &CommitSha) -> String {
        let statuses = self.bot.github.statuses(repo, commit).unwrap();
        let mut lines: Vec<String> = statuses
            .latest
            .iter()
            .map(|status| {
                let text = status.description.as_deref().unwrap_or_default();
                format!("{}: {:?}, {text}", status.context, status.state)
            })
            .collect();
        lines.sort();
        lines.join("\n")
    }

    async fn version(&self, key: &str) -> Option<RegistryVersion> {
        let key: VersionKey = key.parse().unwrap();
        self.admin.registry.version(&key).await.unwrap()
    }

    /// Returns `from COMMIT by WHOM` of a published version.
    async fn origin(&self, key: &str) -> String {
        let Some(version) = self.version(key).await else {
            return "not there".to_owned();
        };
        assert_eq!(version.origin, Some(VersionOrigin::Tag), "{key}");
        let content = &version.known.content().unwrap().content;
        let commit = content.commit.as_ref().unwrap();
        format!("{commit} by {}", version.published_by.unwrap())
    }

    /// Returns the files of the package of a version, with `\r` shown.
    async fn files(&self, key: &str) -> String {
        let version = self.version(key).await.unwrap();
        let content = &version.known.content().unwrap().content;
        let digest = content.packages.iter().next().unwrap().digest.clone();
        let package = self.admin.registry.blobs().open_file(&digest, None).await;
        let (package, mut lines) = (package.unwrap().unwrap(), Vec::new());
        let mut add = |name: &str, file: &mut dyn std::io::Read| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            lines.push(format!("{name}: {text:?}"));
            Ok(())
        };
        match version.key.as_go() {
            Some((path, number)) => {
                let _contents = check_go_zip(path, number, package, &GO_LIMITS, &mut add).unwrap();
            }
            None => {
                let _contents = check_tf_archive(package, &TF_LIMITS, &mut add).unwrap();
            }
        }
        lines.sort();
        lines.join("\n")
    }

    /// Runs `lockkeeper registry tags REPO` on the database of the server, without ids and times.
    fn tags(&self, repo: &str) -> String {
        self.tags_of(&[&format!("github.test/{repo}")])
    }

    /// Runs `lockkeeper registry tags ARGS…` on the database of the server, without ids and times.
    fn tags_of(&self, args: &[&str]) -> String {
        let said = lockkeeper(&["registry", "tags"], &self.bot.db.url, args, &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        let hidden =
            Regex::new(r"\([0-9a-f]{7,}\)|\d{4}-\d\d-\d\d.\d\d:\d\d(:\d\d)?(Z| UTC)?").unwrap();
        hidden.replace_all(&said.out, "…").into_owned()
    }

    /// Runs `lockkeeper registry show` on the database of the server.
    fn show(&self, name: &str) -> String {
        let said = lockkeeper(&["registry", "show"], &self.bot.db.url, &[name], &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        said.out
    }
}

async fn tags_of_go_modules_become_versions(backend: Backend) {
    const REPO: &str = "acme/net";
    let files = [
        ("go.mod", "module example.com/net\n"),
        ("net.go", "package net\n"),
        ("LICENSE", "Free.\n"),
        ("http/go.mod", "module example.com/net/http\n"),
        ("http/http.go", "package http\n"),
    ];
    let site = Site::open(backend, &[(REPO, &files)], &[]).await;
    for name in [
        "v1.0.0",
        "nightly",
        "v1",
        "other/v1.0.0",
        "v0.9.0<b>",
        "v0.9.0'$(x)",
    ] {
        site.git(REPO, &["tag", name, "main"]);
    }
    site.git(
        REPO,
        &["tag", "-m", "The first one.", "http/v1.0.0", "main"],
    );
    site.turn().await;
    let main = site.commit(REPO, "main");
    assert_eq!(
        site.origin("go example.com/net v1.0.0").await,
        format!("{main} by tag v1.0.0 of github.test/{REPO}")
    );
    assert_snapshot!(site.files("go example.com/net v1.0.0").await, @r#"
    LICENSE: "Free.\n"
    go.mod: "module example.com/net\n"
    net.go: "package net\n"
    "#);
    assert_snapshot!(site.files("go example.com/net/http v1.0.0").await, @r#"
    LICENSE: "Free.\n"
    go.mod: "module example.com/net/http\n"
    http.go: "package http\n"
    "#);
    assert_snapshot!(site.tags(REPO), @r"
    github.test/acme/net: 3 tags, read on …
    http/v1.0.0 … published
    other/v1.0.0 … names no version: No Terraform module: the repository is not named terraform-SYSTEM-NAME, and no lockkeeper.yaml lists modules. No Go module: the commit has no other/go.mod.
    v1.0.0 … published
    ");
    // The statuses of tags from before the first look would use up the requests that the forge allows.
    assert_eq!(site.statuses(REPO, &main), "");

    let two = [("go.mod", "module example.com/net/v2\n")];
    let next = site.push(REPO, "main", &two).await;
    for name in ["v1.1.0", "v2.0.0", "http/v1.1.0", "v2/v2.0.0"] {
        site.git(REPO, &["tag", name, "main"]);
    }
    site.turn().await;
    assert_snapshot!(site.statuses(REPO, &next), @r"
    lockkeeper/publish: example.com/net/http v1.1.0: Success, Published from the tag http/v1.1.0.
    lockkeeper/publish: example.com/net/v2 v2.0.0: Success, Published from the tag v2.0.0.
    lockkeeper/publish: v1.1.0: Failure, go.mod: `example.com/net/v2` has versions `v2`, and `v1.1.0` is none of them.
    ");
    assert_eq!(site.statuses(REPO, &main), "");

    // Everybody gets it.
    let server = site.admin.server(&site.bot.db, 2, &[]).await;
    let (_, token) = site.admin.token(&["read:*"]).await;
    let list = server
        .get("/registry/go/example.com/net/@v/list", &token)
        .await;
    assert_eq!(list.text(), "v1.0.0\n");
    let go_mod = server
        .get("/registry/go/example.com/net/v2/@v/v2.0.0.mod", &token)
        .await;
    assert_eq!(go_mod.text(), "module example.com/net/v2\n");

    // Nothing is left to do.
    let before = site
        .admin
        .registry
        .store()
        .registry_log_size()
        .await
        .unwrap();
    site.turn().await;
    let after = site
        .admin
        .registry
        .store()
        .registry_log_size()
        .await
        .unwrap();
    assert_eq!((before, after), (4, 4));
    site.bot.end(&[]).await;
}

async fn tags_of_terraform_modules_become_versions(backend: Backend) {
    const NAMED: &str = "acme/terraform-aws-vpc";
    const MANY: &str = "acme/modules";
    let config = "version: 3\nregistry:\n  modules:\n    - {name: acme/db/aws, dir: modules/db, tags: 'db-v*'}\n    \
                  - {name: acme/dns/aws, dir: modules/dns}\n";
    let many = [
        ("lockkeeper.yaml", config),
        ("modules/db/main.tf", TF),
        ("modules/db/terraform.tfstate", "{}"),
        (
            "modules/dns/main.tf",
            "module \"db\" {\n  source = \"../db\"\n}\n",
        ),
    ];
    let site = Site::open(
        backend,
        &[(NAMED, &[("main.tf", TF), ("x/y.txt", "y")]), (MANY, &many)],
        &[],
    )
    .await;
    site.turn().await;
    site.git(NAMED, &["tag", "v1.2.3", "main"]);
    for name in ["db-v1.0.0", "v9.9.9", "modules/dns/v1.0.0"] {
        site.git(MANY, &["tag", name, "main"]);
    }
    site.turn().await;
    assert_snapshot!(site.files("module acme/vpc/aws 1.2.3").await, @r#"
    main.tf: "output \"size\" {\n  value = 1\n}\n"
    x/y.txt: "y"
    "#);
    assert_snapshot!(site.files("module acme/db/aws 1.0.0").await, @r#"main.tf: "output \"size\" {\n  value = 1\n}\n""#);
    let (named, many) = (site.commit(NAMED, "main"), site.commit(MANY, "main"));
    assert_snapshot!(site.statuses(NAMED, &named), @"lockkeeper/publish: acme/vpc/aws 1.2.3: Success, Published from the tag v1.2.3.");
    assert_snapshot!(site.statuses(MANY, &many), @r"
    lockkeeper/publish: acme/db/aws 1.0.0: Success, Published from the tag db-v1.0.0.
    lockkeeper/publish: acme/dns/aws 1.0.0: Success, Published from the tag modules/dns/v1.0.0.
    ");
    assert_snapshot!(site.tags(MANY), @r"
    github.test/acme/modules: 3 tags, read on …
    db-v1.0.0 … published
    modules/dns/v1.0.0 … published
    v9.9.9 … names no version: No Terraform module: lockkeeper.yaml wants `db-v*` or `modules/dns/v*`, with a version such as `1.2.3` in place of `*`. No Go module: the commit has no go.mod or v9/go.mod.
    ");
    let server = site.admin.server(&site.bot.db, 2, &[]).await;
    let (_, token) = site.admin.token(&["read:*"]).await;
    let path = "/registry/v1/modules/acme/db/aws/versions";
    let listed = server.get(path, &token).await;
    assert!(listed.text().contains("\"1.0.0\""), "{}", listed.text());
    site.bot.end(&[]).await;
}

async fn a_commit_beside_the_default_branch_is_published_once_it_is_merged(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    site.turn().await;
    let branch_tip = site.push(REPO, "feature", &[("side.tf", TF)]).await;
    site.git(REPO, &["tag", "v1.0.0", branch_tip.as_str()]);
    // A commit that no branch has, so the mirror does not have it either.
    let tree = site.git(REPO, &["rev-parse", "main^{tree}"]);
    let lost = site.git(REPO, &["commit-tree", &tree, "-p", "main", "-m", "Lost"]);
    let lost: CommitSha = lost.parse().unwrap();
    site.git(REPO, &["tag", "v1.1.0", lost.as_str()]);
    site.turn().await;
    assert_eq!(site.origin("module acme/vpc/aws 1.0.0").await, "not there");
    assert_eq!(site.origin("module acme/vpc/aws 1.1.0").await, "not there");
    assert_snapshot!(site.statuses(REPO, &branch_tip), @"lockkeeper/publish: v1.0.0: Failure, The commit is not on the default branch. The tag is published once it is.");
    assert_snapshot!(site.statuses(REPO, &lost), @"lockkeeper/publish: v1.1.0: Failure, The commit is not on the default branch. The tag is published once it is.");

    // Another default branch, whose name nobody has told the server.
    site.git(REPO, &["symbolic-ref", "HEAD", "refs/heads/feature"]);
    site.turn().await;
    assert_eq!(
        site.origin("module acme/vpc/aws 1.0.0").await,
        format!("{branch_tip} by tag v1.0.0 of github.test/{REPO}")
    );
    assert_eq!(site.origin("module acme/vpc/aws 1.1.0").await, "not there");
    assert_snapshot!(site.statuses(REPO, &branch_tip), @r"
    lockkeeper/publish: acme/vpc/aws 1.0.0: Success, Published from the tag v1.0.0.
    lockkeeper/publish: v1.0.0: Success, Published.
    ");

    assert_snapshot!(site.tags(REPO), @r"
    github.test/acme/terraform-aws-vpc: 2 tags, read on …
    v1.0.0 … published
    v1.1.0 … not published: The commit is not on the default branch. The tag is published once it is.
    ");

    // A merge of the lost commit.
    let merge = [
        "commit-tree",
        &tree,
        "-p",
        "feature",
        "-p",
        lost.as_str(),
        "-m",
        "Merge",
    ];
    let merge = site.git(REPO, &merge);
    site.git(REPO, &["update-ref", "refs/heads/feature", &merge]);
    let repo: RepoId = format!("github.test/{REPO}").parse().unwrap();
    site.turn().await;
    let asked = site
        .bot
        .store()
        .mirror_request_sync(&repo, &by_ops())
        .await
        .unwrap();
    assert_eq!(asked, 1);
    site.turn().await;
    assert_eq!(
        site.origin("module acme/vpc/aws 1.1.0").await,
        format!("{lost} by tag v1.1.0 of github.test/{REPO}")
    );
    site.bot.end(&[]).await;
}

async fn a_tag_that_moves_changes_nothing_and_is_reported(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    site.git(REPO, &["tag", "v1.1.0", "main"]);
    site.turn().await;
    let key = "module acme/vpc/aws 1.0.0";
    let (first, before) = (site.commit(REPO, "main"), site.version(key).await);
    assert!(before.is_some());

    let second = site.push(REPO, "main", &[("more.tf", TF)]).await;
    site.git(REPO, &["tag", "-f", "v1.0.0", "main"]);
    site.git(REPO, &["tag", "-d", "v1.1.0"]);
    site.turn().await;
    assert_eq!(site.version(key).await, before);
    let files = site.files(key).await;
    assert!(!files.contains("more.tf"), "{files}");
    let statuses = site.statuses(REPO, &second);
    assert!(
        statuses.starts_with(
            "lockkeeper/publish: acme/vpc/aws 1.0.0: Failure, published before with other files, which stay. Choose a new version. It has h1:"
        ),
        "{statuses}"
    );
    let metrics = site.bot.replica.ctx.metrics.render();
    for outcome in ["moved", "removed", "conflict"] {
        let line = format!("lockkeeper_registry_tags_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(metrics.contains(&line), "{outcome}: {metrics}");
    }
    let shown = site.show("acme/vpc/aws");
    let (from, to) = (first.short(), second.short());
    for sentence in [
        format!(
            "it was found that the tag v1.0.0 of github.test/{REPO} was moved from {from} to {to}."
        ),
        format!("it was found that the tag v1.1.0 of github.test/{REPO} at {from} was removed."),
    ] {
        assert!(shown.contains(&sentence), "{shown}");
    }

    // The same again is no news, and the way back neither.
    site.turn().await;
    site.git(REPO, &["tag", "-f", "v1.0.0", first.as_str()]);
    site.turn().await;
    assert_eq!(site.version(key).await, before);
    assert_eq!(
        site.show("acme/vpc/aws@1.0.0").matches("was moved").count(),
        1
    );
    site.bot.end(&[]).await;
}

async fn names_of_others_and_mistakes_are_refused_and_looked_at_again(backend: Backend) {
    const REPO: &str = "acme/mixed";
    let config = "version: 3\nregistry:\n  go: true\n  modules:\n    - {name: rival/vpc/aws, tags: 'rival-*'}\n    \
                  - {name: nobody/vpc/aws, tags: 'nobody-*'}\n    - {name: acme/empty/aws, dir: empty, tags: 'empty-*'}\n    \
                  - {name: acme/gone/aws, dir: gone, tags: 'gone-*'}\n";
    let files = [
        ("lockkeeper.yaml", config),
        ("main.tf", TF),
        ("empty/README.md", "No code.\n"),
        ("go.mod", "module example.org/foreign\n"),
    ];
    let site = Site::open(backend, &[(REPO, &files)], &[]).await;
    let rival: OwnerName = "rival".parse().unwrap();
    let store = site.bot.store();
    drop(store.owner_create(&rival, &by_ops()).await.unwrap());
    let prefix = "module rival".parse().unwrap();
    let by = by_ops();
    let added = store.registry_namespace_add(
        &prefix,
        &rival,
        Visibility::Public,
        ForeignVersions::Refuse,
        &by,
    );
    drop(added.await.unwrap());
    site.turn().await;
    for name in [
        "rival-1.0.0",
        "nobody-1.0.0",
        "empty-1.0.0",
        "gone-1.0.0",
        "v1.0.0",
    ] {
        site.git(REPO, &["tag", name, "main"]);
    }
    site.turn().await;
    let main = site.commit(REPO, "main");
    assert_snapshot!(site.statuses(REPO, &main), @r"
    lockkeeper/publish: acme/empty/aws 1.0.0: Failure, the package has no file with code: none of its names ends with `.tf`, `.tf.json`, `.tofu` or `.tofu.json`
    lockkeeper/publish: acme/gone/aws 1.0.0: Failure, the commit has no directory gone.
    lockkeeper/publish: example.org/foreign v1.0.0: Failure, example.org/foreign is in no namespace. An administrator can add one for net: lockkeeper registry namespaces add.
    lockkeeper/publish: nobody/vpc/aws 1.0.0: Failure, nobody/vpc/aws is in no namespace. An administrator can add one for net: lockkeeper registry namespaces add.
    lockkeeper/publish: rival/vpc/aws 1.0.0: Failure, rival/vpc/aws is in a namespace of another owner than net, who has claimed this repository.
    ");

    assert_snapshot!(site.tags(REPO), @r"
    github.test/acme/mixed: 5 tags, read on …
    empty-1.0.0 … refused
      module acme/empty/aws 1.0.0: refused: the package has no file with code: none of its names ends with `.tf`, `.tf.json`, `.tofu` or `.tofu.json`
    gone-1.0.0 … refused
      module acme/gone/aws 1.0.0: refused: the commit has no directory gone.
    nobody-1.0.0 … refused
      module nobody/vpc/aws 1.0.0: refused: nobody/vpc/aws is in no namespace. An administrator can add one for net: lockkeeper registry namespaces add.
    rival-1.0.0 … refused
      module rival/vpc/aws 1.0.0: refused: rival/vpc/aws is in a namespace of another owner than net, who has claimed this repository.
    v1.0.0 … refused
      go example.org/foreign v1.0.0: refused: example.org/foreign is in no namespace. An administrator can add one for net: lockkeeper registry namespaces add.
    ");

    // The namespace goes to the owner of the repository.
    let net: OwnerName = "net".parse().unwrap();
    let by = by_ops();
    let changed = store.registry_namespace_change(&prefix, Some(&net), None, &by);
    assert!(matches!(changed.await, Ok(ChangeNamespace::Changed(_))));
    site.turn().await;
    assert_eq!(
        site.origin("module rival/vpc/aws 1.0.0").await,
        format!("{main} by tag rival-1.0.0 of github.test/{REPO}")
    );
    let statuses = site.statuses(REPO, &main);
    assert!(
        statuses.contains("rival/vpc/aws 1.0.0: Success, Published from the tag rival-1.0.0."),
        "{statuses}"
    );

    let wrong = "version: 3\nregistry:\n  modules:\n    - {name: acme}\n";
    let broken = site.push(REPO, "main", &[("lockkeeper.yaml", wrong)]).await;
    site.git(REPO, &["tag", "v1.1.0", "main"]);
    site.turn().await;
    let statuses = site.statuses(REPO, &broken);
    assert!(
        statuses.starts_with("lockkeeper/publish: v1.1.0: Failure, ")
            && statuses.contains("lockkeeper.yaml"),
        "{statuses}"
    );
    site.bot.end(&[]).await;
}

async fn what_fails_for_a_passing_reason_is_tried_again(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    site.turn().await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    let main = site.commit(REPO, "main");

    // The forge is away.
    let listing = format!("GET /{REPO}.git/info/refs");
    site.bot.db.clock.advance(LOOK);
    site.bot
        .github
        .fault(&listing, 1, Fault::ServiceUnavailable);
    site.look().await;
    assert_eq!(site.bot.github.faults_left(), 0);
    assert_eq!(site.origin("module acme/vpc/aws 1.0.0").await, "not there");

    // The store of packages is away. The version waits, and the tag is not settled.
    let packages = site.bot.db.dir.path().join("data/registry");
    let aside = packages.with_file_name("aside");
    std::fs::rename(&packages, &aside).unwrap();
    site.bot.db.clock.advance(LOOK);
    site.look().await;
    site.bot.settle().await;
    assert_eq!(site.statuses(REPO, &main), "");
    let metrics = site.bot.replica.ctx.metrics.render();
    assert!(
        metrics.contains("lockkeeper_registry_tags_total{outcome=\"failed\"} 1\n"),
        "{metrics}"
    );
    drop(std::fs::remove_dir_all(&packages));
    std::fs::rename(&aside, &packages).unwrap();
    site.turn().await;
    assert_eq!(
        site.origin("module acme/vpc/aws 1.0.0").await,
        format!("{main} by tag v1.0.0 of github.test/{REPO}")
    );
    assert_snapshot!(site.statuses(REPO, &main), @"lockkeeper/publish: acme/vpc/aws 1.0.0: Success, Published from the tag v1.0.0.");

    // A server that died after the record and before the outcome publishes the same files again.
    let key: VersionKey = "module acme/vpc/aws 1.1.0".parse().unwrap();
    let package = site
        .admin
        .package(&key, &[("main.tf", TF.as_bytes())])
        .await;
    let by = by_ops();
    let published = site
        .admin
        .registry
        .publish(package, VersionOrigin::Tag, &by);
    assert!(matches!(published.await, Ok(Published::New(_))));
    site.git(REPO, &["tag", "v1.1.0", "main"]);
    site.turn().await;
    let statuses = site.statuses(REPO, &main);
    assert!(
        statuses.contains("acme/vpc/aws 1.1.0: Success, Published from the tag v1.1.0."),
        "{statuses}"
    );
    site.bot.end(&[]).await;
}

async fn nobody_waits_for_tags_and_a_lost_mirror_loses_none(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    site.mirrors().await;
    let repo: RepoId = format!("github.test/{REPO}").parse().unwrap();
    let syncer = &site.bot.replica.ctx.server.syncer;
    // A command has the mirror for itself all the time.
    let gate = syncer.gate(&repo).await;
    site.look().await;
    drop(gate);
    assert_ne!(site.origin("module acme/vpc/aws 1.0.0").await, "not there");

    let mirror = syncer.mirror(&repo).dir().to_owned();
    std::fs::remove_dir_all(&mirror).unwrap();
    site.git(REPO, &["tag", "v1.1.0", "main"]);
    site.bot.db.clock.advance(LOOK);
    site.look().await;
    assert_eq!(site.origin("module acme/vpc/aws 1.1.0").await, "not there");
    let metrics = site.bot.replica.ctx.metrics.render();
    assert!(
        metrics.contains("lockkeeper_registry_tags_total{outcome=\"removed\"} 0\n"),
        "{metrics}"
    );
    site.turn().await;
    assert_ne!(site.origin("module acme/vpc/aws 1.1.0").await, "not there");

    // Without a claim, nothing is published.
    let refused = "acme/terraform-aws-free";
    let created = site.bot.github.create_repo(refused, &[("main.tf", TF)]);
    created.await.unwrap();
    site.git(refused, &["tag", "v1.0.0", "main"]);
    site.turn().await;
    assert_eq!(site.origin("module acme/free/aws 1.0.0").await, "not there");
    site.bot.end(&[]).await;
}

async fn any_commit_publishes_if_the_administrator_allows_it(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let flags = [
        ("registry-tags-from", "any"),
        ("mirror-filter", "blob:none"),
    ];
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &flags).await;
    site.turn().await;
    let branch_tip = site.push(REPO, "feature", &[("side.tf", TF)]).await;
    let tree = site.git(REPO, &["rev-parse", "feature^{tree}"]);
    let lost = site.git(REPO, &["commit-tree", &tree, "-m", "Lost"]);
    site.git(REPO, &["tag", "v1.0.0", branch_tip.as_str()]);
    site.git(REPO, &["tag", "v1.1.0", &lost]);
    site.git(REPO, &["tag", "x-1.2.3", branch_tip.as_str()]);
    site.turn().await;
    let tags = site.tags(REPO);
    let absent = "x-1.2.3 … names no version: No Terraform module: the tag is not a version such as `v1.2.3` or `1.2.3`. \
                  No Go module: the tag is not a version such as `v1.2.3` or `http/v1.2.3`.\n";
    assert!(tags.ends_with(absent), "{tags}");
    for (version, commit) in [("1.0.0", branch_tip.as_str()), ("1.1.0", &lost)] {
        assert_eq!(
            site.origin(&format!("module acme/vpc/aws {version}")).await,
            format!("{commit} by tag v{version} of github.test/{REPO}")
        );
    }
    let files = site.files("module acme/vpc/aws 1.1.0").await;
    assert!(files.contains("side.tf"), "{files}");
    let scratch = site.bot.db.dir.path().join("data/tmp");
    let left = std::fs::read_dir(scratch).unwrap().count();
    assert_eq!(left, 0, "a copy of a commit was left behind");
    site.bot.end(&[]).await;
}

async fn a_tag_whose_version_has_other_files_is_not_called_published(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    let other: [(&str, &[u8]); 1] = [("other.tf", TF.as_bytes())];
    site.admin
        .publish("module acme/vpc/aws 1.0.0", &other)
        .await;
    site.turn().await;
    let branch_tip = site.push(REPO, "feature", &[("side.tf", TF)]).await;
    site.git(REPO, &["tag", "v1.0.0", branch_tip.as_str()]);
    site.turn().await;
    site.git(
        REPO,
        &["update-ref", "refs/heads/main", branch_tip.as_str()],
    );
    let repo: RepoId = format!("github.test/{REPO}").parse().unwrap();
    let asked = site
        .bot
        .store()
        .mirror_request_sync(&repo, &by_ops())
        .await
        .unwrap();
    assert_eq!(asked, 1);
    site.turn().await;
    assert_snapshot!(site.statuses(REPO, &branch_tip), @r"
    lockkeeper/publish: acme/vpc/aws 1.0.0: Failure, published before with other files, which stay. Choose a new version. It has h1:e0PiG/M7SBc6, and the tag h1:hDQkJiQu/iLX.
    lockkeeper/publish: v1.0.0: Failure, Not all versions of this tag are published. Their own statuses say why.
    ");
    site.git(REPO, &["tag", "v1.1.0", "main"]);
    site.turn().await;
    assert_snapshot!(site.tags_of(&[]), @"github.test/acme/terraform-aws-vpc: 1 published, 1 not fully published, 0 not on the default branch, 0 refused, 0 without a version, 0 waiting");
    let tags = site.tags(REPO);
    assert!(tags.contains("\nv1.0.0 … not fully published\n"), "{tags}");
    assert!(tags.contains("\nv1.1.0 … published\n"), "{tags}");

    // The forge is away.
    for failed in [
        "The last attempt to read them failed (",
        "The last 2 attempts to read them failed (",
    ] {
        let listing = format!("GET /{REPO}.git/info/refs");
        site.bot
            .github
            .fault(&listing, 1, Fault::ServiceUnavailable);
        site.bot.db.clock.advance(LOOK);
        site.look().await;
        assert_eq!(site.bot.github.faults_left(), 0);
        let tags = site.tags_of(&[]);
        assert!(tags.contains(&format!(" 0 waiting. {failed}")), "{tags}");
        assert!(
            tags.ends_with("), and the next one is due on …\n"),
            "{tags}"
        );
    }
    site.bot.end(&[]).await;
}

async fn a_tag_whose_files_have_a_token_is_refused(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    site.turn().await;
    let (_, token) = site.admin.token(&["publish:*"]).await;
    let text = format!("TOKEN={token}\n");
    let commit = site.push(REPO, "main", &[("ci/env", &text)]).await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    site.turn().await;
    assert_eq!(site.origin("module acme/vpc/aws 1.0.0").await, "not there");
    let statuses = site.statuses(REPO, &commit);
    assert!(
        statuses.starts_with(
            "lockkeeper/publish: acme/vpc/aws 1.0.0: Failure, `ci/env` has a token of a registry"
        ),
        "{statuses}"
    );
    site.bot.end(&[]).await;
}

async fn a_tag_with_a_large_go_mod_file_is_refused(backend: Backend) {
    const REPO: &str = "acme/net";
    let config = "version: 3\nregistry:\n  go: true\n";
    let files = [
        ("lockkeeper.yaml", config),
        ("go.mod", "module example.com/net\n"),
        ("net.go", "package net\n"),
    ];
    let site = Site::open(backend, &[(REPO, &files)], &[]).await;
    site.turn().await;
    let go_mod = go_mod_of_size("example.com/net", (1 << 20) + 1);
    let commit = site.push(REPO, "main", &[("go.mod", &go_mod)]).await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    site.turn().await;
    assert_eq!(site.origin("go example.com/net v1.0.0").await, "not there");
    let statuses = site.statuses(REPO, &commit);
    let expected = "lockkeeper/publish: v1.0.0: Failure, `go.mod` has more than 1048576 bytes";
    assert!(statuses.starts_with(expected), "{statuses}");
    site.bot.end(&[]).await;
}

async fn a_tag_that_stops_the_server_three_times_is_given_up(backend: Backend) {
    const REPO: &str = "acme/terraform-aws-vpc";
    let site = Site::open(backend, &[(REPO, &[("main.tf", TF)])], &[]).await;
    site.turn().await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    let main = site.commit(REPO, "main");
    let place = TagPlace {
        repo: format!("github.test/{REPO}").parse().unwrap(),
        tag: "v1.0.0".parse().unwrap(),
        commit: main.clone(),
    };
    // The tag is seen while the store of packages is away, so it waits.
    let packages = site.bot.db.dir.path().join("data/registry");
    let aside = packages.with_file_name("aside");
    std::fs::rename(&packages, &aside).unwrap();
    site.bot.db.clock.advance(LOOK);
    site.look().await;
    drop(std::fs::remove_dir_all(&packages));
    std::fs::rename(&aside, &packages).unwrap();
    // Nobody can kill the server of this story in the middle.
    let (store, now) = (site.bot.store(), site.bot.db.now());
    store.registry_tag_attempt(&place, 3, now).await.unwrap();
    site.turn().await;
    assert_eq!(site.origin("module acme/vpc/aws 1.0.0").await, "not there");
    assert_snapshot!(site.statuses(REPO, &main), @"lockkeeper/publish: v1.0.0: Failure, The server stopped three times while it made a package of this tag, so it was given up.");
    site.bot.end(&[]).await;
}

async fn the_files_are_those_of_git_archive(backend: Backend) {
    const REPO: &str = "acme/net";
    let attributes = "*.txt text eol=crlf\nhidden.go export-ignore\nversion.go export-subst\n";
    let files = [
        (".gitattributes", attributes),
        ("go.mod", "module example.com/net\n"),
        ("a.txt", "one\ntwo\n"),
        ("hidden.go", "package net\n"),
        ("version.go", "package net // $Format:%H$\n"),
        ("-o", "A name like an option.\n"),
    ];
    let site = Site::open(backend, &[(REPO, &files)], &[]).await;
    site.git(REPO, &["tag", "v1.0.0", "main"]);
    site.turn().await;
    assert_snapshot!(site.files("go example.com/net v1.0.0").await, @r#"
    -o: "A name like an option.\n"
    .gitattributes: "*.txt text eol=crlf\nhidden.go export-ignore\nversion.go export-subst\n"
    a.txt: "one\r\ntwo\r\n"
    go.mod: "module example.com/net\n"
    hidden.go: "package net\n"
    version.go: "package net // $Format:%H$\n"
    "#);
    site.bot.end(&[]).await;
}

/// Lets programs reach a server. Returns its address.
async fn listen(server: &Replica) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = server.router.clone();
    let app = Router::new().fallback(move |mut request: Request| {
        // The server answers under its name only.
        let host = HeaderValue::from_static(HOST);
        request.headers_mut().insert(header::HOST, host);
        router.clone().oneshot(request)
    });
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, AbortOnDropHandle::new(task))
}

/// Runs `terraform` in a directory, whose modules come from a registry at this address.
fn terraform(dir: &Path, registry: &str, args: &[&str]) -> ProgramOutput {
    let services = format!("\"modules.v1\" = \"{registry}/registry/v1/modules/\"");
    let config = format!("host \"{HOST}\" {{\n  services = {{ {services} }}\n}}\n");
    let file = dir.join("cli.tfrc");
    std::fs::write(&file, config).unwrap();
    let (program, file) = (find_terraform(), file.display().to_string());
    let variables = [
        ("HOME", "/nonexistent"),
        ("TF_CLI_CONFIG_FILE", file.as_str()),
        ("CHECKPOINT_DISABLE", "1"),
    ];
    let program = program.display().to_string();
    let said = tokio::task::block_in_place(|| run(&program, dir, args, &variables));
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    said
}

async fn a_module_brings_the_directories_that_it_uses(backend: Backend) {
    const REPO: &str = "acme/modules";
    let config = "version: 3\nregistry:\n  modules:\n    - {name: acme/dns/aws, dir: modules/dns}\n    \
                  - {name: acme/names/aws, dir: shared/names}\n    - {name: acme/lost/aws, dir: lost}\n    \
                  - {name: acme/odd/aws, dir: an odd dir, tags: 'odd-v*'}\n";
    let uses = |source: &str| {
        format!(
            "module \"it\" {{\n  source = \"{source}\"\n}}\n\noutput \"size\" {{\n  value = module.it.size\n}}\n"
        )
    };
    let (dns, db, sub) = (
        uses("../db"),
        uses("../../shared/names"),
        uses("../../../db"),
    );
    let lost = format!(
        "{}module \"gone\" {{\n  source = \"../gone\"\n}}\n",
        uses("../../elsewhere")
    );
    let odd = uses("../shared/names");
    let files: [(&str, &str); 10] = [
        ("lockkeeper.yaml", config),
        ("modules/dns/main.tf", &dns),
        ("modules/dns/modules/sub/main.tf", &sub),
        ("modules/db/main.tf", &db),
        ("modules/db/terraform.tfstate", "{}"),
        (
            "shared/names/main.tf",
            "output \"size\" {\n  value = trimspace(file(\"${path.module}/size.txt\"))\n}\n",
        ),
        ("shared/names/size.txt", "42 names\n"),
        ("other/main.tf", TF),
        ("lost/main.tf", &lost),
        ("an odd dir/main.tf", &odd),
    ];
    let site = Site::open(backend, &[(REPO, &files)], &[]).await;
    site.turn().await;
    for name in [
        "modules/dns/v1.0.0",
        "shared/names/v1.0.0",
        "lost/v1.0.0",
        "odd-v1.0.0",
    ] {
        site.git(REPO, &["tag", name, "main"]);
    }
    site.turn().await;
    let main = site.commit(REPO, "main");
    assert_snapshot!(site.statuses(REPO, &main), @r"
    lockkeeper/publish: acme/dns/aws 1.0.0: Success, Published from the tag modules/dns/v1.0.0.
    lockkeeper/publish: acme/lost/aws 1.0.0: Failure, the module in `lost` uses `../../elsewhere`, which is outside of the package; the module in `lost` uses `../gone`, which is not in the pack…
    lockkeeper/publish: acme/names/aws 1.0.0: Success, Published from the tag shared/names/v1.0.0.
    lockkeeper/publish: acme/odd/aws 1.0.0: Failure, the module in `an odd dir` uses modules outside of its directory, so its path becomes part of the package. It can have only letters, digits…
    ");
    // Files of the module and of what it uses, each at its place in the repository.
    let packed = site.files("module acme/dns/aws 1.0.0").await;
    let names = packed.lines().map(|line| line.split(": ").next().unwrap());
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "modules/db/main.tf",
            "modules/dns/main.tf",
            "modules/dns/modules/sub/main.tf",
            "shared/names/main.tf",
            "shared/names/size.txt",
        ]
    );
    // A module that stays in its directory has a package as before.
    let packed = site.files("module acme/names/aws 1.0.0").await;
    assert!(packed.starts_with("main.tf: "), "{packed}");

    // Another repository uses it.
    let flags = [("registry-anonymous-read", "true")];
    let server = site.admin.server(&site.bot.db, 2, &flags).await;
    let download = "/registry/v1/modules/acme/dns/aws/1.0.0/download";
    let download = server.get(download, "").await;
    let link = download.header("x-terraform-get");
    let start = "./module~modules~dns.tar.gz//modules/dns?expires=";
    assert!(link.starts_with(start), "{link}");
    let (registry, _listening) = listen(&server).await;
    let project = tempfile::tempdir().unwrap();
    let module = |name: &str, source: &str| {
        format!(
            "module \"{name}\" {{\n  source  = \"{HOST}/acme/{source}\"\n  version = \"~> 1.0\"\n}}\n\n\
             output \"{name}\" {{\n  value = module.{name}.size\n}}\n"
        )
    };
    let code = [
        module("dns", "dns/aws"),
        module("sub", "dns/aws//modules/sub"),
        module("names", "names/aws"),
    ];
    std::fs::write(project.path().join("main.tf"), code.concat()).unwrap();
    for args in [
        ["init", "-no-color", "-input=false"].as_slice(),
        &["validate", "-no-color"],
    ] {
        let _said = terraform(project.path(), &registry, args);
    }
    let plan = ["plan", "-no-color", "-input=false"];
    let said = terraform(project.path(), &registry, &plan);
    for line in [
        "+ dns   = \"42 names\"",
        "+ names = \"42 names\"",
        "+ sub   = \"42 names\"",
    ] {
        assert!(said.out.contains(line), "{}", said.out);
    }
    site.bot.end(&[]).await;
}

async fn default_branches_tell_which_modules_they_use(backend: Backend) {
    const REPO: &str = "acme/live";
    let call = |source: &str, version: &str| {
        format!("module \"x\" {{\n  source  = \"{source}\"\n  version = \"{version}\"\n}}\n")
    };
    let vpc = format!("{HOST}/acme/vpc/aws");
    let (exact, range) = (call(&vpc, "1.0.0"), call(&vpc, "~> 1.1"));
    let elsewhere = call("registry.terraform.io/acme/vpc/aws", "1.0.0");
    let go_mod = "module example.com/app\n\nrequire (\n\texample.com/net v1.0.0\n\texample.org/x v1.0.0 // indirect\n)\n";
    let files: [(&str, &str); 5] = [
        ("exact/main.tf", &exact),
        ("range/main.tf", &range),
        ("elsewhere/main.tf", &elsewhere),
        ("broken/main.tf", "module \"x\" {\n"),
        ("app/go.mod", go_mod),
    ];
    let flags = [("registry-host", HOST), ("mirror-filter", "blob:none")];
    let site = Site::open(backend, &[(REPO, &files)], &flags).await;
    let uses = |what: &str| {
        let said = lockkeeper(&["registry", "uses"], &site.bot.db.url, &[what], &[]);
        assert_eq!(said.code, 0, "{}", said.err);
        let head = site.commit(REPO, "main");
        said.out.replace(head.short(), "HEAD")
    };
    let read = async || site.bot.replica.tick("registry_branches").await.unwrap();
    site.turn().await;
    read().await;
    assert_snapshot!(uses("acme/vpc/aws"), @r"
    github.test/acme/live: dir: `exact` uses 1.0.0 (default branch at HEAD)
    github.test/acme/live: dir: `range` uses ~> 1.1 (default branch at HEAD)
    ");
    assert_snapshot!(uses("acme/vpc/aws@1.2.0"), @"github.test/acme/live: dir: `range` uses ~> 1.1 (default branch at HEAD)");
    assert_snapshot!(uses("example.com/net"), @"github.test/acme/live: dir: `app` uses v1.0.0 (default branch at HEAD)");
    // Nobody has this one here.
    assert_snapshot!(uses("example.org/x"), @"No latest plan of a project and no default branch uses example.org/x.");

    // A branch beside it changes nothing, and the default branch everything.
    let old = [("exact/main.tf", elsewhere.as_str())];
    site.push(REPO, "feature", &old).await;
    site.turn().await;
    read().await;
    assert!(uses("acme/vpc/aws").contains("`exact` uses 1.0.0"));
    let next = call(&vpc, "2.0.0");
    site.push(REPO, "main", &[("exact/main.tf", &next)]).await;
    site.turn().await;
    read().await;
    assert_snapshot!(uses("acme/vpc/aws"), @r"
    github.test/acme/live: dir: `exact` uses 2.0.0 (default branch at HEAD)
    github.test/acme/live: dir: `range` uses ~> 1.1 (default branch at HEAD)
    ");
    let said = lockkeeper(
        &["registry", "uses"],
        &site.bot.db.url,
        &["acme/vpc/aws@2.0.0", "--json"],
        &[],
    );
    let json = said.json();
    assert_eq!(json["used_by"], "default_branch");
    assert_eq!(
        (&json["dir"], &json["version"]),
        (&"exact".into(), &"2.0.0".into())
    );
    site.bot.end(&[]).await;
}
