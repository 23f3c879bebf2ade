//! R3: a merge follows a short model, and ends the same in any order and however often.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::names::NameKind;
use crate::records::TakedownKind;
use crate::states::VersionState;
use crate::testing::{content, deployment, fixed_seed, notice, record};

const DEPLOYMENTS: [&str; 3] = ["a", "bb", "ccc"];
const VERSIONS: [&str; 4] = [
    "go example.com/m v1.0.0",
    "go example.com/m v1.1.0",
    "module acme/vpc/aws 1.0.0",
    "module acme/vpc/aws 1.1.0",
];

/// Changes of a version. The first two add different content.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Add(u8),
    Deprecate,
    Delete,
}

const STEPS: [Step; 4] = [Step::Add(1), Step::Add(2), Step::Deprecate, Step::Delete];

/// Every step of every version by every deployment, signed once because that takes long.
static RECORDS: LazyLock<Vec<Record>> = LazyLock::new(|| {
    let mut records = Vec::new();
    for maker in DEPLOYMENTS {
        for version in VERSIONS {
            for step in STEPS {
                let key: VersionKey = version.parse().unwrap();
                let change = match step {
                    Step::Add(number) => RecordChange::Add(content(key.kind(), number)),
                    Step::Deprecate => RecordChange::Deprecate(notice("old")),
                    Step::Delete => RecordChange::Delete(TakedownKind::Mistake, notice("wrong")),
                };
                records.push(record(&key, change, &deployment(maker), 1));
            }
        }
    }
    records
});

fn made(maker: usize, version: usize, step: Step) -> Record {
    let step = STEPS.iter().position(|other| *other == step).unwrap();
    RECORDS[(maker * VERSIONS.len() + version) * STEPS.len() + step].clone()
}

/// Sorts records of a deployment into the lists of a page.
fn page(peer: usize, records: &[Record]) -> PeerPage {
    let of = |action| {
        let records = records.iter().cloned();
        records
            .filter(|record| record.change().action() == action)
            .collect()
    };
    PeerPage::new(
        deployment(DEPLOYMENTS[peer]),
        of(LogAction::Add),
        of(LogAction::Deprecate),
        of(LogAction::Delete),
    )
    .unwrap()
}

/// A deployment in memory.
#[derive(Clone, Debug, Default, PartialEq)]
struct Memory {
    rows: BTreeMap<VersionKey, KnownVersion>,
    log: Vec<Record>,
    /// Number of records of each deployment that were merged.
    seen: [usize; 3],
}

impl Memory {
    fn state(&self, key: &VersionKey) -> VersionState {
        self.rows
            .get(key)
            .map_or(VersionState::Absent, KnownVersion::state)
    }

    fn store(&mut self, changes: MergeChanges) {
        for (key, now) in changes.rows {
            assert!(self.state(&key) <= now.state(), "{key} went back");
            self.rows.insert(key, now);
        }
        self.log.extend(changes.records);
    }

    fn merge(&mut self, page: &PeerPage) {
        self.store(merge(&self.rows, page));
    }

    /// Makes a change here, if there is something to change.
    fn change(&mut self, own: usize, version: usize, step: Step) {
        let record = made(own, version, step);
        let row = self.rows.entry(record.key().clone()).or_default();
        let is_new = matches!(row.state(), VersionState::Absent | VersionState::Deleted);
        if is_new != matches!(step, Step::Add(_)) {
            return;
        }
        if let RecordEffect::Changed(now) = row.apply(record.change(), &BaseLocation::Here) {
            *row = now;
            self.log.push(record);
        }
    }

    /// States and checksums, without locations.
    fn contents(&self) -> BTreeMap<VersionKey, (VersionState, Option<VersionContent>)> {
        let rows = self.rows.iter();
        let rows = rows.filter(|(_, row)| row.state() != VersionState::Absent);
        rows.map(|(key, row)| {
            let content = row.content().map(|located| located.content.clone());
            (key.clone(), (row.state(), content))
        })
        .collect()
    }

