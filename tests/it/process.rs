//! Tests of supervised runs with real processes. No test waits for time to pass: every step follows an event (a line
//! of output, the end of a run, a lock that is released).

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::{join, join_all};
use lockkeeper::process::{
    Cmd, Ended, FileHold, LeaseHeartbeat, Mechanism, OutputLine, OutputStream, ProcessError,
    ReachedLimit, RunExit, RunLimits, Sandbox, Supervisor,
};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

mod namespaces;
mod user;

const LOCKKEEPER: &str = env!("CARGO_BIN_EXE_lockkeeper");
/// Time limit far above the duration of any test. A test that reaches it has failed.
const LONG: Duration = Duration::from_mins(1);

fn supervisor(grace: Duration) -> Supervisor {
    Supervisor {
        exe: LOCKKEEPER.into(),
        grace,
        heartbeat: LeaseHeartbeat::unneeded(),
    }
}

fn sh(script: &str) -> Cmd {
    Cmd::new("sh")
        .env("PATH", "/usr/bin:/bin")
        .args(["-c", script])
        .deadline(LONG)
}

// Scripts that trap a signal wait with `wait`: a shell acts on a trap only between commands and inside of `wait`.

/// A run in the background and its lines.
struct Run {
    lines: mpsc::Receiver<OutputLine>,
    cancel: CancellationToken,
    end: tokio::task::JoinHandle<Result<RunExit, ProcessError>>,
}

impl Run {
    fn start(cmd: Cmd, grace: Duration) -> Self {
        Self::start_holding(cmd, grace, None)
    }

    fn start_holding(cmd: Cmd, grace: Duration, hold: Option<&Path>) -> Self {
        Self::start_under(cmd, &supervisor(grace), hold)
    }

    fn start_under(cmd: Cmd, supervisor: &Supervisor, hold: Option<&Path>) -> Self {
        let (sender, lines) = mpsc::channel(4);
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let mut run = cmd.supervised(supervisor);
        if let Some(hold) = hold {
            run = run.hold(hold);
        }
        let end = tokio::spawn(async move { run.run(sender, &token).await });
        Self { lines, cancel, end }
    }

    /// Waits for the next line of standard output or error.
    async fn line(&mut self) -> String {
        tokio::time::timeout(LONG, self.lines.recv())
            .await
            .expect("a line in time")
            .expect("a line")
            .text
    }

    /// Waits for the end. Returns all remaining lines.
    async fn finish(mut self) -> (Vec<(OutputStream, String)>, RunExit) {
        let mut all = Vec::new();
        while let Some(line) = tokio::time::timeout(LONG, self.lines.recv())
            .await
            .expect("the end in time")
        {
            all.push((line.stream, line.text));
        }
        (all, self.end.await.unwrap().unwrap())
    }
}

/// A named pipe that a script waits for with `read x < gate`, in its own directory.
struct Gate(PathBuf);

fn gate() -> (tempfile::TempDir, Gate) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    (dir, Gate(path))
}

impl Gate {
    /// Lets the script go on, and waits until it reads.
    fn open(self) {
        std::fs::write(self.0, "go\n").unwrap();
    }
}

/// Returns true if a process still exists. A zombie does not count.
fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

#[tokio::test]
async fn lines_of_both_streams_arrive_in_order_with_the_exit_code() {
    let run = Run::start(
        sh("for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf end; exit 7"),
        LONG,
    );
    let (lines, exit) = run.finish().await;
    let of = |stream| {
        lines
            .iter()
            .filter(|l| l.0 == stream)
            .map(|l| l.1.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(OutputStream::Out), ["out 1", "out 2", "out 3", "end"]);
    assert_eq!(of(OutputStream::Err), ["err 1", "err 2", "err 3"]);
    assert_eq!(
        (exit.code, exit.signal, exit.how),
        (Some(7), None, Ended::Finished)
    );
}

#[tokio::test]
async fn a_program_ended_by_a_signal_says_which() {
    let (_, exit) = Run::start(sh("kill -TERM $$"), LONG).finish().await;
    assert_eq!(
        (exit.code, exit.signal, exit.how),
        (Some(143), Some(15), Ended::Finished)
    );
}

#[tokio::test]
async fn a_long_line_is_split_and_not_lost() {
    let (lines, _) = Run::start(
        sh("head -c 150000 /dev/zero | tr '\\0' x; echo; echo next"),
        LONG,
    )
    .finish()
    .await;
    let sizes: Vec<usize> = lines.iter().map(|line| line.1.len()).collect();
    assert_eq!(sizes, [65536, 65536, 150_000 - 2 * 65536, 4]);
}

#[tokio::test]
async fn output_beyond_the_cap_is_announced_once_and_does_not_block_the_program() {
    let (lines, exit) = Run::start(sh("yes 123456789 | head -n 100000").cap(100), LONG)
        .finish()
        .await;
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[9], (OutputStream::Out, "123456789".into()));
    assert_eq!(
        lines[10],
        (
            OutputStream::Notice,
            "The output is longer than 100 bytes. The rest is not stored.".into()
        )
    );
    assert!(exit.is_success());
}

