//! Starts programs that inherit open files of this process: the hold of a call, and the child's end of a secret.
//!
//! The need: a program could also get its files from a function that runs in the child (`pre_exec`). But then the
//! standard library uses `fork` instead of `posix_spawn`, which copies the page tables of this process: 90 ms for each
//! GiB. So the files stay open across `exec` for the moment of a start, and no other program starts in that moment.
//!
//! A hold has any number. A secret has the number [`Cmd::SECRET_FD`], where this process keeps `/dev/null` between the
//! starts ([`reserve_secret_fd`]). If the process was started with that number in use, or opened another file first,
//! its programs get their secrets with `pre_exec` (crate `command-fds`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::io::{DupFlags, FdFlags, dup2, dup3, fcntl_dupfd_cloexec, fcntl_setfd, retry_on_intr};
use tracing::debug;

use super::Cmd;

/// Taken shared by every start of a program, and exclusively by one whose program inherits a file: a program that
/// started at the same moment would inherit it too, and be killed for a hold ([`super::FileHold::by_force`]) or read the
/// secret of another one. A start lasts until the program runs, usually less than a millisecond. A program on a disk
/// that does not answer keeps others from starting.
static STARTS: RwLock<()> = RwLock::new(());

/// Place for the secret of a program, if this process could reserve it. Taken only by a start that holds [`STARTS`]
/// exclusively.
static SECRET_FD: LazyLock<Option<Mutex<ReservedFd>>> = LazyLock::new(|| {
    let reserved = ReservedFd::take(Cmd::SECRET_FD);
    reserved.ok().flatten().map(Mutex::new)
});

/// Reserves the descriptor [`Cmd::SECRET_FD`] for the secrets of programs, and returns false if it is in use. `main`
/// calls this before anything opens a file. Otherwise the first start with a secret reserves the descriptor.
pub fn reserve_secret_fd() -> bool {
    SECRET_FD.is_some()
}

/// Open files that a program inherits.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Locked file, which the program gets under any number above that of its secret.
    pub(super) hold: Option<File>,
    pub(super) secret: Option<InheritedSecret>,
}

/// Child's end of a secret, and the place for it.
#[derive(Debug)]
pub(super) struct InheritedSecret {
    end: OwnedFd,
    place: &'static Mutex<ReservedFd>,
}

impl InheritedSecret {
    /// Returns the secret to inherit. Without a reserved descriptor, lets the command copy it after a `fork` and returns
    /// `None`.
    pub(super) fn new(
        end: OwnedFd,
        command: &mut tokio::process::Command,
    ) -> io::Result<Option<Self>> {
        if let Some(place) = SECRET_FD.as_ref() {
            return Ok(Some(Self { end, place }));
        }
        debug!(
            "Descriptor {} is in use, so the program is started with `fork`",
            Cmd::SECRET_FD
        );
        let mapping = FdMapping {
            parent_fd: end,
            child_fd: Cmd::SECRET_FD,
        };
        command
            .fd_mappings(vec![mapping])
            .map_err(io::Error::other)?;
        Ok(None)
    }
}

/// Starts a program with a function. The program inherits the files, and programs that start meanwhile do not.
pub(super) fn start_with<T>(
    inherited: Inherited,
    start: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Inherited { hold, secret } = inherited;
    if hold.is_none() && secret.is_none() {
        let _others = STARTS.read().unwrap_or_else(PoisonError::into_inner);
        return start();
    }
    let _alone = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    // Both are closed before another program can start, even if this one panics.
    let _hold = hold.as_ref().map(inheritable).transpose()?;
    let Some(InheritedSecret { end, place }) = secret else {
        return start();
    };
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let _temporary = place.duplicate(&end)?;
    start()
}

