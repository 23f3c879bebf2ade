//! Tests the reader with files that Go's bbolt wrote (`tests/fixtures/bolt/generate.go`): whole, truncated, and with
//! changed bytes.

use std::io::Cursor;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

const WANTED: &[&str] = &["runLocks", "pulls", "globalLocks"];

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/bolt")
        .join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

fn keys(entries: &BucketEntries) -> Vec<&str> {
    entries
        .iter()
        .map(|(key, _)| std::str::from_utf8(key).unwrap())
        .collect()
}

#[test]
fn every_bucket_of_the_list_is_read() {
    let buckets = read_file(&fixture("current.db"), WANTED).unwrap();
    let expected = [
        "acme/infra/./staging/",
        "acme/infra/infra/net/default/net",
        "acme/web/app/default/",
    ];
    assert_eq!(keys(&buckets["runLocks"]), expected);
    assert_eq!(keys(&buckets["pulls"]), ["github.com::acme/infra::12"]);
    assert_eq!(keys(&buckets["globalLocks"]), ["apply/lock"]);
    assert_eq!(
        read_file(&fixture("current.db"), &["pulls", "none"])
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn empty_buckets_are_empty() {
    let buckets = read_file(&fixture("empty.db"), WANTED).unwrap();
    assert_eq!(
        buckets.values().map(Vec::len).collect::<Vec<_>>(),
        [0, 0, 0]
    );
}

#[test]
fn branches_and_overflow_pages_are_followed() {
    let many = &read_file(&fixture("many.db"), WANTED).unwrap()["runLocks"];
    let expected: Vec<String> = (0..150)
        .map(|n| format!("acme/infra/live/{n:03}/default/"))
        .collect();
    assert_eq!(keys(many), expected);
    let large = &read_file(&fixture("overflow.db"), WANTED).unwrap()["runLocks"];
    assert!(
        large[0].1.len() > 16384 && large[0].1.ends_with(b"}"),
        "{}",
        large[0].1.len()
    );
}

#[test]
fn a_file_that_somebody_else_has_locked_is_left_alone_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("atlantis.db");
    std::fs::copy(fixture("current.db"), &path).unwrap();
    let atlantis = File::options().read(true).write(true).open(&path).unwrap();
    atlantis.lock().unwrap();
    assert!(matches!(read_file(&path, WANTED), Err(BoltError::InUse)));
    atlantis.unlock().unwrap();
    atlantis.lock_shared().unwrap();
    assert_eq!(read_file(&path, WANTED).unwrap().len(), 3);
    assert_eq!(std::fs::read(&path).unwrap(), bytes("current.db"));
}

#[test]
fn what_is_no_database_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    assert!(matches!(read_file(&path, WANTED), Err(BoltError::Io(_))));
    assert!(matches!(
        read_file(dir.path(), WANTED),
        Err(BoltError::NotAFile)
    ));
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(read_file(&path, WANTED), Err(BoltError::NotAFile)));
    for text in [&b""[..], b"SQLite format 3\0", &[0; 9000]] {
        assert!(matches!(
            read(Cursor::new(text), WANTED),
            Err(BoltError::NotBolt)
        ));
    }
}

/// Applies `change` to the meta page at `at` and updates its checksum.
fn reseal(file: &mut [u8], at: usize, change: impl Fn(&mut [u8])) {
    let fields = &mut file[at + 16..at + 72];
    change(fields);
    let hash = fields.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    file[at + 72..at + 80].copy_from_slice(&hash.to_le_bytes());
}

#[test]
fn one_good_meta_page_is_enough() {
    let whole = read(Cursor::new(bytes("current.db")), WANTED).unwrap();
    let (mut good, mut bad) = (0, 0);
    for damaged in [20, 4096 + 20] {
        let mut file = bytes("current.db");
        file[damaged] ^= 1;
        // The older of the two pages may lack the last transaction; bbolt would fall back to it as well.
        match read(Cursor::new(file), WANTED) {
            Ok(buckets) if buckets == whole => good += 1,
            _ => bad += 1,
        }
    }
    assert!(good >= 1, "{good} {bad}");
    let mut file = bytes("current.db");
    for at in [0, 4096] {
        reseal(&mut file, at, |fields| fields[4] = 3);
    }
    assert!(matches!(
        read(Cursor::new(file), WANTED),
        Err(BoltError::Version(3))
    ));
}

#[test]
fn a_file_that_is_cut_off_is_never_taken_for_whole() {
    for name in ["current.db", "many.db", "overflow.db"] {
        let (file, whole) = (bytes(name), read_file(&fixture(name), WANTED).unwrap());
        let mut cut_off = 0;
        for len in (0..file.len()).step_by(509) {
            match read(Cursor::new(&file[..len]), WANTED) {
                Ok(buckets) => assert_eq!(buckets, whole, "{name} {len}"),
                Err(BoltError::Truncated { .. }) => cut_off += 1,
                Err(BoltError::NotBolt) => assert!(len < 80, "{name} {len}"),
                Err(other) => panic!("{name} {len}: {other}"),
            }
        }
        assert!(cut_off > 10, "{name}");
    }
}

#[test]
fn a_tree_that_leads_back_to_itself_ends() {
    let mut file = bytes("many.db");
    let size = 1024;
    let newest = newest_meta(&mut Cursor::new(&file)).unwrap();
    // Make every child of every branch page the root.
    for page in 2..usize::try_from(newest.end).unwrap() {
        let at = page * size;
        let is_branch = file[at + 8] == 1;
        let count = usize::from(u16::from_le_bytes([file[at + 10], file[at + 11]]));
        for n in (0..count).filter(|_| is_branch) {
            let id = u64::try_from(page).unwrap().to_le_bytes();
            file[at + 16 + n * 16 + 8..at + 32 + n * 16].copy_from_slice(&id);
        }
    }
    let error = read(Cursor::new(file), WANTED).unwrap_err();
    assert!(
        matches!(
            error,
            BoltError::Damaged {
                damage: Damage::Twice,
                ..
            }
        ),
        "{error}"
    );
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(file in prop::collection::vec(any::<u8>(), 0..9000)) {
        prop_assert!(read(Cursor::new(file), WANTED).is_err());
    }

    #[test]
    fn no_damage_breaks_the_reader(
        name in prop::sample::select(vec!["current.db", "many.db", "overflow.db", "empty.db"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
    ) {
        let mut file = bytes(name);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        drop(read(Cursor::new(file), WANTED));
    }

    /// Most random changes hit free pages. These changes hit headers and elements, and the meta pages stay valid.
    #[test]
    fn no_lie_in_a_header_breaks_the_reader(
        name in prop::sample::select(vec!["current.db", "many.db", "overflow.db"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..64, any::<u8>()), 1..20),
        (root, end) in (any::<u16>(), any::<u32>()),
        with_meta in any::<bool>(),
    ) {
        let mut file = bytes(name);
        let size = usize::try_from(newest_meta(&mut Cursor::new(&file)).unwrap().page_size).unwrap();
        for (page, at, byte) in changes {
            let page = 2 + page.index(file.len() / size - 2);
            file[page * size + at] = byte;
        }
        if with_meta {
            for at in [0, size] {
                reseal(&mut file, at, |fields| {
                    fields[16..18].copy_from_slice(&root.to_le_bytes());
                    fields[40..44].copy_from_slice(&end.to_le_bytes());
                });
            }
        }
        drop(read(Cursor::new(file), WANTED));
    }
}
