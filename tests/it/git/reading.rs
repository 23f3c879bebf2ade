//! Compares what is read from a mirror with what git says, and tries objects that are too large to read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lockkeeper::model::ChangeKind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Number of commits in a random history.
const COMMITS: usize = 60;
/// Number of pairs of commits that are compared in each history.
const PAIRS: usize = 40;

/// Makes a random history for `git fast-import`: branches, merges of branches (also criss-cross), clocks that go
/// backwards, files that become directories and links.
fn history(rng: &mut StdRng) -> String {
    let names = [
        "a", "a.tf", "a/x.tf", "a/x.tf/y", "a-b", "b/c/d.tf", "b/c", "b", "z",
    ];
    let mut text = String::new();
    for number in 1..=COMMITS {
        let date = 1_700_000_000 + number * 10 + rng.random_range(0..60);
        write!(
            text,
            "commit refs/heads/c{number}\nmark :{number}\ncommitter A <a@example.com> {date} +0000\ndata 1\nx\n"
        )
        .unwrap();
        // Some commits have no parent, so that some histories have nothing in common.
        if number > 1 && rng.random_range(0..15) > 0 {
            let recent = number.saturating_sub(6).max(1)..number;
            let first = rng.random_range(recent.clone());
            writeln!(text, "from :{first}").unwrap();
            let other = rng.random_range(recent);
            if other != first && rng.random_range(0..2) == 0 {
                writeln!(text, "merge :{other}").unwrap();
            }
        }
        for _ in 0..rng.random_range(0..4) {
            let name = names[rng.random_range(0..names.len())];
            let content = rng.random_range(0..5);
            match rng.random_range(0..5) {
                0 => writeln!(text, "D {name}").unwrap(),
                1 => write!(text, "M 120000 inline {name}\ndata 1\n{content}\n").unwrap(),
                _ => write!(text, "M 100644 inline {name}\ndata 1\n{content}\n").unwrap(),
            }
        }
        text.push('\n');
    }
    text
}

