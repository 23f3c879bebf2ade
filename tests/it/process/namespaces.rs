//! Tests of programs in the namespaces of bubblewrap. Another program starts them, but nothing else is different.

use std::path::Path;
use std::process::Stdio;

use lockkeeper::secret::Secret;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;
use crate::support::program::bwrap;
use crate::support::server::LOOK;

/// Returns a sandbox with everything that a shell needs.
fn namespaces() -> Sandbox {
    with_bwrap(&bwrap())
}

fn with_bwrap(bwrap: &Path) -> Sandbox {
    Sandbox::new(Mechanism::Bubblewrap(bwrap.to_owned())).reads([
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
    ])
}

/// Returns a script that works in this directory and may change it.
fn script_in(dir: &Path, script: &str) -> Cmd {
    sh(script)
        .dir(dir)
        .sandbox(Some(namespaces().writes([dir])))
}

#[tokio::test]
async fn exit_codes_and_signals_are_those_of_the_program() {
    for (script, code, signal) in [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("kill -TERM $$", 143, Some(15)),
        ("kill -KILL $$", 137, Some(9)),
    ] {
        let (lines, exit) = Run::start(sh(script).sandbox(Some(namespaces())), LONG)
            .finish()
            .await;
        assert_eq!(
            (exit.code, exit.signal, exit.how),
            (Some(code), signal, Ended::Finished),
            "{script}: {lines:?}"
        );
    }
}

#[tokio::test]
async fn cancel_is_polite_and_the_code_is_seen() {
    let script = "trap 'kill $!; echo saved; exit 5' INT; sleep 1000 & echo ready; wait";
    let mut run = Run::start(sh(script).sandbox(Some(namespaces())), LONG);
    assert_eq!(run.line().await, "ready");
    run.cancel.cancel();
    let (lines, exit) = run.finish().await;
    assert_eq!(lines, [(OutputStream::Out, "saved".into())]);
    assert_eq!((exit.code, exit.how), (Some(5), Ended::Cancelled));
}

#[tokio::test]
async fn a_polite_child_of_an_impatient_shell_gets_the_grace_period() {
    let (dir, gate) = gate();
    let child = "trap 'kill $!; echo saving; read x < gate; echo saved; exit' INT; sleep 1000 & echo ready; wait";
    std::fs::write(dir.path().join("child"), child).unwrap();
    let mut run = Run::start(script_in(dir.path(), "sh child; :"), LONG);
    assert_eq!(run.line().await, "ready");
    run.cancel.cancel();
    assert_eq!(run.line().await, "saving");
    gate.open();
    let (lines, exit) = run.finish().await;
    assert_eq!(lines, [(OutputStream::Out, "saved".into())]);
    assert_eq!(
        (exit.signal, exit.how),
        (Some(2), Ended::Cancelled),
        "the shell itself did not wait"
    );
}

#[tokio::test]
async fn a_program_that_ignores_sigint_is_killed_after_the_grace_period() {
    let script = "trap '' INT; echo ready; while :; do sleep 1000; done";
    let mut run = Run::start(
        sh(script).sandbox(Some(namespaces())),
        Duration::from_millis(200),
    );
    assert_eq!(run.line().await, "ready");
    run.cancel.cancel();
    let (_, exit) = run.finish().await;
    assert_eq!(
        (exit.code, exit.signal, exit.how),
        (Some(137), Some(9), Ended::Cancelled)
    );
    assert!(exit.duration >= Duration::from_millis(200));
}

/// Returns the number of threads of a supervisor, without the one that starts the program.
fn threads(supervisor: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{supervisor}/task")).unwrap();
    let names = tasks
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "lockkeeper").count()
}

/// In this test `bwrap` waits for the gate before it starts the program. It has reported its process group by then.
#[tokio::test]
async fn an_interrupt_that_comes_before_the_program_is_not_lost() {
    use std::os::unix::fs::PermissionsExt;

    let (dir, gate) = gate();
    let slow = dir.path().join("slow");
    let begin = format!(
        "exec {} --block-fd 9 \"$@\" 9<>{}",
        bwrap().display(),
        gate.0.display()
    );
    std::fs::write(&slow, format!("#!/bin/sh\necho $PPID\n{begin}\n")).unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = "trap 'kill $!; exit 5' INT; sleep 1000 & wait";
    let mut run = Run::start(sh(script).sandbox(Some(with_bwrap(&slow))), LONG);
    let supervisor = run.line().await;
    let before = threads(&supervisor);
    run.cancel.cancel();
    // The thread that holds the lifeline ends with the program.
    let interrupted = async {
        while threads(&supervisor) >= before {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LONG, interrupted)
        .await
        .expect("the end of the lifeline in time");
    // The pipe can be opened without a reader. The test then fails below.
    let mut pipe = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&gate.0)
        .unwrap();
    std::io::Write::write_all(&mut pipe, b"go\n").unwrap();
    let (lines, exit) = run.finish().await;
    assert!(
        matches!(exit.code, Some(5 | 130)),
        "it ended before the grace period: {exit:?} {lines:?}"
    );
    assert_eq!(exit.how, Ended::Cancelled);
}

