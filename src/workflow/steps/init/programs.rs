//! Detects configurations whose `init` may run a program that the configuration names.
//!
//! `terraform init` and `tofu init` fetch providers and start none. So an `init` may have things that no plan may
//! have: the shared cache of providers, and credentials for private modules. There are exceptions. Since 1.10
//! OpenTofu can take the key for its states from `key_provider "external"`, a command, and runs it before it fetches
//! anything. Terraform prepares `state_store`, which starts a provider.
//!
//! A backend can name programs as well, such as `credential_process` in a configuration file of AWS that the pull request has,
//! or `exec` of Kubernetes. With such a backend `init` runs in two parts (`mod.rs`). A bucket needs none (`backends.rs`).
//!
//! Text is searched and not parsed, because another parser of the language may understand a file differently than the
//! tool. So everything that might be such a block counts.
//!
//! An earlier step can put links into the directory. One to `/proc/self` leads the tool to another file than the server. So
//! a link counts as a reason if it leads out of the checkout, is an absolute path, or is one of those of `/proc`.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::backends;
use crate::model::Distribution;

/// Maximum size of one searched file.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum size of all searched files together.
const MAX_BYTES_OF_ALL: u64 = 64 * 1024 * 1024;
const STATE_STORE: &str = "state_store";
const ENCRYPTION: &str = "encryption";

/// Returns the reason that an `init` in a directory of a checkout may run a program of the configuration there, if any. Files
/// that cannot be read count as a reason. `None` for `tool` means that either tool may run.
pub(super) fn why(
    root: &Path,
    dir: &Path,
    tool: Option<Distribution>,
) -> std::io::Result<Option<String>> {
    search(
        (root, dir),
        |text| named_native(text, tool),
        |text| named_json(text, tool),
    )
}

/// Returns true if a configuration in a directory of a checkout may have a backend. With `except_plain`, one that cannot name
/// a program does not count.
pub(super) fn may_have_backend(
    root: &Path,
    dir: &Path,
    except_plain: bool,
) -> std::io::Result<bool> {
    let native = |text: &str| backends::in_native(text, except_plain);
    search((root, dir), native, backends::in_json).map(|found| found.is_some())
}

/// Searches the configuration in a directory of a checkout. Returns the place of the first text that was found.
fn search(
    (root, dir): (&Path, &Path),
    native: impl Fn(&str) -> Option<&'static str>,
    json: impl Fn(&str) -> Option<&'static str>,
) -> std::io::Result<Option<String>> {
    let mut left = MAX_BYTES_OF_ALL;
    let Some(found) = find(root, dir) else {
        let why = "its directory is behind a link that cannot be followed safely";
        return Ok(Some(why.to_owned()));
    };
    for entry in fs::read_dir(descriptor(&found))? {
        let path = dir.join(entry?.file_name());
        let Some(kind) = path.extension().and_then(|extension| extension.to_str()) else {
            continue;
        };
        let is_json = match kind {
            "tf" | "tofu" => false,
            "json" => true,
            _ => continue,
        };
        // The name is untrusted: the pull request chose it.
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .escape_debug()
            .to_string();
        let Some(text) = text(root, &path) else {
            return Ok(Some(format!(
                "`{file}` cannot be searched (not a regular file in the checkout, or larger than 4 MiB)"
            )));
        };
        let found = if is_json { json(&text) } else { native(&text) };
        if let Some(found) = found {
            return Ok(Some(format!("`{file}` may have a block `{found}`")));
        }
        let Some(rest) = left.checked_sub(text.len() as u64) else {
            return Ok(Some("its files have more than 64 MiB in total".to_owned()));
        };
        left = rest;
    }
    Ok(None)
}