#[tokio::test]
async fn a_receiver_that_went_away_does_not_stop_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, lines) = mpsc::channel(1);
    drop(lines);
    let run = sh("yes | head -n 100000; echo done > done")
        .dir(dir.path())
        .supervised(&supervisor(LONG));
    assert!(
        run.run(sender, &CancellationToken::new())
            .await
            .unwrap()
            .is_success()
    );
    assert!(dir.path().join("done").exists());
}

#[tokio::test]
async fn the_environment_is_only_what_was_given() {
    let (lines, _) = Run::start(Cmd::new("/usr/bin/env").env("ONLY", "this"), LONG)
        .finish()
        .await;
    assert_eq!(lines, [(OutputStream::Out, "ONLY=this".into())]);
}

#[tokio::test]
async fn the_supervisor_hands_on_no_file_of_its_own() {
    let probe = sh("readlink /proc/self/fd/0; ls /proc/self/fd");
    let direct = probe.output().await.unwrap();
    let (lines, _) = Run::start(probe, LONG).finish().await;
    let lines: Vec<String> = lines.into_iter().map(|line| line.1).collect();
    assert_eq!(lines, direct.stdout.text().lines().collect::<Vec<_>>());
    assert_eq!(lines[0], "/dev/null");
}

#[tokio::test]
async fn the_program_can_hear_every_signal_that_asks_it_to_stop() {
    let probe = Cmd::new("/bin/grep").args(["-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
    let (lines, _) = Run::start(probe, LONG).finish().await;
    assert_eq!(lines.len(), 2);
    for (_, line) in lines {
        let bits = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGPIPE,
        ] {
            assert_eq!(bits & (1 << (signal as i32 - 1)), 0, "{signal}: {line}");
        }
    }
}

#[tokio::test]
async fn cancel_is_polite_and_the_code_is_seen() {
    let mut run = Run::start(
        sh("trap 'kill $!; echo saved; exit 5' INT; sleep 1000 & echo ready; wait"),
        LONG,
    );
    assert_eq!(run.line().await, "ready");
    run.cancel.cancel();
    let (lines, exit) = run.finish().await;
    assert_eq!(lines, [(OutputStream::Out, "saved".into())]);
    assert_eq!((exit.code, exit.how), (Some(5), Ended::Cancelled));
}

#[tokio::test]
async fn the_deadline_is_polite_too() {
    let script = "trap 'kill $!; exit 5' INT; sleep 1000 & wait";
    let (_, exit) = Run::start(sh(script).deadline(Duration::from_secs(2)), LONG)
        .finish()
        .await;
    assert_eq!((exit.code, exit.how), (Some(5), Ended::TimedOut));
}

#[tokio::test]
async fn a_program_that_ignores_sigint_is_killed_after_the_grace_period() {
    let script = "trap '' INT; echo ready; while :; do sleep 1000; done";
    let mut run = Run::start(sh(script), Duration::from_millis(200));
    assert_eq!(run.line().await, "ready");
    run.cancel.cancel();
    let (_, exit) = run.finish().await;
    assert_eq!(
        (exit.code, exit.signal, exit.how),
        (Some(137), Some(9), Ended::Cancelled)
    );
    assert!(exit.duration >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_starts_does_not_start() {
    let (sender, _lines) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let exit = sh("exit 0")
        .supervised(&supervisor(LONG))
        .run(sender, &cancel)
        .await
        .unwrap();
    assert_eq!((exit.code, exit.how), (None, Ended::Cancelled));
}

#[tokio::test]
async fn grandchildren_do_not_outlive_the_run_even_in_a_session_of_their_own() {
    let (dir, gate) = gate();
    let script = "sleep 1000 & echo $!; setsid -f sh -c 'echo $$; exec sleep 1000'; read x < gate";
    let mut run = Run::start(sh(script).dir(dir.path()), LONG);
    let pids = [run.line().await, run.line().await];
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    gate.open();
    assert!(run.finish().await.1.is_success());
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
}

/// A person may start the server in a terminal. If a program types into that terminal, their shell would run it.
#[tokio::test]
async fn a_run_has_no_terminal() {
    let script = r#"
import os, pty, subprocess, sys
pid, terminal = pty.fork()
if pid == 0:
    asks = "try:\n    open('/dev/tty')\n    print('HAS ONE')\nexcept OSError as error:\n    print('has none:', error.errno)\n"
    supervise = [sys.argv[1], "supervise", "--grace", "1", "--", sys.executable, "-c", asks]
    lifeline, end = os.pipe()
    subprocess.Popen(supervise, stdin=lifeline, preexec_fn=lambda: os.setpgid(0, 0)).wait()
    os._exit(0)
said = b""
try:
    while chunk := os.read(terminal, 4096):
        said += chunk
except OSError:
    pass
print(said.decode())
"#;
    let cmd = Cmd::new("python3")
        .env("PATH", "/usr/bin:/bin")
        .args(["-c", script, LOCKKEEPER])
        .deadline(LONG);
    let output = cmd.output().await.unwrap();
    assert_eq!(
        output.stdout.text().trim(),
        format!("has none: {}", nix::libc::ENXIO),
        "{}",
        output.stderr.text()
    );
}

#[tokio::test]
async fn a_polite_child_of_an_impatient_shell_gets_the_grace_period() {
    let (dir, gate) = gate();
    let child = "trap 'kill $!; echo saving; read x < gate; echo saved; exit' INT; sleep 1000 & echo ready; wait";
    std::fs::write(dir.path().join("child"), child).unwrap();
    let mut run = Run::start(sh("sh child; :").dir(dir.path()), LONG);
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
async fn a_missing_program_is_an_error_and_not_an_exit_code() {
    let (sender, _lines) = mpsc::channel(1);
    let run = Cmd::new("no-such-terraform")
        .env("PATH", "/usr/bin:/bin")
        .supervised(&supervisor(LONG));
    let error = run
        .run(sender, &CancellationToken::new())
        .await
        .unwrap_err();
    insta::assert_snapshot!(error, @r#"the program "no-such-terraform" was not found or is not executable (searched: /usr/bin:/bin)"#);
}

/// The file lies outside of the checkout of a run.
#[tokio::test]
async fn a_run_cannot_write_to_the_hold_that_it_inherits() {
    let dir = tempfile::tempdir().unwrap();
    let hold = dir.path().join("hold");
    let script = format!(
        "for file in /proc/self/fd/*; do [ \"$(readlink \"$file\")\" = '{}' ] && number=${{file##*/}}; done\n\
         echo \"inherited: ${{number:+yes}}\"; echo x 2>&- >&$number || echo refused",
        hold.display()
    );
    let run = Run::start_holding(sh(&script).dir(dir.path()), LONG, Some(&hold));
    let (lines, _) = run.finish().await;
    let said: Vec<&str> = lines.iter().map(|line| line.1.as_str()).collect();
    assert!(
        said.contains(&"inherited: yes") && said.contains(&"refused"),
        "{said:?}"
    );
    assert_eq!(std::fs::read(&hold).unwrap(), b"");
}

#[tokio::test]
async fn the_hold_is_released_only_after_the_last_process_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let hold = dir.path().join("hold");
    let script = "trap 'kill $!; echo saved > saved; exit' INT; sleep 1000 & echo ready; wait";
    let mut run = Run::start_holding(sh(script).dir(dir.path()), LONG, Some(&hold));
    assert_eq!(run.line().await, "ready");
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    // The future is dropped, as in a server that gives up. The end can only be observed through the hold.
    run.end.abort();
    let _hold = FileHold::exclusive(&hold, LONG).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.path().join("saved")).unwrap(),
        "saved\n"
    );
}

#[tokio::test]
async fn the_hold_stays_with_the_program_when_the_supervisor_itself_is_killed() {
    let (dir, gate) = gate();
    let hold = dir.path().join("hold");
    let script = "echo $PPID; read x < gate; touch over";
    let mut run = Run::start_holding(sh(script).dir(dir.path()), LONG, Some(&hold));
    let supervisor = run.line().await;
    assert!(
        sh(&format!("kill -9 {supervisor}"))
            .output()
            .await
            .unwrap()
            .is_success()
    );
    assert_eq!(run.finish().await.1.code, None);
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    gate.open();
    let _hold = FileHold::exclusive(&hold, LONG).await.unwrap();
    assert!(dir.path().join("over").exists());
}

/// A lock belongs to an open file, and every process that inherited the open file can release it.
#[tokio::test]
async fn a_program_that_unlocks_what_it_inherited_does_not_free_the_hold() {
    let (dir, gate) = gate();
    let hold = dir.path().join("hold");
    let script = "trap 'kill $!; read x < gate; touch over; exit' INT; \
                  for fd in /proc/self/fd/*; do \
                  if [ $fd -ef hold ]; then flock -u ${fd##*/} && echo unlocked; fi; done; \
                  sleep 1000 & echo ready; wait";
    let mut run = Run::start_holding(sh(script).dir(dir.path()), LONG, Some(&hold));
    assert_eq!(
        [run.line().await, run.line().await],
        ["unlocked", "ready"],
        "it inherits one open file"
    );
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    // The server dies, and the program saves its state.
    run.end.abort();
    assert!(run.end.await.unwrap_err().is_cancelled());
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    gate.open();
    let _hold = FileHold::exclusive(&hold, LONG).await.unwrap();
    assert!(dir.path().join("over").exists());
}

#[tokio::test]
async fn nothing_starts_while_somebody_holds_the_files_exclusively() {
    let dir = tempfile::tempdir().unwrap();
    let hold = dir.path().join("hold");
    let _server = FileHold::exclusive(&hold, Duration::ZERO).await.unwrap();
    let (lines, exit) = Run::start_holding(sh("echo started"), LONG, Some(&hold))
        .finish()
        .await;
    assert_eq!(exit.code, Some(125));
    assert!(
        lines.len() == 1
            && lines[0]
                .1
                .starts_with("lockkeeper supervise: a run started earlier"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn nothing_starts_when_the_lifeline_is_gone_already() {
    // A short call has an empty standard input.
    let output =
        Cmd::new(LOCKKEEPER).args(["supervise", "--grace", "1", "--", "/bin/echo", "started"]);
    let output = output.output().await.unwrap();
    assert_eq!((output.code, &*output.stdout.text()), (Some(130), ""));
}

#[tokio::test]
async fn killing_the_server_ends_the_program_politely() {
    // `sleep` represents the server: it holds the other end of the lifeline, the pipe to the supervisor, and is killed
    // without a chance to act. The reader of the program's output goes away as well: writing to a closed pipe would
    // kill the program.
    let dir = tempfile::tempdir().unwrap();
    let hold = dir.path().join("hold");
    let program = "trap 'kill $!; for i in 1 2 3; do echo saving; done; echo saved > saved; exit' INT; \
                   sleep 1000 & echo ready; wait";
    let server = format!(
        "sh -c 'echo $$ >&2; exec sleep 1000' | {LOCKKEEPER} supervise --grace 60 --hold hold -- /bin/sh -c '{}' | \
         sh -c 'read x; echo $x >&2'",
        program.replace('\'', "'\\''")
    );
    let mut run = Run::start(sh(&server).dir(dir.path()), LONG);
    let (first, second) = (run.line().await, run.line().await);
    let pid = if first == "ready" { second } else { first };
    assert!(FileHold::exclusive(&hold, Duration::ZERO).await.is_err());
    let killed = sh(&format!("kill -9 {pid}")).output().await.unwrap();
    assert!(killed.is_success());
    let _hold = FileHold::exclusive(&hold, LONG).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.path().join("saved")).unwrap(),
        "saved\n"
    );
}

#[tokio::test]
async fn signals_for_the_supervisor_do_not_reach_the_program() {
    let (dir, gate) = gate();
    let mut run = Run::start(
        sh("echo $PPID; read x < gate; echo alive").dir(dir.path()),
        LONG,
    );
    let supervisor = run.line().await;
    for signal in ["INT", "TERM", "HUP"] {
        assert!(
            sh(&format!("kill -{signal} {supervisor}"))
                .output()
                .await
                .unwrap()
                .is_success()
        );
    }
    gate.open();
    let (lines, exit) = run.finish().await;
    assert_eq!(lines, [(OutputStream::Out, "alive".into())]);
    assert_eq!((exit.code, exit.how), (Some(0), Ended::Finished));
}

const SECOND: Duration = Duration::from_secs(1);
const POLITE: &str = "trap 'kill $!; echo interrupted; exit 1' INT; echo begun; sleep 60 & wait";

#[tokio::test]
async fn a_program_is_interrupted_when_the_right_to_run_it_is_not_renewed() {
    let supervisor = Supervisor {
        heartbeat: LeaseHeartbeat::every(SECOND * 2),
        ..supervisor(LONG)
    };
    supervisor.heartbeat.beat(supervisor.heartbeat.prepare());
    let mut run = Run::start_under(sh(POLITE), &supervisor, None);
    assert_eq!(run.line().await, "begun");
    let (lines, exit) = run.finish().await;
    assert_eq!(lines, [(OutputStream::Out, "interrupted".to_owned())]);
    assert_eq!((exit.how, exit.code), (Ended::Cancelled, Some(1)));
}

#[tokio::test]
async fn a_program_goes_on_while_the_right_to_run_it_is_renewed() {
    let (dir, gate) = gate();
    let heartbeat = LeaseHeartbeat::every(SECOND * 2);
    heartbeat.beat(heartbeat.prepare());
    let supervisor = Supervisor {
        heartbeat: heartbeat.clone(),
        ..supervisor(LONG)
    };
    let script = format!(
        "echo begun; read x < {}/gate; echo ended",
        dir.path().display()
    );
    let mut run = Run::start_under(sh(&script), &supervisor, None);
    assert_eq!(run.line().await, "begun");
    let mut ticks = tokio::time::interval(SECOND / 4);
    for _ in 0..12 {
        ticks.tick().await;
        heartbeat.beat(heartbeat.prepare());
    }
    tokio::task::spawn_blocking(|| gate.open()).await.unwrap();
    let (lines, exit) = run.finish().await;
    assert_eq!(
        (lines, exit.how),
        (
            vec![(OutputStream::Out, "ended".to_owned())],
            Ended::Finished
        )
    );
}

/// A paused server holds the lifeline, the pipe to the supervisor, and writes nothing to it.
#[tokio::test]
async fn the_supervisor_of_a_paused_server_ends_the_program_by_itself() {
    let (lifeline, _held) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the supervisor as a server would start it"
    )]
    let mut supervisor = tokio::process::Command::new(LOCKKEEPER);
    supervisor.args([
        "supervise",
        "--grace",
        "60",
        "--lease",
        "1",
        "--",
        "/bin/sh",
        "-c",
        POLITE,
    ]);
    let output = supervisor.stdin(lifeline).kill_on_drop(true).output();
    let output = tokio::time::timeout(LONG, output)
        .await
        .expect("the end in time")
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "begun\ninterrupted\n"
    );
    assert_eq!(output.status.code(), Some(1));
}

