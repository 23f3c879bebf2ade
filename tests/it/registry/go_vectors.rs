//! Go's own packages say again what the texts of `crates/registry/vectors` have of them, so that a text that somebody has
//! edited, or that another release of these packages contradicts, is found.
//!
//! `make interop` downloads the packages. Two things depend on Go itself, and say nothing about our code: the bytes of
//! compressed packages, and the letters that its release of Unicode has.

use std::path::{Path, PathBuf};

use crate::support::program::run;

/// Tree with letters that only newer releases of Unicode have.
const NEW_LETTERS: &str = "tree =new%20letters ";

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/registry/vectors")
}

/// Runs a program of the vectors. Returns its output.
fn printed_by_go(args: &[&str]) -> String {
    let interop = std::env::var_os("LOCKKEEPER_INTEROP").expect("run `make interop`");
    let packages = PathBuf::from(interop).join("go-vectors");
    let packages = packages.to_str().unwrap();
    let variables = [
        ("GOMODCACHE", packages),
        ("GOPROXY", "off"),
        ("GOFLAGS", "-mod=readonly -buildvcs=false"),
        ("GOTOOLCHAIN", "local"),
        ("GOENV", "off"),
        ("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-build")),
    ];
    let args = [&["run"][..], args].concat();
    let said = run("go", &vectors(), &args, &variables);
    assert_eq!(said.code, 0, "go {args:?}: {}", said.err);
    said.out
}

/// Returns the lines of a text that depend on our code alone.
fn comparable(text: &str, has_new_letters: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut is_left_out = false;
    for line in text.lines() {
        if line.starts_with("tree ") || line.starts_with('#') {
            is_left_out = has_new_letters && line.starts_with(NEW_LETTERS);
        }
        if is_left_out {
            continue;
        }
        let is_package = line.starts_with("zip ");
        let compressed = line.rsplit_once(' ').filter(|_| is_package);
        lines.push(compressed.map_or(line, |(name, _)| name));
    }
    lines
}

#[test]
#[ignore = "needs the Go packages that `make interop` downloads"]
fn go_says_again_what_the_vectors_have_of_it() {
    let unicode = printed_by_go(&["./unicode"]);
    let kept = include_str!("../../../crates/registry/src/paths/unicode.txt");
    // The first line has the release of Unicode.
    let has_new_letters = unicode.lines().next() != kept.lines().next();
    assert!(
        has_new_letters || unicode == kept,
        "the table of letters is another one"
    );
    for (file, args) in [
        ("names.txt", &["./names"][..]),
        ("note.txt", &["./note"][..]),
        ("tlog.txt", &["./tlog"][..]),
        ("zip.txt", &["./zip"][..]),
        ("generated.txt", &["./zip", "-generated"][..]),
    ] {
        let kept = std::fs::read_to_string(vectors().join(file)).unwrap();
        let printed = printed_by_go(args);
        let (kept, printed) = (
            comparable(&kept, has_new_letters),
            comparable(&printed, has_new_letters),
        );
        assert!(kept.len() > 10, "{file} has {} lines", kept.len());
        let other = kept.iter().zip(&printed).find(|(kept, now)| kept != now);
        assert_eq!(
            (other, kept.len()),
            (None, printed.len()),
            "{file}, go run {args:?}"
        );
    }
}

#[test]
fn only_what_depends_on_go_is_left_out_of_a_comparison() {
    let text = "# made\ntree =new%20letters =\nentry f =x =\nvalid =x\ntree =a =\nvalid =a b\nzip =a UEs=\nh1:x=\n";
    let usual = ["tree =a =", "valid =a b", "zip =a", "h1:x="];
    let new = ["tree =new%20letters =", "entry f =x =", "valid =x"];
    let all = [&["# made"][..], &new, &usual].concat();
    assert_eq!(comparable(text, false), all);
    assert_eq!(comparable(text, true), [&["# made"][..], &usual].concat());
}
