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

/// Runs `go` in the folder of the vectors. Returns its output.
fn printed_by_go(args: &[&str]) -> String {
    let interop = std::env::var_os("LOCKKEEPER_INTEROP").expect("run `make interop`");
    let packages = PathBuf::from(interop).join("go-vectors");
    // `go` would make the folder.
    assert!(packages.is_dir(), "run `make interop`");
    let packages = packages.to_str().unwrap();
    let variables = [
        ("GOMODCACHE", packages),
        ("GOPROXY", "off"),
        ("GOFLAGS", "-mod=readonly -buildvcs=false"),
        ("GOTOOLCHAIN", "local"),
        ("GOENV", "off"),
        ("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-build")),
    ];
    let said = run("go", &vectors(), args, &variables);
    assert_eq!(said.code, 0, "go {args:?}: {}", said.err);
    said.out
}

/// Returns the number after `1.` in a release of Go, as in `go version go1.26.4 linux/amd64` or `go 1.26.0`.
fn release_of_go(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("1.")?;
    let end = rest.find(|char: char| !char.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// Compares the table of letters that Go prints with the one here. Returns true if Go has other letters, because it is newer
/// than the release in `go.mod`, with which the table was made, and has another release of Unicode.
fn has_new_letters(
    printed: &str,
    kept: &str,
    [installed, used]: [Option<u32>; 2],
) -> Result<bool, String> {
    let first = |table: &str| table.lines().next().unwrap_or_default().to_owned();
    let (now, then) = (first(printed), first(kept));
    if now == then {
        let is_same = printed == kept;
        return is_same
            .then_some(false)
            .ok_or_else(|| "the table of letters is another one".to_owned());
    }
    let made = |line: &str| line.rsplit_once(' ').map(|(made, _)| made.to_owned());
    if made(&now) == made(&then) && used.is_some() && installed > used {
        return Ok(true);
    }
    Err(format!(
        "the table of letters begins with {then:?}, and Go, of release {installed:?} instead of {used:?}, prints {now:?}"
    ))
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
    let kept = include_str!("../../../crates/registry/src/paths/unicode.txt");
    let used = include_str!("../../../crates/registry/vectors/go.mod");
    let used = used.lines().find(|line| line.starts_with("go "));
    let releases = [
        release_of_go(&printed_by_go(&["version"])),
        used.and_then(release_of_go),
    ];
    let unicode = printed_by_go(&["run", "./unicode"]);
    let has_new_letters = has_new_letters(&unicode, kept, releases).unwrap();
    for (file, args) in [
        ("names.txt", &["run", "./names"][..]),
        ("note.txt", &["run", "./note"][..]),
        ("tlog.txt", &["run", "./tlog"][..]),
        ("zip.txt", &["run", "./zip"][..]),
        ("generated.txt", &["run", "./zip", "-generated"][..]),
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
            "{file}, go {args:?}"
        );
    }
}

#[test]
fn only_a_newer_release_of_go_explains_other_letters() {
    let kept = "# Made with Unicode 15.0.0.\nletter 41 5a\n";
    let newer = "# Made with Unicode 17.0.0.\nletter 41 5b\n";
    let [same, later] = [[Some(26), Some(26)], [Some(27), Some(26)]];
    assert_eq!(has_new_letters(kept, kept, same), Ok(false));
    assert_eq!(has_new_letters(newer, kept, later), Ok(true));
    for (printed, releases) in [
        ("# Made with Unicode 15.0.0.\nletter 41 5b\n", later),
        (newer, same),
        (newer, [Some(27), None]),
        (newer, [None, Some(26)]),
        ("# Printed with Unicode 17.0.0.\n", later),
        ("", later),
    ] {
        has_new_letters(printed, kept, releases).unwrap_err();
    }
    assert_eq!(release_of_go("go version go1.26.4 linux/amd64"), Some(26));
    assert_eq!(release_of_go("go 1.26"), Some(26));
    assert_eq!(release_of_go("go"), None);
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
