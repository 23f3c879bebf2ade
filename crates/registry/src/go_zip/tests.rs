mod generated;

use std::io::{Cursor, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;
use crate::testing::{FailingReader, fixed_seed, noise};
use crate::tree::{TreeFile, TreeMode};

/// Trees and packages, and what Go says about them.
const VECTORS: &str = include_str!("../../vectors/zip.txt");

const PREFIX: &str = "example.com/m@v1.2.3/";

/// Words are written with `=` in front and `%` before the digits of unusual bytes.
fn unescape(word: &str) -> Vec<u8> {
    let mut parts = word.strip_prefix('=').unwrap().split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.extend(hex::decode(&part[..2]).unwrap());
        bytes.extend(&part.as_bytes()[2..]);
    }
    bytes
}

/// Lines that Go printed for a tree or a package.
fn lines_of(result: &Result<(Vec<String>, String), GoZipError>) -> Vec<String> {
    let shown = |name: &str| name.replace(PREFIX, "");
    match result {
        Ok((files, hash)) => {
            let files = files.iter().map(|file| format!("valid {}", shown(file)));
            files.chain([hash.clone()]).collect()
        }
        Err(GoZipError::Files(faults)) => faults
            .iter()
            .map(|fault| {
                let class = match &fault.reason {
                    GoZipReason::Path(PathFault::Case(_)) => "case",
                    GoZipReason::Path(PathFault::FileAndFolder) => "both",
                    GoZipReason::Path(PathFault::Twice) => "twice",
                    GoZipReason::Path(_) => "name",
                    GoZipReason::GoModCase => "gomodcase",
                    GoZipReason::GoModNotAtTop => "gomodplace",
                    GoZipReason::TooLarge
                    | GoZipReason::Prefix(_)
                    | GoZipReason::Kind
                    | GoZipReason::Method
                    | GoZipReason::Size => "none of Go",
                };
                format!("invalid {} {class}", shown(&fault.path))
            })
            .collect(),
        Err(other) => vec![other.to_string()],
    }
}

fn expected_of(lines: &[&str]) -> Vec<String> {
    let printed = lines.iter().filter(|line| !line.starts_with("entry "));
    let words = printed.map(|line| {
        let words = line.split(' ').map(|word| match word.strip_prefix('=') {
            Some(_) => String::from_utf8_lossy(&unescape(word)).into_owned(),
            None => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    });
    words.collect()
}

/// Splits the vectors into those of one kind, each with its words and the lines below it.
fn vectors(kind: &str) -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
    let mut found: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("tree ") || line.starts_with("zip ") {
            found.push((line.split(' ').collect(), Vec::new()));
        } else {
            found.last_mut().unwrap().1.push(line);
        }
    }
    found.retain(|(words, _)| words[0] == kind);
    found
}

fn package(files: &GoModuleFiles<'_>) -> (Vec<u8>, String) {
    let mut bytes = Cursor::new(Vec::new());
    let hash = write_go_zip(&module_path(), &version(), files, &mut bytes).unwrap();
    (bytes.into_inner(), hash.to_string())
}

fn module_path() -> GoPath {
    "example.com/m".parse().unwrap()
}

fn version() -> GoVersion {
    "v1.2.3".parse().unwrap()
}

fn check(zip: &[u8]) -> Result<GoZipContents, GoZipError> {
    check_go_zip(
        &module_path(),
        &version(),
        Cursor::new(zip),
        &GO_LIMITS,
        |_, _| Ok(()),
    )
}

#[test]
fn packages_of_repositories_are_those_of_go() {
    let trees = vectors("tree");
    assert!(trees.len() > 60);
    for (words, lines) in trees {
        let entries: Vec<[Vec<u8>; 3]> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("entry "))
            .map(|line| {
                let [kind, path, content] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
                [kind.as_bytes().to_vec(), unescape(path), unescape(content)]
            })
            .collect();
        let tree: Vec<TreeFile<'_>> = entries
            .iter()
            .map(|[kind, path, content]| TreeFile {
                path,
                mode: match kind[0] {
                    b'l' => TreeMode::Link,
                    b's' => TreeMode::Submodule,
                    b'x' => TreeMode::Executable,
                    _ => TreeMode::File,
                },
                content,
            })
            .collect();
        let directory = String::from_utf8(unescape(words[2])).unwrap();
        let result = select_go_files(&tree, &directory).map(|module| {
            let (zip, hash) = package(&module);
            // What is written here follows the rules for uploads as well.
            let contents = check(&zip).unwrap();
            assert_eq!(contents.hash.to_string(), hash);
            assert_eq!(contents.files, module.files.len());
            let paths = module.files.iter().map(|(path, _)| (*path).to_owned());
            (paths.collect(), hash)
        });
        assert_eq!(lines_of(&result), expected_of(&lines), "{}", words[1]);
    }
}

