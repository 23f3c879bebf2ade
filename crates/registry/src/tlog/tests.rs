use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::testing::fixed_seed;

/// Results of Go for the same records.
const VECTORS: &str = include_str!("../../vectors/tlog.txt");

/// The stored hashes of a log in memory.
#[derive(Default)]
struct MemoryLog(Vec<LogHash>);

impl MemoryLog {
    fn with_size(size: u64) -> Self {
        let mut log = Self::default();
        for record in 0..size {
            log.append(record, record_hash(text_of(record).as_bytes()));
        }
        log
    }

    fn append(&mut self, record: u64, hash: LogHash) -> Vec<LogHash> {
        assert_eq!(self.0.len() as u64, stored_hash_count(record));
        let hashes = self.answer(stored_hashes(record, hash).unwrap());
        self.0.extend(&hashes);
        hashes
    }

    fn answer<R>(&self, query: HashQuery<R>) -> R {
        let read = |indexes: &[u64]| {
            let at = |index: &u64| self.0[usize::try_from(*index).unwrap()];
            Ok::<_, TlogError>(indexes.iter().map(at).collect())
        };
        query.read_with(read).unwrap()
    }
}

fn text_of(record: u64) -> String {
    format!("record {record}\n")
}

fn add(digest: &mut Sha256, hashes: &[LogHash]) {
    digest.update(format!("{}:", hashes.len()));
    for hash in hashes {
        digest.update(hash.as_bytes());
    }
}

/// Records whose proofs are among the vectors.
fn chosen(size: u64) -> Vec<u64> {
    if size <= 130 {
        return (0..size).collect();
    }
    let spread = (0..3).map(|k| (size * 31 + k * 977) % size);
    spread.chain([0, size / 2, size - 1]).collect()
}

#[test]
fn logs_of_up_to_5000_records_have_the_hashes_proofs_and_tiles_of_go() {
    const KINDS: [&str; 7] = [
        "stored", "tree", "record", "prefix", "tiles8", "tiles2", "index",
    ];
    let mut lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    let mut log = MemoryLog::default();
    let mut roots = vec![LogHash::EMPTY_TREE];
    let mut digests = KINDS.map(|_| Sha256::new());
    for size in 0..=5000 {
        let [stored, tree, record, prefix, tiles8, tiles2, index] = &mut digests;
        let root = if size > 0 {
            let hash = record_hash(text_of(size - 1).as_bytes());
            add(stored, &log.append(size - 1, hash));
            let root = log.answer(tree_hash(size).unwrap());
            roots.push(root);
            root
        } else {
            log.answer(tree_hash(0).unwrap())
        };
        add(tree, &[root]);
        for n in chosen(size) {
            let proof = log.answer(prove_record(size, n).unwrap());
            let hash = record_hash(text_of(n).as_bytes());
            assert_eq!(check_record(&proof, size, &root, n, &hash), Ok(()));
            add(record, &proof);
            let proof = log.answer(prove_tree(size, n + 1).unwrap());
            let old_root = &roots[usize::try_from(n).unwrap() + 1];
            assert_eq!(check_tree(&proof, size, &root, n + 1, old_root), Ok(()));
            add(prefix, &proof);
        }
        for (height, digest) in [(8, tiles8), (2, tiles2)] {
            for tile in new_tiles(height, size.saturating_sub(1), size).unwrap() {
                digest.update(format!("{tile}\n"));
                digest.update(log.answer(tile.read(size).unwrap()));
            }
            for tile in new_tiles(height, size / 2, size).unwrap() {
                digest.update(format!("{tile}\n"));
            }
        }
        let (level, n) = split_stored_hash_index(size * 3);
        let tile = Tile::for_index(8, size * 3);
        index.update(format!("{level} {n} {} {tile}\n", stored_hash_count(size)));
        if size % 250 == 0 {
            for (kind, digest) in KINDS.iter().zip(&mut digests) {
                let line = format!("{kind} {size} {}", hex::encode(digest.finalize_reset()));
                assert_eq!(Some(line.as_str()), lines.next());
            }
        }
    }
}

#[test]
fn paths_of_tiles_are_those_of_go() {
    let mut count = 0;
    for line in VECTORS
        .lines()
        .filter_map(|line| line.strip_prefix("path \""))
    {
        let (path, expected) = line.split_once("\" ").unwrap();
        let found = path.parse::<Tile>().map(|tile| {
            assert_eq!(tile.to_string(), path);
            let level = match tile.level() {
                TileLevel::Data => -1,
                TileLevel::Hashes(level) => i32::from(level),
            };
            format!(
                "{} {level} {} {}",
                tile.height(),
                tile.number(),
                tile.width()
            )
        });
        assert_eq!(found.unwrap_or("refused".to_owned()), expected, "{path}");
        count += 1;
    }
    assert!(count > 30);
    // Go has levels up to 63 as well, but reads larger ones.
    assert_eq!("tile/8/64/000".parse::<Tile>(), Err(TlogError::BadTile));
}

