//! Configuration of all property tests, the answers of Go's own packages, and records to test with.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use lockkeeper_model::model::{Reason, Sha256Digest};
use proptest::test_runner::{Config, RngSeed};

use crate::dirhash::DirHash;
use crate::names::NameKind;
use crate::records::{
    Checksums, DeploymentName, LogId, PackageFile, PackageFiles, Record, RecordChange, RecordMaker,
    RecordNotice, UnsignedRecord, VersionContent,
};
use crate::signed_note::NoteSigner;
use crate::versions::VersionKey;

/// Returns a configuration with a fixed seed, so that a failing case is the same on every machine.
///
/// Other cases, and more of them, come with variables that proptest reads: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=5000`. `make
/// chaos` sets both.
pub(crate) fn fixed_seed() -> Config {
    let default = Config::default();
    Config {
        failure_persistence: None,
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(19),
            chosen @ RngSeed::Fixed(_) => chosen,
        },
        ..default
    }
}

/// Returns the fields of each line of `vectors/names.txt` that begins with a word.
pub(crate) fn go_vectors(word: &str) -> Vec<Vec<&'static str>> {
    let lines = include_str!("../vectors/names.txt").lines();
    let lines = lines.filter_map(|line| line.strip_prefix(word)?.strip_prefix('\t'));
    let vectors: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    assert!(!vectors.is_empty(), "there are no vectors for {word}");
    vectors
}

/// Reader of a broken disk, which fails at one byte.
pub(crate) struct FailingReader<'a> {
    bytes: Cursor<&'a [u8]>,
    fails_at: u64,
}

impl<'a> FailingReader<'a> {
    /// Reads these bytes, except the one at a place.
    pub(crate) fn new(bytes: &'a [u8], fails_at: usize) -> Self {
        Self {
            bytes: Cursor::new(bytes),
            fails_at: fails_at as u64,
        }
    }
}

impl Read for FailingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.fails_at.checked_sub(self.bytes.position()) {
            Some(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(most) => self.bytes.by_ref().take(most).read(buffer),
            None => self.bytes.read(buffer),
        }
    }
}

impl Seek for FailingReader<'_> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(place)
    }
}

/// Returns bytes that no compressor makes smaller.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 19_u64;
    let mut words = Vec::with_capacity(count + 8);
    while words.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend(state.to_le_bytes());
    }
    words.truncate(count);
    words
}

/// Returns the name of a deployment.
pub(crate) fn deployment(name: &str) -> DeploymentName {
    name.parse().unwrap()
}

/// Returns the key that a deployment of the tests signs with.
pub(crate) fn signing_key(deployment: &DeploymentName) -> NoteSigner {
    NoteSigner::from_seed(deployment.as_str(), &[19; 32]).unwrap()
}

/// Returns content whose checksums depend on a number alone.
pub(crate) fn content(kind: NameKind, number: u8) -> VersionContent {
    let hash = |number| DirHash::from_bytes([number; 32]);
    let checksums = match kind {
        NameKind::Module => Checksums::Module {
            files: hash(number),
        },
        NameKind::Go => Checksums::Go {
            zip: hash(number),
            go_mod: hash(0),
        },
    };
    let package = PackageFile {
        name: "package.zip".parse().unwrap(),
        digest: Sha256Digest::of(&[number]),
        size: number.into(),
    };
    VersionContent {
        checksums,
        packages: PackageFiles::new(vec![package]).unwrap(),
        commit: None,
    }
}

/// Returns a reason without a replacement.
pub(crate) fn notice(reason: &str) -> RecordNotice {
    RecordNotice {
        reason: Reason::read(reason).unwrap().unwrap(),
        replacement: None,
    }
}

/// Returns a signed record.
pub(crate) fn record(
    key: &VersionKey,
    change: RecordChange,
    maker: &DeploymentName,
    id: i64,
) -> Record {
    let maker = RecordMaker {
        deployment: maker.clone(),
        id: LogId::new(id).unwrap(),
    };
    let signing_key = signing_key(&maker.deployment);
    let time = "2026-11-03T10:00:00Z".parse().unwrap();
    let unsigned = UnsignedRecord::new(key.clone(), change, time, maker).unwrap();
    unsigned.sign(&signing_key)
}
