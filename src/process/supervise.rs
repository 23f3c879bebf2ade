//! Supervises one program from a process of its own: `lockkeeper supervise`.
//!
//! Standard input is the lifeline: its end means that the server wants the program to stop, or is dead. With a lease,
//! each byte on the lifeline gives the number of seconds for which the program may go on from now. When they are over,
//! the server has lost the right to let it run, because it is paused or cut off. That ends the program as well.
//! Races, by name, and the decision on each:
//! - *Late start*: the server dies before the program was started, and its successor already works on the files. The
//!   hold is taken first, and the lifeline is checked after that. A successor holds the file exclusively only after the
//!   old server has died. So either the hold is refused, or the lifeline is found closed.
//! - *Reused number*: a signal for a group that has ended reaches a foreign process. Signals are sent under a mutex
//!   that also guards the flag `over`, and the flag is set before the last member is waited for.
//! - *Impatient end*: a shell dies of SIGINT at once while the Terraform below it is still saving its state. After an
//!   interrupt the grace period belongs to the whole group, not only to its leader.
//! - *Early signal*: in namespaces, `bwrap` starts the program, waits for it and returns its exit code. A signal must
//!   not end `bwrap`, so the program has a group of its own. A signal that comes before the program is in that group
//!   would be lost. So the group counts as begun only when the program is in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgid, getppid, setpgid, setsid};
use serde::Deserialize;

use super::group::children;
use super::hold::{HoldError, HoldShare};
use super::limits::first_to_go;
use super::sandbox::confined;
use super::{RunLimits, Sandbox, disk, together};
use crate::model::RunUser;

/// Time that the output may take to be passed on after the last process has ended.
pub(super) const DRAIN: Duration = Duration::from_secs(5);
/// Interval at which a program in namespaces is looked for until it exists.
const START: Duration = Duration::from_millis(1);
/// Amount by which the niceness of a run is above that of the server: on a busy processor, the server gets about three times the
/// time of a run.
const NICENESS: i32 = 5;
/// Exit code when the lifeline was closed before the program was started: the code of a program that SIGINT ended.
const NOT_STARTED: u8 = 130;

/// Program to run, and the rules for ending it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisedProgram {
    /// Time between SIGINT and SIGKILL.
    pub grace: Duration,
    /// Time that the program may run before the first renewal; `None` sets no limit.
    pub lease: Option<Duration>,
    /// File to hold, shared, while any process of the run exists.
    pub hold: Option<PathBuf>,
    /// Paths that the program may use; with `None` it may use all paths of the supervisor.
    pub sandbox: Option<Sandbox>,
    /// Resource limits of the program.
    pub limits: RunLimits,
    /// Directories whose files count for the limit of disk space.
    pub places: Vec<PathBuf>,
    /// User of the program; `None` selects the user of the supervisor.
    pub user: Option<RunUser>,
    pub program: OsString,
    /// Arguments of the program.
    pub args: Vec<OsString>,
}

/// Reason why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// Another process holds the files.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// A call to the kernel failed.
    #[error("cannot {doing}")]
    Os {
        /// Attempted operation, completing "cannot …".
        doing: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The program does not start.
    #[error("cannot start {program:?}")]
    Start {
        /// Path of the program.
        program: OsString,
        /// Error of the system call.
        source: io::Error,
    },
}

fn os<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> SuperviseError {
    move |error| SuperviseError::Os {
        doing,
        source: error.into(),
    }
}