fn landlocked() -> Sandbox {
    Sandbox::new(Mechanism::Landlock).reads([
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
        "/proc",
    ])
}

/// Returns the output of a script in a sandbox.
async fn within(sandbox: Sandbox, script: &str) -> String {
    let (lines, _) = Run::start(sh(script).sandbox(Some(sandbox)), LONG)
        .finish()
        .await;
    lines.into_iter().map(|(_, line)| line + "\n").collect()
}

#[tokio::test]
async fn a_program_in_a_sandbox_has_its_own_directory_and_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["own", "other", "shown"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("file"), format!("of {name}\n")).unwrap();
    }
    std::os::unix::fs::symlink(dir.path().join("other/file"), dir.path().join("own/link")).unwrap();
    let sandbox = landlocked()
        .writes([dir.path().join("own")])
        .reads([dir.path().join("shown"), "/nowhere".into()]);
    let script = format!(
        "cd {}; try() {{ if \"$@\" 2>/dev/null; then :; else echo \"denied: $*\"; fi; }}\n\
         try cat own/file; try cat shown/file; try cat other/file; try cat own/link; try ls .\n\
         try cp own/file own/new; try mv own/new own/moved; try rm own/moved; try cp own/file shown/new; try rm other/file",
        dir.path().display()
    );
    assert_eq!(
        within(sandbox, &script).await,
        "of own\nof shown\ndenied: cat other/file\ndenied: cat own/link\ndenied: ls .\n\
         denied: cp own/file shown/new\ndenied: rm other/file\n"
    );
}