/// Copies a descriptor for a program. The place for a secret stays free.
fn inheritable(file: &File) -> io::Result<OwnedFd> {
    let copy = fcntl_dupfd_cloexec(file, Cmd::SECRET_FD + 1)?;
    fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

/// Descriptor with a certain number. Programs inherit it only while it refers to a file.
#[derive(Debug)]
struct ReservedFd {
    fd: OwnedFd,
    /// `/dev/null`, which the descriptor refers to between the starts.
    null: OwnedFd,
}

impl ReservedFd {
    /// Takes a number, if it is free.
    fn take(number: RawFd) -> io::Result<Option<Self>> {
        // The file that is opened first has perhaps this number, and is closed at once.
        let null = fcntl_dupfd_cloexec(File::open("/dev/null")?, number + 1)?;
        let fd = fcntl_dupfd_cloexec(&null, number)?;
        Ok((fd.as_raw_fd() == number).then_some(Self { fd, null }))
    }

    /// Makes the number refer to a file. Programs inherit it until the returned value is dropped.
    fn duplicate(&mut self, file: &OwnedFd) -> io::Result<TemporaryFd<'_>> {
        retry_on_intr(|| dup2(file, &mut self.fd))?;
        Ok(TemporaryFd(self))
    }
}

/// Reserved descriptor while it refers to a file.
struct TemporaryFd<'a>(&'a mut ReservedFd);

impl Drop for TemporaryFd<'_> {
    fn drop(&mut self) {
        let ReservedFd { fd, null } = &mut *self.0;
        retry_on_intr(|| dup3(&*null, fd, DupFlags::CLOEXEC)).expect("both descriptors are open");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;

    use super::*;

    /// Reserves a number that nothing else in this process uses.
    fn reserved() -> &'static Mutex<ReservedFd> {
        let mut taken = (500..).filter_map(|number| ReservedFd::take(number).unwrap());
        Box::leak(Box::new(Mutex::new(taken.next().unwrap())))
    }

    /// Returns the file that a program inherits under a number.
    #[expect(
        clippy::disallowed_methods,
        reason = "a child that must be inspected while it is started"
    )]
    fn inherits(number: RawFd, inherited: Inherited) -> String {
        let link = format!("/proc/self/fd/{number}");
        let output = start_with(inherited, || Command::new("readlink").arg(link).output());
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    fn secret(place: &'static Mutex<ReservedFd>) -> (File, Inherited) {
        let file = tempfile::tempfile().unwrap();
        let secret = InheritedSecret {
            end: file.try_clone().unwrap().into(),
            place,
        };
        let hold = Some(tempfile::tempfile().unwrap());
        let secret = Some(secret);
        (file, Inherited { hold, secret })
    }

    #[test]
    fn a_program_inherits_its_secret_and_the_next_one_does_not() {
        let place = reserved();
        let number = place.lock().unwrap().fd.as_raw_fd();
        assert_eq!(inherits(number, Inherited::default()), "");
        for _ in 0..3 {
            let (file, inherited) = secret(place);
            let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            assert_eq!(inherits(number, inherited), format!("{}\n", link.display()));
            assert_eq!(inherits(number, Inherited::default()), "");
        }
    }

    #[test]
    fn nothing_is_lent_any_longer_after_a_start_that_panicked() {
        let place = reserved();
        let number = place.lock().unwrap().fd.as_raw_fd();
        let (_file, inherited) = secret(place);
        let start = || -> io::Result<()> { panic!("the start of a program panics") };
        catch_unwind(AssertUnwindSafe(|| start_with(inherited, start))).unwrap_err();
        let link = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(link.to_str(), Some("/dev/null"));
        assert_eq!(inherits(number, Inherited::default()), "");
        let (_file, inherited) = secret(place);
        assert_ne!(inherits(number, inherited), "");
    }

    #[test]
    fn a_number_in_use_is_not_reserved() {
        let place = reserved();
        let number = place.lock().unwrap().fd.as_raw_fd();
        assert!(ReservedFd::take(number).unwrap().is_none());
        let standard_output = 1;
        assert!(ReservedFd::take(standard_output).unwrap().is_none());
    }
}
