//! Finds the part of a repository that the code of some projects reaches, for checkouts that hold nothing else.
//!
//! Too large a part costs time; too small a part makes a plan fail or differ. Therefore every path that could be
//! meant counts: below a project, all symbolic links and all paths with `..` in its code, its steps and its
//! `when_modified`. The use of a path does not matter: the source of a module, a template, a file of variables. The
//! targets are searched in the same way. Terragrunt code follows its own rules. If the target is not clear, the
//! result is everything.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use super::configured::below;
use super::{FileTree, terragrunt};
use crate::model::RepoPath;

/// Endings of the files whose text is searched.
const ENDINGS: [&str; 7] = [
    ".tf",
    ".tofu",
    ".hcl",
    ".tf.json",
    ".tofu.json",
    ".tfvars",
    ".tfvars.json",
];
/// Maximum number of links to follow in order to find where a path leads, the same as in Linux.
const MAX_STEPS: usize = 40;
/// Maximum number of code files to search for all projects together. A file counts once for each project that reaches
/// it.
const MAX_FILES: usize = 200_000;
/// Maximum number of other items to look at for all projects together, which is some seconds of work. Items are all
/// directories and files below the reached ones, each part of a mentioned path or of a link in it, and every path
/// whose name begins like such a path.
const MAX_LOOKS: usize = 10_000_000;
/// Maximum number of bytes of code that are read.
const MAX_BYTES: usize = 128 << 20;

/// A project, and the texts about it outside its code.
#[derive(Debug, Clone)]
pub struct Start {
    /// Directory of the project.
    pub dir: RepoPath,
    /// Texts with paths relative to the directory: commands, arguments, patterns.
    pub texts: Vec<String>,
}

/// Part of a repository that some projects reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectReach {
    /// Everything in the repository.
    Everything,
    /// Only the listed directories and files.
    These {
        /// Directories with everything below them.
        dirs: BTreeSet<RepoPath>,
        /// Single files, and links on the way to them.
        files: BTreeSet<RepoPath>,
    },
}

/// Returns the part that these projects reach. `read` is as in [`super::Input`].
pub fn reach(
    tree: &FileTree,
    read: &dyn Fn(&RepoPath) -> Option<String>,
    starts: &[Start],
) -> ProjectReach {
    ReachSearch::new(tree, read).reach(starts)
}

/// State of the search. In all functions `None` means that the whole repository is reached.
struct ReachSearch<'a> {
    tree: &'a FileTree,
    read: &'a dyn Fn(&RepoPath) -> Option<String>,
    /// All directories of the tree, sorted.
    all_dirs: Vec<&'a RepoPath>,
    dirs: BTreeSet<RepoPath>,
    files: BTreeSet<RepoPath>,
    /// Paths that the text of a file mentions.
    mentions: HashMap<RepoPath, Rc<[PathMention]>>,
    files_left: usize,
    looks_left: usize,
    bytes_left: usize,
}

/// Target of a path after following its links.
enum Arrival {
    /// A path inside the repository, even if nothing exists there.
    Inside(RepoPath),
    /// A path outside the repository, where a checkout could hold nothing, or a circle.
    Nowhere,
}

/// Places to look at for one project.
struct ReachWalk<'s> {
    start: &'s RepoPath,
    todo: Vec<RepoPath>,
    seen: BTreeSet<RepoPath>,
    /// Places that mentions led to, each with the character after the mention.
    followed: HashSet<(RepoPath, Option<char>)>,
}

impl<'s> ReachWalk<'s> {
    fn of(start: &'s RepoPath) -> Self {
        Self {
            start,
            todo: Vec::new(),
            seen: BTreeSet::new(),
            followed: HashSet::new(),
        }
    }

    /// Adds a directory to look at. Reaching the root means reaching everything.
    fn add(&mut self, dir: RepoPath) -> Option<()> {
        if dir.is_root() {
            return None;
        }
        if self.seen.insert(dir.clone()) {
            self.todo.push(dir);
        }
        Some(())
    }
}

impl<'a> ReachSearch<'a> {
    fn new(tree: &'a FileTree, read: &'a dyn Fn(&RepoPath) -> Option<String>) -> Self {
        Self {
            tree,
            read,
            all_dirs: tree.dirs().collect(),
            dirs: BTreeSet::new(),
            files: BTreeSet::new(),
            mentions: HashMap::new(),
            files_left: MAX_FILES,
            looks_left: MAX_LOOKS,
            bytes_left: MAX_BYTES,
        }
    }

