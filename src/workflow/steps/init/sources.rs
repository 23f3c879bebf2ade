//! Determines if an `init` may fetch modules from elsewhere.
//!
//! Only such an `init` gets credentials for private modules, and waits for the programs of other projects. A project whose
//! modules are all directories of its repository needs neither. In doubt, modules are fetched.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

use super::super::Steps;
use super::super::builtin::run_blocking;
use super::programs::text;
use crate::discovery::local_sources;
use crate::model::RepoPath;

/// Option that names a directory with tests, which can call modules too.
const TEST_DIRECTORY: &str = "-test-directory";
/// Directory with tests if no option names one.
const TESTS: &str = "tests";
/// Ends of names of files with tests.
const TEST_FILES: [&str; 2] = ["test.hcl", "test.json"];
/// Maximum number of directories that are read.
const MAX_DIRS: usize = 200;
/// Maximum number of bytes that are read.
const MAX_BYTES: usize = 64 * 1024 * 1024;

impl Steps<'_> {
    /// Returns true if an `init` with these arguments may fetch modules that are no directories of the repository.
    pub(super) async fn may_fetch_modules(&self, args: &[OsString]) -> io::Result<bool> {
        let names_tests = |arg: &OsStr| arg.to_string_lossy().contains(TEST_DIRECTORY);
        if args.iter().any(|arg| names_tests(arg.as_os_str()))
            || self.args_of_variables().any(names_tests)
        {
            return Ok(true);
        }
        let [dir, root] = [self.dir, self.exec.place.root].map(Path::to_owned);
        run_blocking(move || Ok(may_be_elsewhere(&dir, &root))).await
    }
}

/// Returns true unless all modules of a project, and all modules of those, are directories below `root`.
fn may_be_elsewhere(project: &Path, root: &Path) -> bool {
    if project.join(TESTS).symlink_metadata().is_ok() {
        return true;
    }
    // The tools follow links of a directory before they go up from it.
    let (Ok(project), Ok(root)) = (project.canonicalize(), root.canonicalize()) else {
        return true;
    };
    let (mut seen, mut todo) = (BTreeSet::from([project.clone()]), vec![project]);
    let mut left = MAX_BYTES;
    while let Some(dir) = todo.pop() {
        let Some(sources) = sources_in(&root, &dir, &mut left) else {
            return true;
        };
        for source in sources {
            let module = is_relative(&source)
                .then(|| dir.join(source).canonicalize().ok())
                .flatten();
            let Some(module) = module.filter(|module| module.starts_with(&root)) else {
                return true;
            };
            if seen.insert(module.clone()) {
                todo.push(module);
            }
        }
        if seen.len() > MAX_DIRS {
            return true;
        }
    }
    false
}

/// Returns the sources of the modules of one directory; `None` if one may lead elsewhere.
fn sources_in(root: &Path, dir: &Path, left: &mut usize) -> Option<Vec<String>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(dir).ok()? {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?;
        if TEST_FILES.iter().any(|end| name.ends_with(end)) {
            return None;
        }
        if [".tf", ".tofu", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            let text = text(root, &path)?;
            *left = left.checked_sub(text.len())?;
            sources.extend(local_sources(&name.parse::<RepoPath>().ok()?, &text)?);
        }
    }
    Some(sources)
}

/// Returns true if the source is no absolute path.
fn is_relative(source: &str) -> bool {
    let is_relative = |part| !matches!(part, Component::RootDir | Component::Prefix(_));
    Path::new(source).components().all(is_relative)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Writes files below a checkout, and checks the project in `app`.
    fn needs_other_places(files: &[(&str, &str)]) -> bool {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("app")).unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        may_be_elsewhere(&root.path().join("app"), root.path())
    }

    fn calls(source: &str) -> String {
        format!("module \"it\" {{\n  source = {source}\n}}\n")
    }

    #[test]
    fn directories_of_the_repository_need_nothing_from_elsewhere() {
        let (net, vpc) = (calls("\"../lib/net\""), calls("\"../vpc\""));
        let providers =
            "terraform {\n  required_providers {\n    x = { source = \"acme/x\" }\n  }\n}\n";
        assert!(!needs_other_places(&[]));
        assert!(!needs_other_places(&[("app/main.tf", providers)]));
        assert!(!needs_other_places(&[
            ("app/main.tf", &net),
            ("app/notes.json", "{\"module\": \"x\"}"),
            ("lib/net/main.tf", &vpc),
            (
                "lib/vpc/main.tf.json",
                "{\"module\": {\"x\": {\"source\": \"../net\"}}}"
            ),
        ]));
    }

    #[test]
    fn a_link_is_followed_before_the_way_up() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["app", "lib/net", "lib/vpc", "app/vpc"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        symlink("../lib/net", root.path().join("app/link")).unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        write("app/main.tf", &calls("\"./link\""));
        write("lib/net/main.tf", &calls("\"../vpc\""));
        assert!(!may_be_elsewhere(&root.path().join("app"), root.path()));
        write("lib/vpc/main.tf", &calls("\"acme/net/aws\""));
        assert!(may_be_elsewhere(&root.path().join("app"), root.path()));
    }

    #[test]
    fn every_other_source_may_be_elsewhere() {
        let net = calls("\"../lib/net\"");
        for source in [
            "\"acme/net/aws\"",
            "\"git::https://github.com/acme/net.git\"",
            "\"git@github.com:acme/net.git\"",
            "\"../../outside\"",
            "\"./nothing\"",
            "\"./${var.x}\"",
            "var.source",
        ] {
            let code = calls(source);
            assert!(needs_other_places(&[("app/main.tf", &code)]), "{source}");
            let nested = [
                ("app/main.tf", net.as_str()),
                ("lib/net/x.tofu", code.as_str()),
            ];
            assert!(needs_other_places(&nested), "{source}");
        }
        let none = ("app/main.tf", "");
        for file in [
            ("app/broken.tf", "module \"x\" {"),
            (
                "app/x.tf.json",
                "{\"module\": {\"x\": {\"source\": \"acme/x/aws\"}}}",
            ),
            ("app/x.tftest.hcl", ""),
            ("app/tests/x.tftest.hcl", ""),
        ] {
            assert!(needs_other_places(&[none, file]), "{}", file.0);
        }
    }
}