/// Runs git on the repository of the server and returns its lines.
async fn git_says(world: &World, arguments: &str) -> Vec<String> {
    let said = world
        .sh(&format!(
            "git --git-dir=srv/acme/infra.git {arguments} || test $? = 1"
        ))
        .await;
    said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn files_changes_and_merge_bases_are_those_of_git() {
    let (mut several, mut none) = (0, 0);
    for seed in 0..3 {
        let mut rng = StdRng::seed_from_u64(seed);
        let world = World::new().await;
        std::fs::write(world.path("history"), history(&mut rng)).unwrap();
        world
            .sh("git --git-dir=srv/acme/infra.git fast-import --quiet --date-format=raw-permissive <history")
            .await;
        let refs: Vec<RefName> = (1..=COMMITS)
            .map(|number| RefName::new(&format!("refs/heads/c{number}")).unwrap())
            .collect();
        let fetched = world
            .fetch_as(PASSWORD, &world.url(), &refs, None)
            .await
            .unwrap();
        let commits: Vec<CommitSha> = refs
            .iter()
            .map(|name| fetched.commit_of(name).unwrap().clone())
            .collect();
        let mirror = world.mirror();
        for _ in 0..PAIRS {
            let base = &commits[rng.random_range(0..COMMITS)];
            let head = &commits[rng.random_range(0..COMMITS)];
            let at = format!("seed {seed}: {base} {head}");
            let bases = git_says(&world, &format!("merge-base --all {base} {head}")).await;
            let changes = mirror.changed(base, head).await.unwrap().unwrap();
            let expected = if bases.is_empty() {
                vec![base.to_string()]
            } else {
                bases.clone()
            };
            assert!(expected.contains(&changes.left_at.to_string()), "{at}");
            several += usize::from(bases.len() > 1);
            none += usize::from(bases.is_empty());
            let listed = git_says(
                &world,
                &format!(
                    "diff-tree -r --no-renames --name-status {} {head}",
                    changes.left_at
                ),
            )
            .await;
            let told: Vec<String> = changes
                .files
                .iter()
                .map(|file| {
                    let status = match file.kind {
                        ChangeKind::Added => "A",
                        ChangeKind::Removed => "D",
                        ChangeKind::Modified | ChangeKind::Renamed => "M",
                    };
                    format!("{status}\t{}", file.path)
                })
                .collect();
            // A file that became a link has a status of its own.
            let listed: Vec<String> = listed
                .iter()
                .map(|line| line.replace("T\t", "M\t"))
                .collect();
            assert_eq!(told, listed, "{at}");
            let files = mirror.files(head).await.unwrap();
            let paths: Vec<String> = files.paths.iter().map(ToString::to_string).collect();
            assert_eq!(
                paths,
                git_says(&world, &format!("ls-tree -r --name-only {head}")).await,
                "{at}"
            );
            let everything: BTreeSet<String> =
                git_says(&world, &format!("ls-tree -r -t --name-only {head}"))
                    .await
                    .into_iter()
                    .collect();
            for name in [
                "a", "a.tf", "a/x.tf", "a/x.tf/y", "b", "b/c", "b/c/d.tf", "z", "zz",
            ] {
                let is_there = mirror.is_tracked(head, &path(name)).await.unwrap();
                assert_eq!(is_there, everything.contains(name), "{at}: {name}");
            }
        }
    }
    assert!(several > 5, "{several} pairs have several merge bases");
    assert!(none > 5, "{none} pairs have no merge base");
}

/// Writes an object into the mirror, as the packs of a fetch would.
async fn written(world: &World, kind: &str, content: Vec<u8>) -> String {
    let cmd = Cmd::new("git")
        .env("PATH", PATH)
        .env("HOME", "/dev/null")
        .env("GIT_DIR", world.mirror().dir())
        .args(["hash-object", "-t", kind, "-w", "--stdin"])
        .input(content);
    let output = cmd.output().await.unwrap();
    assert!(output.is_success(), "{}", output.stderr.text());
    output.stdout.text().trim().to_owned()
}

fn commit_of(tree: &str, message: &str) -> Vec<u8> {
    let person = "A <a@example.com> 1700000000 +0000";
    format!("tree {tree}\nauthor {person}\ncommitter {person}\n\n{message}\n").into_bytes()
}

#[tokio::test]
async fn a_directory_or_commit_that_is_too_large_is_not_read() {
    let world = World::new().await;
    let base = world.fetch(None).await.unwrap();
    let base = base.commit_of(&main()).unwrap().clone();
    let mirror = world.mirror();
    let file = written(&world, "blob", b"x".to_vec()).await;
    let id = hex::decode(&file).unwrap();
    let entry = |number: u32| [format!("100644 f{number:07}\0").as_bytes(), &id].concat();
    let entries: Vec<u8> = (0..1_900_000).flat_map(entry).collect();
    let tree = written(&world, "tree", entries).await;
    let wide: CommitSha = written(&world, "commit", commit_of(&tree, "wide"))
        .await
        .parse()
        .unwrap();
    let files = mirror.files(&wide).await.unwrap();
    assert!(files.truncated && files.paths.is_empty());
    assert_eq!(mirror.changed_since(&base, &wide).await.unwrap(), None);
    let small = written(&world, "tree", Vec::new()).await;
    let message = "long ".repeat(4 * 1024 * 1024);
    let long: CommitSha = written(&world, "commit", commit_of(&small, &message))
        .await
        .parse()
        .unwrap();
    for error in [
        mirror.files(&long).await.map(drop).unwrap_err(),
        mirror.changed(&base, &long).await.map(drop).unwrap_err(),
    ] {
        assert!(
            error
                .to_string()
                .ends_with(&format!("the commit {long} is larger than 16 MiB")),
            "{error}"
        );
    }
}
