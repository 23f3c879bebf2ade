//! Follows symbolic links inside a repository: a changed file is also a change at every link that leads to it.
//!
//! Links are followed by name only, never outside the repository, and only a few levels deep, because a link may lead
//! to a directory that contains it.

use std::collections::{BTreeSet, HashMap};

use super::FileTree;
use super::limits::{LimitExceeded, MAX_LINK_LOOKS, MAX_LINK_PARTS, MAX_LINKED};
use crate::model::RepoPath;

/// Maximum number of links in a chain through which a change is seen.
const MAX_DEPTH: usize = 4;

/// Maximum number of links to follow in order to find where a path leads, the same as in Linux.
const MAX_FOLLOWED: usize = 40;

/// Links by the path that they lead to.
type Links<'a> = HashMap<RepoPath, Vec<&'a RepoPath>>;

/// Returns the changed paths (sorted) and every path under which links show them; sorted.
pub(super) fn seen(
    tree: &FileTree,
    changed: Vec<RepoPath>,
) -> Result<Vec<RepoPath>, LimitExceeded> {
    let links = links(tree, MAX_LINK_PARTS)?;
    if links.is_empty() {
        return Ok(changed);
    }
    let mut names = LinkedNames::of(&changed);
    names.follow(&links, changed)?;
    Ok(names.all.into_iter().collect())
}

/// Returns every link by the path that it leads to, as long as path parts are left to pass. A link to a directory
/// that contains it is left out.
fn links(tree: &FileTree, mut parts_left: usize) -> Result<Links<'_>, LimitExceeded> {
    let mut links = Links::new();
    for (link, _) in tree.links() {
        let target = follow(tree, RepoPath::root(), link.as_str(), &mut parts_left)?;
        if let Some(target) = target.filter(|target| !target.contains(link)) {
            links.entry(target).or_default().push(link);
        }
    }
    Ok(links)
}

/// Names under which changes are seen, and the work that finding them took.
struct LinkedNames {
    all: BTreeSet<RepoPath>,
    /// Number of directories and links that were looked at. Each costs time, even if it yields no new name.
    looks: usize,
}

impl LinkedNames {
    fn of(changed: &[RepoPath]) -> Self {
        Self {
            all: changed.iter().cloned().collect(),
            looks: 0,
        }
    }

    /// Adds the names behind links, and those behind links to these; fails at the first one over a limit.
    fn follow(&mut self, links: &Links<'_>, changed: Vec<RepoPath>) -> Result<(), LimitExceeded> {
        let mut newest = changed;
        for _ in 0..MAX_DEPTH {
            let mut behind = Vec::new();
            for path in &newest {
                self.add(links, path, &mut behind)?;
            }
            newest = behind;
        }
        Ok(())
    }

    /// Adds the names of a path through links to it, or to a directory above it. New names also go into `behind`.
    fn add(
        &mut self,
        links: &Links<'_>,
        path: &RepoPath,
        behind: &mut Vec<RepoPath>,
    ) -> Result<(), LimitExceeded> {
        let mut above = path.clone();
        while !above.is_root() {
            self.look()?;
            let rest = &path.as_str()[above.as_str().len()..];
            for link in links.get(&above).into_iter().flatten() {
                if let Ok(name) = RepoPath::new(&format!("{link}{rest}"))
                    && self.all.insert(name.clone())
                {
                    behind.push(name);
                }
                self.look()?;
            }
            above = above.parent();
        }
        Ok(())
    }

    /// Counts one more directory or link, and checks the limits.
    fn look(&mut self) -> Result<(), LimitExceeded> {
        self.looks += 1;
        if self.looks > MAX_LINK_LOOKS || self.all.len() > MAX_LINKED {
            Err(LimitExceeded::Links)
        } else {
            Ok(())
        }
    }
}

/// Returns the path behind a path after following every link; `None`: outside the repository, or in a circle.
pub(super) fn resolve(tree: &FileTree, path: &RepoPath) -> Option<RepoPath> {
    let mut parts_left = MAX_LINK_PARTS;
    follow(tree, RepoPath::root(), path.as_str(), &mut parts_left)
        .ok()
        .flatten()
}