    fn states(&self) -> BTreeMap<VersionKey, VersionState> {
        let contents = self.contents().into_iter();
        contents.map(|(key, (state, _))| (key, state)).collect()
    }
}

/// The design in ten lines: states only rise, and the first content stays.
fn model(rows: &mut BTreeMap<VersionKey, (VersionState, Option<VersionContent>)>, page: &PeerPage) {
    for record in page.records() {
        let (state, content) = rows
            .entry(record.key().clone())
            .or_insert((VersionState::Absent, None));
        match record.change() {
            RecordChange::Add(theirs) if *state != VersionState::Deleted => {
                content.get_or_insert(theirs.clone());
                *state = VersionState::Added.max(*state);
            }
            RecordChange::Add(_) => {}
            RecordChange::Deprecate(_) => *state = VersionState::Deprecated.max(*state),
            RecordChange::Delete(..) => (*state, *content) = (VersionState::Deleted, None),
        }
    }
}

#[test]
fn an_added_version_is_downloaded_from_the_peer() {
    let add = made(0, 0, Step::Add(1));
    let changes = merge(&BTreeMap::new(), &page(1, std::slice::from_ref(&add)));
    let located = changes.rows[add.key()].content().unwrap();
    assert_eq!(located.base, BaseLocation::Peer(deployment("bb")));
    assert_eq!(located.content, content(NameKind::Go, 1));
    assert_eq!(changes.downloads, [add.key().clone()]);
    // The record is that of the maker, not one of the peer that relays it.
    assert_eq!(changes.records, [add]);
    assert!(changes.conflicts.is_empty());
}

#[test]
fn a_known_version_does_not_end_the_page() {
    let (known, new) = (made(0, 0, Step::Add(1)), made(0, 1, Step::Add(1)));
    let mut memory = Memory::default();
    memory.merge(&page(0, std::slice::from_ref(&known)));
    let changes = merge(&memory.rows, &page(1, &[known, new.clone()]));
    assert_eq!(changes.records, [new]);
}

#[test]
fn an_add_after_a_deprecation_is_learned() {
    let (deprecate, add) = (made(0, 0, Step::Deprecate), made(0, 0, Step::Add(1)));
    let mut memory = Memory::default();
    memory.merge(&page(1, std::slice::from_ref(&deprecate)));
    assert_eq!(memory.rows[add.key()], KnownVersion::Deprecated(None));
    let changes = merge(&memory.rows, &page(2, std::slice::from_ref(&add)));
    assert_eq!(changes.downloads, [add.key().clone()]);
    memory.store(changes);
    assert_eq!(memory.state(add.key()), VersionState::Deprecated);
    assert!(memory.rows[add.key()].content().is_some());
    assert_eq!(memory.log, [deprecate, add]);
}

#[test]
fn everything_after_a_tombstone_is_dropped() {
    let mut memory = Memory::default();
    memory.merge(&page(0, &[made(0, 0, Step::Delete)]));
    for step in STEPS {
        let changes = merge(&memory.rows, &page(1, &[made(1, 0, step)]));
        assert_eq!(changes, MergeChanges::default());
    }
}

#[test]
fn nothing_is_downloaded_that_the_same_page_deletes() {
    let steps = [Step::Add(1), Step::Add(2), Step::Deprecate, Step::Delete];
    let changes = merge(
        &BTreeMap::new(),
        &page(0, &steps.map(|step| made(0, 0, step))),
    );
    assert_eq!(
        changes.rows[&VERSIONS[0].parse().unwrap()],
        KnownVersion::Deleted
    );
    assert!(changes.downloads.is_empty() && changes.conflicts.is_empty());
    assert_eq!(changes.records.len(), 3);
}

