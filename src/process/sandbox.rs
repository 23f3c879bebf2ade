//! What a child process may touch, held by the kernel.
//!
//! The need: a run executes code of a pull request as the user of the server. Without a boundary it reads the server's
//! tokens, keys and database, rewrites mirrors of other repositories, and signals or outlives its supervisor.
//!
//! A [`Sandbox`] is an allow-list of paths with the [`Mechanism`] that enforces it:
//! - *Landlock*: rights are given up by the thread that starts the program, so no privilege, user namespace or second
//!   program is needed. Each child has a domain of its own: besides files, the kernel denies it to trace processes
//!   outside of the domain (which closes `/proc/PID/environ`, `mem` and `fd`), and from Linux 6.12 on to signal them.
//! - *Bubblewrap*: the program runs in namespaces made by `bwrap` (see [`super::bubblewrap`]), for kernels without Landlock.
//!   The network is shared; what Landlock can deny of it is denied as well. A domain that held files could not be entered
//!   before: the kernel lets nobody mount anything in it.
//!
//! The thread that starts the child is a new one each time: a domain can never be left again.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use nix::unistd::geteuid;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    configure_capability_in_ambient_set, set_capabilities, set_capabilities_secure_bits,
};

use super::bubblewrap;
use crate::model::RunUser;

/// Newest Landlock interface whose rights are asked for; a kernel that lacks some of them enforces the others.
const NEWEST: ABI = ABI::V9;
/// Devices that hold nothing and that programs expect to write to.
pub(super) const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Enforcer of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Linux security module, from Linux 5.19 on.
    Landlock,
    /// Namespaces made by the program `bwrap`, whose path this is.
    Bubblewrap(PathBuf),
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "Landlock",
            Self::Bubblewrap(_) => "bubblewrap",
        })
    }
}

/// Paths that a child may use. Everything else is denied; paths that do not exist are passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    mechanism: Mechanism,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Rights over files that stay.
    kept: CapabilitySet,
}

impl Sandbox {
    /// A sandbox in which nothing may be used yet but devices that hold nothing.
    pub fn new(mechanism: Mechanism) -> Self {
        Self {
            mechanism,
            read: Vec::new(),
            write: Vec::new(),
            kept: CapabilitySet::empty(),
        }
    }

    /// Keeps the rights over files of other users among the paths, where this process has them: git works on checkouts
    /// that belong to the user of runs.
    #[must_use]
    pub fn keeps_rights_over_files(self) -> Self {
        Self {
            kept: CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER,
            ..self
        }
    }

    /// Adds files and directories to read and execute, directories with all that is below them.
    #[must_use]
    pub fn reads<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.read.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Adds files and directories to read, execute and change, directories with all that is below them.
    #[must_use]
    pub fn writes<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.write.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Whether a path may be read: it lies at or below one of the paths, links resolved on both sides.
    pub fn covers(&self, path: &Path) -> bool {
        self.covering(path).is_some()
    }

    /// The first of the paths by which a path may be read.
    pub fn covering(&self, path: &Path) -> Option<&Path> {
        let allowed = self.read.iter().chain(&self.write);
        allowed
            .map(PathBuf::as_path)
            .find(|allowed| is_within(path, allowed))
    }

    /// Options of `lockkeeper supervise` that say the same.
    pub(super) fn supervise_options(&self) -> Vec<OsString> {
        let option = |name: &'static str, paths: &[PathBuf]| -> Vec<OsString> {
            paths
                .iter()
                .flat_map(|path| [name.into(), path.clone().into_os_string()])
                .collect()
        };
        let mut options = match &self.mechanism {
            Mechanism::Landlock => vec!["--landlock".into()],
            Mechanism::Bubblewrap(bwrap) => {
                vec!["--bubblewrap".into(), bwrap.clone().into_os_string()]
            }
        };
        options.extend(option("--read", &self.read));
        options.extend(option("--write", &self.write));
        options
    }

    /// Program to start for `program`, and its arguments before those of `program`; by a user, if it is another one.
    pub(super) fn wrap(
        &self,
        program: &OsStr,
        dir: Option<&Path>,
        user: Option<RunUser>,
    ) -> io::Result<(OsString, Vec<OsString>)> {
        match &self.mechanism {
            Mechanism::Landlock => Ok((program.to_owned(), Vec::new())),
            // What only a capability reaches cannot be bound: a run has none.
            Mechanism::Bubblewrap(bwrap) => on_new_thread(|| {
                user.map_or(Ok(()), RunUser::take_on)?;
                give_up_capabilities(CapabilitySet::empty())?;
                let args = bubblewrap::arguments(&self.read, &self.write, program, dir);
                Ok((bwrap.clone().into_os_string(), args))
            }),
        }
    }

    /// Whether the program that [`Self::wrap`] names waits for another one, which leads a group of its own.
    pub(super) fn has_namespaces(&self) -> bool {
        match self.mechanism {
            Mechanism::Landlock => false,
            Mechanism::Bubblewrap(_) => true,
        }
    }

    /// Takes from this thread all that is not allowed here.
    fn enter(&self) -> io::Result<()> {
        let refused = |error| io::Error::other(format!("Landlock refused: {error}"));
        match self.mechanism {
            Mechanism::Landlock => {
                give_up_capabilities(self.kept)?;
                self.give_up_rights().map(drop).map_err(refused)
            }
            Mechanism::Bubblewrap(_) => give_up_network().map_err(refused),
        }
    }

    /// Takes every other right from this thread.
    fn give_up_rights(&self) -> Result<LandlockStatus, RulesetError> {
        let ruleset = ruleset()?.set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset
            .add_rules(path_beneath_rules(&self.read, reading()))?
            .add_rules(path_beneath_rules(&self.write, AccessFs::from_all(NEWEST)))?
            .add_rules(path_beneath_rules(
                DEVICES,
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            ))?
            // A port that the kernel chooses may be listened on; a fixed one could be taken from a server that restarts.
            .add_rule(NetPort::new(0, AccessNet::BindTcp))?;
        Ok(ruleset.restrict_self()?.landlock)
    }
}