/// Runs the program to its end and returns the exit code to pass on: the program's own, or 128 + n for signal n. Must
/// be called on the main thread, because orphans are handed to that thread.
pub fn supervise(order: &SupervisedProgram) -> Result<u8, SuperviseError> {
    disregard_signals().map_err(os("catch signals"))?;
    leave_terminal().map_err(os("leave the terminal"))?;
    give_way();
    let hold = order.hold.as_deref().map(HoldShare::take).transpose()?;
    if lifeline_is_gone().map_err(os("check standard input"))? {
        return Ok(NOT_STARTED);
    }
    set_child_subreaper(true).map_err(os("adopt orphans"))?;
    let group = Arc::new(ProcessGroup::default());
    // Threads are started before the program: the program's limits apply to this process too, and must not prevent a
    // thread.
    watch_lifeline(Arc::clone(&group), order.grace, order.lease).map_err(os("start a thread"))?;
    let run = SupervisedRun {
        group: Arc::clone(&group),
        grace: order.grace,
    };
    together::watch(order.limits, run.clone()).map_err(os("start a thread"))?;
    disk::watch(order.limits.disk, &order.places, run).map_err(os("start a thread"))?;
    let (pumps, stdout, stderr) = Pumps::start().map_err(os("read the output of the program"))?;
    let Started { leader, group: id } = first_to_go(|| start(order, stdout, stderr))?;
    group.begin(id);
    let code = wait_for(leader);
    group.wind_down();
    sweep();
    pumps.finish();
    drop(hold);
    Ok(code)
}