#[test]
fn uploads_are_accepted_as_by_go() {
    let zips = vectors("zip");
    assert!(zips.len() > 15);
    for (words, lines) in zips {
        let zip = STANDARD.decode(words[2]).unwrap();
        let mut files = Vec::new();
        let contents = check_go_zip(
            &module_path(),
            &version(),
            Cursor::new(&zip),
            &GO_LIMITS,
            |path, content| {
                content.read_to_end(&mut Vec::new())?;
                files.push(path.to_owned());
                Ok(())
            },
        );
        files.sort_unstable();
        let mut expected = expected_of(&lines);
        // Folders are in the list of Go, but nobody reads them.
        expected.retain(|line| !(line.starts_with("valid ") && line.ends_with(['/', ' '])));
        let result = contents.map(|contents| (files, contents.hash.to_string()));
        assert_eq!(lines_of(&result), expected, "{}", words[1]);
    }
}

#[test]
fn left_out_files_are_named_with_their_reason() {
    let file = |path: &'static str, mode| TreeFile {
        path: path.as_bytes(),
        mode,
        content: b"",
    };
    let tree = [
        file("a.go", TreeMode::File),
        file("link", TreeMode::Link),
        file("third", TreeMode::Submodule),
        file("sub/go.mod", TreeMode::File),
        file("vendor/x/x.go", TreeMode::File),
        file(".hg_archival.txt", TreeMode::File),
    ];
    let module = select_go_files(&tree, "").unwrap();
    assert_eq!(module.files, [("a.go", b"".as_slice())]);
    let omitted: Vec<_> = module
        .omitted
        .iter()
        .map(|file| (file.path.as_str(), file.reason))
        .collect();
    assert_eq!(
        omitted,
        [
            (".hg_archival.txt", OmittedReason::HgArchive),
            ("link", OmittedReason::Link),
            ("sub/go.mod", OmittedReason::OtherModule),
            ("vendor/x/x.go", OmittedReason::Vendored),
        ]
    );
    assert_eq!(synthetic_go_mod(&module_path()), "module example.com/m\n");
}

#[test]
fn paths_that_git_itself_does_not_make_are_refused() {
    for path in [
        "../a",
        "a/../b",
        "./a",
        "a//b",
        "/a",
        "a/",
        "",
        "vendor/x/../../../a",
    ] {
        let tree = [TreeFile {
            path: path.as_bytes(),
            mode: TreeMode::File,
            content: b"",
        }];
        let error = select_go_files(&tree, "").unwrap_err();
        assert!(
            matches!(error, GoZipError::Files(faults) if faults[0].path == path),
            "{path}"
        );
    }
}

#[test]
fn large_files_and_modules_are_refused() {
    let large = vec![0; usize::try_from(MAX_GO_FILE).unwrap() + 1];
    let file = |path: &'static [u8], content| TreeFile {
        path,
        mode: TreeMode::File,
        content,
    };
    for name in ["go.mod", "LICENSE"] {
        let exact = [file(name.as_bytes(), &large[1..])];
        assert!(select_go_files(&exact, "").is_ok());
        let error = select_go_files(&[file(name.as_bytes(), &large)], "").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name:?}: the file is larger than 16777216 bytes")
        );
    }
    // The license of the repository is also part of a module below it.
    let tree = [file(b"LICENSE", &large), file(b"sub/x.go", b"")];
    assert!(select_go_files(&tree, "sub").is_err());
    assert!(select_go_files(&[file(b"sub/LICENSE", &large)], "").is_ok());
    let names: Vec<String> = (0..32).map(|number| number.to_string()).collect();
    let tree: Vec<TreeFile<'_>> = names
        .iter()
        .map(|name| TreeFile {
            path: name.as_bytes(),
            mode: TreeMode::File,
            content: &large,
        })
        .collect();
    let error = select_go_files(&tree, "").unwrap_err();
    assert!(matches!(
        error,
        GoZipError::Limit(ExceededLimit::Unpacked(MAX_GO_ZIP))
    ));
    assert!(select_go_files(&tree[..31], "").is_ok());
}

