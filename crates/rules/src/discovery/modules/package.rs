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
    /// Directory that the source leads to; `None` if it leads out of the tree.
    pub module: Option<RepoPath>,
}

/// Finds the local sources that lead to no module of a tree: from the module in `top` and from those in its folder
/// `modules`, through all modules that these use. Examples and tests do not count. `read` returns the text of a file, and
/// code that cannot be read or understood uses nothing. Directories that are symbolic links count as missing.
pub fn missing_modules(
    tree: &FileTree,
    top: &RepoPath,
    read: &dyn Fn(&RepoPath) -> Option<String>,
) -> Result<BTreeSet<MissingModule>, LimitExceeded> {
    let submodules = top.join(SUBMODULES).ok();
    let is_start = |dir: &&RepoPath| *dir == top || Some(dir.parent()) == submodules;
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
                        module: other,
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
        missing_in(".", files)
    }

    fn missing_in(top: &str, files: &[(&str, &str)]) -> Vec<String> {
        let tree = FileTree::new(files.iter().map(|(name, _)| name.parse().unwrap()));
        let read = |file: &RepoPath| {
            let found = files.iter().find(|(name, _)| *name == file.as_str());
            found.map(|(_, source)| format!("module \"x\" {{\n  source = \"{source}\"\n}}\n"))
        };
        let missing = missing_modules(&tree, &top.parse().unwrap(), &read).unwrap();
        let shown = |missing: &MissingModule| {
            let module = missing.module.as_ref().map_or("outside", RepoPath::as_str);
            format!("{} {} {module}", missing.dir, missing.source)
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
        assert_eq!(missing(&[("main.tf", "./b")]), [". ./b b"]);
        assert_eq!(
            missing(&[("main.tf", "./a"), ("a/main.tf", "../../b")]),
            ["a ../../b outside"]
        );
        assert_eq!(
            missing(&[("modules/a/main.tf", "../c"), ("modules/b/main.tf", "../a")]),
            ["modules/a ../c modules/c"]
        );
        assert_eq!(
            missing(&[("main.tf", "x"), ("examples/a/main.tf", "../../../b")]),
            none
        );
    }

    #[test]
    fn a_module_in_a_directory_uses_others_beside_it() {
        let files = [
            ("infra/vpc/main.tf", "../shared"),
            ("infra/vpc/modules/a/main.tf", "../../../other"),
            ("infra/shared/main.tf", "../../top"),
            ("modules/x/main.tf", "../y"),
        ];
        assert_eq!(
            missing_in("infra/vpc", &files),
            [
                "infra/shared ../../top top",
                "infra/vpc/modules/a ../../../other infra/other"
            ]
        );
        assert_eq!(
            missing_in("infra/shared", &files[..3]),
            ["infra/shared ../../top top"]
        );
        assert_eq!(
            missing_in("infra/vpc", &[("infra/vpc/main.tf", "../../../x")]),
            ["infra/vpc ../../../x outside"]
        );
    }
}