    fn reach(mut self, starts: &[Start]) -> ProjectReach {
        if starts.iter().all(|start| self.start(start).is_some()) && self.units(starts).is_some() {
            return ProjectReach::These {
                dirs: self.dirs,
                files: self.files,
            };
        }
        ProjectReach::Everything
    }

    /// Counts more items that are looked at.
    fn look(&mut self, count: usize) -> Option<()> {
        self.looks_left = self.looks_left.checked_sub(count)?;
        Some(())
    }

    fn start(&mut self, start: &Start) -> Option<()> {
        let mut walk = ReachWalk::of(&start.dir);
        walk.add(start.dir.clone())?;
        for mention in start.texts.iter().flat_map(|text| mentions(text)) {
            self.follow(&mut walk, &start.dir, &mention)?;
        }
        self.finish(walk)
    }

    fn finish(&mut self, mut walk: ReachWalk<'_>) -> Option<()> {
        while let Some(dir) = walk.todo.pop() {
            let tree = self.tree;
            let inside = below(&self.all_dirs, &dir).to_vec();
            for dir in std::iter::once(&dir).chain(inside) {
                self.look(1)?;
                for file in tree.files_in(dir) {
                    self.look_at(&mut walk, file)?;
                }
            }
        }
        self.dirs.extend(walk.seen);
        Some(())
    }

    fn look_at(&mut self, walk: &mut ReachWalk<'_>, file: &RepoPath) -> Option<()> {
        self.look(1)?;
        let dir = file.parent();
        let mut text_of = file.clone();
        if self.tree.link_target(file).is_some() {
            let Arrival::Inside(target) = self.arrive(&dir, file.file_name())? else {
                return Some(());
            };
            self.add(walk, &target)?;
            // The code of the target is read as if it lay where the link is.
            text_of = target;
        }
        if !ENDINGS
            .iter()
            .any(|ending| file.file_name().ends_with(ending))
            || !self.tree.has_file(&text_of)
        {
            return Some(());
        }
        self.files_left = self.files_left.checked_sub(1)?;
        for mention in &*self.mentions_in(&text_of)? {
            self.follow(walk, &dir, mention)?;
            // A path in the code of a module may be relative to the directory where the tool runs.
            if dir != *walk.start {
                self.follow(walk, &walk.start.clone(), mention)?;
            }
        }
        Some(())
    }

    fn mentions_in(&mut self, file: &RepoPath) -> Option<Rc<[PathMention]>> {
        if let Some(known) = self.mentions.get(file) {
            return Some(Rc::clone(known));
        }
        let text = (self.read)(file).unwrap_or_default();
        self.bytes_left = self.bytes_left.checked_sub(text.len())?;
        let found: Rc<[PathMention]> = mentions(&text).into();
        self.mentions.insert(file.clone(), Rc::clone(&found));
        Some(found)
    }

    fn follow(
        &mut self,
        walk: &mut ReachWalk<'_>,
        base: &RepoPath,
        mention: &PathMention,
    ) -> Option<()> {
        let Arrival::Inside(at) = self.arrive(base, &mention.path)? else {
            return Some(());
        };
        // The same place can be written in many ways.
        if !walk.followed.insert((at.clone(), mention.next)) {
            return Some(());
        }
        self.add(walk, &at)?;
        let Some(next) = mention.next.filter(|_| !at.is_root()) else {
            return Some(());
        };
        for longer in self.beginning_with(&at, next)? {
            if let Arrival::Inside(at) = self.arrive(&longer.parent(), longer.file_name())? {
                self.add(walk, &at)?;
            }
        }
        Some(())
    }

