//! Limits of archives that come from outside, enforced while they are read.

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom};
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

    /// Checks the size of the archive, and the number of bytes that are unpacked so far.
    pub(crate) fn check(&self, packed: u64, unpacked: u64) -> Result<(), ExceededLimit> {
        if packed > self.packed {
            return Err(ExceededLimit::Packed(self.packed));
        }
        if unpacked > self.unpacked {
            return Err(ExceededLimit::Unpacked(self.unpacked));
        }
        let beyond = unpacked.saturating_sub(Self::RATIO_FROM);
        if beyond > packed.saturating_mul(self.ratio) {
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

/// State shared by the readers in front of and behind a decoder.
#[derive(Debug, Default)]
struct MeterState {
    unpacked: u64,
    stop: Option<ReadStop>,
}

/// Counter of the bytes that an archive of a known size unpacks to. The size is that of the whole, so that the order of
/// the entries does not matter.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    limits: ArchiveLimits,
    packed: u64,
    state: Rc<RefCell<MeterState>>,
}

impl Meter {
    pub(crate) fn new(limits: ArchiveLimits, packed: u64) -> Self {
        Self {
            limits,
            packed,
            state: Rc::default(),
        }
    }

    /// Keeps the errors of the file, which decoders report like errors of the archive.
    pub(crate) fn source<R>(&self, inner: R) -> ArchiveSource<R> {
        let meter = self.clone();
        ArchiveSource { inner, meter }
    }

    /// Counts the bytes that a decoder returns.
    pub(crate) fn unpacked<R>(&self, inner: R) -> Unpacked<R> {
        let meter = self.clone();
        Unpacked { inner, meter }
    }

    /// Returns the reason why a read failed, if it was not the decoder.
    pub(crate) fn take_stop(&self) -> Option<ReadStop> {
        self.state.borrow_mut().stop.take()
    }

    /// Keeps the first reason, and returns an error for the decoder.
    fn stop(&self, stop: ReadStop) -> io::Error {
        self.state.borrow_mut().stop.get_or_insert(stop);
        io::Error::other("the reading was stopped")
    }
}

/// Reader of an archive's file.
#[derive(Debug)]
pub(crate) struct ArchiveSource<R> {
    inner: R,
    meter: Meter,
}

impl<R> ArchiveSource<R> {
    /// Keeps an error, unless it is of the kind that does not mean a broken file.
    fn fail(&self, error: io::Error, harmless: io::ErrorKind) -> io::Error {
        if error.kind() == harmless {
            error
        } else {
            self.meter.stop(ReadStop::Source(error))
        }
    }
}

impl<R: Read> Read for ArchiveSource<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.inner.read(buffer);
        result.map_err(|error| self.fail(error, io::ErrorKind::Interrupted))
    }
}

impl<R: Seek> Seek for ArchiveSource<R> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        let result = self.inner.seek(place);
        // An archive can name places that no file has.
        result.map_err(|error| self.fail(error, io::ErrorKind::InvalidInput))
    }
}

/// Reader of the bytes that a decoder returns.
#[derive(Debug)]
pub(crate) struct Unpacked<R> {
    inner: R,
    meter: Meter,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let Meter {
            limits,
            packed,
            state,
        } = &self.meter;
        let unpacked = state.borrow().unpacked + count as u64;
        state.borrow_mut().unpacked = unpacked;
        match limits.check(*packed, unpacked) {
            Ok(()) => Ok(count),
            Err(limit) => Err(self.meter.stop(ReadStop::Limit(limit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::testing::FailingReader;

    const LIMITS: ArchiveLimits = ArchiveLimits {
        packed: 1 << 20,
        unpacked: 64 << 20,
        entries: 1,
        ratio: 100,
    };

    #[test]
    fn the_ratio_counts_only_what_is_beyond_the_first_bytes() {
        let first = ArchiveLimits::RATIO_FROM;
        for (packed, most) in [(1, first + 100), (1000, first + 100_000)] {
            assert_eq!(LIMITS.check(packed, first), Ok(()));
            assert_eq!(LIMITS.check(packed, most), Ok(()));
            let exceeded = LIMITS.check(packed, most + 1);
            assert_eq!(exceeded, Err(ExceededLimit::Ratio(100)));
        }
    }

    #[test]
    fn only_errors_of_the_file_are_kept() {
        let meter = Meter::new(LIMITS, 1);
        // An archive names a place that no file has.
        let mut source = meter.source(Cursor::new([0]));
        source.seek(SeekFrom::Current(-1)).unwrap_err();
        assert!(meter.take_stop().is_none());
        let mut failing = meter.source(FailingReader::new(&[0], 0));
        failing.read(&mut [0]).unwrap_err();
        assert!(matches!(meter.take_stop(), Some(ReadStop::Source(_))));
    }
}