#[tokio::test]
async fn nobody_outlives_the_run_even_in_a_session_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let hold = dir.path().join("hold");
    let script = "sleep 1000 & setsid -f sh -c 'echo $$; exec sleep 1000'; read x < gate";
    let (own, gate) = gate();
    let mut run = Run::start_holding(script_in(own.path(), script), LONG, Some(&hold));
    assert!(
        run.line().await.parse::<u32>().unwrap() < 100,
        "numbers begin anew in the namespace"
    );
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    gate.open();
    assert!(run.finish().await.1.is_success());
    // Every process had inherited the hold.
    drop(FileHold::exclusive(&hold, Duration::ZERO).await.unwrap());
}

/// Starts a supervisor. The test holds its lifeline, the pipe to its standard input.
fn supervised(dir: &Path, script: &str) -> tokio::process::Child {
    #[expect(
        clippy::disallowed_methods,
        reason = "the supervisor as a server would start it"
    )]
    let mut command = tokio::process::Command::new(LOCKKEEPER);
    command
        .args([
            "supervise",
            "--grace",
            "60",
            "--hold",
            "hold",
            "--bubblewrap",
        ])
        .arg(bwrap());
    for path in ["/usr", "/bin", "/lib", "/lib64"] {
        command.args(["--read", path]);
    }
    command
        .arg("--write")
        .arg(dir)
        .args(["--", "/bin/sh", "-c", script])
        .current_dir(dir);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().unwrap()
}

async fn first_line(child: &mut tokio::process::Child) -> String {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let line = tokio::time::timeout(LONG, lines.next_line())
        .await
        .expect("a line in time")
        .unwrap();
    line.expect("a line")
}

#[tokio::test]
async fn the_hold_stays_with_the_program_when_the_supervisor_itself_is_killed() {
    let (dir, gate) = gate();
    let hold = dir.path().join("hold");
    let mut supervisor = supervised(dir.path(), "echo ready; read x < gate; touch over");
    assert_eq!(first_line(&mut supervisor).await, "ready");
    supervisor.kill().await.unwrap();
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    gate.open();
    let _hold = FileHold::exclusive(&hold, LONG).await.unwrap();
    assert!(dir.path().join("over").exists());
}

#[tokio::test]
async fn losing_the_server_ends_the_program_politely() {
    let dir = tempfile::tempdir().unwrap();
    let hold = dir.path().join("hold");
    let script = "trap 'kill $!; echo saved > saved; exit' INT; sleep 1000 & echo ready; wait";
    let mut supervisor = supervised(dir.path(), script);
    assert_eq!(first_line(&mut supervisor).await, "ready");
    drop(supervisor.stdin.take());
    let _hold = FileHold::exclusive(&hold, LONG).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.path().join("saved")).unwrap(),
        "saved\n"
    );
}

#[tokio::test]
async fn environment_files_and_signals_are_handed_on_as_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let cmd = Cmd::new("/usr/bin/env").env("ONLY", "this").dir(dir.path());
    let (lines, _) = Run::start(cmd.sandbox(Some(namespaces().writes([dir.path()]))), LONG)
        .finish()
        .await;
    let lines: Vec<String> = lines.into_iter().map(|line| line.1).collect();
    assert_eq!(
        lines,
        [
            "ONLY=this".to_owned(),
            format!("PWD={}", dir.path().display())
        ],
        "bwrap tells where it is"
    );

    let probe = sh("readlink /proc/self/fd/0; ls /proc/self/fd");
    let direct = probe.output().await.unwrap();
    let (lines, _) = Run::start(probe.sandbox(Some(namespaces())), LONG)
        .finish()
        .await;
    let lines: Vec<String> = lines.into_iter().map(|line| line.1).collect();
    assert_eq!(lines, direct.stdout.text().lines().collect::<Vec<_>>());

    let probe = Cmd::new("/bin/grep").args([
        "-E",
        "^(Sig(Blk|Ign)|Cap(Prm|Eff|Bnd|Amb))",
        "/proc/self/status",
    ]);
    let (lines, _) = Run::start(probe.sandbox(Some(namespaces())), LONG)
        .finish()
        .await;
    let stop = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGPIPE,
    ];
    let stop: u64 = stop
        .into_iter()
        .map(|signal| 1 << (signal as i32 - 1))
        .sum();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for (_, line) in lines {
        let bits = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        let forbidden = if line.starts_with("Sig") {
            stop
        } else {
            u64::MAX
        };
        assert_eq!(bits & forbidden, 0, "{line}");
    }
}

