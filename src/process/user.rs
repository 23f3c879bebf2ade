//! Runs the programs of a run as another user.
//!
//! On Linux, user and groups belong to a thread. So the supervisor starts the program from a thread that has become
//! the other user. The supervisor itself stays the user of the server, so the program can neither signal nor trace
//! it.

use std::io;

use nix::unistd::geteuid;
use rustix::thread::{
    CapabilitySet, Gid, Uid, capabilities, capability_is_in_ambient_set, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::model::RunUser;

/// Capabilities needed to start and end runs of another user and to clean up after them.
const NEEDED: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::KILL, "CAP_KILL"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
];

/// Returns true if this process already runs as that user.
pub fn is_own_user(user: RunUser) -> bool {
    geteuid().as_raw() == user.uid
}

/// Lists the capabilities that this process, or its children, lack to run programs as another user and to own its
/// files.
pub fn missing_rights() -> io::Result<Vec<&'static str>> {
    let effective = capabilities(None)?.effective;
    let mut missing = Vec::new();
    for (right, name) in NEEDED {
        // The supervisor is started as a new program: a server that is not root passes on only ambient
        // capabilities.
        let is_handed_on = geteuid().is_root() || capability_is_in_ambient_set(right)?;
        if !effective.contains(right) || !is_handed_on {
            missing.push(name);
        }
    }
    Ok(missing)
}

/// Makes this thread that user permanently: no program that it starts can become another user.
pub(super) fn become_user(user: RunUser) -> io::Result<()> {
    set_no_new_privs(true)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}
