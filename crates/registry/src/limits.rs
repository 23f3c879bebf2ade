//! Limits of archives that come from outside, enforced while they are read.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

/// Sizes that an archive cannot exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Maximum number of bytes of the archive.
    pub packed: u64,
    /// Maximum number of bytes of all files together.
    pub unpacked: u64,
    /// Maximum number of entries, such as files and folders.
    pub entries: usize,
    /// Maximum number of unpacked bytes for each packed one, beyond the first [`RATIO_FROM`](Self::RATIO_FROM) of them.
    pub ratio: u64,
}

/// A limit that an archive exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExceededLimit {
    /// The archive is larger than allowed.
    #[error("the archive is larger than {0} bytes")]
    Packed(u64),
    /// The files are larger than allowed.
    #[error("the files of the archive have more than {0} bytes")]
    Unpacked(u64),
    /// The archive has more entries than allowed.
    #[error("the archive has more than {0} entries")]
    Entries(usize),
    /// The archive unpacks to more than its size could explain.
    #[error("the archive unpacks to more than {0} times its size")]
    Ratio(u64),
}

impl ArchiveLimits {
    /// Number of unpacked bytes that any archive can have. Small files of zeros are common, and harmless.
    pub const RATIO_FROM: u64 = 8 << 20;

    /// Checks the sizes that are known so far.
    pub(crate) fn check(&self, packed: u64, unpacked: u64) -> Result<(), ExceededLimit> {
        if packed > self.packed {
            return Err(ExceededLimit::Packed(self.packed));
        }
        if unpacked > self.unpacked {
            return Err(ExceededLimit::Unpacked(self.unpacked));
        }
        let is_ratio = unpacked / self.ratio.max(1) > packed;
        if unpacked > Self::RATIO_FROM && is_ratio {
            return Err(ExceededLimit::Ratio(self.ratio));
        }
        Ok(())
    }
}

/// Reason why the reading of an archive ended, beside what the decoder says about it.
#[derive(Debug)]
pub(crate) enum ReadStop {
    Limit(ExceededLimit),
    /// The bytes could not be read, which says nothing about the archive.
    Source(io::Error),
}

/// Bytes read so far, shared by the readers in front of and behind a decoder.
#[derive(Debug, Default)]
struct BytesRead {
    packed: u64,
    unpacked: u64,
    stop: Option<ReadStop>,
}

/// Counter of an archive that is read from a stream.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    limits: ArchiveLimits,
    progress: Rc<RefCell<BytesRead>>,
}

impl Meter {
    pub(crate) fn new(limits: ArchiveLimits) -> Self {
        Self {
            limits,
            progress: Rc::default(),
        }
    }

    /// Counts the bytes of the archive itself.
    pub(crate) fn packed<R: Read>(&self, inner: R) -> impl Read + use<R> {
        Metered {
            inner,
            meter: self.clone(),
            is_packed: true,
        }
    }

    /// Counts the bytes that a decoder returns.
    pub(crate) fn unpacked<R: Read>(&self, inner: R) -> impl Read + use<R> {
        Metered {
            inner,
            meter: self.clone(),
            is_packed: false,
        }
    }

    /// Returns the reason why a read failed, if it was not the decoder.
    pub(crate) fn take_stop(&self) -> Option<ReadStop> {
        self.progress.borrow_mut().stop.take()
    }
}

struct Metered<R> {
    inner: R,
    meter: Meter,
    is_packed: bool,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.inner.read(buffer);
        let mut progress = self.meter.progress.borrow_mut();
        let stop = match result {
            Ok(count) => {
                let counted = if self.is_packed {
                    &mut progress.packed
                } else {
                    &mut progress.unpacked
                };
                *counted += count as u64;
                let checked = self.meter.limits.check(progress.packed, progress.unpacked);
                match checked {
                    Ok(()) => return Ok(count),
                    Err(limit) => ReadStop::Limit(limit),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) if self.is_packed => ReadStop::Source(error),
            Err(error) => return Err(error),
        };
        progress.stop.get_or_insert(stop);
        Err(io::Error::other("the reading was stopped"))
    }
}
