//! Archives that no honest tool makes.

use std::io::{Cursor, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use lockkeeper_registry::versions::VersionKey;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Folder of `example.com/net v1.0.0` in its zip.
pub const NET: &str = "example.com/net@v1.0.0/";

/// Kinds of entries of a tar file.
pub const FILE: u8 = b'0';
pub const HARD_LINK: u8 = b'1';
pub const LINK: u8 = b'2';
pub const DEVICE: u8 = b'3';
pub const PIPE: u8 = b'6';
pub const LONG_NAME: u8 = b'L';
pub const ATTRIBUTES: u8 = b'x';

/// An archive, the version that it is uploaded as, and a part of the reason why it is refused.
pub struct Hostile {
    pub key: &'static str,
    pub archive: Vec<u8>,
    pub status: u16,
    pub reason: &'static str,
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// The header of an entry with any name, kind and number of bytes.
fn tar_header(kind: u8, name: &str, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    let mut field = |place: usize, text: &str| {
        header[place..place + text.len()].copy_from_slice(text.as_bytes());
    };
    field(100, "0000644\0");
    field(124, &format!("{size:011o}\0"));
    field(136, "00000000000\0");
    field(148, "        ");
    field(257, "ustar\x0000");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// An entry with any name and kind.
fn tar_entry(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = tar_header(kind, name, content.len()).to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A `.tar.gz` file of these entries.
pub fn tar_gz(entries: &[(u8, &str, &[u8])]) -> Vec<u8> {
    gzip(&tar(entries))
}

fn tar(entries: &[(u8, &str, &[u8])]) -> Vec<u8> {
    let entries = entries.iter();
    let entries = entries.map(|(kind, name, content)| tar_entry(*kind, name, content));
    let mut bytes = entries.collect::<Vec<_>>().concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Stored)
}

/// A zip file of these entries, with whole names.
pub fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        zip.start_file(*name, options()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A zip file of files of `example.com/net v1.0.0`.
pub fn net_zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let names: Vec<String> = files
        .iter()
        .map(|(name, _)| format!("{NET}{name}"))
        .collect();
    let entries = names.iter().zip(files);
    let entries: Vec<(&str, &[u8])> = entries
        .map(|(name, (_, content))| (name.as_str(), *content))
        .collect();
    zip(&entries)
}

/// Replaces bytes that are all over a file.
fn replaced(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> = (0..=bytes.len() - from.len())
        .filter(|place| bytes[*place..].starts_with(from))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place..place + to.len()].copy_from_slice(to);
    }
    bytes
}

fn many(number: usize) -> Vec<u8> {
    let names: Vec<String> = (0..number).map(|number| format!("{number:x}")).collect();
    let entries: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    net_zip(&entries)
}

/// Bytes that cannot be compressed.
fn noise(count: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(count / 8).flatten().collect()
}

/// An archive with more entries than allowed, whose names explain its size.
fn many_files() -> Vec<u8> {
    let names = (0..100_001_u64).map(|number| {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{number:016x}")
    });
    let names: Vec<String> = names.collect();
    let entries = names.iter().map(|name| (FILE, name.as_str(), &b""[..]));
    tar_gz(&entries.collect::<Vec<_>>())
}

/// An archive with more bytes than allowed, which are less than 100 times its size.
fn large_file() -> Vec<u8> {
    const MIB: usize = 1 << 20;
    let zeros = gzip(&vec![0; MIB]);
    let mut archive = gzip(&tar_entry(FILE, "noise", &noise(6 * MIB)));
    archive.extend(gzip(&tar_header(FILE, "zeros", 513 * MIB)));
    archive.extend(zeros.repeat(513));
    archive.extend(gzip(&[0; 1024]));
    archive
}

const CODE: &[u8] = b"output \"x\" { value = 1 }\n";
const GO_MOD: (&str, &[u8]) = ("go.mod", b"module example.com/net\n");
const VPC: &str = "module acme/vpc/aws 1.0.0";
const GO: &str = "go example.com/net v1.0.0";

/// Archives of Terraform modules.
pub fn of_modules() -> Vec<Hostile> {
    let main: (u8, &str, &[u8]) = (FILE, "main.tf", CODE);
    let mut hostile: Vec<Hostile> = [
        (vec![main, (FILE, "../a", b"")], "has “..”"),
        (vec![main, (FILE, "/etc/passwd", b"")], "is absolute"),
        (vec![main, (FILE, "c:/x", b"")], "is absolute"),
        (vec![main, (FILE, "a\\b", b"")], "has the character"),
        (vec![main, (FILE, "a\nb", b"")], "has the character"),
        (vec![main, (FILE, "aux.tf", b"")], "Windows reserves"),
        (vec![main, (FILE, "a.", b"")], "ends with a dot"),
        (vec![main, (FILE, "a//b", b"")], "shortest form"),
        (vec![main, (FILE, "main.tf", b"")], "there twice"),
        (vec![main, (FILE, "MAIN.tf", b"")], "only in case"),
        (vec![main, (FILE, "main.tf/a", b"")], "file and a folder"),
        (vec![main, (LINK, "link", b"")], "a symbolic link"),
        (vec![main, (HARD_LINK, "link", b"")], "a hard link"),
        (vec![main, (DEVICE, "null", b"")], "a device"),
        (vec![main, (PIPE, "pipe", b"")], "a pipe"),
        (
            vec![
                main,
                (LONG_NAME, "x", b"../../etc/passwd\0"),
                (FILE, "y", b""),
            ],
            "has “..”",
        ),
        (
            vec![main, (ATTRIBUTES, "x", b"13 path=../a\n"), (FILE, "a", b"")],
            "has “..”",
        ),
        (vec![], "has no file"),
        (vec![(FILE, "README.md", b"")], "no file with code"),
        (
            vec![(FILE, "main.tf", b"module \"a\" {\n  source = \"../a\"\n}\n")],
            "outside of the package",
        ),
    ]
    .into_iter()
    .map(|(entries, reason)| Hostile {
        key: VPC,
        archive: tar_gz(&entries),
        status: 422,
        reason,
    })
    .collect();
    let whole = tar_gz(&[main]);
    let bomb = " ".repeat(32 << 20);
    for (archive, status, reason) in [
        (Vec::new(), 422, "not a tar.gz archive"),
        (b"main.tf".to_vec(), 422, "not a tar.gz archive"),
        (tar(&[main]), 422, "not a tar.gz archive"),
        (
            whole[..whole.len() / 2].to_vec(),
            422,
            "not a tar.gz archive",
        ),
        (
            [whole.clone(), b"more".to_vec()].concat(),
            422,
            "not a tar.gz archive",
        ),
        ([whole.clone(), whole].concat(), 422, "behind the end"),
        (net_zip(&[GO_MOD]), 422, "not a tar.gz archive"),
        (
            tar_gz(&[main, (FILE, "bomb", bomb.as_bytes())]),
            422,
            "more than 100 times its size",
        ),
        (many_files(), 413, "more than 100000 entries"),
        (large_file(), 413, "have more than 536870912 bytes"),
    ] {
        hostile.push(Hostile {
            key: VPC,
            archive,
            status,
            reason,
        });
    }
    hostile
}

/// Packages of Go modules.
pub fn of_go() -> Vec<Hostile> {
    let net: (&str, &[u8]) = ("net.go", b"package net\n");
    let with = |name: &'static str| net_zip(&[GO_MOD, (name, b"")]);
    let mut link = ZipWriter::new(Cursor::new(Vec::new()));
    link.add_symlink(format!("{NET}link"), "/etc/passwd", options())
        .unwrap();
    let link = link.finish().unwrap().into_inner();
    let mut bomb = ZipWriter::new(Cursor::new(Vec::new()));
    let deflated = options().compression_method(CompressionMethod::Deflated);
    bomb.start_file(format!("{NET}bomb"), deflated).unwrap();
    bomb.write_all(&vec![0; 32 << 20]).unwrap();
    let bomb = bomb.finish().unwrap().into_inner();
    // The directory declares more bytes than allowed.
    let mut large = ZipWriter::new(Cursor::new(Vec::new()));
    let declared: usize = 0x0001_2345;
    large.start_file(format!("{NET}large"), deflated).unwrap();
    large.write_all(&vec![0; declared]).unwrap();
    let large = large.finish().unwrap().into_inner();
    let [declared, more] = [declared, 501 << 20].map(|size| u32::try_from(size).unwrap());
    let large = replaced(large, &declared.to_le_bytes(), &more.to_le_bytes());
    let plain = net_zip(&[GO_MOD, net]);
    let size = u32::try_from(net.1.len()).unwrap().to_le_bytes();
    [
        (net_zip(&[("../a", b"")]), 422, "has “..”"),
        (net_zip(&[("/etc/passwd", b"")]), 422, "is absolute"),
        (with("a\\b"), 422, "has the character"),
        (with("aux.go"), 422, "Windows reserves"),
        (net_zip(&[net, ("NET.go", b"")]), 422, "only in case"),
        (net_zip(&[net, ("net.go/a", b"")]), 422, "file and a folder"),
        (
            zip(&[("other.com/net@v1.0.0/a", b"")]),
            422,
            "does not begin with",
        ),
        (
            zip(&[("example.com/net@v1.0.1/a", b"")]),
            422,
            "does not begin with",
        ),
        (link, 422, "neither a file nor a folder"),
        (bomb, 422, "more than 200 times its size"),
        (
            net_zip(&[net, ("sub/go.mod", b"module example.com/net/sub\n")]),
            422,
            "at the top of a module",
        ),
        (
            net_zip(&[("GO.MOD", b"module example.com/net\n")]),
            422,
            "in lower case",
        ),
        (
            net_zip(&[("go.mod", b"module example.com/other\n"), net]),
            422,
            "“example.com/other”",
        ),
        (
            net_zip(&[("go.mod", b"module example.com/net/v2\n"), net]),
            422,
            "“example.com/net/v2”",
        ),
        (
            net_zip(&[("go.mod", b"go 1.24\n"), net]),
            422,
            "no “module” line",
        ),
        (
            net_zip(&[("go.mod", b"module (\n"), net]),
            422,
            "error in line",
        ),
        (net_zip(&[]), 422, "no file"),
        (Vec::new(), 422, "not a zip file"),
        (tar_gz(&[(FILE, "main.tf", CODE)]), 422, "not a zip file"),
        (plain[..plain.len() - 1].to_vec(), 422, "not a zip file"),
        (
            [b"#!/bin/sh\n".to_vec(), plain.clone()].concat(),
            422,
            "not a zip file",
        ),
        (
            [plain.clone(), plain.clone()].concat(),
            422,
            "not a zip file",
        ),
        (
            [plain.clone(), b"more".to_vec()].concat(),
            422,
            "not a zip file",
        ),
        // The directory declares another size than the content has.
        (
            replaced(plain.clone(), &size, &[13, 0, 0, 0]),
            422,
            "not a zip file",
        ),
        // Another name in front of the content than in the directory.
        (
            {
                let place = plain.windows(6).position(|part| part == b"net.go").unwrap();
                let mut cloaked = plain.clone();
                cloaked[place] = b'x';
                cloaked
            },
            422,
            "not a zip file",
        ),
        (many(100_001), 413, "more than 100000 entries"),
        (large, 413, "have more than 524288000 bytes"),
    ]
    .into_iter()
    .map(|(archive, status, reason)| Hostile {
        key: GO,
        archive,
        status,
        reason,
    })
    .collect()
}

/// Archives of both kinds, each as another version: those with at least one byte and at most so many. The folders in
/// packages of Go are those of their versions.
pub fn of_different_versions(most: usize) -> Vec<(VersionKey, Hostile)> {
    const FOLDER: &[u8] = b"@v1.0.0/";
    let is_listed = |hostile: &Hostile| (1..=most).contains(&hostile.archive.len());
    let modules = of_modules().into_iter().filter(is_listed).enumerate();
    let modules = modules.map(|(number, hostile)| {
        let key = format!("module acme/vpc/aws 1.0.{number}");
        (key.parse().unwrap(), hostile)
    });
    let go = of_go().into_iter().filter(is_listed).enumerate();
    let go = go.map(|(number, mut hostile)| {
        let version = format!("v1.{}.{}", 2 + number / 10, number % 10);
        let mut places = hostile.archive.windows(FOLDER.len());
        if places.any(|place| place == FOLDER) {
            let folder = format!("@{version}/");
            hostile.archive = replaced(hostile.archive, FOLDER, folder.as_bytes());
        }
        let key = format!("go example.com/net {version}");
        (key.parse().unwrap(), hostile)
    });
    modules.chain(go).collect()
}
