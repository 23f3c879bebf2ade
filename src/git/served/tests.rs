//! Pushes of objects that no git would make: of the wrong kind, missing, damaged, or named like nothing else.

use std::cell::Cell;

use gix_object::TreeRefIter;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;

const MAX_BYTES: u64 = 3_000;
const MAX_FILES: usize = 4;
const CONTENTS: [PushContent; 2] = [
    PushContent::Files {
        most: MAX_FILES,
        max_old_bytes: 40,
    },
    PushContent::Notes(3),
];

/// Directories and commits to make one after the other. Each leads to earlier objects.
#[derive(Clone, Debug)]
struct RandomPush {
    blobs: Vec<Vec<u8>>,
    dirs: Vec<Vec<RandomEntry>>,
    commits: Vec<RandomCommit>,
    /// Number of objects that were there before.
    known: Index,
    /// Damage to one object: place and bits.
    damage: Option<(Index, Index, u8)>,
}

/// Kind, name, and one of the objects that the kind could lead to.
type RandomEntry = (u8, String, Index);

#[derive(Clone, Debug)]
struct RandomCommit {
    dir: Index,
    /// Number of parents: mostly the commit before.
    parents: u8,
    committer: String,
    /// True if it leads to any object instead of a directory.
    is_wrong: bool,
}

fn any_push() -> impl Strategy<Value = RandomPush> {
    let blob = proptest::collection::vec(any::<u8>(), 0..60);
    let name = prop_oneof![
        4 => "[a-c]{1,2}",
        4 => proptest::sample::select(vec!["1".repeat(40), "2".repeat(40), "2".repeat(38)]),
        1 => "[0-9a-f]{2}",
        1 => ".{0,3}",
    ];
    let entry = (0..16_u8, name, any::<Index>());
    let dir = proptest::collection::vec(entry, 0..4);
    let committer = prop_oneof![
        9 => Just("x <x@example.com> 1 +0000".to_owned()),
        1 => ".{0,30}",
    ];
    let commit = (any::<Index>(), 0..12_u8, committer, 0..16_u8).prop_map(
        |(dir, parents, committer, wrong)| RandomCommit {
            dir,
            parents,
            committer,
            is_wrong: wrong == 0,
        },
    );
    let damage = (any::<Index>(), any::<Index>(), 1..=255_u8);
    let damage = proptest::option::weighted(0.2, damage);
    (
        proptest::collection::vec(blob, 1..4),
        proptest::collection::vec(dir, 1..5),
        proptest::collection::vec(commit, 1..4),
        any::<Index>(),
        damage,
    )
        .prop_map(|(blobs, dirs, commits, known, damage)| RandomPush {
            blobs,
            dirs,
            commits,
            known,
            damage,
        })
}

fn id_of(kind: Kind, content: &[u8]) -> ObjectId {
    gix_object::compute_hash(gix_hash::Kind::Sha1, kind, content).unwrap()
}