#[tokio::test]
async fn a_program_in_a_sandbox_can_neither_signal_nor_look_into_processes_outside() {
    let script = format!(
        "exec 2>/dev/null; for pid in {} $PPID; do kill -0 $pid || echo no signal; cat /proc/$pid/environ >/dev/null || echo no look; done\n\
         sleep 60 & kill $! && echo own child",
        std::process::id()
    );
    let said = within(landlocked(), &script).await;
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        ["no signal", "no look", "no signal", "no look", "own child"]
    );
}

/// Objects of System V would stay in the memory of the kernel until the machine restarts.
#[tokio::test]
async fn a_program_in_a_sandbox_leaves_nothing_in_shared_memory_of_the_kernel() {
    let create = "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n\
                  for call in ('shmget', 'semget', 'msgget'):\n    print(call, getattr(c, call)(0, 1, 0o1600), ctypes.get_errno())";
    let said = within(
        landlocked(),
        &format!("exec /usr/bin/python3 -c \"{create}\""),
    )
    .await;
    assert_eq!(said, "shmget -1 38\nsemget -1 38\nmsgget -1 38\n");
}

#[tokio::test]
async fn short_calls_and_dialogues_are_confined_as_well() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cmd = Cmd::new("cat")
        .env("PATH", "/usr/bin:/bin")
        .arg(file.path())
        .sandbox(Some(landlocked()));
    assert_eq!(cmd.output().await.unwrap().code, Some(1));
    let mut dialogue = cmd.dialogue().unwrap();
    assert_eq!(dialogue.line(100).await.unwrap(), None);
    assert_eq!(dialogue.end().await.unwrap().code, Some(1));
    assert!(cmd.sandbox(None).output().await.unwrap().is_success());
}