/// Finds what a path in a checkout leads to. Links are followed, as the tool does, but only inside of the checkout.
fn find(root: &Path, path: &Path) -> Option<OwnedFd> {
    let below = path.strip_prefix(root).ok()?;
    // An empty path would find nothing.
    let below = Path::new(".").join(below);
    let find = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(root, find | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(root, below, find, Mode::empty(), inside).ok()
}

/// Returns the path of something that was found, which nobody can exchange any more.
fn descriptor(found: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", found.as_raw_fd()).into()
}

/// Returns the text of a regular file of at most [`MAX_BYTES`] in a checkout.
pub(super) fn text(root: &Path, path: &Path) -> Option<String> {
    // Opening a pipe blocks, and opening a device may have an effect. So the file is checked by a descriptor that gives no
    // access yet.
    let found = find(root, path)?;
    if FileType::from_raw_mode(fstat(&found).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    let readable = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(open(descriptor(&found), readable, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn named_native(text: &str, tool: Option<Distribution>) -> Option<&'static str> {
    if around(text, STATE_STORE).next().is_some() {
        return Some(STATE_STORE);
    }
    let mut places = around(text, ENCRYPTION);
    (tool != Some(Distribution::Terraform) && places.any(|(_, rest)| begins_block(rest)))
        .then_some(ENCRYPTION)
}

fn named_json(text: &str, tool: Option<Distribution>) -> Option<&'static str> {
    if tool != Some(Distribution::Terraform) && has_key(text, ENCRYPTION) {
        return Some(ENCRYPTION);
    }
    has_key(text, STATE_STORE).then_some(STATE_STORE)
}

/// Returns true if a text of JSON may have a key.
pub(super) fn has_key(text: &str, key: &str) -> bool {
    // JSON can escape any character of a key as `\u` and a number.
    text.contains(&format!("\"{key}\"")) || text.contains("\\u")
}

/// Returns the text before and after each occurrence of a whole word.
pub(super) fn around<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_of_name = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
    text.match_indices(word).filter_map(move |(at, _)| {
        let (before, rest) = (&text[..at], &text[at + word.len()..]);
        (!before.ends_with(is_of_name) && !rest.starts_with(is_of_name)).then_some((before, rest))
    })
}

/// Returns true if the brace of a block follows. A comment may stand between the name of a block and its brace.
fn begins_block(rest: &str) -> bool {
    rest.trim_start().starts_with(['{', '/', '#'])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const COMMAND: &str = "terraform {\n  encryption {\n    key_provider \"external\" \"x\" {\n      command = [\"./key\"]\n    }\n  }\n}\n";

    fn runs_programs(name: &str, content: &str, tool: Option<Distribution>) -> bool {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), content).unwrap();
        why(dir.path(), dir.path(), tool).unwrap().is_some()
    }

    #[test]
    fn a_block_by_which_init_runs_a_program_is_found_however_it_is_written() {
        let json = r#"{"terraform": {"encryption": {}}}"#;
        let hidden = r#"{"terraform": {"\u0065ncryption": {}}}"#;
        for (name, content) in [
            ("main.tf", COMMAND),
            ("main.tofu", COMMAND),
            ("main.tf", "terraform { encryption{} }"),
            (
                "main.tf",
                "terraform {\n encryption /* of\n states */ {}\n}",
            ),
            ("main.tf", "terraform {\n encryption // of states\n {}\n}"),
            ("main.tf.json", json),
            ("main.tofu.json", json),
            ("main.tf.json", hidden),
            (
                "main.tf",
                "terraform {\n state_store \"x\" {\n provider \"x\" {}\n }\n}",
            ),
        ] {
            for tool in [None, Some(Distribution::OpenTofu)] {
                assert!(runs_programs(name, content, tool), "{name}: {content}");
            }
        }
        assert!(runs_programs(
            "main.tf",
            "terraform {\n state_store \"x\" {}\n}",
            Some(Distribution::Terraform)
        ));
    }

    #[test]
    fn a_word_alone_is_none() {
        for content in [
            "",
            "resource \"aws_s3_bucket_server_side_encryption_configuration\" \"x\" {}\n",
            "# encryption at rest is on\nresource \"x\" \"y\" {\n  encryption = true\n}\n",
            "variable \"encryption\" {}\n",
            "encryption_configuration {}\n",
        ] {
            assert!(!runs_programs("main.tf", content, None), "{content}");
        }
        assert!(
            !runs_programs("main.tf", COMMAND, Some(Distribution::Terraform)),
            "Terraform does not know such a block"
        );
        assert!(!runs_programs("notes.md", COMMAND, None));
    }

    #[test]
    fn a_backend_is_found_in_every_file() {
        let has_backend = |name: &str, content: &str| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(
                dir.path().join("main.tf"),
                "terraform { backend \"s3\" {} }\n",
            )
            .unwrap();
            assert!(!may_have_backend(dir.path(), dir.path(), true).unwrap());
            fs::write(dir.path().join(name), content).unwrap();
            may_have_backend(dir.path(), dir.path(), true).unwrap()
        };
        for (name, content) in [
            ("a.tf", "terraform {\n  backend \"local\" {}\n}\n"),
            ("a.tofu", "terraform { cloud{} }"),
            ("a.tf.json", r#"{"terraform": {"backend": {"s3": {}}}}"#),
        ] {
            assert!(has_backend(name, content), "{name}: {content}");
        }
        assert!(!has_backend("notes.md", "backend"));
    }

    #[test]
    fn what_cannot_be_read_may_hold_anything() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("main.tf");
        for target in ["/nowhere", "/dev/null", "."] {
            symlink(target, &file).unwrap();
            assert!(
                why(dir.path(), dir.path(), None).unwrap().is_some(),
                "{target}"
            );
            fs::remove_file(&file).unwrap();
        }
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            why(dir.path(), dir.path(), None).unwrap().is_some(),
            "a pipe is not waited for"
        );
        assert!(runs_programs(
            "main.tf",
            &"#".repeat(4 * 1024 * 1024 + 1),
            None
        ));
    }

    #[test]
    fn code_behind_a_link_is_searched() {
        let dir = tempfile::tempdir().unwrap();
        let (project, base) = (dir.path().join("project"), dir.path().join("base.tf"));
        fs::create_dir(&project).unwrap();
        symlink("../base.tf", project.join("main.tf")).unwrap();
        fs::write(&base, "resource \"x\" \"y\" {}\n").unwrap();
        assert_eq!(why(dir.path(), &project, None).unwrap(), None);
        fs::write(&base, COMMAND).unwrap();
        assert!(why(dir.path(), &project, None).unwrap().is_some());
    }

    #[test]
    fn a_link_that_may_lead_the_tool_to_another_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, project) = (dir.path().join("root"), dir.path().join("root/project"));
        fs::create_dir_all(&project).unwrap();
        fs::write(dir.path().join("outside.tf"), "").unwrap();
        fs::write(root.join("inside.tf"), "").unwrap();
        let main = project.join("main.tf");
        let inside = root.join("inside.tf");
        let by_process = Path::new("/proc/self/root").join(inside.strip_prefix("/").unwrap());
        for target in [inside, by_process, PathBuf::from("../../outside.tf")] {
            symlink(&target, &main).unwrap();
            let told = why(&root, &project, None).unwrap();
            assert!(told.is_some(), "{}", target.display());
            fs::remove_file(&main).unwrap();
        }
        assert_eq!(why(&root, &project, None).unwrap(), None);
        let link = root.join("link");
        symlink(dir.path(), &link).unwrap();
        assert_eq!(
            why(&root, &link, None).unwrap().unwrap(),
            "its directory is behind a link that cannot be followed safely"
        );
    }

    #[test]
    fn so_may_more_than_anybody_searches() {
        let dir = tempfile::tempdir().unwrap();
        let content = "#".repeat(4 * 1024 * 1024);
        for name in 0..16 {
            fs::write(dir.path().join(format!("{name}.tf")), &content).unwrap();
        }
        assert_eq!(why(dir.path(), dir.path(), None).unwrap(), None);
        fs::write(dir.path().join("16.tf"), "#").unwrap();
        assert_eq!(
            why(dir.path(), dir.path(), None).unwrap().unwrap(),
            "its files have more than 64 MiB in total"
        );
    }

    #[test]
    fn the_file_is_named_as_nobody_can_make_lines_of_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a\n\u{202e}b.tf"), COMMAND).unwrap();
        assert_eq!(
            why(dir.path(), dir.path(), None).unwrap().unwrap(),
            r"`a\n\u{202e}b.tf` may have a block `encryption`"
        );
    }
}
