//! Refuses the inter-process communication of System V to runs that share it with the machine.
//!
//! Its segments, queues and semaphores belong to no process: what a run leaves there takes memory until somebody removes it or
//! the machine restarts, and no limit of a run counts it. Programs that share memory have newer ways, which end with them.
//! In namespaces of bubblewrap a run has its own, which ends with the run.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use nix::libc::{ENOSYS, SYS_msgget, SYS_semget, SYS_shmget};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// Bit in the numbers of calls by programs with short pointers on x86-64 (x32). Other architectures have no such calls.
const X32: i64 = 0x4000_0000;

/// Takes the right to create such objects from this thread and what it starts. They seem not to exist, as in a kernel
/// without them. Where the kernel has no filters, the thread keeps the right.
pub(super) fn give_up() {
    if let Some(filter) = filter() {
        apply_filter(&filter).ok();
    }
}

fn filter() -> Option<BpfProgram> {
    let calls: BTreeMap<i64, Vec<_>> = [SYS_msgget, SYS_semget, SYS_shmget]
        .into_iter()
        .flat_map(|call| [call, call | X32])
        .map(|call| (call, Vec::new()))
        .collect();
    let refusal = SeccompAction::Errno(ENOSYS.unsigned_abs());
    let arch = TargetArch::try_from(ARCH).ok()?;
    SeccompFilter::new(calls, SeccompAction::Allow, refusal, arch)
        .and_then(BpfProgram::try_from)
        .ok()
}