#[tokio::test]
async fn limits_hold_for_the_program_and_not_for_its_supervisor() {
    let limits = RunLimits {
        memory: Some(64 << 20),
        processes: None,
        file_size: Some(1 << 20),
        disk: None,
        cpu: Some(Duration::from_secs(1)),
    };
    let dir = tempfile::tempdir().unwrap();
    let run = |script: &str| Run::start(sh(script).dir(dir.path()).limits(limits), LONG).finish();
    let (lines, exit) =
        run("head -c 4000000 /dev/zero >file; ls -l file | tr -s ' ' | cut -d ' ' -f 5").await;
    assert_eq!(
        (lines.last().map(|line| line.1.as_str()), exit.code),
        (Some("1048576"), Some(0)),
        "{lines:?}"
    );
    let (_, exit) = run("while :; do :; done").await;
    assert_eq!(
        (exit.signal, limits.reached(exit.signal, "")),
        (Some(24), Some(ReachedLimit::Cpu))
    );
    let (lines, exit) = run("exec dd if=/dev/zero of=/dev/null bs=200M count=1").await;
    let said: String = lines.into_iter().map(|line| line.1).collect();
    assert!(!exit.is_success() && said.contains("memory"), "{said}");
}

#[tokio::test]
async fn a_run_gives_way_to_the_server_and_a_short_call_does_not() {
    let own = sh("nice").output().await.unwrap().stdout.text().to_string();
    let (lines, _) = Run::start(sh("nice"), LONG).finish().await;
    let niceness = |text: &str| text.trim().parse::<i32>().unwrap();
    assert_eq!(niceness(&lines[0].1), niceness(&own) + 5);
}