/// A package of these entries, with names behind the folder of the version.
fn zip_of(entries: &[(&str, &[u8], SimpleFileOptions)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content, options) in entries {
        zip.start_file(format!("{PREFIX}{name}"), *options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn stored() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Stored)
}

#[test]
fn hostile_packages_are_refused_by_name() {
    let reason = |zip: &[u8]| check(zip).unwrap_err().to_string();
    let link = {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.add_symlink(format!("{PREFIX}link"), "/etc/passwd", stored())
            .unwrap();
        zip.finish().unwrap().into_inner()
    };
    assert!(reason(&link).ends_with("link\": the entry is neither a file nor a folder"));
    let mut outside = ZipWriter::new(Cursor::new(Vec::new()));
    outside
        .start_file("other.com/m@v1.2.3/a", stored())
        .unwrap();
    let outside = outside.finish().unwrap().into_inner();
    assert_eq!(
        reason(&outside),
        "\"other.com/m@v1.2.3/a\": the name does not begin with \"example.com/m@v1.2.3/\""
    );

    let plain = zip_of(&[("a.go", b"package a\n", stored())]);
    let contents = check(&plain).unwrap();
    assert_eq!((contents.files, contents.size), (1, 10));
    // The name in front of the content is another one than that in the directory.
    let mut cloaked = plain.clone();
    let place = cloaked.windows(4).position(|part| part == b"a.go").unwrap();
    cloaked[place] = b'b';
    assert!(reason(&cloaked).starts_with("not a zip file"));
    // An additional field with another name, which only some readers use.
    let crc = crc_of(format!("{PREFIX}a.go").as_bytes());
    let content = [
        &[1],
        crc.to_le_bytes().as_slice(),
        format!("{PREFIX}evil").as_bytes(),
    ]
    .concat();
    let length = u16::try_from(content.len()).unwrap();
    let field = [
        &0x7075_u16.to_le_bytes(),
        length.to_le_bytes().as_slice(),
        &content,
    ]
    .concat();
    assert!(reason(&with_field(&plain, &field)).starts_with("not a zip file"));
    assert!(check(&with_field(&plain, b"\x34\x12\x01\0x")).is_ok());
    // A size that lies, in both places, in either direction.
    for size in [9_u8, 11] {
        let mut lie = plain.clone();
        lie[22] = size;
        let central = lie
            .windows(4)
            .position(|part| part == b"PK\x01\x02")
            .unwrap();
        lie[central + 24] = size;
        assert!(check(&lie).is_err());
    }
    // Content that was changed.
    let mut changed = plain.clone();
    let place = changed
        .windows(7)
        .position(|part| part == b"package")
        .unwrap();
    changed[place] = b'P';
    assert!(reason(&changed).starts_with("not a zip file"));
    // Something in front or behind, or a comment.
    for around in [
        [plain.clone(), plain.clone()].concat(),
        [b"#!/bin/sh\n".to_vec(), plain.clone()].concat(),
        [plain.clone(), b"x".to_vec()].concat(),
        [&plain[..plain.len() - 2], b"\x01\0x"].concat(),
    ] {
        assert!(reason(&around).starts_with("not a zip file"));
    }
    for cut in 0..plain.len() {
        let error = check(&plain[..cut]).unwrap_err();
        assert!(matches!(error, GoZipError::Malformed(_)), "{cut}");
    }
}

#[test]
fn errors_of_the_file_are_not_those_of_the_package() {
    let content = noise(4_000);
    let options = [stored(), SimpleFileOptions::default()];
    for options in options {
        let zip = zip_of(&[("a.go", &content, options), ("b.go", b"b", options)]);
        for place in (0..zip.len()).filter(|place| place % 331 == 0 || place + 300 > zip.len()) {
            let error = check_go_zip(
                &module_path(),
                &version(),
                FailingReader::new(&zip, place),
                &GO_LIMITS,
                |_, _| Ok(()),
            )
            .unwrap_err();
            assert!(
                matches!(error, GoZipError::Io(error) if error.kind() == io::ErrorKind::ConnectionReset),
                "{place}"
            );
        }
    }
}

/// An entry of a package that is written byte by byte.
#[derive(Clone, Copy, Default)]
struct RawEntry<'a> {
    name: &'a str,
    /// Additional fields in front of the content, and not in the directory.
    extra: &'a [u8],
    content: &'a [u8],
    /// Bytes behind the content.
    behind: &'a [u8],
    has_descriptor: bool,
    /// Place that the directory names, if it is another one than that of the entry.
    start: Option<usize>,
}

