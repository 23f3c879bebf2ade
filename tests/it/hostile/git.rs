//! Attacks on git's credentials, and on mirrors that programs of pull requests write into.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use lockkeeper::emulator::Fault;

use super::ordinary;
use crate::e2e::world::{REPO, World, resource};
use crate::support::server::{BOT, HOST, TOKEN, within};

/// Route of every list of references, and of every fetch.
const TALK: &str = "POST /acme/infra.git/git-upload-pack";

/// Returns everything that `/proc` shows of a process and its threads to other processes of the same user.
fn shown_by_proc(id: i32) -> String {
    let read = |file: &str| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default())
            .into_owned()
    };
    let links = std::fs::read_dir(format!("/proc/{id}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    // Files of memory or of a disk can be opened again there, and reading does not consume them.
    let files = links.filter(|link| {
        std::fs::metadata(link.path()).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 20)
    });
    let files: Vec<String> = files
        .map(|file| {
            String::from_utf8_lossy(&std::fs::read(file.path()).unwrap_or_default()).into_owned()
        })
        .collect();
    format!(
        "{}\n{}\n{}",
        read("environ"),
        read("cmdline"),
        files.join("\n")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_cannot_be_read_while_git_fetches_with_it() {
    let world =
        World::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("a", "1");
    world.github.fault(TALK, 1, Fault::Hang);
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    within("a fetch that hangs", world.github.hanging(1)).await;
    let children = world.server.children();
    assert!(
        children
            .iter()
            .any(|(_, line)| line.contains("remote-http")),
        "{children:?}"
    );
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{BOT}:{TOKEN}"));
    for (id, line) in &children {
        let shown = shown_by_proc(*id);
        assert!(
            ![TOKEN, &basic].iter().any(|secret| shown.contains(*secret)),
            "the token is shown by {id}: {line}"
        );
    }
    world.github.clear_faults();
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    world.finish(&["#1 . default"]).await;
}

fn mirror_of(world: &World) -> PathBuf {
    world
        .server
        .data_dir()
        .join(format!("mirrors/{HOST}/{REPO}.git"))
}

/// Writes a filter as a plan of another repository could. The filter leaves a mark when it runs.
fn plant_filter(mirror: &Path, mark: &Path) {
    let config = std::fs::read_to_string(mirror.join("config")).unwrap();
    let smudge = format!("touch {}; sed s/honest/tampered/", mark.display());
    std::fs::write(
        mirror.join("config"),
        format!("{config}[filter \"x\"]\n\tsmudge = \"{smudge}\"\n"),
    )
    .unwrap();
    std::fs::create_dir_all(mirror.join("info")).unwrap();
    std::fs::write(mirror.join("info/attributes"), "*.tf filter=x\n").unwrap();
}

/// Removes the checkouts, so that the next run needs another one.
fn remove_checkouts(world: &World) {
    std::fs::remove_dir_all(
        world
            .server
            .data_dir()
            .join(format!("checkouts/{HOST}/{REPO}")),
    )
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_in_the_mirror_of_another_repository_changes_no_code() {
    let world =
        World::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("a", "\"honest, reviewed\"");
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");

    // A sync after this moment would find the planted filter and replace the mirror.
    world
        .server
        .logged("A mirror is in sync repo=github.test/acme/infra refs=3")
        .await;
    let (mirror, mark) = (mirror_of(&world), world.dir.path().join("filter-ran"));
    plant_filter(&mirror, &mark);
    world.server.owns(&mirror);
    remove_checkouts(&world);
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused (altered_mirror)")
        .says("another program changed the files of the repository")
        .says("`config`");
    assert_eq!(
        (world.server.calls("apply").len(), mark.exists()),
        (0, false)
    );
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    assert!(
        !mark.exists()
            && world
                .files()
                .state("root", None)
                .contains("honest, reviewed")
    );

    let changed = world.files().backend("root") + &resource("a", "\"honest, again\"");
    plant_filter(&mirror, &mark);
    world.server.owns(&mirror);
    world.push("feature", "main.tf", &changed).await;
    let said = world.answer(pull).await;
    // A sync may have been faster and have replaced the mirror.
    let is_refused = said.outcome() == "autoplan refused (altered_mirror)";
    let said = if is_refused {
        world.ask(pull, "lockkeeper plan").await
    } else {
        said
    };
    said.says("honest, again");
    assert!(
        !mark.exists() && !said.text.contains("tampered"),
        "{}",
        said.text
    );
    world.finish(&["#1 . default"]).await;
}

/// git does not compare the objects on its own disk with their names. A program that can write there replaces one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_replaced_in_the_mirror_changes_no_code() {
    let world =
        World::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("a", "\"honest, reviewed\"");
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");

    let forged = code.replace("honest", "forged");
    let script = r#"
        id=$(git rev-parse "$HEAD:main.tf"); file=$(printf %s "$id" | sed 's,^..,&/,')
        for pack in objects/pack/*.pack; do
          mv "$pack" tmp.pack; rm -f "${pack%.pack}".*; git unpack-objects -q <tmp.pack; rm -f tmp.pack
        done
        other=$(printf %s "$FORGED" | git hash-object -w --stdin); from=$(printf %s "$other" | sed 's,^..,&/,')
        chmod u+w "objects/$file"; cp -f "objects/$from" "objects/$file"
        git cat-file blob "$id" | grep -q forged"#;
    let head = world.head(pull).to_string();
    // The mirror belongs to the user of the server.
    let config = [
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
    ];
    let own = [
        ("HEAD", head.as_str()),
        ("FORGED", forged.as_str()),
        ("HOME", "/dev/null"),
    ];
    let variables = [&own[..], &config].concat();
    let said = crate::support::program::run("sh", &mirror_of(&world), &["-ec", script], &variables);
    assert_eq!(said.code, 0, "{}", said.err);
    world.server.owns(&mirror_of(&world));
    remove_checkouts(&world);
    let said = world.ask(pull, "lockkeeper apply").await;
    said.is("apply refused | . default refused")
        .says("`main.tf` in the checkout differs from the commit");
    world
        .ask(pull, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    let state = world.files().state("root", None);
    assert!(
        state.contains("honest, reviewed") && !state.contains("forged"),
        "{state}"
    );
    world.finish(&["#1 . default"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_can_read_what_the_server_writes() {
    let mut world =
        World::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    let code = world.files().backend("root") + &resource("a", "1");
    let pull = world.open("feature", &[("main.tf", &code)]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default planned");
    let data = world.server.data_dir();
    let mode = |name: &str| {
        std::fs::metadata(data.join(name)).map(|meta| meta.permissions().mode() & 0o777)
    };
    let files = [
        "lockkeeper.db",
        "lockkeeper.db-wal",
        "lockkeeper.db-shm",
        "replica-id",
    ];
    for name in files
        .iter()
        .chain(&["lockkeeper.lock", "mirrors", "checkouts"])
    {
        assert_eq!(mode(name).unwrap() & 0o077, 0, "{name}");
    }
    // An earlier release left its files with these modes.
    world.server.kill9().await;
    world.server.alone().await;
    for name in ["lockkeeper.db", "replica-id"] {
        std::fs::set_permissions(data.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.server.restart().await;
    for name in files {
        assert_eq!(mode(name).unwrap(), 0o600, "{name}");
    }
    let warned = world.server.logged("can read the data directory").await;
    assert!(
        warned.contains("mode 0755") && warned.contains("chmod 700"),
        "{warned}"
    );
    world.finish(&["#1 . default"]).await;
}

/// A pull request with an object that `git fsck` refuses gets a comment with the reason. It does not stop any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_request_that_fails_fsck_is_told_why_and_the_others_go_on() {
    let world =
        World::start_with(ordinary(), |files| vec![("main.tf", files.backend("root"))]).await;
    // Some file systems treat this name as `.git`.
    let bad = world
        .open("bad", &[(".g\u{200c}it", "x"), ("main.tf", "# changed\n")])
        .await;
    let said = world.answer(bad).await;
    said.is("autoplan refused (fsck)")
        .says("hasDotgit")
        .says("push the branch without it");
    let code = world.files().backend("root") + &resource("it", "1");
    let good = world.open("good", &[("main.tf", &code)]).await;
    world
        .answer(good)
        .await
        .is("autoplan success | . default planned");
    world
        .ask(good, "lockkeeper apply")
        .await
        .is("apply success | . default applied");
    world.push("bad", "more.tf", "# still bad\n").await;
    world.answer(bad).await.is("autoplan refused (fsck)");
    world.finish(&["#2 . default"]).await;
}
