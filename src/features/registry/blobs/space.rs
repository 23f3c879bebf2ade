//! Space on the disk that packages leave free.
//!
//! Everyone who may publish can send large packages. On a single server, the database is usually on the same disk, and without
//! space for it the whole server stops. So packages stop arriving before.

use std::fmt;
use std::path::Path;

use crate::config::size::shown;
use crate::process::DiskSpace;

/// Space that stays free: this part of the disk, or this number of bytes if that is less.
const KEPT_PART: u64 = 20;
const KEPT_BYTES: u64 = 1 << 30;

/// Number of bytes of a package after which the disk is looked at again.
pub(super) const LOOK_EVERY: u64 = 16 << 20;

/// The disk has less free space than packages leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowSpace {
    /// Number of free bytes.
    pub free: u64,
    /// Number of bytes that stay free.
    pub kept: u64,
}

impl fmt::Display for LowSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the disk where packages arrive has only {} free, and {} are reserved for the rest of the server",
            shown(self.free),
            shown(self.kept)
        )
    }
}

impl std::error::Error for LowSpace {}

/// Checks that the disk with a file or directory has space for packages. Waits for the disk.
///
/// A file system that does not report its space has enough.
pub(super) fn check(place: &Path) -> Result<(), LowSpace> {
    DiskSpace::of(place).map_or(Ok(()), enough)
}

/// Checks that a disk with this space has some for packages.
fn enough(space: DiskSpace) -> Result<(), LowSpace> {
    let kept = KEPT_BYTES.min(space.total / KEPT_PART);
    if space.free < kept {
        let free = space.free;
        return Err(LowSpace { free, kept });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    #[test]
    fn packages_leave_a_gibibyte_free_or_a_twentieth_of_a_small_disk() {
        for (total, free, kept) in [
            (200 * GIB, GIB, None),
            (200 * GIB, GIB - 1, Some(GIB)),
            (20 * GIB, GIB, None),
            (20 * GIB, GIB - 1, Some(GIB)),
            (10 * GIB, 512 * MIB, None),
            (10 * GIB, 512 * MIB - 1, Some(512 * MIB)),
            (10 * GIB, 0, Some(512 * MIB)),
            // A file system without a size of its own.
            (0, 0, None),
        ] {
            let expected = kept.map_or(Ok(()), |kept| Err(LowSpace { free, kept }));
            assert_eq!(
                enough(DiskSpace { total, free }),
                expected,
                "{total} {free}"
            );
        }
    }

    #[test]
    fn a_place_that_is_not_there_is_for_others_to_report() {
        assert_eq!(check(Path::new("/nowhere/at/all")), Ok(()));
    }
}