/// Returns the header of an entry, from the version on up to the lengths.
fn raw_header(entry: &RawEntry<'_>, is_local: bool) -> Vec<u8> {
    let crc = crc_of(entry.content);
    let size = u32::try_from(entry.content.len()).unwrap();
    let is_empty = is_local && entry.has_descriptor;
    let fields = if is_empty { [0; 3] } else { [crc, size, size] };
    let flags = if entry.has_descriptor { 8_u8 } else { 0 };
    let mut header = vec![20, 0, flags, 0, 0, 0, 0, 0, 0x21, 0];
    header.extend(fields.into_iter().flat_map(u32::to_le_bytes));
    let extra = if is_local { entry.extra.len() } else { 0 };
    let lengths = [PREFIX.len() + entry.name.len(), extra];
    header.extend(
        lengths
            .map(|length| u16::try_from(length).unwrap().to_le_bytes())
            .concat(),
    );
    header
}

/// Returns everything of an entry that is not in the directory.
fn raw_entry(entry: &RawEntry<'_>) -> Vec<u8> {
    [
        b"PK\x03\x04",
        raw_header(entry, true).as_slice(),
        PREFIX.as_bytes(),
        entry.name.as_bytes(),
        entry.extra,
        entry.content,
        entry.behind,
    ]
    .concat()
}

fn raw_zip(entries: &[RawEntry<'_>]) -> Vec<u8> {
    let mut zip = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let start = u32::try_from(entry.start.unwrap_or(zip.len())).unwrap();
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(raw_header(entry, false));
        directory.extend([0; 10]);
        directory.extend(start.to_le_bytes());
        directory.extend(PREFIX.bytes().chain(entry.name.bytes()));
        if entry.start.is_none() {
            zip.extend(raw_entry(entry));
        }
    }
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    let place = [directory.len(), zip.len()].map(|place| u32::try_from(place).unwrap());
    zip.extend(directory);
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend([count, count].concat());
    zip.extend(place.map(u32::to_le_bytes).concat());
    zip.extend([0; 2]);
    zip
}