#[test]
fn only_tiles_of_the_tree_are_read() {
    let log = MemoryLog::with_size(300);
    let tile = |path: &str| path.parse::<Tile>().unwrap();
    assert_eq!(
        log.answer(tile("tile/8/0/000").read(300).unwrap()).len(),
        256 * 32
    );
    assert_eq!(
        log.answer(tile("tile/8/1/000.p/1").read(300).unwrap())
            .len(),
        32
    );
    for path in [
        "tile/8/0/001.p/45",
        "tile/8/1/000.p/2",
        "tile/8/7/000.p/1",
        "tile/8/63/000.p/1",
        "tile/8/0/x009/x223/x372/x036/x854/x775/807",
        "tile/8/data/000",
    ] {
        let error = TlogError::NotInTile(path.to_owned());
        assert_eq!(tile(path).read(300).map(|_| ()), Err(error));
    }
    let high = tile("tile/30/0/000.p/300");
    assert_eq!(high.read(300).map(|_| ()), Err(TlogError::BadTile));
    assert_eq!(tile("tile/8/data/001.p/44").entries(300), Ok(256..300));
}

#[test]
fn requests_outside_the_log_are_errors() {
    let too_large = MAX_SIZE + 1;
    assert_eq!(
        tree_hash(too_large).map(|_| ()),
        Err(TlogError::TooLarge(too_large))
    );
    assert!(tree_hash(MAX_SIZE).is_ok());
    assert!(prove_record(MAX_SIZE, MAX_SIZE - 1).is_ok());
    assert!(prove_tree(MAX_SIZE, MAX_SIZE / 3).is_ok());
    assert!(stored_hashes(MAX_SIZE - 1, LogHash::EMPTY_TREE).is_ok());
    assert!(stored_hashes(u64::MAX, LogHash::EMPTY_TREE).is_err());
    assert_eq!(
        prove_record(5, 5).map(|_| ()),
        Err(TlogError::NoRecord { record: 5, size: 5 })
    );
    for old in [0, 6] {
        let error = TlogError::NotOlder { old, size: 5 };
        assert_eq!(prove_tree(5, old).map(|_| ()), Err(error));
    }
    let error = TlogError::NotOlder { old: 6, size: 5 };
    assert_eq!(new_tiles(8, 6, 5), Err(error));
    assert_eq!(new_tiles(8, 5, 5), Ok(vec![]));
    for height in [0, 31, u8::MAX] {
        assert_eq!(new_tiles(height, 0, 5), Err(TlogError::BadTile));
    }
    let query = tree_hash(3).unwrap();
    assert_eq!(query.indexes(), [2, 3]);
    let error = TlogError::HashCount {
        expected: 2,
        found: 1,
    };
    assert_eq!(query.compute(&[LogHash::EMPTY_TREE]), Err(error));
}

#[test]
fn heads_are_written_and_read_as_go_does() {
    // The example in Go's documentation of `ParseTree`.
    let text = "go.sum database tree\n2\nnND/nri/U0xuHUrYSy0HtMeal2vzD9V4k/BO79C+QeI=\n";
    let head: TreeHead = text.parse().unwrap();
    assert_eq!(head.size, 2);
    assert_eq!(head.to_string(), text);
    assert_eq!(format!("{text}and more\n\u{1}").parse(), Ok(head));
    for bad in [
        &text[..text.len() - 1],
        &text.replace("\n2\n", "\n02\n"),
        &text.replace("\n2\n", "\n-2\n"),
        &text.replace("\n2\n", "\n9223372036854775808\n"),
        &text.replace("tree", "tree v2"),
        &text.replace("nND/", "nND"),
        &format!("{text}{}", "x".repeat(1_000_000)),
        "",
    ] {
        assert_eq!(bad.parse::<TreeHead>(), Err(TlogError::BadHead));
    }
}

#[test]
fn records_are_written_and_read_as_go_does() {
    let lookup = format_record(7, "hello\nwörld\n").unwrap();
    assert_eq!(lookup, "7\nhello\nwörld\n\n");
    let message = format!("{lookup}go.sum database tree\n");
    assert_eq!(
        parse_record(message.as_bytes()),
        Ok((7, "hello\nwörld\n", b"go.sum database tree\n".as_slice()))
    );
    for bad in ["", "\n", "a", "a\n\nb\n", "a\n\n", "a\r\n", "a\0\n"] {
        assert_eq!(format_record(0, bad), Err(TlogError::BadRecord), "{bad:?}");
    }
    for bad in [
        "",
        "1",
        "1\n",
        "x\na\n\n",
        "+1\na\n\n",
        "01\na\n\n",
        "1\na\n",
        "1\n\n\n",
        "1\na\t\n\n",
    ] {
        assert_eq!(
            parse_record(bad.as_bytes()),
            Err(TlogError::BadRecord),
            "{bad:?}"
        );
    }
    assert_eq!(parse_record(b"1\n\xff\n\n"), Err(TlogError::BadRecord));
}