/// The limits concern all processes together. The test checks the limits and the messages.
#[tokio::test]
async fn limits_hold_for_all_processes_of_a_run_together() {
    let none = RunLimits::default();
    let hogs = "import os, sys, time\nfor _ in range(4):\n  if os.fork() == 0:\n    x = b'x' * (100 << 20); time.sleep(600)\n\
                sys.exit(3 if os.wait()[1] == 9 else 4)";
    let unmapped = "import os, time\nfile = os.memfd_create('x')\nfor _ in range(400): os.write(file, b'x' * (1 << 20))\n\
                    time.sleep(600)";
    let burn = "for i in 1 2 3 4; do while :; do :; done & done; wait";
    let sleepers = "for i in $(seq 40); do sleep 600 & done; wait";
    for (script, limits, expected, reached) in [
        (
            format!("exec python3 -c \"{hogs}\""),
            RunLimits {
                memory: Some(250 << 20),
                ..none
            },
            Some(3),
            ReachedLimit::Memory,
        ),
        (
            format!("exec python3 -c \"{unmapped}\""),
            RunLimits {
                memory: Some(250 << 20),
                ..none
            },
            None,
            ReachedLimit::Memory,
        ),
        (
            burn.to_owned(),
            RunLimits {
                cpu: Some(Duration::from_secs(3)),
                ..none
            },
            None,
            ReachedLimit::Cpu,
        ),
        (
            sleepers.to_owned(),
            RunLimits {
                processes: Some(20),
                ..none
            },
            None,
            ReachedLimit::Processes,
        ),
    ] {
        let (lines, exit) = Run::start(sh(&script).limits(limits), Duration::ZERO)
            .finish()
            .await;
        let said: String = lines.into_iter().map(|line| line.1 + "\n").collect();
        assert!(
            !exit.is_success() && (expected.is_none() || exit.code == expected),
            "{exit:?} {said}"
        );
        assert_eq!(limits.reached(exit.signal, &said), Some(reached), "{said}");
    }
}