#[test]
fn entries_follow_each_other_without_gaps() {
    let reason = |entries: &[RawEntry<'_>]| check(&raw_zip(entries)).unwrap_err().to_string();
    let first = RawEntry {
        name: "a.go",
        content: b"package a\n",
        ..RawEntry::default()
    };
    let last = RawEntry {
        name: "b.go",
        content: b"package b\n",
        ..RawEntry::default()
    };
    assert_eq!(check(&raw_zip(&[first, last])).unwrap().files, 2);
    // The field in front of the content is part of the entry, and of no other one.
    let other = raw_entry(&last);
    let hidden = [
        b"\x34\x12\xf0\xff",
        other.as_slice(),
        &noise(0xfff0 - other.len()),
    ]
    .concat();
    let wide = RawEntry {
        extra: &hidden,
        ..first
    };
    assert_eq!(check(&raw_zip(&[wide, last])).unwrap().files, 2);
    let within = RawEntry {
        start: Some(30 + PREFIX.len() + first.name.len() + 4),
        ..last
    };
    assert_eq!(reason(&[wide, within]), "not a zip file: entries overlap");
    // An entry whose content is the next one.
    let content = [b"x", other.as_slice()].concat();
    let outer = RawEntry {
        content: &content,
        ..first
    };
    let inner = RawEntry {
        start: Some(30 + PREFIX.len() + first.name.len() + 1),
        ..last
    };
    assert_eq!(reason(&[outer, inner]), "not a zip file: entries overlap");
    let gap = RawEntry {
        behind: b"x",
        ..first
    };
    for entries in [[gap, last], [last, gap]] {
        assert_eq!(reason(&entries), "not a zip file: data behind an entry");
    }
}

#[test]
fn only_checksum_and_sizes_follow_the_content_of_an_entry() {
    let content = b"package a\n";
    let crc = crc_of(content).to_le_bytes();
    let short = [crc, [10, 0, 0, 0], [10, 0, 0, 0]].concat();
    let long = [crc.as_slice(), &[10, 0, 0, 0, 0, 0, 0, 0].repeat(2)].concat();
    let marked = |fields: &[u8]| [b"PK\x07\x08", fields].concat();
    let zips_with = |behind: &[u8]| {
        let first = RawEntry {
            name: "a.go",
            content,
            behind,
            has_descriptor: true,
            ..RawEntry::default()
        };
        let last = RawEntry {
            name: "b.go",
            ..RawEntry::default()
        };
        [raw_zip(&[first, last]), raw_zip(&[last, first])]
    };
    for behind in [&short, &long, &marked(&short), &marked(&long)] {
        for zip in zips_with(behind) {
            assert_eq!(check(&zip).unwrap().files, 2);
        }
    }
    let two_sizes = [crc, [10, 0, 0, 0], [11, 0, 0, 0]].concat();
    for behind in [
        b"".as_slice(),
        &crc,
        &marked(&crc),
        &short[..11],
        &long[..16],
        &two_sizes,
        &[&short, b"x".as_slice()].concat(),
        &[&marked(&long), b"x".as_slice()].concat(),
        &[&marked(&long), &*noise(70_000)].concat(),
    ] {
        for zip in zips_with(behind) {
            assert_eq!(
                check(&zip).unwrap_err().to_string(),
                "not a zip file: other data behind an entry than its checksum and sizes"
            );
        }
    }
}

#[test]
fn packages_that_go_cannot_read_are_refused() {
    // The checksum also follows the content, with a mark in front of it.
    let mut zip = ZipWriter::new_stream(Vec::new());
    zip.start_file(format!("{PREFIX}a.go"), stored()).unwrap();
    zip.write_all(b"package a\n").unwrap();
    let streamed = zip.finish().unwrap().into_inner();
    assert_eq!(check(&streamed).unwrap().files, 1);
    let mark = streamed.windows(4).position(|part| part == b"PK\x07\x08");
    for place in 0..16 {
        let mut changed = streamed.clone();
        changed[mark.unwrap() + place] ^= 1;
        let error = check(&changed).unwrap_err().to_string();
        assert_eq!(
            error,
            "not a zip file: other data behind an entry than its checksum and sizes"
        );
    }
    // Size and start of the directory, in the end record.
    let plain = zip_of(&[("a.go", b"package a\n", stored())]);
    for place in 12..20 {
        let mut changed = plain.clone();
        changed[plain.len() - 22 + place] ^= 1;
        assert!(check(&changed).is_err(), "{place}");
    }
}

/// Adds an additional field to a package with one file, in front of its content and in the directory.
fn with_field(zip: &[u8], field: &[u8]) -> Vec<u8> {
    let length = u16::try_from(field.len()).unwrap();
    let central = zip
        .windows(4)
        .position(|part| part == b"PK\x01\x02")
        .unwrap();
    let end = zip.len() - 22;
    let name_end = 30 + PREFIX.len() + "a.go".len();
    let mut local = zip[..name_end].to_vec();
    local[28..30].copy_from_slice(&length.to_le_bytes());
    let mut directory = zip[central..end].to_vec();
    directory[30..32].copy_from_slice(&length.to_le_bytes());
    let mut record = zip[end..].to_vec();
    let moved = u32::try_from(central + field.len()).unwrap();
    let size = u32::try_from(directory.len() + field.len()).unwrap();
    record[12..16].copy_from_slice(&size.to_le_bytes());
    record[16..20].copy_from_slice(&moved.to_le_bytes());
    [
        &local,
        field,
        &zip[name_end..central],
        &directory,
        field,
        &record,
    ]
    .concat()
}

/// CRC-32 of zip files, bit by bit.
fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[test]
fn bombs_are_refused_before_they_are_unpacked() {
    let limits = ArchiveLimits {
        packed: 20_000,
        unpacked: 9 << 20,
        entries: 5,
        ratio: 100,
    };
    let exceeded = |zip: &[u8], limits: &ArchiveLimits| {
        let error = check_go_zip(
            &module_path(),
            &version(),
            Cursor::new(zip),
            limits,
            |_, _| Ok(()),
        )
        .unwrap_err();
        let GoZipError::Limit(limit) = error else {
            panic!("{error}");
        };
        limit
    };
    let deflated = SimpleFileOptions::default();
    let zeros = vec![0; 9 << 20];
    let bomb = zip_of(&[("zeros", &zeros, deflated)]);
    assert_eq!(exceeded(&bomb, &limits), ExceededLimit::Ratio(100));
    let more = zip_of(&[("zeros", &zeros, deflated), ("more", b"x", deflated)]);
    let without_ratio = ArchiveLimits {
        ratio: u64::MAX,
        ..limits
    };
    assert_eq!(
        exceeded(&more, &without_ratio),
        ExceededLimit::Unpacked(9 << 20)
    );
    let many = ["a", "b", "c", "d", "e", "f"].map(|name| (name, b"".as_slice(), deflated));
    assert_eq!(exceeded(&zip_of(&many), &limits), ExceededLimit::Entries(5));
    let large = zip_of(&[("a", &zeros[..30_000], stored())]);
    assert_eq!(exceeded(&large, &limits), ExceededLimit::Packed(20_000));
    // Several entries with the same bytes.
    let mut overlapping = ZipWriter::new(Cursor::new(Vec::new()));
    let name = format!("{PREFIX}a");
    overlapping.start_file(&name, stored()).unwrap();
    overlapping.write_all(b"content").unwrap();
    overlapping
        .shallow_copy_file(&name, &format!("{PREFIX}b"))
        .unwrap();
    let overlapping = overlapping.finish().unwrap().into_inner();
    assert!(matches!(check(&overlapping), Err(GoZipError::Malformed(_))));
}

#[test]
fn the_ratio_does_not_depend_on_the_order_of_entries() {
    let zeros = vec![0; 12 << 20];
    let noise = noise(1 << 16);
    let options = SimpleFileOptions::default();
    let zeros = ("zeros", zeros.as_slice(), options);
    let noise = ("noise", noise.as_slice(), options);
    for entries in [[zeros, noise], [noise, zeros]] {
        assert_eq!(check(&zip_of(&entries)).unwrap().files, 2);
    }
    let error = check(&zip_of(&[zeros])).unwrap_err();
    assert!(matches!(
        error,
        GoZipError::Limit(ExceededLimit::Ratio(200))
    ));
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn any_tree_gives_a_package_or_faults(
        files in prop::collection::btree_map("[aAb.]{1,2}(/(vendor|go\\.mod|[aßx.:]{1,2})){0,3}", (0..3_u8, prop::collection::vec(any::<u8>(), 0..9)), 0..7),
        go_mod in "(module a\n)?(go 1\\.2[0-9](rc1)?\n|\\PC{0,9})",
        directory in "a?",
    ) {
        let mut tree: Vec<TreeFile<'_>> = files
            .iter()
            .map(|(path, (mode, content))| TreeFile {
                path: path.as_bytes(),
                mode: [TreeMode::File, TreeMode::Link, TreeMode::Submodule][usize::from(*mode)],
                content,
            })
            .collect();
        tree.push(TreeFile { path: b"go.mod", mode: TreeMode::File, content: go_mod.as_bytes() });
        if let Ok(module) = select_go_files(&tree, &directory) {
            let (zip, hash) = package(&module);
            let contents = check(&zip).unwrap();
            prop_assert_eq!(contents.hash.to_string(), hash);
            tree.reverse();
            prop_assert_eq!(select_go_files(&tree, &directory).unwrap(), module);
        }
    }

    #[test]
    fn readers_take_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_stored in any::<bool>(),
    ) {
        prop_assert!(check(&bytes).is_err());
        let options = if is_stored { stored() } else { SimpleFileOptions::default() };
        let mut zip = zip_of(&[("go.mod", &bytes, options), ("b/c", b"", options)]);
        let original = check(&zip).unwrap();
        for (place, byte) in changes {
            let place = place.index(zip.len());
            zip[place] = byte;
        }
        if let Ok(contents) = check(&zip) {
            // Only bytes that no checksum covers can have changed, such as times.
            prop_assert_eq!(contents, original);
        }
        zip.truncate(cut.index(zip.len()));
        prop_assert!(check(&zip).is_err());
    }
}
