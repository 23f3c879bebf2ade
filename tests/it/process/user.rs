//! Tests of programs that run as another user than the server. Only root can start them.

use lockkeeper::model::RunUser;

use super::*;
use crate::support::program::bwrap;

const USER: RunUser = RunUser {
    uid: 4343,
    gid: 4344,
};

fn needs_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test starts a program of another user, and needs root for that"
    );
}

fn namespaces() -> Sandbox {
    Sandbox::new(Mechanism::Bubblewrap(bwrap())).reads([
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
    ])
}

#[tokio::test]
async fn a_program_is_that_user_and_nobody_else() {
    needs_root();
    let secret = tempfile::NamedTempFile::new().unwrap();
    let script = format!(
        "id -u; id -g; id -G; grep -E '^(Cap(Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status | tr -d '\\t'; exec 2>/dev/null\n\
         kill -0 {server} || echo no signal; cat /proc/{server}/environ || echo no look; cat {secret} || echo no file\n\
         [ $PPID = 1 ] || kill -0 $PPID || echo no signal to the supervisor",
        server = std::process::id(),
        secret = secret.path().display()
    );
    let none = "0".repeat(16);
    let expected = format!(
        "4343 4344 4344 CapPrm:{none} CapEff:{none} CapAmb:{none} NoNewPrivs:1 no_signal no_look no_file"
    );
    for (sandbox, has_supervisor) in [
        (None, true),
        (Some(landlocked()), true),
        (Some(namespaces()), false),
    ] {
        let cmd = sh(&script)
            .sandbox(sandbox.clone())
            .user(Some(USER))
            .dir("/");
        let (lines, exit) = Run::start(cmd, LONG).finish().await;
        let mut lines: Vec<String> = lines
            .into_iter()
            .map(|(_, line)| line.replace(' ', "_"))
            .collect();
        let of_supervisor = lines
            .pop_if(|line| line == "no_signal_to_the_supervisor")
            .is_some();
        assert_eq!(
            (lines.join(" "), of_supervisor),
            (expected.clone(), has_supervisor),
            "{sandbox:?} {exit:?}"
        );
    }
}

#[tokio::test]
async fn its_end_is_as_polite_and_as_sure() {
    needs_root();
    let script = "trap 'kill $!; echo saved; exit 5' INT; setsid -f sleep 1000; sleep 1000 & echo ready; wait";
    for sandbox in [None, Some(landlocked()), Some(namespaces())] {
        let dir = tempfile::tempdir().unwrap();
        let hold = dir.path().join("hold");
        let cmd = sh(script).sandbox(sandbox).user(Some(USER)).dir("/");
        let mut run = Run::start_holding(cmd, Duration::from_secs(1), Some(&hold));
        assert_eq!(run.line().await, "ready");
        run.cancel.cancel();
        let (lines, exit) = run.finish().await;
        assert_eq!(lines, [(OutputStream::Out, "saved".into())]);
        assert_eq!((exit.code, exit.how), (Some(5), Ended::Cancelled));
        drop(FileHold::exclusive(&hold, Duration::ZERO).await.unwrap());
    }
}