    /// Returns the neighbours of a path whose name begins with its name and the next character.
    fn beginning_with(&mut self, at: &RepoPath, next: char) -> Option<Vec<&'a RepoPath>> {
        let (tree, start) = (self.tree, format!("{at}{next}"));
        let files = tree.files_in(&at.parent());
        let first = files.partition_point(|file| file.as_str() < start.as_str());
        let files = files[first..]
            .iter()
            .take_while(|file| file.as_str().starts_with(&start));
        let first = self
            .all_dirs
            .partition_point(|dir| dir.as_str() < start.as_str());
        let dirs = self.all_dirs[first..]
            .iter()
            .copied()
            .take_while(|dir| dir.as_str().starts_with(&start));
        let mut found: Vec<&'a RepoPath> = files.chain(dirs).collect();
        self.look(found.len())?;
        // Directories further down are neighbours of those next to the path.
        found.retain(|path| !path.as_str()[start.len()..].contains('/'));
        Some(found)
    }

    fn add(&mut self, walk: &mut ReachWalk<'_>, at: &RepoPath) -> Option<()> {
        if self.tree.has_file(at) {
            self.files.insert(at.clone());
        } else if self.tree.dir_exists(at) {
            walk.add(at.clone())?;
        }
        Some(())
    }

    /// Resolves a path by following every link in it, as the kernel does. The links are kept.
    fn arrive(&mut self, base: &RepoPath, path: &str) -> Option<Arrival> {
        let (tree, mut at) = (self.tree, base.clone());
        let mut rest = vec![path.split('/')];
        let mut steps = 0;
        while let Some(parts) = rest.last_mut() {
            let Some(part) = parts.next() else {
                rest.pop();
                continue;
            };
            self.look(1)?;
            if at.enter(part).is_err() {
                return Some(Arrival::Nowhere);
            }
            if matches!(part, "" | "." | "..") {
                continue;
            }
            let Some(target) = tree.link_target(&at) else {
                continue;
            };
            steps += 1;
            if steps > MAX_STEPS || target.starts_with('/') {
                return Some(Arrival::Nowhere);
            }
            let above = at.parent();
            self.files.insert(std::mem::replace(&mut at, above));
            rest.push(target.split('/'));
        }
        Some(Arrival::Inside(at))
    }

    /// Adds the files that Terragrunt reads for the projects that it runs.
    fn units(&mut self, starts: &[Start]) -> Option<()> {
        let mut todo: Vec<RepoPath> = starts
            .iter()
            .map(|start| start.dir.clone())
            .filter(|dir| terragrunt::runs(self.tree, dir))
            .collect();
        if todo.is_empty() {
            return Some(());
        }
        let found = terragrunt::units(self.tree, self.read);
        let units: BTreeMap<&RepoPath, &terragrunt::Unit> =
            found.units.iter().map(|unit| (&unit.dir, unit)).collect();
        let unclear: BTreeSet<&RepoPath> = found
            .unresolved
            .iter()
            .map(|unresolved| &unresolved.file)
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(dir) = todo.pop() {
            if !seen.insert(dir.clone()) {
                continue;
            }
            // The units that a stack generates, and the files that they read, are not searched.
            let unit = units
                .get(&dir)
                .filter(|unit| unit.kind == terragrunt::DirRole::Unit)?;
            if unit.reads.keys().any(|file| unclear.contains(file)) || unclear.contains(&dir) {
                return None;
            }
            self.files.extend(
                unit.reads
                    .keys()
                    .filter(|file| self.tree.has_file(file))
                    .cloned(),
            );
            let mut walk = ReachWalk::of(&dir);
            for code in std::iter::once(&dir)
                .chain(unit.watches.keys())
                .filter(|code| self.tree.dir_exists(code))
            {
                walk.add(code.clone())?;
            }
            self.finish(walk)?;
            todo.extend(unit.depends_on.iter().cloned());
        }
        Some(())
    }
}

/// A path with `..` in a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PathMention {
    path: String,
    /// Character after the path. It may end the path or, like a space, be a part of its last name.
    next: Option<char>,
}

