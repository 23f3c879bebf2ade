//! Finds local sources of modules that a package does not contain. Terraform refuses them only when somebody uses the
//! package.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::super::FileTree;
use super::super::limits::{LimitExceeded, MAX_MODULE_BYTES, MAX_MODULE_DIRS};
use super::calls::Calls;
use crate::model::RepoPath;

/// Directory whose modules can be used one by one, by convention.
const SUBMODULES: &str = "modules";

/// A local source of a module call that leads to no module of the package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingModule {
    /// Directory of the code with the call.
    pub dir: RepoPath,
    /// Source as written, such as `../network`.
    pub source: String,
    /// True if the source leads out of the package.
    pub is_outside: bool,
}

/// Finds the local sources that lead to no module of a package: from the module at its top and from those in `modules/`,
/// through all modules that these use. Examples and tests do not count. The package has no symbolic links. `read`
/// returns the text of a file, and code that cannot be read or understood uses nothing.
pub fn missing_modules(
    tree: &FileTree,
    read: &dyn Fn(&RepoPath) -> Option<String>,
) -> Result<BTreeSet<MissingModule>, LimitExceeded> {
    let is_start = |dir: &&RepoPath| dir.is_root() || dir.parent().as_str() == SUBMODULES;
    let mut todo: VecDeque<RepoPath> = tree.dirs().filter(is_start).cloned().collect();
    let mut seen: HashSet<RepoPath> = todo.iter().cloned().collect();
    let mut budget = MAX_MODULE_BYTES;
    let mut missing = BTreeSet::new();
    while let Some(dir) = todo.pop_front() {
        if seen.len() > MAX_MODULE_DIRS {
            return Err(LimitExceeded::Modules);
        }
        let calls = Calls::of_dir(tree, &dir, read, &mut budget).ok_or(LimitExceeded::Modules)?;
        for source in calls.sources {
            let module = dir.join(&source).ok();
            match module {
                Some(module) if tree.has_code(&module) => {
                    if seen.insert(module.clone()) {
                        todo.push_back(module);
                    }
                }
                other => {
                    missing.insert(MissingModule {
                        dir: dir.clone(),
                        source,
                        is_outside: other.is_none(),
                    });
                }
            }
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(files: &[(&str, &str)]) -> Vec<String> {
        let tree = FileTree::new(files.iter().map(|(name, _)| name.parse().unwrap()));
        let read = |file: &RepoPath| {
            let found = files.iter().find(|(name, _)| *name == file.as_str());
            found.map(|(_, source)| format!("module \"x\" {{\n  source = \"{source}\"\n}}\n"))
        };
        let missing = missing_modules(&tree, &read).unwrap();
        let shown = |missing: &MissingModule| {
            let fault = if missing.is_outside {
                "outside"
            } else {
                "missing"
            };
            format!("{} {} {fault}", missing.dir, missing.source)
        };
        missing.iter().map(shown).collect()
    }

    #[test]
    fn sources_that_lead_out_of_the_package_are_found() {
        let none: [&str; 0] = [];
        assert_eq!(missing(&[]), none);
        assert_eq!(
            missing(&[("main.tf", "./a"), ("a/main.tf", "../b"), ("b/x.tf", "..")]),
            none
        );
        assert_eq!(missing(&[("main.tf", "acme/vpc/aws")]), none);
        assert_eq!(missing(&[("main.tf", "../b")]), [". ../b outside"]);
        assert_eq!(missing(&[("main.tf", "./b")]), [". ./b missing"]);
        assert_eq!(
            missing(&[("main.tf", "./a"), ("a/main.tf", "../../b")]),
            ["a ../../b outside"]
        );
        assert_eq!(
            missing(&[("modules/a/main.tf", "../c"), ("modules/b/main.tf", "../a")]),
            ["modules/a ../c missing"]
        );
        assert_eq!(
            missing(&[("main.tf", "x"), ("examples/a/main.tf", "../../../b")]),
            none
        );
    }
}
