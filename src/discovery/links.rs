//! Symbolic links inside of a repository: what changed is also what changed behind every link to it.
//!
//! Links are followed by name only, never outside of the repository, and only a few deep: a link may lead to a
//! directory that it is in.

use std::collections::{BTreeSet, HashMap};

use super::Tree;
use super::limits::{LimitExceeded, MAX_LINKED};
use crate::model::RepoPath;

/// Links one behind the other through which a change is seen.
const MAX_DEPTH: usize = 4;

/// Links that are followed to find where a path leads, as many as Linux follows.
const MAX_STEPS: usize = 40;

/// The changed paths, which are sorted, and every path under which they are seen through links; sorted.
pub(super) fn seen(tree: &Tree, changed: Vec<RepoPath>) -> Result<Vec<RepoPath>, LimitExceeded> {
    let mut to: HashMap<RepoPath, Vec<&RepoPath>> = HashMap::new();
    for (link, _) in tree.links() {
        if let Some(target) = resolve(tree, link).filter(|target| !target.contains(link)) {
            to.entry(target).or_default().push(link);
        }
    }
    if to.is_empty() {
        return Ok(changed);
    }
    let mut all: BTreeSet<RepoPath> = changed.iter().cloned().collect();
    let mut newest = changed;
    for _ in 0..MAX_DEPTH {
        let behind: Vec<RepoPath> = newest.iter().flat_map(|path| through(&to, path)).collect();
        newest = behind.into_iter().filter(|path| all.insert(path.clone())).collect();
        if all.len() > MAX_LINKED {
            return Err(LimitExceeded::Links);
        }
    }
    Ok(all.into_iter().collect())
}

/// The names of a path through links to it, or to a directory above it.
fn through(to: &HashMap<RepoPath, Vec<&RepoPath>>, path: &RepoPath) -> Vec<RepoPath> {
    let mut names = Vec::new();
    let mut above = path.clone();
    while !above.is_root() {
        let rest = &path.as_str()[above.as_str().len()..];
        let links = to.get(&above).into_iter().flatten();
        names.extend(links.filter_map(|link| RepoPath::new(&format!("{link}{rest}")).ok()));
        above = above.parent();
    }
    names
}

/// Where a path leads when every link on the way is followed; `None`: outside of the repository, or in a circle.
pub(super) fn resolve(tree: &Tree, path: &RepoPath) -> Option<RepoPath> {
    let mut done = RepoPath::root();
    let mut rest: Vec<String> = path.as_str().rsplit('/').map(str::to_owned).collect();
    let mut steps = 0;
    while let Some(name) = rest.pop() {
        let next = done.join(&name).ok()?;
        let Some(target) = tree.link_target(&next) else {
            done = next;
            continue;
        };
        steps += 1;
        if steps > MAX_STEPS || target.starts_with('/') {
            return None;
        }
        rest.extend(target.rsplit('/').filter(|part| !part.is_empty()).map(str::to_owned));
    }
    Some(done)
}

/// The directory that a path which is none itself leads to through links; `None`: it leads to no directory of the
/// repository.
pub(super) fn dir_behind(tree: &Tree, path: &RepoPath) -> Option<RepoPath> {
    resolve(tree, path).filter(|target| tree.dir_exists(target))
}