impl RandomPush {
    /// Makes the objects, in an order in which each comes after those that it leads to. The last one is a commit.
    fn objects(&self) -> Vec<(ObjectId, Kind, Vec<u8>)> {
        let mut all: Vec<(ObjectId, Kind, Vec<u8>)> = Vec::new();
        let mut count = 0;
        let total = self.blobs.len() + self.dirs.len() + self.commits.len();
        let mut add = |all: &mut Vec<_>, kind: Kind, mut content: Vec<u8>| {
            if let Some((object, place, bits)) = &self.damage
                && object.index(total) == count
                && !content.is_empty()
            {
                let place = place.index(content.len());
                content[place] ^= bits;
            }
            count += 1;
            let id = id_of(kind, &content);
            all.push((id, kind, content));
            id
        };
        let (mut blobs, mut dirs, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        for content in &self.blobs {
            blobs.push(add(&mut all, Kind::Blob, content.clone()));
        }
        for entries in &self.dirs {
            let mut content = Vec::new();
            for (kind, name, target) in entries {
                let (mode, targets) = match kind {
                    0 => ("120000", &blobs),
                    1 => ("160000", &blobs),
                    2 => ("40000", &blobs),
                    3..=6 if !dirs.is_empty() => ("40000", &dirs),
                    _ => ("100644", &blobs),
                };
                content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
                content.extend_from_slice(target.get(targets).as_bytes());
            }
            dirs.push(add(&mut all, Kind::Tree, content));
        }
        for commit in &self.commits {
            let dir = if commit.is_wrong {
                commit.dir.get(&all).0
            } else {
                *commit.dir.get(&dirs)
            };
            let parents = match commit.parents {
                0 => 0,
                1 => 2,
                _ => 1,
            };
            let parents = commits.iter().rev().take(parents);
            let parents: Vec<String> = parents.map(|id| format!("parent {id}\n")).collect();
            let (parents, by) = (parents.concat(), &commit.committer);
            let text = format!("tree {dir}\n{parents}author {by}\ncommitter {by}\n\nx\n");
            commits.push(add(&mut all, Kind::Commit, text.into_bytes()));
        }
        all
    }
}

/// Puts objects into a quarantine beside a repository that has the others.
fn quarantine(
    known: &[(ObjectId, Kind, Vec<u8>)],
    pushed: &[(ObjectId, Kind, Vec<u8>)],
) -> (tempfile::TempDir, PushedPack) {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for (dir, objects) in dirs.iter().zip([known, pushed]) {
        let settings = GitSettings::new(dir.path(), "");
        let repo = ServedRepo::open(&settings, dir.path().to_owned()).unwrap();
        let objects = objects.iter();
        repo.add(objects.map(|(_, kind, content)| (*kind, content.as_slice())))
            .unwrap();
    }
    let [known, dir] = dirs;
    let objects = known.path().join("objects");
    let alternates = dir.path().join("objects/info/alternates");
    fs::write(alternates, format!("{}\n", objects.display())).unwrap();
    (known, PushedPack { dir })
}

/// Returns the objects that a readable one leads to, without commits of other repositories.
fn links(kind: Kind, content: &[u8]) -> Vec<ObjectId> {
    match kind {
        Kind::Blob | Kind::Tag => Vec::new(),
        Kind::Tree => TreeRefIter::from_bytes(content, gix_hash::Kind::Sha1)
            .map(|entry| entry.unwrap().oid.to_owned())
            .collect(),
        Kind::Commit => {
            let iter = || CommitRefIter::from_bytes(content, gix_hash::Kind::Sha1);
            let tree = iter().tree_id().unwrap();
            std::iter::once(tree).chain(iter().parent_ids()).collect()
        }
    }
}

/// Checks everything that the caller relies on before it stores the objects.
fn assert_storable(
    found: &PushedCommits,
    (old, new): (Option<ObjectId>, ObjectId),
    pushed: &HashSet<ObjectId>,
    content: PushContent,
) {
    assert_eq!(found.commits.first().map(|commit| commit.id), Some(new));
    let mut stored = HashSet::new();
    let mut bytes = 0;
    for (id, kind, content) in &found.objects {
        assert_eq!(*id, id_of(*kind, content));
        assert!(pushed.contains(id) && Some(*id) != old, "{id} is new");
        for link in links(*kind, content) {
            let is_old = !pushed.contains(&link) || Some(link) == old;
            assert!(is_old || stored.contains(&link), "{link} comes before {id}");
        }
        assert!(stored.insert(*id), "{id} is there once");
        bytes += content.len() as u64;
    }
    assert!(stored.contains(&new) && bytes <= MAX_BYTES, "{bytes} bytes");
    let sizes = (found.files.len(), found.notes.len());
    match content {
        PushContent::Files { most, .. } => assert!(sizes.0 <= most && sizes.1 == 0, "{sizes:?}"),
        PushContent::Notes(most) => assert!(sizes.0 == 0 && sizes.1 <= most, "{sizes:?}"),
    }
}

#[test]
fn any_objects_are_refused_with_a_reason_or_can_be_stored() {
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let config = Config {
        cases: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(18),
        ..Config::default()
    };
    let check = |push: RandomPush| {
        let objects = push.objects();
        // The last commit is always pushed.
        let (known, pushed) = objects.split_at(push.known.index(objects.len()));
        let (_known, pack) = quarantine(known, pushed);
        let pushed: HashSet<ObjectId> = pushed.iter().map(|(id, ..)| *id).collect();
        let is_commit = |object: &&(ObjectId, Kind, Vec<u8>)| object.1 == Kind::Commit;
        let old = known.iter().rfind(is_commit).map(|(id, ..)| *id);
        for (new, ..) in objects.iter().filter(|(id, ..)| pushed.contains(id)) {
            for content in CONTENTS {
                match pack.commits(old, *new, content, MAX_BYTES) {
                    Ok(found) => {
                        assert_storable(&found, (old, *new), &pushed, content);
                        assert!(found.known.is_disjoint(&pushed));
                        accepted.set(accepted.get() + 1);
                    }
                    Err(fault) => {
                        assert!(!fault.to_string().is_empty());
                        refused.set(refused.get() + 1);
                    }
                }
            }
        }
        Ok(())
    };
    TestRunner::new(config).run(&any_push(), check).unwrap();
    let (accepted, refused) = (accepted.get(), refused.get());
    assert!(accepted > 20 && refused > 20, "{accepted} and {refused}");
}