/// Whether a path lies at or below another one, links resolved on both sides.
pub fn is_within(path: &Path, folder: &Path) -> bool {
    resolved(path).starts_with(resolved(folder))
}

/// A path without links. What is not there yet lies where the folder that is there leads.
fn resolved(path: &Path) -> PathBuf {
    for folder in path.ancestors() {
        if let (Ok(mut real), Ok(rest)) = (folder.canonicalize(), path.strip_prefix(folder)) {
            for part in rest.components() {
                if part == Component::ParentDir {
                    real.pop();
                } else {
                    real.push(part);
                }
            }
            return real;
        }
    }
    path.to_owned()
}

/// Takes from this thread what namespaces leave: fixed ports, and abstract sockets of programs outside. A kernel without
/// Landlock takes nothing.
fn give_up_network() -> Result<(), RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    ruleset
        .add_rule(NetPort::new(0, AccessNet::BindTcp))?
        .restrict_self()
        .map(drop)
}

/// Starts what [`Sandbox::wrap`] names on a thread that is that user and can use nothing but what is allowed there; what it
/// starts cannot either.
pub(super) fn confined<T: Send>(
    sandbox: Option<&Sandbox>,
    user: Option<RunUser>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    if sandbox.is_none() && user.is_none() {
        return work();
    }
    on_new_thread(|| {
        if let Some(user) = user {
            user.take_on()?;
            give_up_capabilities(CapabilitySet::empty())?;
        }
        sandbox.map_or(Ok(()), Sandbox::enter)?;
        work()
    })
}

/// Takes the capabilities from this thread, for servers that run as root: with them a process could look into others in
/// spite of its domain (`CAP_PERFMON`), and the limits of a run would not hold. A program that belongs to root gets none
/// back when it is started, and keeps those that are `kept`.
fn give_up_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted;
    if permitted.is_empty() {
        return Ok(());
    }
    if geteuid().is_root() {
        let no_root = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
        set_capabilities_secure_bits(no_root)?;
    }
    let kept = kept & permitted;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
    )?;
    for right in kept.iter() {
        configure_capability_in_ambient_set(right, true)?;
    }
    Ok(())
}

/// Everything that the kernel can deny is denied unless a rule allows it. Without files the rest would mean nothing.
fn ruleset() -> Result<landlock::RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V2))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST)
}

fn on_new_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("sandbox".to_owned())
            .spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that starts a program has panicked",
            ))
        })
    })
}

/// Extent to which the running kernel enforces Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    abi: i32,
}

impl Kernel {
    /// Asks the kernel by giving up rights on a thread that ends at once. `None`: it has no Landlock, has it switched
    /// off, or one too old to be of use (before Linux 5.19 no file can be moved between directories).
    pub fn detect() -> Option<Self> {
        let status = on_new_thread(|| {
            Sandbox::new(Mechanism::Landlock)
                .give_up_rights()
                .map_err(|error| io::Error::other(error.to_string()))
        });
        match status {
            Ok(LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            }) => Some(Self {
                abi: kernel_abi.unwrap_or(effective_abi as i32),
            }),
            Ok(LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) | Err(_) => None,
        }
    }

    /// Version of the interface.
    pub fn abi(self) -> i32 {
        self.abi
    }

    /// Rights that this kernel cannot take from a run, for the log.
    pub fn gaps(self) -> Vec<&'static str> {
        let all = [
            (
                3,
                "truncating files that the user of the server may write (Linux 6.2)",
            ),
            (4, "listening on fixed TCP ports (Linux 6.7)"),
            (
                6,
                "signalling other processes of the same user (Linux 6.12)",
            ),
            (
                9,
                "connecting to Unix sockets in the file system, such as that of Docker (Linux 7.1)",
            ),
        ];
        all.into_iter()
            .filter(|(since, _)| self.abi < *since)
            .map(|(_, gap)| gap)
            .collect()
    }

    /// Rights that a kernel cannot take from a run in namespaces, for the log.
    pub fn gaps_of_namespaces(kernel: Option<Self>) -> Vec<&'static str> {
        let all = [
            (4, "listening on fixed TCP ports (Linux 6.7 with Landlock)"),
            (
                6,
                "connecting to abstract Unix sockets (Linux 6.12 with Landlock)",
            ),
        ];
        let abi = kernel.map_or(0, Self::abi);
        all.into_iter()
            .filter(|(since, _)| abi < *since)
            .map(|(_, gap)| gap)
            .collect()
    }
}