/// Disregards signals, because only the server decides when to stop, and limits are for the program: output that is too large
/// for its file must not end the process that kills what is left. The signals are caught, neither ignored nor
/// blocked: the program would inherit both. In contrast, starting a program removes handlers (and an "ignored" that
/// the server inherited).
fn disregard_signals() -> io::Result<()> {
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGXCPU,
        Signal::SIGXFSZ,
    ] {
        signal_hook::flag::register(signal as i32, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Leaves the terminal that the server was started in. Otherwise a program could type into the shell there
/// (`TIOCSTI`) and read its input.
fn leave_terminal() -> io::Result<()> {
    // The leader of a group cannot begin a session, so this process joins the server's group for a moment.
    let left = getpgid(Some(getppid()))
        .and_then(|group| setpgid(Pid::from_raw(0), group))
        .and_then(|()| setsid());
    match left {
        Ok(_) => Ok(()),
        // The process has no terminal.
        Err(_) if File::open("/dev/tty").is_err() => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Lowers the priority of this process and of what it starts below that of the server, so that runs that keep the processor
/// busy delay neither webhooks nor pages. A run whose priority cannot be lowered runs anyway.
fn give_way() {
    rustix::process::nice(NICENESS).ok();
    // On a machine without control groups for the processor, Linux shares it between sessions before it looks at the
    // niceness of processes, and each run has a session of its own.
    std::fs::write("/proc/self/autogroup", NICENESS.to_string()).ok();
}

fn duplicate(fd: impl AsFd) -> io::Result<File> {
    fd.as_fd().try_clone_to_owned().map(File::from)
}

fn lifeline_is_gone() -> io::Result<bool> {
    let mut lifeline = duplicate(io::stdin())?;
    let flags = OFlag::from_bits_retain(fcntl(&lifeline, FcntlArg::F_GETFL)?);
    fcntl(&lifeline, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let read = lifeline.read(&mut [0]);
    fcntl(&lifeline, FcntlArg::F_SETFL(flags))?;
    match read {
        Ok(n) => Ok(n == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Program that was started.
struct Started {
    /// Child of the supervisor; its end is that of the program.
    leader: Pid,
    /// Process group of the program.
    group: Pid,
}

/// Starts the program on a thread with the restrictions of the sandbox. So the supervisor stays outside the sandbox,
/// and processes inside cannot signal it. The supervisor stays the user of the server for the same reason.
fn start(
    order: &SupervisedProgram,
    stdout: PipeWriter,
    stderr: PipeWriter,
) -> Result<Started, SuperviseError> {
    let failed = |source| SuperviseError::Start {
        program: order.program.clone(),
        source,
    };
    let (sandbox, dir) = (order.sandbox.as_ref(), std::env::current_dir().ok());
    let wrapped = sandbox
        .map(|sandbox| sandbox.wrap(&order.program, dir.as_deref(), order.user))
        .transpose();
    let (program, mut before) = wrapped
        .map_err(failed)?
        .unwrap_or_else(|| (order.program.clone(), Vec::new()));
    let spawn = |command| confined(sandbox, order.user, || spawn(command, order)).map_err(failed);
    if !sandbox.is_some_and(Sandbox::has_namespaces) {
        return spawn(command(&program, &before, order, stdout, stderr)).map(Started::alone);
    }
    let (info, to_info) = io::pipe().map_err(failed)?;
    fcntl(&to_info, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
    // The option begins a new session and thus a new group, so that signals for the program do not reach `bwrap`.
    before.splice(
        0..0,
        [
            "--new-session".into(),
            "--info-fd".into(),
            to_info.as_raw_fd().to_string().into(),
        ],
    );
    let leader = spawn(command(&program, &before, order, stdout, stderr))?;
    drop(to_info);
    Ok(Started {
        leader,
        group: group_within(leader, info),
    })
}

impl Started {
    /// Describes a program that leads its own group.
    fn alone(leader: Pid) -> Self {
        Self {
            leader,
            group: leader,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the supervisor's own child, started without tokio"
)]
fn command(
    program: &OsStr,
    before: &[OsString],
    order: &SupervisedProgram,
    stdout: PipeWriter,
    stderr: PipeWriter,
) -> Command {
    let mut command = Command::new(program);
    command.args(before).args(&order.args).process_group(0);
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command
}

fn spawn(mut command: Command, order: &SupervisedProgram) -> io::Result<Pid> {
    order.limits.set()?;
    let child = command.spawn()?;
    Ok(Pid::from_raw(
        i32::try_from(child.id()).expect("process numbers of Linux are below 2^22"),
    ))
}

/// Information that `bwrap` prints about itself.
#[derive(Deserialize)]
struct SandboxInfo {
    /// First process of the namespace, which leads the group of the program.
    #[serde(rename = "child-pid")]
    first: i32,
}

/// Waits until the program is in its group. If `bwrap` ends before that, returns the group of `bwrap`.
fn group_within(bwrap: Pid, info: PipeReader) -> Pid {
    let Ok(SandboxInfo { first }) = serde_json::from_reader(info) else {
        return bwrap;
    };
    let first = Pid::from_raw(first);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while !leads_a_group(first)
        && matches!(waitid(Id::Pid(bwrap), flags), Ok(WaitStatus::StillAlive))
    {
        thread::sleep(START);
    }
    first
}

/// Returns true if a process has a child in its own group. If the kernel does not list children, the group has to
/// exist.
fn leads_a_group(leader: Pid) -> bool {
    match children(leader) {
        Some(children) => children
            .into_iter()
            .any(|child| getpgid(Some(child)) == Ok(leader)),
        None => getpgid(Some(leader)) == Ok(leader),
    }
}

/// Process group of the program, and whether it may be signalled.
#[derive(Default)]
struct ProcessGroup {
    state: Mutex<SupervisorState>,
}

#[derive(Default)]
struct SupervisorState {
    /// Group of the program; `None` before the program was started.
    id: Option<Pid>,
    interrupted: bool,
    killed: bool,
    over: bool,
}

impl SupervisorState {
    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id.filter(|_| !self.over) {
            killpg(id, signal).ok();
        }
    }
}

impl ProcessGroup {
    fn state(&self) -> MutexGuard<'_, SupervisorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the program was started, and sends it a signal that was requested meanwhile.
    fn begin(&self, id: Pid) {
        let mut state = self.state();
        state.id = Some(id);
        if state.killed {
            state.signal(Signal::SIGKILL);
        } else if state.interrupted {
            state.signal(Signal::SIGINT);
        }
    }

    fn interrupt(&self) {
        let mut state = self.state();
        state.interrupted = true;
        state.signal(Signal::SIGINT);
    }

    fn kill(&self) {
        let mut state = self.state();
        state.killed = true;
        state.signal(Signal::SIGKILL);
    }

    /// Ends the group after its leader. An interrupted group may use the rest of its grace period; any other group is
    /// killed now.
    fn wind_down(&self) {
        let (id, interrupted) = {
            let state = self.state();
            (
                state
                    .id
                    .expect("the leader of the group has been waited for"),
                state.interrupted,
            )
        };
        if interrupted {
            while !matches!(
                waitid(Id::PGid(id), WaitPidFlag::WEXITED),
                Err(Errno::ECHILD)
            ) {}
        }
        let mut state = self.state();
        state.signal(Signal::SIGKILL);
        state.over = true;
    }
}

/// Run as seen by the watch of its limits.
#[derive(Clone)]
struct SupervisedRun {
    group: Arc<ProcessGroup>,
    grace: Duration,
}

impl together::EndRun for SupervisedRun {
    fn at_once(&self) {
        self.group.kill();
    }

    fn interrupt(&self) {
        self.group.interrupt();
    }

    fn grace(&self) -> Duration {
        self.grace
    }
}

fn watch_lifeline(
    group: Arc<ProcessGroup>,
    grace: Duration,
    lease: Option<Duration>,
) -> io::Result<()> {
    let (renewals, heard) = mpsc::channel();
    thread::Builder::new().spawn(move || read_lifeline(&renewals))?;
    thread::Builder::new().spawn(move || {
        wait_for_the_end(&heard, lease);
        group.interrupt();
        thread::sleep(grace);
        group.kill();
    })?;
    Ok(())
}

/// Passes renewals on until the lifeline ends. An error ends the lifeline as well: stopping is better than running
/// unwatched.
fn read_lifeline(renewals: &mpsc::Sender<Duration>) {
    let mut seconds = [0];
    loop {
        match io::stdin().read(&mut seconds) {
            Ok(1..)
                if renewals
                    .send(Duration::from_secs(seconds[0].into()))
                    .is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Waits until the lifeline ends or the lease expires.
fn wait_for_the_end(renewals: &mpsc::Receiver<Duration>, mut lease: Option<Duration>) {
    loop {
        let renewed = match lease {
            None => renewals.recv().map_err(drop),
            Some(lease) => renewals.recv_timeout(lease).map_err(drop),
        };
        match renewed {
            Ok(renewed) => lease = lease.map(|_| renewed),
            Err(()) => return,
        }
    }
}

/// Waits for the leader, and meanwhile reaps adopted orphans.
fn wait_for(leader: Pid) -> u8 {
    loop {
        match waitid(Id::All, WaitPidFlag::WEXITED) {
            Ok(WaitStatus::Exited(pid, code)) if pid == leader => return low_byte(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == leader => {
                return low_byte(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 1,
        }
    }
}

fn low_byte(code: i32) -> u8 {
    u8::try_from(code & 0xFF).expect("masked to one byte")
}

/// Kills every remaining descendant, including those in a group or session of their own: orphans become children of
/// this process. If the kernel does not list children (`CONFIG_PROC_CHILDREN`), only the group has been ended.
fn sweep() {
    while let Some(children) = children(Pid::this()).filter(|children| !children.is_empty()) {
        for child in children {
            kill(child, Signal::SIGKILL).ok();
        }
        waitid(Id::All, WaitPidFlag::WEXITED).ok();
    }
}

/// Threads that pass the program's output on.
struct Pumps(mpsc::Receiver<()>);

impl Pumps {
    /// Starts the pumps and returns the ends of their pipes for standard output and standard error of the program.
    fn start() -> io::Result<(Self, PipeWriter, PipeWriter)> {
        let (alive, done) = mpsc::channel();
        let pump_to = |to: File| -> io::Result<PipeWriter> {
            let (from, end) = io::pipe()?;
            let alive = alive.clone();
            thread::Builder::new().spawn(move || {
                pump(from, to);
                drop(alive);
            })?;
            Ok(end)
        };
        let (stdout, stderr) = (
            pump_to(duplicate(io::stdout())?)?,
            pump_to(duplicate(io::stderr())?)?,
        );
        Ok((Self(done), stdout, stderr))
    }

    /// Waits until both pumps have ended, that is until all their senders are dropped. The wait is limited, because
    /// the reader may have stopped reading.
    fn finish(self) {
        self.0.recv_timeout(DRAIN).ok();
    }
}

/// Passes output on. Without a reader it discards the rest, and the program does not notice.
fn pump(mut from: PipeReader, mut to: File) {
    if io::copy(&mut from, &mut to).is_err() {
        io::copy(&mut from, &mut io::sink()).ok();
    }
}