#[tokio::test]
async fn the_files_of_a_run_take_no_more_space_together_than_allowed() {
    let limits = RunLimits {
        disk: Some(16 << 20),
        ..RunLimits::default()
    };
    let run = &async |script: &str| {
        let dir = tempfile::tempdir().unwrap();
        let tmp = dir.path().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        let cmd = sh(script).dir(dir.path()).limits(limits);
        let cmd = cmd.owns([dir.path(), tmp.as_path()]);
        let (lines, exit) = Run::start(cmd, LONG).finish().await;
        let said: String = lines.into_iter().map(|line| line.1 + "\n").collect();
        (exit, said)
    };
    let many = "i=0; while [ $i -lt 6000 ]; do : >file$i; i=$((i+1)); done";
    let deleted = "exec 9>big; rm big; head -c 40000000 /dev/zero >&9";
    let hidden = "mkdir x; head -c 40000000 /dev/zero >x/big; chmod 300 x";
    let in_tmp = "head -c 40000000 /dev/zero >tmp/big";
    let too_much = [many, deleted, hidden, in_tmp].map(|script| async move {
        let (exit, said) = run(&format!("{script}; exec sleep 600")).await;
        assert!(!exit.is_success(), "{exit:?} {said}");
        let reached = limits.reached(exit.signal, &said);
        assert_eq!(reached, Some(ReachedLimit::Disk), "{script}: {said}");
    });
    let allowed = async {
        // The files are counted meanwhile, because the disk has lost much of its space.
        let (exit, said) = run("head -c 9000000 /dev/zero >big; exec sleep 3").await;
        assert!(exit.is_success() && said.is_empty(), "{exit:?} {said}");
    };
    join(join_all(too_much), allowed).await;
}

#[tokio::test]
async fn a_machine_without_memory_ends_the_program_before_its_supervisor() {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let own = own.trim();
    // The supervisor resets its own value after it has started the program. A shell reads byte by byte, and the file
    // may change in between, so only the expected value ends the loop.
    let script = format!(
        "read mine </proc/self/oom_score_adj; until read its </proc/$PPID/oom_score_adj && [ \"$its\" = {own} ]; do :; done; \
         echo $mine; echo $its"
    );
    let (lines, _) = Run::start(sh(&script), LONG).finish().await;
    let seen: Vec<&str> = lines.iter().map(|line| line.1.as_str()).collect();
    assert_eq!(seen, ["500", own]);
}

#[tokio::test]
async fn standard_output_goes_into_a_private_file_up_to_its_limit() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    for (name, limit, kept) in [("all", 6, "abcdef"), ("some", 3, "abc")] {
        let file = dir.path().join(name);
        let (sender, mut lines) = mpsc::channel(4);
        let run = sh("printf abcdef; echo seen >&2")
            .supervised(&supervisor(LONG))
            .stdout_within(&file, limit);
        let exit = run.run(sender, &CancellationToken::new()).await.unwrap();
        assert!(exit.is_success());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), kept);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            lines.recv().await.map(|line| line.text),
            Some("seen".to_owned())
        );
        assert_eq!(lines.recv().await, None);
    }
}