/// Bytes that are often close to a message.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b"go.sum database tree\n".to_vec()),
        Just(b"tile/8/0/".to_vec()),
        Just(b"x001/".to_vec()),
        Just(b".p/".to_vec()),
        Just(b"data".to_vec()),
        "[0-9]{1,20}".prop_map(String::into_bytes),
        "\\PC{0,5}".prop_map(String::into_bytes),
        any::<[u8; 32]>().prop_map(|hash| LogHash::from_bytes(hash).to_string().into_bytes()),
        any::<[u8; 2]>().prop_map(Vec::from),
    ];
    prop::collection::vec(part, 0..9).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn readers_take_any_bytes(message in messages()) {
        if let Ok((record, text, rest)) = parse_record(&message) {
            let again = format_record(record, text).unwrap();
            prop_assert_eq!([again.as_bytes(), rest].concat(), message.clone());
        }
        if let Ok((text, rest)) = parse_data_record(&message) {
            let again = format_data_record(text).unwrap();
            prop_assert_eq!([again.as_bytes(), rest].concat(), message.clone());
        }
        let text = String::from_utf8_lossy(&message);
        if let Ok(head) = text.parse::<TreeHead>() {
            prop_assert!(text.starts_with(&head.to_string()));
            prop_assert!(tree_hash(head.size).is_ok());
        }
        if let Ok(tile) = text.parse::<Tile>() {
            prop_assert_eq!(tile.to_string(), &*text);
        }
        if let Ok(hash) = text.parse::<LogHash>() {
            prop_assert_eq!(hash.to_string(), &*text);
        }
    }

    #[test]
    fn any_tile_has_one_path(height in 1..=30_u8, level in -1..=63_i8, number in 0..=MAX_SIZE, width in 1..=1_u32 << 30) {
        let level = u8::try_from(level).map_or(TileLevel::Data, TileLevel::Hashes);
        let width = width % (1 << height) + 1;
        let tile = Tile::new(height, level, number, width).unwrap();
        prop_assert_eq!(tile.to_string().parse(), Ok(tile));
        // Sizes and indexes from other servers lead to errors at most.
        prop_assert!(tile.read(MAX_SIZE).is_ok() || tile.height() > 8 || tile.entries(MAX_SIZE).is_err() || level == TileLevel::Data);
        prop_assert!(hash_from_tile(&tile, &[0; 64], number).is_err() || width == 2);
    }

    #[test]
    fn indexes_of_stored_hashes_go_there_and_back(index in prop_oneof![0..10_000_u64, any::<u64>()]) {
        let (level, n) = split_stored_hash_index(index);
        if (u128::from(n) + 1) << level <= u128::from(MAX_SIZE) {
            prop_assert_eq!(stored_hash_index(level, n), index);
        }
    }

    #[test]
    fn tiles_have_every_stored_hash_of_a_log(size in 1..700_u64, height in 1..=8_u8, pick in any::<prop::sample::Index>()) {
        let log = MemoryLog::with_size(size);
        let index = pick.index(log.0.len());
        let tile = Tile::for_index(height, index as u64);
        let data = log.answer(tile.read(size).unwrap());
        prop_assert_eq!(hash_from_tile(&tile, &data, index as u64), Ok(log.0[index]));
        prop_assert!(hash_from_tile(&tile, &data[1..], index as u64).is_err());
    }

    #[test]
    fn a_changed_proof_is_refused(
        size in 1..300_u64,
        record in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        change in 0..5,
    ) {
        let log = MemoryLog::with_size(size);
        let root = log.answer(tree_hash(size).unwrap());
        let record = record.index(usize::try_from(size).unwrap()) as u64;
        let hash = record_hash(text_of(record).as_bytes());
        let old_root = log.answer(tree_hash(record + 1).unwrap());
        for is_tree in [false, true] {
            let query = if is_tree { prove_tree(size, record + 1) } else { prove_record(size, record) };
            let mut proof = log.answer(query.unwrap());
            let mut known = if is_tree { old_root } else { hash };
            let other = LogHash::from_bytes([7; 32]);
            match change {
                0 => proof.push(other),
                1 if !proof.is_empty() => { proof.pop(); }
                2 if !proof.is_empty() => { let at = place.index(proof.len()); proof[at] = other; }
                3 if !proof.is_empty() => { let at = place.index(proof.len()); proof.insert(at, other); }
                _ => known = other,
            }
            let result = if is_tree {
                check_tree(&proof, size, &root, record + 1, &known)
            } else {
                check_record(&proof, size, &root, record, &known)
            };
            prop_assert_eq!(result, Err(TlogError::ProofFailed));
        }
    }
}