/// Resolves a path as [`resolve`] does, but from a directory without links in its path. Each part of the path and of
/// its links counts; an error means that no parts are left to pass.
pub(super) fn follow(
    tree: &FileTree,
    from: RepoPath,
    path: &str,
    parts_left: &mut usize,
) -> Result<Option<RepoPath>, LimitExceeded> {
    let mut done = from;
    let mut rest = vec![path.split('/')];
    let mut followed = 0;
    while let Some(parts) = rest.last_mut() {
        let Some(part) = parts.next() else {
            rest.pop();
            continue;
        };
        *parts_left = parts_left.checked_sub(1).ok_or(LimitExceeded::Links)?;
        if done.enter(part).is_err() {
            return Ok(None);
        }
        let Some(target) = tree.link_target(&done) else {
            continue;
        };
        followed += 1;
        if followed > MAX_FOLLOWED || target.starts_with('/') {
            return Ok(None);
        }
        done = done.parent();
        rest.push(target.split('/'));
    }
    Ok(Some(done))
}

/// Returns the directory that a path leads to through links; `None`: no directory of the repository.
pub(super) fn dir_behind(tree: &FileTree, path: &RepoPath) -> Option<RepoPath> {
    resolve(tree, path).filter(|target| tree.dir_exists(target))
}