#[tokio::test]
async fn nothing_exists_but_what_is_allowed_and_nothing_is_kept_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["own", "own/inner", "other", "shown", "shown/writable"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("file"), format!("of {name}\n")).unwrap();
    }
    std::os::unix::fs::symlink(dir.path().join("other/file"), dir.path().join("own/link")).unwrap();
    std::os::unix::fs::symlink("own", dir.path().join("way")).unwrap();
    let place = |name: &str| dir.path().join(name);
    let sandbox = namespaces()
        .writes([place("way"), place("shown/writable")])
        .reads([place("shown"), place("own/inner"), "/nowhere".into()]);
    let script = format!(
        "cd {}; try() {{ if \"$@\" 2>/dev/null; then :; else echo \"denied: $*\"; fi; }}\n\
         try ls .; try cat own/file; try cat way/file; try cat shown/file; try cat other/file; try cat own/link\n\
         try cp own/file own/new; try mv own/new way/moved; try rm own/moved; try cp own/file own/inner/new\n\
         try cp own/file shown/writable/new; try cp own/file shown/new; try rm other/file\n\
         try cp own/file new; try cp own/file /new; try cp own/file /tmp/new; try cp own/file /dev/new\n\
         try cp own/file /dev/shm/new; try ls /tmp; try ls /root; try ls /etc/shadow\n\
         try sh -c ': >>/proc/sys/kernel/core_pattern'; try sh -c ': >>/proc/sysrq-trigger'\n\
         try sh -c ': >>/proc/irq/default_smp_affinity'\n\
         try eval 'echo x >/dev/null'; try eval 'head -c 1 /dev/urandom >/dev/null'",
        dir.path().display()
    );
    let (lines, _) = Run::start(sh(&script).sandbox(Some(sandbox)), LONG)
        .finish()
        .await;
    let lines: Vec<String> = lines.into_iter().map(|line| line.1).collect();
    // The directory of the test may itself be in one of the directories in which nothing may be created.
    let expected = "own | shown | way | of own | of own | of shown | denied: cat other/file | denied: cat own/link | \
                    denied: cp own/file shown/new | denied: rm other/file | denied: cp own/file new | \
                    denied: cp own/file /new | denied: cp own/file /tmp/new | denied: cp own/file /dev/new | \
                    denied: cp own/file /dev/shm/new | denied: ls /root | denied: ls /etc/shadow | \
                    denied: sh -c : >>/proc/sys/kernel/core_pattern | denied: sh -c : >>/proc/sysrq-trigger | \
                    denied: sh -c : >>/proc/irq/default_smp_affinity";
    assert_eq!(lines, expected.split(" | ").collect::<Vec<_>>());
    assert!(place("shown/writable/new").exists() && place("own/inner/new").exists());
}

#[tokio::test]
async fn limits_hold_in_it() {
    let limits = RunLimits {
        file_size: Some(1 << 20),
        cpu: Some(Duration::from_secs(1)),
        ..RunLimits::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let run =
        |script: &str| Run::start(script_in(dir.path(), script).limits(limits), LONG).finish();
    let (mut lines, exit) =
        run("head -c 4000000 /dev/zero >file; ls -l file | tr -s ' ' | cut -d ' ' -f 5").await;
    // The complaint of the shell comes before or after the size.
    lines.retain(|(stream, _)| *stream == OutputStream::Out);
    assert_eq!(lines, [(OutputStream::Out, "1048576".into())]);
    assert_eq!(exit.code, Some(0));
    let (_, exit) = run("while :; do :; done").await;
    assert_eq!(
        (exit.signal, limits.reached(exit.signal, "")),
        (Some(24), Some(ReachedLimit::Cpu))
    );
}

#[tokio::test]
async fn short_calls_and_dialogues_are_confined_and_are_told_their_secret() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    let script = format!(
        "read -r x; echo \"$x\"; cat {path} 2>/dev/null || echo denied; printf get >&3 && dd bs=99 count=1 <&3 2>/dev/null; echo"
    );
    let cmd = sh(&script)
        .sandbox(Some(namespaces()))
        .secret(Secret::new("hunter2"));
    let output = cmd.clone().input("asked\n").output().await.unwrap();
    assert_eq!(
        output.stdout.text(),
        "asked\ndenied\nhunter2\n",
        "{}",
        output.stderr.text()
    );
    let mut dialogue = cmd.dialogue().unwrap();
    dialogue.send(b"asked\n").await.unwrap();
    for line in ["asked", "denied", "hunter2"] {
        assert_eq!(
            dialogue.line(100).await.unwrap().as_deref(),
            Some(line.as_bytes())
        );
    }
    assert_eq!(dialogue.end().await.unwrap().code, Some(0));
}

#[tokio::test]
async fn the_deadline_ends_a_short_call_and_lets_it_clean_up() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap 'echo clean > done; exit' TERM; sleep 1000 & wait";
    let error = script_in(dir.path(), script)
        .deadline(Duration::from_secs(2))
        .output()
        .await
        .unwrap_err();
    assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
    assert_eq!(
        std::fs::read_to_string(dir.path().join("done")).unwrap(),
        "clean\n"
    );
}

#[tokio::test]
async fn a_short_call_is_limited_before_it_gets_its_input() {
    let limits = RunLimits {
        cpu: Some(Duration::from_secs(20)),
        ..RunLimits::default()
    };
    let cmd = sh("read go; ulimit -t; sh -c 'ulimit -t'").sandbox(Some(namespaces()));
    let output = cmd.limits(limits).input("go\n").output().await.unwrap();
    assert_eq!(output.stdout.text(), "20\n20\n", "{}", output.stderr.text());
}
