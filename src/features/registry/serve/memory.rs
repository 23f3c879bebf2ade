//! Memory for packages, with a limit that holds as long as a client reads them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory that is left for packages, in KiB.
pub(super) struct PackageMemory(Arc<Semaphore>);

/// The bytes of a package. Their memory is free again when nobody keeps or sends any of them.
struct PackageBytes {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for PackageBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PackageMemory {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / 1024)))
    }

    /// Takes memory for a number of bytes. `None`: not so much is left.
    pub fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(kib).ok()
    }
}

/// Lets the bytes of a package have memory that was taken for them.
pub(super) fn in_place(bytes: Vec<u8>, place: OwnedSemaphorePermit) -> Bytes {
    Bytes::from_owner(PackageBytes {
        bytes,
        _place: place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_free_when_nobody_reads_its_bytes_any_more() {
        let memory = PackageMemory::new(4096);
        let place = memory.take(1500).unwrap();
        let package = in_place(vec![7; 1500], place);
        assert!(memory.take(2049).is_none());
        assert!(memory.take(u64::MAX).is_none());
        let of_client = package.slice(10..20);
        drop(package);
        assert!(memory.take(2049).is_none());
        assert_eq!(of_client, [7; 10].as_slice());
        drop(of_client);
        assert!(memory.take(4096).is_some());
    }
}