/// Returns the paths with `..` in a text. If a path continues with an unknown part, its last known directory counts.
fn mentions(text: &str) -> Vec<PathMention> {
    let is_unknown = |c: char| matches!(c, '$' | '%' | '{' | '*' | '?' | '[' | '\\');
    let ends = |c: char| c.is_whitespace() || is_unknown(c) || "\"'`}](),;=:|&<>#!".contains(c);
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some(at) = rest.find("..") {
        let begin = rest[..at].rfind(ends).map_or(0, |before| {
            before + rest[before..].chars().next().map_or(1, char::len_utf8)
        });
        let end = rest[at..]
            .find(ends)
            .map_or(rest.len(), |length| at + length);
        let goes_on = rest[end..].starts_with(is_unknown);
        let path = &rest[begin..end];
        // The name of a variable counts as if it were in braces.
        let is_variable = rest[..begin].ends_with('$');
        let path = if is_variable {
            path.split_once('/').map_or("", |(_, path)| path)
        } else {
            path
        };
        let path = if goes_on {
            path.rsplit_once('/').map_or("", |(dir, _)| dir)
        } else {
            path
        };
        if path.split('/').any(|part| part == "..") {
            let next = rest[end..]
                .chars()
                .next()
                .filter(|next| !goes_on && *next != '\n');
            found.insert(PathMention {
                path: path.to_owned(),
                next,
            });
        }
        rest = &rest[end..];
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Files<'a> = &'a [(&'a str, &'a str)];

    /// Writes the directories and files that are reached; `->` begins the text of a link.
    fn told(files: Files<'_>, dir: &str, texts: &[&str]) -> String {
        told_within(MAX_LOOKS, files, dir, texts)
    }

    fn told_within(looks_left: usize, files: Files<'_>, dir: &str, texts: &[&str]) -> String {
        let path = |text: &str| -> RepoPath { text.parse().unwrap() };
        let links = files
            .iter()
            .filter_map(|(name, text)| Some((path(name), text.strip_prefix("->")?.to_owned())));
        let tree = FileTree::new(files.iter().map(|(name, _)| path(name))).with_links(links);
        let read = |file: &RepoPath| {
            files
                .iter()
                .find(|(name, _)| *name == file.as_str())
                .map(|(_, text)| (*text).to_owned())
        };
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let shown = |paths: BTreeSet<RepoPath>| {
            paths
                .iter()
                .map(RepoPath::as_str)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let search = ReachSearch {
            looks_left,
            ..ReachSearch::new(&tree, &read)
        };
        match search.reach(&[Start {
            dir: path(dir),
            texts,
        }]) {
            ProjectReach::Everything => "everything".to_owned(),
            ProjectReach::These { dirs, files } => format!("{} | {}", shown(dirs), shown(files)),
        }
    }

    #[test]
    fn modules_are_reached_through_modules_and_what_else_they_name() {
        let files = [
            (
                "live/prod/main.tf",
                "module \"a\" {\n  source = \"../../modules/a\"\n}",
            ),
            (
                "live/prod/sub/x.tf",
                "y = file(\"${path.module}/../../../common/x.json\")",
            ),
            ("live/dev/main.tf", ""),
            (
                "modules/a/main.tf",
                "module \"b\" { source = \"../b//\" }\nx = templatefile(\"../../tpl/${var.x}.tpl\", {})",
            ),
            (
                "modules/b/main.tf",
                "source = \"../../../../outside\" # ... 1..2 a..b",
            ),
            ("modules/c/main.tf", ""),
            ("common/x.json", ""),
            ("tpl/y.tpl", ""),
        ];
        assert_eq!(
            told(&files, "live/prod", &[]),
            "live/prod modules/a modules/b tpl | common/x.json"
        );
        assert_eq!(
            told(
                &files,
                "modules/c",
                &["-var-file=../../common/x.json", "../a/*.tf"]
            ),
            "modules/a modules/b modules/c tpl | common/x.json"
        );
        assert_eq!(told(&files, "live/dev", &["ls ../../$X"]), "everything");
        assert_eq!(told(&files, ".", &[]), "everything");
    }

    #[test]
    fn names_with_spaces_and_signs_are_taken_whole() {
        let files = [
            (
                "live/prod/main.tf",
                "x = fileset(\"${path.module}/../../user data\", \"*\")\nsource = \"../../my mods/net\"",
            ),
            ("live/prod/y.tf", "file(\"../../o'brien.json\")"),
            ("user data/a.json", ""),
            ("user/b.json", ""),
            ("user-data/c.json", ""),
            ("my mods/net/main.tf", "source = \"../dns, internal\""),
            ("my mods/dns, internal/main.tf", ""),
            ("env=prod/x.tfvars", ""),
            ("env=dev.tfvars", ""),
            ("o'brien.json", ""),
            ("scripts/check.sh", ""),
        ];
        assert_eq!(
            told(
                &files,
                "live/prod",
                &[
                    "-var-file=../../env=prod/x.tfvars",
                    "sh $DIR/../../scripts/check.sh"
                ]
            ),
            "env=prod live/prod my mods my mods/dns, internal user user data | env=dev.tfvars o'brien.json scripts/check.sh"
        );
    }

    #[test]
    fn links_are_followed_and_what_they_lead_to_is_read_where_they_are() {
        let files = [
            ("live/prod/main.tf", "->../../base/main.tf"),
            ("live/prod/m", "->../shared/net"),
            ("live/prod/out", "->/etc"),
            ("live/shared", "->../modules"),
            ("base/main.tf", "source = \"../../x\""),
            ("modules/net/main.tf", "source = \"../dns\""),
            ("modules/dns/main.tf", ""),
            ("x/main.tf", ""),
            ("loop", "->loop"),
        ];
        let expected = "live/prod modules/dns modules/net x | base/main.tf live/prod/m live/prod/main.tf live/shared";
        assert_eq!(
            told(&files, "live/prod", &["../../loop"]),
            format!("{expected} loop")
        );
    }

    #[test]
    fn a_place_that_is_written_in_many_ways_is_looked_at_once() {
        let spelled: Vec<String> = (0..20)
            .map(|n| format!("\"../{}d\" ", "./".repeat(n)))
            .collect();
        let text = spelled.concat();
        let beside: Vec<String> = (0..20).map(|n| format!("d\"{n}")).collect();
        let mut files = vec![("p/main.tf", text.as_str())];
        files.extend(beside.iter().map(|name| (name.as_str(), "")));
        // The search looks at a directory, its file, the parts of all mentions, and the paths that begin like the
        // place: first found, then resolved.
        let looks = 1 + 1 + (2..22_usize).sum::<usize>() + 20 + 20;
        let told = told_within(looks, &files, "p", &[]);
        assert!(told.starts_with("p | d\"0 d\"1 "), "{told}");
        assert_eq!(told.split(' ').count(), 2 + 20, "{told}");
        assert_eq!(told_within(looks - 1, &files, "p", &[]), "everything");
    }

    #[test]
    fn what_takes_too_long_to_find_out_is_everything() {
        let files = [
            ("p/main.tf", ""),
            ("p/a", "->../q/../q/b"),
            ("q/b", ""),
            ("q b/c/d", ""),
            ("q b/c/e", ""),
        ];
        // The directory and its two files, then the link and the parts of its text.
        assert_eq!(told_within(3 + 6, &files, "p", &[]), "p | p/a q/b");
        assert_eq!(told_within(3 + 5, &files, "p", &[]), "everything");
        // The parts of the text, two directories that begin like it, only one of them next to it, and what it
        // reaches: three directories and three files.
        assert_eq!(
            told_within(3 + 6 + 2 + 2 + 1 + 6, &files, "p", &["../q b"]),
            "p q q b | p/a q/b"
        );
        assert_eq!(
            told_within(3 + 6 + 2 + 2 + 1 + 5, &files, "p", &["../q b"]),
            "everything"
        );
    }

    #[test]
    fn units_reach_what_terragrunt_reads() {
        let unit = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\nterraform {\n  source = \"${get_repo_root()}/modules//a\"\n}\n";
        let with_dependency = format!("{unit}dependency \"b\" {{\n  config_path = \"../b\"\n}}\n");
        let unclear = "include \"x\" {\n  path = get_env(\"X\")\n}\nterraform {\n  source = \"../../modules/a\"\n}\n";
        let files = [
            (
                "live/root.hcl",
                "locals {\n  x = read_terragrunt_config(\"${get_repo_root()}/common/env.hcl\")\n}\n",
            ),
            ("live/a/terragrunt.hcl", with_dependency.as_str()),
            ("live/b/terragrunt.hcl", unit),
            ("live/c/terragrunt.hcl", unclear),
            ("modules/a/main.tf", ""),
            ("modules/z/main.tf", ""),
            ("common/env.hcl", ""),
        ];
        let expected = "live/a live/b modules/a | common/env.hcl live/a/terragrunt.hcl live/b/terragrunt.hcl live/root.hcl";
        assert_eq!(told(&files, "live/a", &[]), expected);
        assert_eq!(told(&files, "live/c", &[]), "everything");
    }

    #[test]
    fn paths_are_found_in_any_text() {
        for (text, expected) in [
            ("\"../a\" '../b/c' (../d)", "../a ../b/c ../d"),
            ("${path.module}/../x.json", "/../x.json"),
            ("../a/${b}/c ../d-${e} ../*.tf", ".. ../a"),
            ("./../a/../b", "./../a/../b"),
            ("a..b 1...2 ... x...", ""),
            ("cd ../é&&x=../ü", "../é ../ü"),
        ] {
            let paths: Vec<String> = mentions(text)
                .into_iter()
                .map(|mention| mention.path)
                .collect();
            assert_eq!(paths.join(" "), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_said_it_ends_and_keeps_the_project(
            texts in proptest::collection::vec(r#"(\.\.|/|[ab"${ü]){0,12}"#, 0..6), link in "[ab./]{1,6}"
        ) {
            let link = format!("->{link}");
            let files = [("a/main.tf", texts.first().map_or("", String::as_str)), ("a/b/l", &link), ("b/main.tf", "../a")];
            let told = told(&files, "a", &texts.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(told == "everything" || told.starts_with('a'), "{}", told);
        }
    }
}