/// Returns the text of a code file, with a `read` that follows no links. As in the tools, a link has the text of the
/// file that it leads to. A link that leads to no file of the repository has no text.
pub(super) fn read_code(
    tree: &FileTree,
    file: &RepoPath,
    read: &dyn Fn(&RepoPath) -> Option<String>,
) -> Option<String> {
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

    fn tree(links: &[(&str, &str)]) -> FileTree {
        let files = ["base/main.tf", "modules/net/main.tf", "live/prod/main.tf"].map(path);
        let links = links
            .iter()
            .map(|(link, target)| (path(link), (*target).to_owned()));
        FileTree::new(files).with_links(links)
    }

    fn names(links: &[(&str, &str)], changed: &str) -> String {
        let seen = seen(&tree(links), vec![path(changed)]).unwrap();
        seen.iter()
            .map(RepoPath::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_change_is_seen_through_every_link_to_it() {
        let file = [("live/prod/common.tf", "../../base/main.tf")];
        assert_eq!(
            names(&file, "base/main.tf"),
            "base/main.tf live/prod/common.tf"
        );
        assert_eq!(names(&file, "base/other.tf"), "base/other.tf");
        let dir = [
            ("live/prod/modules", "../../modules"),
            ("live/again", "prod"),
        ];
        let expected =
            "live/again/modules/net/main.tf live/prod/modules/net/main.tf modules/net/main.tf";
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
        assert_eq!(
            resolve(&tree(&[("live/out", "../../..")]), &path("live/out/etc")),
            None
        );
        assert_eq!(
            resolve(&tree(&[("a", "base"), ("b", "a")]), &path("b/x")),
            Some(path("base/x"))
        );
    }

    #[test]
    fn directories_are_found_behind_links() {
        let tree = tree(&[
            ("l", "base"),
            ("live/up", ".."),
            ("code", "base/main.tf"),
            ("out", "../.."),
            ("gone", "x"),
        ]);
        for (link, target) in [
            ("l", "base"),
            ("live/up", "."),
            ("live/up/modules/net", "modules/net"),
        ] {
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
        let text = |file: &str| {
            read_code(&tree, &path(file), &|file| Some(file.to_string())).unwrap_or_default()
        };
        assert_eq!(text("base/main.tf"), "base/main.tf");
        assert_eq!(text("live/prod/common.tf"), "base/main.tf");
        assert_eq!(text("live/prod/again.tf"), "base/main.tf");
        assert_eq!(text("live/prod/deep.tf"), "modules/net/main.tf");
        for (link, _) in &links[4..] {
            assert_eq!(text(link), "", "{link}");
        }
    }

    /// Returns a tree with links to `base` whose names begin with a number, and changed files in `base`.
    fn many(links: usize, end: &str, files: usize) -> (FileTree, Vec<RepoPath>) {
        let links = (0..links).map(|n| (path(&format!("l{n}/{end}")), "../base".to_owned()));
        let changed = (0..files).map(|n| path(&format!("base/f{n}"))).collect();
        (FileTree::new([path("base/f0")]).with_links(links), changed)
    }

    #[test]
    fn links_that_multiply_are_refused() {
        let (tree, changed) = many(300, "x", 300);
        assert_eq!(seen(&tree, changed), Err(LimitExceeded::Links));
    }

    #[test]
    fn names_that_are_too_many_are_not_even_made() {
        let (tree, changed) = many(5_000, "x", 3_000);
        let mut names = LinkedNames::of(&changed);
        assert_eq!(
            names.follow(&links(&tree, MAX_LINK_PARTS).unwrap(), changed),
            Err(LimitExceeded::Links)
        );
        assert_eq!(names.all.len(), MAX_LINKED + 1);
        assert!(
            names.looks <= MAX_LINKED + 100,
            "{} were looked at",
            names.looks
        );
    }

    #[test]
    fn what_is_looked_at_in_vain_counts_too() {
        let (tree, changed) = many(20, &"x".repeat(RepoPath::MAX_BYTES - 5), 20);
        let mut names = LinkedNames {
            looks: MAX_LINK_LOOKS - 100,
            ..LinkedNames::of(&changed)
        };
        let links = links(&tree, MAX_LINK_PARTS).unwrap();
        assert_eq!(
            names.follow(&links, changed.clone()),
            Err(LimitExceeded::Links)
        );
        assert_eq!(
            (names.all.len(), names.looks),
            (20, MAX_LINK_LOOKS + 1),
            "all names are too long"
        );
        let known = seen(&tree, changed.clone()).unwrap();
        assert_eq!(known.len(), changed.len());
    }

    #[test]
    fn each_part_on_the_way_counts() {
        let tree = tree(&[
            ("live/prod/again.tf", "common.tf"),
            ("live/prod/common.tf", ".././/../base/main.tf"),
        ]);
        // Each path has three parts, the text that both links reach has six, and the other text has one.
        assert_eq!(links(&tree, 3 + 1 + 6 + 3 + 6).unwrap().len(), 1);
        assert_eq!(links(&tree, 3 + 1 + 6 + 3 + 5), Err(LimitExceeded::Links));
    }

    #[test]
    fn links_that_lead_up_and_down_for_long_are_refused() {
        let deep = ["x"; 500].join("/");
        let text = |n: usize| format!("{}c{n}", "../x/".repeat(790));
        let chain = (0..39).map(|n| (path(&format!("{deep}/c{n}")), text(n + 1)));
        let tree = FileTree::new([path("base/main.tf")]).with_links(chain);
        assert_eq!(links(&tree, 20_000), Err(LimitExceeded::Links));
        let last = path(&format!("{deep}/c38"));
        assert_eq!(resolve(&tree, &last), Some(path(&format!("{deep}/c39"))));
    }

    #[test]
    fn names_that_changed_themselves_are_not_counted_twice() {
        let links = [("live/prod/common.tf", "../../base/main.tf")];
        let changed = ["base/main.tf", "live/prod/common.tf"].map(path).to_vec();
        assert_eq!(seen(&tree(&links), changed.clone()), Ok(changed));
    }

    proptest! {
        #[test]
        fn whatever_links_there_are_it_ends_inside(
            links in proptest::collection::vec(("[ab](/[ab]){0,2}", "[ab./]{1,8}"), 0..6), file in "[ab](/[ab]){0,3}"
        ) {
            let links = links.into_iter().map(|(link, target)| (path(&link), target));
            let tree = FileTree::new([]).with_links(links);
            if let Ok(seen) = seen(&tree, vec![path(&file)]) {
                prop_assert!(seen.contains(&path(&file)));
            }
        }
    }
}