#[test]
fn of_two_contents_ours_stays_and_both_are_reported() {
    let (ours, theirs) = (made(0, 2, Step::Add(1)), made(1, 2, Step::Add(2)));
    let mut memory = Memory::default();
    memory.merge(&page(0, std::slice::from_ref(&ours)));
    let changes = merge(&memory.rows, &page(1, std::slice::from_ref(&theirs)));
    let conflict = ContentConflict {
        key: ours.key().clone(),
        ours: content(NameKind::Module, 1),
        theirs,
    };
    assert_eq!(changes.conflicts, [conflict]);
    assert!(changes.rows.is_empty() && changes.records.is_empty() && changes.downloads.is_empty());
}

#[test]
fn a_page_with_a_misplaced_record_or_too_many_is_refused() {
    let add = made(0, 0, Step::Add(1));
    let peer = deployment("a");
    let misplaced = PeerPage::new(peer.clone(), vec![], vec![add.clone()], vec![]);
    assert_eq!(
        misplaced.unwrap_err().to_string(),
        "the record of go example.com/m v1.0.0 is in the list of another action"
    );
    let long = PeerPage::new(peer, vec![add; 1001], vec![], vec![]);
    assert_eq!(long.unwrap_err(), InvalidPage::TooLong);
}

/// Event of one of three deployments.
#[derive(Clone, Debug)]
enum Event {
    /// A version is changed at its deployment.
    Change {
        at: usize,
        version: usize,
        step: Step,
    },
    /// A deployment pulls a page of another one.
    Pull {
        at: usize,
        from: usize,
        limit: usize,
    },
    /// A deployment gets any part of the log of another one, as by a push or a page that was merged before.
    Replay {
        at: usize,
        from: usize,
        part: (usize, usize),
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    let deployment = 0..DEPLOYMENTS.len();
    let step = proptest::sample::select(STEPS.as_slice());
    prop_oneof![
        (deployment.clone(), 0..VERSIONS.len(), step)
            .prop_map(|(at, version, step)| Event::Change { at, version, step }),
        (deployment.clone(), deployment.clone(), 1..4_usize)
            .prop_map(|(at, from, limit)| Event::Pull { at, from, limit }),
        (deployment.clone(), deployment, (0..12_usize, 0..12_usize))
            .prop_map(|(at, from, part)| Event::Replay { at, from, part }),
    ]
}

fn pull(world: &mut [Memory; 3], at: usize, from: usize, limit: usize) {
    let start = world[at].seen[from];
    let records: Vec<Record> = world[from].log[start..]
        .iter()
        .take(limit)
        .cloned()
        .collect();
    world[at].merge(&page(from, &records));
    world[at].seen[from] += records.len();
}

/// Returns a strategy for pages of records by anybody.
fn any_pages() -> impl Strategy<Value = Vec<PeerPage>> {
    let records = || subsequence((0..RECORDS.len()).collect::<Vec<_>>(), 0..6);
    let records = records().prop_shuffle();
    let page = (0..DEPLOYMENTS.len(), records).prop_map(|(peer, indexes)| {
        let records: Vec<Record> = indexes
            .iter()
            .map(|index| RECORDS[*index].clone())
            .collect();
        page(peer, &records)
    });
    vec(page, 0..6)
}

/// Returns the versions that were added with different contents.
fn disputed<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeSet<VersionKey> {
    let mut contents: BTreeMap<VersionKey, VersionContent> = BTreeMap::new();
    let mut disputed = BTreeSet::new();
    for record in records {
        if let RecordChange::Add(content) = record.change() {
            let first = contents
                .entry(record.key().clone())
                .or_insert(content.clone());
            if first != content {
                disputed.insert(record.key().clone());
            }
        }
    }
    disputed
}

/// Asserts that a log has each action of a version at most once, so at most three records of it.
fn assert_short_log(log: &[Record]) {
    let actions: BTreeSet<_> = log
        .iter()
        .map(|record| (record.key(), record.change().action()))
        .collect();
    assert_eq!(actions.len(), log.len());
}

fn merged<'a>(pages: impl IntoIterator<Item = &'a PeerPage>) -> Memory {
    let mut memory = Memory::default();
    for page in pages {
        memory.merge(page);
    }
    assert_short_log(&memory.log);
    memory
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn a_merge_does_as_the_model_says(pages in any_pages()) {
        let mut expected = BTreeMap::new();
        for page in &pages {
            model(&mut expected, page);
        }
        prop_assert_eq!(merged(&pages).contents(), expected);
    }

    #[test]
    fn a_merge_is_idempotent(pages in any_pages()) {
        let once = merged(&pages);
        let twice = merged(pages.iter().chain(&pages));
        prop_assert_eq!(&twice, &once);
        for page in &pages {
            let changes = merge(&once.rows, page);
            prop_assert!(changes.rows.is_empty() && changes.records.is_empty() && changes.downloads.is_empty());
        }
    }

    #[test]
    fn a_merge_is_commutative((pages, shuffled) in any_pages().prop_flat_map(|pages| {
        let repeated = [pages.clone(), pages.clone()].concat();
        (Just(pages), Just(repeated).prop_shuffle())
    })) {
        let (one, other) = (merged(&pages), merged(&shuffled));
        prop_assert_eq!(one.states(), other.states());
        let disputed = disputed(pages.iter().flat_map(PeerPage::records));
        let (mut one, mut other) = (one.contents(), other.contents());
        one.retain(|key, _| !disputed.contains(key));
        other.retain(|key, _| !disputed.contains(key));
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_merge_is_associative(one in any_pages(), other in any_pages()) {
        // The log of a deployment that merged some pages stands for all of them.
        let relay = merged(&other);
        let direct = merged(one.iter().chain(&other));
        let relayed = merged(one.iter().chain([&page(0, &relay.log)]));
        prop_assert_eq!(direct.states(), relayed.states());
        let joined: Vec<Record> = one.iter().chain(&other).flat_map(PeerPage::records).cloned().collect();
        prop_assert_eq!(merged([&page(0, &joined)]).states(), direct.states());
    }

    #[test]
    fn three_deployments_end_alike(events in vec(any_event(), 0..40)) {
        let mut world: [Memory; 3] = Default::default();
        for event in events {
            match event {
                Event::Change { at, version, step } => world[at].change(at, version, step),
                Event::Pull { at, from, limit } => pull(&mut world, at, from, limit),
                Event::Replay { at, from, part: (start, end) } => {
                    let log = &world[from].log;
                    let part = log.get(start..end.min(log.len())).unwrap_or_default().to_vec();
                    world[at].merge(&page(from, &part));
                }
            }
        }
        let disputed = disputed(world.iter().flat_map(|memory| &memory.log));
        // Two rounds reach everyone. A third one has nothing to say.
        for round in 0..3 {
            let before = world.clone();
            for at in 0..3 {
                for from in 0..3 {
                    pull(&mut world, at, from, usize::MAX);
                }
            }
            let is_quiet = (0..3).all(|at| world[at].log == before[at].log);
            prop_assert!(round < 2 || is_quiet);
        }
        for memory in &world {
            assert_short_log(&memory.log);
            prop_assert_eq!(memory.states(), world[0].states());
            let differing = memory.contents().into_iter().filter(|(key, row)| world[0].contents()[key] != *row);
            for (key, _) in differing {
                prop_assert!(disputed.contains(&key), "{} differs", key);
            }
        }
    }

    #[test]
    fn a_relay_in_a_chain_hands_on_everything(events in vec(any_event(), 0..20)) {
        // The last deployment sees the first one only through the second one.
        let mut world: [Memory; 3] = Default::default();
        for event in events {
            if let Event::Change { version, step, .. } = event {
                world[0].change(0, version, step);
            } else if let Event::Replay { part: (start, end), .. } = event {
                let log = &world[0].log;
                let part = log.get(start..end.min(log.len())).unwrap_or_default().to_vec();
                world[1].merge(&page(0, &part));
                pull(&mut world, 2, 1, 2);
            }
        }
        pull(&mut world, 1, 0, usize::MAX);
        pull(&mut world, 2, 1, usize::MAX);
        prop_assert_eq!(world[2].contents(), world[0].contents());
    }
}
