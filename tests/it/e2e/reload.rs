//! Stories in which the server reads the files of `--repo-config` and `--web-accounts-file` again on request
//! (SIGHUP), with real signals and logs.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;

use super::world::World;
use crate::support::server::{LOOK, Settings, within};

const OFF: &str = "repos:\n- id: /.*/\n  repo_locks: {mode: disabled}\n";
const ON: &str = "repos:\n- id: /.*/\n  repo_locks: {mode: on_plan}\n";
const BROKEN: &str = "repos:\n- id: /.*/\n  repo_lcks: {}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_has_the_file_of_repositories_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("repos.yaml");
    std::fs::write(&file, OFF).unwrap();
    let settings = Settings::default().flag(&format!("--repo-config={}", file.display()));
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let pull = world.open("feature", &[("main.tf", "# changed\n")]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default no_changes");
    assert_eq!(world.locks().await, [""; 0]);

    std::fs::write(&file, BROKEN).unwrap();
    world.server.signal(Signal::SIGHUP);
    world
        .server
        .logged("is refused; the previous content stays in effect")
        .await;
    world.server.logged("--> ").await;
    assert!(
        world.server.log().contains(&file.display().to_string()),
        "{}",
        world.server.log()
    );
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default no_changes");
    assert_eq!(world.locks().await, [""; 0], "the old one holds");

    std::fs::write(&file, ON).unwrap();
    world.server.signal(Signal::SIGHUP);
    world
        .server
        .logged("has changed and is in effect for new commands")
        .await;
    world
        .ask(pull, "lockkeeper plan")
        .await
        .is("plan success | . default no_changes");

    // The server notices a changed file without a signal, too.
    std::fs::write(&file, OFF).unwrap();
    let twice = || {
        world
            .server
            .log()
            .matches("has changed and is in effect for new commands")
            .count()
            == 2
    };
    within("a look at the file", async {
        while !twice() {
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
    world.finish(&["#1 . default"]).await;
}

const KIM: &str = "user=kim owners=net allow=all password=kims-password-of-kim\n";
const LEE: &str = "user=lee owners=net allow=all password=lees-password-of-lee\n";

/// Writes a file as an editor does: a new file replaces the old one, and nobody else may read it.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    let mut file = std::fs::File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new)
        .unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_has_the_file_of_accounts_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("accounts");
    put(&file, KIM);
    let settings = Settings::default()
        .flag("--web-basic-auth")
        .flag("--web-username=ops");
    let settings = settings.variable("LOCKKEEPER_WEB_PASSWORD", "correct horse battery");
    let settings = settings.flag(&format!("--web-accounts-file={}", file.display()));
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let pull = world.open("feature", &[("main.tf", "# changed\n")]).await;
    world
        .answer(pull)
        .await
        .is("autoplan success | . default no_changes");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let asked = async |path: &str, user: &str, password: &str| {
        let request = client
            .get(format!("{}{path}", world.server.url()))
            .basic_auth(user, Some(password));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(asked("/", "kim", "kims-password-of-kim").await.0, 200);
    assert_eq!(asked("/", "lee", "lees-password-of-lee").await.0, 401);

    put(&file, &format!("{LEE}user=kim owners=net\n"));
    world.server.signal(Signal::SIGHUP);
    let line = world
        .server
        .logged("--web-accounts-file is refused; the previous content stays in effect")
        .await;
    assert!(
        line.contains(&file.display().to_string())
            && line.contains("line 2: write either `password=` or `account=`"),
        "{line}"
    );
    assert_eq!(
        asked("/", "kim", "kims-password-of-kim").await.0,
        200,
        "the old one is in force"
    );
    assert_eq!(asked("/", "lee", "lees-password-of-lee").await.0, 401);
    let (_, page) = asked("/operations", "ops", "correct horse battery").await;
    assert!(
        page.contains(" is invalid:") && page.contains("line 2: "),
        "{page}"
    );

    put(&file, LEE);
    world.server.signal(Signal::SIGHUP);
    world
        .server
        .logged("has changed and is in effect for new requests")
        .await;
    assert_eq!(
        asked("/", "kim", "kims-password-of-kim").await.0,
        401,
        "whoever is gone is out at once"
    );
    assert_eq!(asked("/", "lee", "lees-password-of-lee").await.0, 200);

    // The server notices a changed file without a signal, too. It refuses a file that others may read.
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    world
        .server
        .logged("users other than its owner may read or change it")
        .await;
    assert_eq!(asked("/", "lee", "lees-password-of-lee").await.0, 200);
    assert!(
        !world.server.log().contains("-password-of-"),
        "{}",
        world.server.log()
    );
    world.finish(&["#1 . default"]).await;
}
