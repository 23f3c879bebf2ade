use std::io::{Cursor, Read as _, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::*;
use crate::dirhash::hash_files;
use crate::testing::{FailingReader, fixed_seed, noise};
use crate::tree::{TreeFile, TreeMode};

fn file<'a>(path: &'a str, content: &'a [u8]) -> TfFile<'a> {
    TfFile {
        path: path.into(),
        content,
        is_executable: false,
    }
}

fn check(archive: &[u8]) -> Result<TfContents, TfArchiveError> {
    check_tf_archive(Cursor::new(archive), &TF_LIMITS, |_, _| Ok(()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// An entry with any name, which the crate would refuse to write.
fn entry(kind: EntryType, name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// An entry with another byte in its header.
fn patched(mut entry: Vec<u8>, place: usize, bytes: &[u8]) -> Vec<u8> {
    entry[place..place + bytes.len()].copy_from_slice(bytes);
    let mut header = Header::new_ustar();
    header.as_mut_bytes().copy_from_slice(&entry[..512]);
    header.set_cksum();
    entry[..512].copy_from_slice(header.as_bytes());
    entry
}

fn tar_of(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(kind, name, content)| entry(*kind, name, content))
        .collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// Reason for which an archive of these entries is refused.
fn refused(entries: &[(EntryType, &str, &[u8])]) -> String {
    check(&gzip(&tar_of(entries))).unwrap_err().to_string()
}

#[test]
fn the_same_files_make_the_same_package() {
    let long = format!("modules/{}/main.tf", "x".repeat(150));
    let mut script = file("run.sh", b"#!/bin/sh\n");
    script.is_executable = true;
    let files = [file("main.tf", b"# main\n"), script, file(&long, b"")];
    let mut first = Vec::new();
    let hash = write_tf_archive(&files, &mut first).unwrap();
    let reversed: Vec<TfFile<'_>> = files.iter().rev().cloned().collect();
    let mut second = Vec::new();
    assert_eq!(write_tf_archive(&reversed, &mut second).unwrap(), hash);
    assert_eq!(first, second);
    let expected = files.iter().map(|file| (&*file.path, file.content));
    assert_eq!(hash_files(expected), Ok(hash));
    let contents = check(&first).unwrap();
    assert_eq!(
        contents,
        TfContents {
            hash,
            files: 3,
            size: 17
        }
    );
    // No time, owner or system: the header of gzip, and those of the entries.
    assert_eq!(first[..10], [31, 139, 8, 0, 0, 0, 0, 0, 2, 255]);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&first[..]));
    for entry in archive.entries().unwrap() {
        let header = entry.unwrap().header().clone();
        let owner = (header.uid().unwrap(), header.gid().unwrap());
        assert_eq!((header.mtime().unwrap(), owner), (0, (0, 0)));
        let is_script = header.path_bytes().ends_with(b"run.sh");
        assert_eq!(
            header.mode().unwrap(),
            if is_script { 0o755 } else { 0o644 }
        );
    }
}

/// Compares everything but the compression, because two deployments pack the same commit on different machines.
#[test]
fn the_files_decide_each_byte_of_a_package() {
    let mut script = file("run.sh", b"#!/bin/sh\n");
    script.is_executable = true;
    let mut package = Vec::new();
    write_tf_archive(&[script, file("a/main.tf", b"# main\n")], &mut package).unwrap();
    let mut unpacked = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(package.as_slice());
    gzip.read_to_end(&mut unpacked).unwrap();
    let mut expected = Vec::new();
    for (name, mode, content) in [
        ("a/main.tf", "0000644", "# main\n"),
        ("run.sh", "0000755", "#!/bin/sh\n"),
    ] {
        let mut header = [0; 512];
        for (place, text) in [
            (0, name.to_owned()),
            (100, mode.to_owned()),
            (108, "0000000".to_owned()),
            (116, "0000000".to_owned()),
            (124, format!("{:011o}", content.len())),
            (136, "00000000000".to_owned()),
            (148, " ".repeat(8)),
            (156, "0".to_owned()),
            (257, "ustar  ".to_owned()),
        ] {
            header[place..place + text.len()].copy_from_slice(text.as_bytes());
        }
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        header[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
        expected.extend(header);
        expected.extend(content.as_bytes());
        expected.resize(expected.len().next_multiple_of(512), 0);
    }
    expected.resize(expected.len() + 1024, 0);
    assert!(unpacked == expected, "{unpacked:?}");
}

/// Pins every byte of a package, also those that the compression decides (R1). No processor and no system changes them.
///
/// If this fails after an update, the compression library writes other bytes. First see that
/// `the_files_decide_each_byte_of_a_package` still passes, so that nothing but the compression has changed. Then put the
/// digest of the failure here. Published packages stay as they are stored, and packages of the same files that different
/// releases have made are no conflict (`VersionContent::has_same_files`).
#[test]
fn the_compressed_bytes_of_a_package_are_always_the_same() {
    const EXPECTED: &str = "3c65b64097df39406fc6b192e66549db2db16c375f3953d9e7bee40b1a2e4a18";
    let mut script = file("run.sh", b"#!/bin/sh\nexit 0\n");
    script.is_executable = true;
    // Repetitions near and far, over more bytes than the compression looks back, and bytes that do not get smaller.
    let lines = (0..6_000_u32).map(|number| {
        let name = number * number % 97;
        format!("variable \"v{name}\" {{ default = {number} }}\n")
    });
    let text = lines.collect::<Vec<_>>().concat();
    let noise = noise(70_000);
    let files = [
        file("main.tf", text.as_bytes()),
        script,
        file("data.bin", &noise),
        file("empty.tf", b""),
    ];
    let mut package = Vec::new();
    write_tf_archive(&files, &mut package).unwrap();
    assert_eq!(hex::encode(Sha256::digest(&package)), EXPECTED);
}

#[test]
fn files_that_no_package_can_have_are_not_written() {
    for (files, path) in [
        (vec![file("../a", b"")], "../a"),
        (vec![file("a", b""), file("A", b"")], "A"),
        (vec![file("a", b""), file("a/b", b"")], "a/b"),
    ] {
        let error = write_tf_archive(&files, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, TfArchiveError::Path { path: bad, .. } if bad == path));
    }
}

#[test]
fn archives_of_ordinary_tools_are_read() {
    let long = "d/".repeat(70) + "main.tf";
    let mut bytes = tar_of(&[
        (
            EntryType::XGlobalHeader,
            "pax_global_header",
            b"20 comment=abcdefgh\n",
        ),
        (EntryType::Directory, "./", b""),
        (EntryType::Directory, "./modules/", b""),
        (EntryType::Regular, "./modules/main.tf", b"# 1\n"),
        (
            EntryType::GNULongName,
            "././@LongLink",
            &[long.as_bytes(), b"\0"].concat(),
        ),
        (EntryType::Regular, "short", b"# 2\n"),
        (EntryType::XHeader, "x", b"13 path=p.md\n"),
        (EntryType::Regular, "y", b"# 3\n"),
    ]);
    // Old archives mark a folder by its name, and have whole modes.
    let old = patched(entry(EntryType::Regular, "old/", b""), 156, b"\0");
    let folder = patched(entry(EntryType::Directory, "old", b""), 100, b"0040755\0");
    let moded = patched(entry(EntryType::Regular, "old/a", b"a"), 100, b"0100644\0");
    bytes.splice(0..0, [old, folder, moded].concat());
    let mut seen = Vec::new();
    let contents = check_tf_archive(Cursor::new(gzip(&bytes)), &TF_LIMITS, |path, content| {
        let mut text = String::new();
        // The rest of a file that nobody reads counts as well.
        content.take(2).read_to_string(&mut text)?;
        seen.push((path.to_owned(), text));
        Ok(())
    });
    let expected = [
        ("old/a", b"a".as_slice()),
        ("modules/main.tf", b"# 1\n".as_slice()),
        (&long, b"# 2\n"),
        ("p.md", b"# 3\n"),
    ];
    assert_eq!(contents.unwrap().hash, hash_files(expected).unwrap());
    assert_eq!(seen.len(), 4);
    // Without the blocks of zeros at the end.
    let cut = &bytes[..bytes.len() - 1024];
    assert_eq!(check(&gzip(cut)).unwrap().files, 4);
    // Readers see both members.
    let members = [gzip(&bytes[..700]), gzip(&bytes[700..])].concat();
    assert_eq!(check(&members).unwrap().files, 4);
}

#[test]
fn hostile_archives_are_refused_by_name() {
    let regular = EntryType::Regular;
    for (entries, reason) in [
        (
            vec![(regular, "../a", b"".as_slice())],
            "\"../a\": the path has `..`",
        ),
        (
            vec![(regular, "./../a", b"")],
            "\"./../a\": the path has `..`",
        ),
        (
            vec![(EntryType::Directory, "../", b"")],
            "\"../\": the path has `..`",
        ),
        (
            vec![(regular, "/etc/passwd", b"")],
            "\"/etc/passwd\": the path is absolute",
        ),
        (
            vec![(regular, ".//etc/passwd", b"")],
            "\".//etc/passwd\": the path is absolute",
        ),
        (
            vec![(regular, "c:/x", b"")],
            "\"c:/x\": the path is absolute",
        ),
        (
            vec![(regular, "a\\b", b"")],
            "\"a\\\\b\": the path has the character '\\\\'",
        ),
        (
            vec![(regular, "x/aux.tf", b"")],
            "\"x/aux.tf\": Windows reserves the name \"aux\"",
        ),
        (
            vec![(regular, "", b"")],
            "\"\": the path is not in its shortest form",
        ),
        (
            vec![(regular, ".", b"")],
            "\".\": the path is not in its shortest form",
        ),
        (
            vec![(regular, "a", b""), (regular, "a", b"")],
            "\"a\": the file is there twice",
        ),
        (
            vec![(regular, "a", b""), (regular, "./a", b"")],
            "\"./a\": the file is there twice",
        ),
        (
            vec![(regular, "a", b""), (regular, "A", b"")],
            "\"A\": the path differs from \"a\" only in case",
        ),
        (
            vec![(regular, "a", b""), (regular, "a/b", b"")],
            "\"a/b\": the path is a file and a folder",
        ),
        (
            vec![(regular, "a/b", b""), (regular, "a", b"")],
            "\"a\": the path is a file and a folder",
        ),
        (
            vec![(EntryType::Symlink, "a", b"")],
            "\"a\" is neither a file nor a folder, but a symbolic link",
        ),
        (
            vec![(EntryType::Link, "a", b"")],
            "\"a\" is neither a file nor a folder, but a hard link",
        ),
        (
            vec![(EntryType::Char, "a", b"")],
            "\"a\" is neither a file nor a folder, but a device",
        ),
        (
            vec![(EntryType::Block, "a", b"")],
            "\"a\" is neither a file nor a folder, but a device",
        ),
        (
            vec![(EntryType::Fifo, "a", b"")],
            "\"a\" is neither a file nor a folder, but a pipe",
        ),
        (
            vec![(EntryType::GNUSparse, "a", b"")],
            "\"a\" is neither a file nor a folder, but something else",
        ),
        (
            vec![(EntryType::GNULongLink, "a", b"")],
            "\"a\" is neither a file nor a folder, but something else",
        ),
        (
            vec![(EntryType::Directory, "a", b"x")],
            "not a tar.gz archive: a folder with content",
        ),
        (
            vec![(EntryType::GNULongName, "a", b"b")],
            "not a tar.gz archive: a description without an entry",
        ),
        (
            vec![(regular, "a/", b"")],
            "\"a/\": the path is not in its shortest form",
        ),
        (
            vec![
                (EntryType::GNULongName, "a", b"b\0"),
                (EntryType::XHeader, "a", b"9 path=b\n"),
                (regular, "c", b""),
            ],
            "not a tar.gz archive: two descriptions of an entry",
        ),
        (
            vec![
                (EntryType::XHeader, "a", b"9 path=b\n"),
                (EntryType::XHeader, "a", b"8 uid=1\n"),
                (regular, "c", b""),
            ],
            "not a tar.gz archive: two descriptions of an entry",
        ),
        (
            vec![
                (EntryType::XHeader, "a", b"9 path=b\n"),
                (EntryType::XGlobalHeader, "a", b"13 comment=a\n"),
                (regular, "c", b""),
            ],
            "not a tar.gz archive: two descriptions of an entry",
        ),
        (
            vec![
                (EntryType::XHeader, "a", b"9 size=1\n"),
                (regular, "b", b""),
            ],
            "not a tar.gz archive: a size among the attributes",
        ),
        (
            vec![
                (EntryType::XGlobalHeader, "a", b"10 path=a\n"),
                (regular, "b", b""),
            ],
            "not a tar.gz archive: a name for all entries",
        ),
        (
            vec![(EntryType::XHeader, "a", b"8 path=\n"), (regular, "b", b"")],
            "not a tar.gz archive: an empty name",
        ),
        (
            vec![
                (EntryType::XHeader, "a", b"8 path=\n"),
                (EntryType::Directory, "b", b""),
            ],
            "not a tar.gz archive: an empty name",
        ),
        (
            vec![
                (EntryType::XHeader, "a", b"9 path=a\n8 path=\n"),
                (EntryType::Directory, "b", b""),
            ],
            "not a tar.gz archive: an empty name",
        ),
        (
            vec![(EntryType::GNULongName, "a", b"\0"), (regular, "b", b"")],
            "not a tar.gz archive: an empty name",
        ),
        (
            vec![
                (EntryType::GNULongName, "a", b"\0b\0"),
                (EntryType::Directory, "b", b""),
            ],
            "not a tar.gz archive: an empty name",
        ),
        (
            vec![
                (EntryType::GNULongName, "a", b""),
                (EntryType::Directory, "b", b""),
            ],
            "not a tar.gz archive: an empty name",
        ),
        (
            vec![
                (EntryType::GNULongName, "a", b"../b\0"),
                (regular, "b", b""),
            ],
            "\"../b\": the path has `..`",
        ),
        (
            vec![
                (EntryType::XHeader, "a", b"13 path=../b\n"),
                (regular, "b", b""),
            ],
            "\"../b\": the path has `..`",
        ),
    ] {
        assert_eq!(refused(&entries), reason);
    }
    // Headers that only some readers take for those of a file.
    for (place, bytes, reason) in [
        (
            100,
            b"0040644\0".as_slice(),
            "a mode of another kind of entry",
        ),
        (100, b"0120777\0", "a mode of another kind of entry"),
        (100, b"rw-r--r-", "a mode that is no number"),
        (508, b"tar\0", "a header with a shorter name"),
        (263, b"01", "a header of an unknown format"),
        (262, b" ", "a header of an unknown format"),
    ] {
        let mut bytes = patched(entry(regular, "a", b""), place, bytes);
        bytes.resize(bytes.len() + 1024, 0);
        assert_eq!(
            check(&gzip(&bytes)).unwrap_err().to_string(),
            format!("not a tar.gz archive: {reason}")
        );
    }
    let gnu = patched(entry(regular, "a", b""), 257, b"ustar  \0");
    let dated = [b"14471520525\0".as_slice(), b"14471520525 "].concat();
    for (place, bytes, is_valid) in [
        (345, dated.as_slice(), true),
        (345, b"..", false),
        (357, b"../", false),
        (345, b"1447152052x", false),
        (345, b"14471520525x", false),
    ] {
        let mut bytes = patched(gnu.clone(), place, bytes);
        bytes.resize(bytes.len() + 1024, 0);
        let error = check(&gzip(&bytes)).err().map(|error| error.to_string());
        let expected = "not a tar.gz archive: a time that is no number".to_owned();
        assert_eq!(error, (!is_valid).then_some(expected));
    }
    // The attribute has one byte more than it says.
    let odd = [
        (EntryType::XHeader, "a", b"14 path=p.md\n\n".as_slice()),
        (regular, "b", b""),
    ];
    assert!(refused(&odd).starts_with("not a tar.gz archive"));
    let long = vec![b'x'; 70_000];
    assert!(refused(&[(EntryType::GNULongName, "a", &long)]).contains("too long"));
    let not_utf8 = [
        (EntryType::GNULongName, "a", b"\xff\0".as_slice()),
        (regular, "b", b""),
    ];
    assert!(refused(&not_utf8).contains("not UTF-8"));
    let good = tar_of(&[(regular, "a", b"")]);
    let hidden = [good.clone(), tar_of(&[(regular, "../b", b"")])].concat();
    assert_eq!(
        check(&gzip(&hidden)).unwrap_err().to_string(),
        "not a tar.gz archive: data behind the end"
    );
    let members = [gzip(&good), gzip(b"x")].concat();
    assert!(check(&members).is_err());
    let package = gzip(&good);
    for cut in 0..package.len() {
        assert!(check(&package[..cut]).is_err(), "{cut}");
    }
    // A file that is longer than the archive.
    let mut lie = entry(regular, "a", b"");
    lie[124..136].copy_from_slice(b"00000001000\0");
    let mut header = Header::new_ustar();
    header.as_mut_bytes().copy_from_slice(&lie[..512]);
    header.set_cksum();
    assert!(check(&gzip(header.as_bytes())).is_err());
}

#[test]
fn bombs_are_refused_while_they_are_read() {
    let limits = ArchiveLimits {
        packed: 10_000,
        unpacked: 20 << 20,
        entries: 5,
        ratio: 100,
    };
    let check = |archive: &[u8]| {
        let error = check_tf_archive(Cursor::new(archive), &limits, |_, _| Ok(())).unwrap_err();
        let TfArchiveError::Limit(limit) = error else {
            panic!("{error}");
        };
        limit
    };
    // Unpacked bytes are counted while they are read.
    let zeros = io::repeat(0).take(9 << 20);
    let mut bomb = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let mut header = Header::new_gnu();
    header.set_size(9 << 20);
    bomb.append_data(&mut header, "zeros", zeros).unwrap();
    let bomb = bomb.into_inner().unwrap().finish().unwrap();
    assert_eq!(check(&bomb), ExceededLimit::Ratio(100));
    let without_ratio = ArchiveLimits {
        ratio: u64::MAX,
        unpacked: 9 << 20,
        ..limits
    };
    let error = check_tf_archive(Cursor::new(&bomb), &without_ratio, |_, _| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the files of the archive have more than 9437184 bytes"
    );
    let names = ["a", "b", "c", "d", "e", "f"];
    let many = names.map(|name| (EntryType::Regular, name, b"".as_slice()));
    assert_eq!(check(&gzip(&tar_of(&many))), ExceededLimit::Entries(5));
    let random: Vec<u8> = (0_u32..20_000)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let large = gzip(&tar_of(&[(EntryType::Regular, "a", &random)]));
    assert_eq!(check(&large), ExceededLimit::Packed(10_000));
}

#[test]
fn the_ratio_does_not_depend_on_the_order_of_entries() {
    let zeros = vec![0; 12 << 20];
    let noise = noise(1 << 16);
    let zeros = (EntryType::Regular, "zeros", zeros.as_slice());
    let noise = (EntryType::Regular, "noise", noise.as_slice());
    let packed = |entries: &[_]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&tar_of(entries)).unwrap();
        gzip.finish().unwrap()
    };
    for entries in [[zeros, noise], [noise, zeros]] {
        assert_eq!(check(&packed(&entries)).unwrap().files, 2);
    }
    let error = check(&packed(&[zeros])).unwrap_err();
    assert!(matches!(
        error,
        TfArchiveError::Limit(ExceededLimit::Ratio(100))
    ));
}

#[test]
fn errors_of_the_source_are_not_those_of_the_archive() {
    let archive = gzip(&tar_of(&[(EntryType::Regular, "a", b"a")]));
    for place in 0..archive.len() {
        let failing = FailingReader::new(&archive, place);
        let error = check_tf_archive(failing, &TF_LIMITS, |_, _| Ok(())).unwrap_err();
        assert!(
            matches!(error, TfArchiveError::Io(error) if error.kind() == io::ErrorKind::ConnectionReset),
            "{place}"
        );
    }
}

fn link<'a>(path: &'a str, target: &'a str) -> TreeFile<'a> {
    TreeFile {
        path: path.as_bytes(),
        mode: TreeMode::Link,
        content: target.as_bytes(),
    }
}

fn in_tree<'a>(path: &'a str, content: &'a str) -> TreeFile<'a> {
    TreeFile {
        path: path.as_bytes(),
        mode: TreeMode::File,
        content: content.as_bytes(),
    }
}

/// Paths and contents of a package, as lines.
fn selected(tree: &[TreeFile<'_>]) -> Vec<String> {
    let files = select_tf_files(tree, |path| path.starts_with("m/")).unwrap();
    let lines = files.iter().map(|file| {
        let script = if file.is_executable { "*" } else { "" };
        format!(
            "{}{script} {}",
            file.path,
            String::from_utf8_lossy(file.content)
        )
    });
    lines.collect()
}

#[test]
fn links_within_the_repository_become_files() {
    let script = TreeFile {
        mode: TreeMode::Executable,
        ..in_tree("common/run.sh", "run")
    };
    let submodule = TreeFile {
        mode: TreeMode::Submodule,
        ..in_tree("m/third", "")
    };
    let tree = [
        in_tree("LICENSE", "mit"),
        in_tree("common/a.tf", "a"),
        in_tree("common/deep/b.tf", "b"),
        link("common/deep/up", "../../LICENSE"),
        script,
        submodule,
        in_tree("m/main.tf", "main"),
        link("m/LICENSE", "../LICENSE"),
        link("m/common", "../common"),
        link("m/chain", "./common//deep/../a.tf"),
        link("m/run", "common/run.sh"),
        link("other", "/etc/passwd"),
    ];
    assert_eq!(
        selected(&tree),
        [
            "m/LICENSE mit",
            "m/chain a",
            "m/common/a.tf a",
            "m/common/deep/b.tf b",
            "m/common/deep/up mit",
            "m/common/run.sh* run",
            "m/main.tf main",
            "m/run* run",
        ]
    );
}

/// An entry of four folders, where each file of one is a link to the next folder.
fn in_chain(path: &str) -> TreeFile<'_> {
    match path.as_bytes()[0] {
        b'a' => link(path, "../b"),
        b'b' => link(path, "../c/x"),
        b'c' => link(path, "../../d"),
        _ => in_tree(path, ""),
    }
}

#[test]
fn links_do_not_multiply_without_end() {
    let paths: Vec<String> = ["a", "b", "c/x", "d"]
        .iter()
        .flat_map(|folder| (0..50).map(move |number| format!("{folder}/{number}")))
        .collect();
    let tree: Vec<TreeFile<'_>> = paths.iter().map(|path| in_chain(path)).collect();
    let error = select_tf_files(&tree, |path| path.starts_with("a/")).unwrap_err();
    assert!(matches!(
        error,
        TfArchiveError::Limit(ExceededLimit::Entries(_))
    ));
}

#[test]
fn links_do_not_walk_without_end() {
    let detour = "../m/".repeat(800) + "main.tf";
    let paths: Vec<String> = (0..1000).map(|number| format!("m/{number}")).collect();
    let mut tree: Vec<TreeFile<'_>> = paths.iter().map(|path| link(path, &detour)).collect();
    tree.push(in_tree("m/main.tf", ""));
    assert_eq!(select_tf_files(&tree[999..], |_| true).unwrap().len(), 2);
    let error = select_tf_files(&tree, |_| true).unwrap_err();
    let TfArchiveError::Link { fault, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(fault, LinkFault::TooMany);
}

#[test]
fn links_that_lead_elsewhere_are_refused() {
    let long = "./".repeat(2048) + "main.tf";
    for (target, fault) in [
        ("/etc/passwd", LinkFault::Outside),
        ("../../x", LinkFault::Outside),
        ("../m/../../x", LinkFault::Outside),
        ("missing", LinkFault::Broken),
        (&long, LinkFault::Broken),
        ("main.tf/x", LinkFault::Broken),
        ("third", LinkFault::Broken),
        ("third/x", LinkFault::Broken),
        ("link", LinkFault::Loop),
        ("other", LinkFault::Loop),
        (".", LinkFault::Loop),
        ("..", LinkFault::Loop),
        ("../m", LinkFault::Loop),
        ("../n", LinkFault::Loop),
    ] {
        let submodule = TreeFile {
            mode: TreeMode::Submodule,
            ..in_tree("m/third", "")
        };
        let tree = [
            in_tree("m/main.tf", ""),
            submodule,
            link("m/link", target),
            link("m/other", "link"),
            link("n/back", "../m"),
        ];
        let error = select_tf_files(&tree, |path| path == "m/link").unwrap_err();
        let TfArchiveError::Link { fault: found, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(found, fault, "{target}");
    }
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn any_links_end(
        links in prop::collection::btree_map("[ab](/[ab]){0,2}", "(\\.\\.|[ab.])(/(\\.\\.|[ab])){0,3}", 0..8),
        files in prop::collection::btree_map("[abc](/[abc]){0,2}", "", 0..8),
    ) {
        let links = links.iter().map(|(path, target)| link(path, target));
        let files = files.iter().map(|(path, content)| in_tree(path, content));
        let tree: Vec<TreeFile<'_>> = links.chain(files).collect();
        if let Ok(files) = select_tf_files(&tree, |_| true) {
            prop_assert!(files.len() < 1000);
            drop(write_tf_archive(&files, &mut Vec::new()));
        }
    }

    #[test]
    fn any_files_are_written_and_read(
        files in prop::collection::btree_map("[a-z]{1,3}(/[a-zäß]{1,60}){0,3}", prop::collection::vec(any::<u8>(), 0..600), 0..6),
    ) {
        let files: Vec<TfFile<'_>> = files.iter().map(|(path, content)| file(path, content)).collect();
        let mut package = Vec::new();
        if let Ok(hash) = write_tf_archive(&files, &mut package) {
            let contents = check(&package).unwrap();
            prop_assert_eq!(contents.hash, hash);
            prop_assert_eq!(contents.files, files.len());
        }
    }

    #[test]
    fn readers_take_any_bytes(
        kind in prop::sample::select(b"0125LKxgS7\0D5".to_vec()),
        name in "[a./\\\\]{0,6}",
        content in prop::collection::vec(any::<u8>(), 0..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = tar_of(&[(EntryType::new(kind), &name, &content), (EntryType::Regular, "b", b"b")]);
        for (place, byte) in &changes {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        drop(check(&gzip(&bytes)));
        bytes.truncate(cut.index(bytes.len()));
        drop(check(&gzip(&bytes)));
        let mut packed = gzip(&bytes);
        for (place, byte) in changes {
            let place = place.index(packed.len());
            packed[place] = byte;
        }
        drop(check(&packed));
        prop_assert!(check(&content).is_err());
    }
}