/// The text of a file of code, by a `read` that follows no link. What is a link is read as if the file that it leads to
/// lay there, as the tools do; one that leads to no file of the repository has no text.
pub(super) fn read_code(tree: &Tree, file: &RepoPath, read: &dyn Fn(&RepoPath) -> Option<String>) -> Option<String> {
    if !tree.is_link(file) {
        return read(file);
    }
    read(&resolve(tree, file).filter(|target| tree.has_file(target))?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    fn tree(links: &[(&str, &str)]) -> Tree {
        let files = ["base/main.tf", "modules/net/main.tf", "live/prod/main.tf"].map(path);
        let links = links.iter().map(|(link, target)| (path(link), (*target).to_owned()));
        Tree::new(files).with_links(links)
    }

    fn names(links: &[(&str, &str)], changed: &str) -> String {
        let seen = seen(&tree(links), vec![path(changed)]).unwrap();
        seen.iter().map(RepoPath::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_is_seen_through_every_link_to_it() {
        let file = [("live/prod/common.tf", "../../base/main.tf")];
        assert_eq!(names(&file, "base/main.tf"), "base/main.tf live/prod/common.tf");
        assert_eq!(names(&file, "base/other.tf"), "base/other.tf");
        let dir = [("live/prod/modules", "../../modules"), ("live/again", "prod")];
        let expected = "live/again/modules/net/main.tf live/prod/modules/net/main.tf modules/net/main.tf";
        assert_eq!(names(&dir, "modules/net/main.tf"), expected);
    }

    #[test]
    fn links_that_lead_out_or_in_circles_lead_nowhere() {
        for links in [
            &[("live/out", "../../..")][..],
            &[("live/out", "/base")],
            &[("live/a", "b"), ("live/b", "a")],
            &[("base/up", "..")],
            &[("base/self", "../base")],
            &[("live/gone", "../nowhere")],
        ] {
            assert_eq!(names(links, "base/main.tf"), "base/main.tf", "{links:?}");
        }
        assert_eq!(resolve(&tree(&[("live/out", "../../..")]), &path("live/out/etc")), None);
        assert_eq!(resolve(&tree(&[("a", "base"), ("b", "a")]), &path("b/x")), Some(path("base/x")));
    }

    #[test]
    fn directories_are_found_behind_links() {
        let tree = tree(&[("l", "base"), ("live/up", ".."), ("code", "base/main.tf"), ("out", "../.."), ("gone", "x")]);
        for (link, target) in [("l", "base"), ("live/up", "."), ("live/up/modules/net", "modules/net")] {
            assert_eq!(dir_behind(&tree, &path(link)), Some(path(target)), "{link}");
        }
        for link in ["code", "out", "gone", "nowhere"] {
            assert_eq!(dir_behind(&tree, &path(link)), None, "{link}");
        }
    }

    #[test]
    fn code_is_read_through_links_to_files_of_the_repository() {
        let links = [
            ("live/prod/common.tf", "../../base/main.tf"),
            ("live/prod/again.tf", "common.tf"),
            ("live/prod/deep.tf", "lib/net/main.tf"),
            ("live/prod/lib", "../../modules"),
            ("live/prod/passwd.tf", "/etc/passwd"),
            ("live/prod/out.tf", "../../../etc/passwd"),
            ("live/prod/back.tf", "../../../infra/base/main.tf"),
            ("live/prod/a.tf", "b.tf"),
            ("live/prod/b.tf", "a.tf"),
            ("live/prod/gone.tf", "../../base/gone.tf"),
            ("live/prod/dir.tf", "../../base"),
            ("live/prod/root.tf", "../.."),
        ];
        let tree = tree(&links);
        let text = |file: &str| read_code(&tree, &path(file), &|file| Some(file.to_string())).unwrap_or_default();
        assert_eq!(text("base/main.tf"), "base/main.tf");
        assert_eq!(text("live/prod/common.tf"), "base/main.tf");
        assert_eq!(text("live/prod/again.tf"), "base/main.tf");
        assert_eq!(text("live/prod/deep.tf"), "modules/net/main.tf");
        for (link, _) in &links[4..] {
            assert_eq!(text(link), "", "{link}");
        }
    }

    #[test]
    fn links_that_multiply_are_refused() {
        let links: Vec<(String, String)> = (0..300).map(|n| (format!("l{n}/x"), "../base".to_owned())).collect();
        let links: Vec<_> = links.iter().map(|(link, target)| (link.as_str(), target.as_str())).collect();
        let changed = (0..300).map(|n| path(&format!("base/f{n}"))).collect();
        assert_eq!(seen(&tree(&links), changed), Err(LimitExceeded::Links));
    }

    proptest! {
        #[test]
        fn whatever_links_there_are_it_ends_inside(
            links in proptest::collection::vec(("[ab](/[ab]){0,2}", "[ab./]{1,8}"), 0..6), file in "[ab](/[ab]){0,3}"
        ) {
            let links = links.into_iter().map(|(link, target)| (path(&link), target));
            let tree = Tree::new([]).with_links(links);
            if let Ok(seen) = seen(&tree, vec![path(&file)]) {
                prop_assert!(seen.contains(&path(&file)));
            }
        }
    }
}
