//! Pages of the log of a peer: how they are written, and everything that is checked before one is merged.
//!
//! The tree over the log of a peer grows here record by record, from hashes alone, so that the past of a peer cannot change
//! unseen (R5). A page has the signed head and the proof that the log of that head begins with all records up to the end
//! of the page.
//!
//! A walk that begins again adds nothing that contradicts an earlier one: the longest tree that was merged is kept, and a
//! page that ends before it has the proof that this tree begins with the records up to the end of the page. Heads alone are
//! not enough for that, because a peer can sign one with a size that its log never reaches.

use std::fmt;

use lockkeeper_registry::records::{LogAction, Record};
use lockkeeper_registry::signed_note::{NoteVerifier, open_note};
use lockkeeper_registry::tlog::{self, LogHash, TreeEdge, TreeHead};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::client::json_place;
use super::model::PeerWalk;

/// Maximum number of records of a page, withheld ones included.
pub const MAX_ITEMS: u64 = 1000;

/// Number of bytes of records after which a page ends.
pub const PAGE_BYTES: usize = 4 << 20;

/// Maximum number of bytes of a page that is read.
pub const MAX_PAGE_BYTES: usize = 12 << 20;

/// Maximum length of the digest of what is shared.
const MAX_SHARING: usize = 128;

/// Maximum number of hashes of a proof.
const MAX_PROOF: usize = 130;

/// A page as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DiffBody {
    /// Last record before the page.
    pub after: u64,
    /// Last record of the page.
    pub id: u64,
    /// Number of records of the log.
    pub size: u64,
    /// Signed head of the log, as a note.
    pub head: String,
    /// Proof that the log of the head begins with the records up to `id`.
    #[serde(deserialize_with = "first_hashes")]
    pub proof: Vec<String>,
    /// Proof that the tree that the reader has met begins with the records up to `id`, if it has more records.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "first_hashes"
    )]
    pub met_proof: Vec<String>,
    /// Digest of what is shared. Another one: the log has to be read again from the first record.
    pub sharing: String,
    pub added: Vec<DiffItem>,
    pub deprecated: Vec<DiffItem>,
    pub deleted: Vec<DiffItem>,
    pub withheld: Vec<WithheldItem>,
}

/// Reads the hashes of a proof, but at most one more than a proof can have. An empty text has three characters in a page and
/// many more bytes in memory.
fn first_hashes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(ProofVisitor)
}

struct ProofVisitor;

impl<'de> Visitor<'de> for ProofVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hashes of a proof")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut hashes = Vec::new();
        while hashes.len() <= MAX_PROOF {
            let Some(hash) = list.next_element()? else {
                return Ok(hashes);
            };
            hashes.push(hash);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(hashes)
    }
}

/// A record of a page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiffItem {
    pub id: u64,
    pub record: String,
}

/// A record of a page that is not shared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WithheldItem {
    pub id: u64,
    /// Hash of the record in the tree.
    pub hash: String,
}

/// A page that fits the log of its peer, as far as that was seen.
#[derive(Clone, Debug)]
pub struct CheckedDiff {
    /// Items in the order of the log. The first one follows the last record that was merged.
    pub items: Vec<CheckedItem>,
    /// Head that the peer has signed.
    pub head: TreeHead,
    pub sharing: String,
}

/// A record of a checked page.
#[derive(Clone, Debug)]
pub struct CheckedItem {
    pub leaf: LogHash,
    /// `None`: the record is not shared.
    pub record: Option<Record>,
}

/// Reason why nothing of a page is merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// The page cannot be read. The next request may bring a better one.
    #[error("the page is refused: {0}")]
    Refused(String),
    /// The log was cut, forked or changed.
    #[error("{0}")]
    Diverged(String),
}

fn refused(why: impl Into<String>) -> PageFault {
    PageFault::Refused(why.into())
}

fn diverged(why: impl Into<String>) -> PageFault {
    PageFault::Diverged(why.into())
}

/// Reads a page that follows a walk, and checks that it belongs to the same log.
pub fn check_page(
    body: &[u8],
    walk: &PeerWalk,
    verifier: &NoteVerifier,
) -> Result<CheckedDiff, PageFault> {
    let body: DiffBody = serde_json::from_slice(body).map_err(|error| {
        let place = json_place(&error);
        refused(format!("it is not the JSON of a page ({place})"))
    })?;
    check_sharing(&body.sharing)?;
    let head = check_head(&body, walk, verifier)?;
    let items = check_items(&body, walk)?;

    let mut edge = walk.edge.clone();
    for item in &items {
        add(&mut edge, item.leaf)?;
        check_seen(&edge, walk.head)?;
        let met = walk.met.filter(|met| met.size == edge.size());
        if met.is_some_and(|met| met != edge.head()) {
            return Err(not_met(edge.size()));
        }
    }
    check_consistency(&body, &edge.head(), &head)?;
    check_met(&body, &edge.head(), walk.met)?;
    Ok(CheckedDiff {
        items,
        head,
        sharing: body.sharing,
    })
}

/// Checks a digest that is stored with the peer and that everybody reads who lists peers.
fn check_sharing(sharing: &str) -> Result<(), PageFault> {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    if !(1..=MAX_SHARING).contains(&sharing.len()) || !sharing.bytes().all(is_allowed) {
        return Err(refused(format!(
            "its digest of what is shared does not have 1 to {MAX_SHARING} letters, digits, '-' and '_'"
        )));
    }
    Ok(())
}

fn add(edge: &mut TreeEdge, leaf: LogHash) -> Result<(), PageFault> {
    edge.add(leaf).map_err(|error| refused(error.to_string()))
}

/// Checks that a tree as large as a head seen earlier equals that head.
fn check_seen(edge: &TreeEdge, seen: Option<TreeHead>) -> Result<(), PageFault> {
    match seen {
        Some(seen) if seen.size == edge.size() && edge.head() != seen => Err(diverged(format!(
            "its first {} records differ from the log head that it signed earlier",
            seen.size
        ))),
        _ => Ok(()),
    }
}

fn check_head(
    body: &DiffBody,
    walk: &PeerWalk,
    verifier: &NoteVerifier,
) -> Result<TreeHead, PageFault> {
    let note = open_note(body.head.as_bytes(), std::slice::from_ref(verifier))
        .map_err(|error| diverged(format!("the head of its log is not valid: {error}")))?;
    let head: TreeHead = note
        .text
        .parse()
        .map_err(|error| diverged(format!("the head of its log is not valid: {error}")))?;
    let seen = walk.head.map_or(0, |head| head.size).max(walk.seen());
    if head.size < seen {
        return Err(diverged(format!(
            "its log was cut: it has {} records, and {seen} were seen",
            head.size
        )));
    }
    if let Some(seen) = walk.head
        && seen.size == head.size
        && seen != head
    {
        return Err(diverged(format!(
            "its log was forked: it has signed two heads of {} records",
            head.size
        )));
    }
    if walk
        .met
        .is_some_and(|met| met.size == head.size && met != head)
    {
        return Err(not_met(head.size));
    }
    if head.size != body.size {
        return Err(refused(format!(
            "it says that the log has {} records, and its head says {}",
            body.size, head.size
        )));
    }
    Ok(head)
}

/// Puts the items of all lists in the order of their IDs. Every ID is in exactly one list.
fn check_items(body: &DiffBody, walk: &PeerWalk) -> Result<Vec<CheckedItem>, PageFault> {
    let first = walk.last_id();
    if body.after != first {
        return Err(diverged(format!(
            "a page after record {first} was requested, and the page is one after record {}",
            body.after
        )));
    }
    let count = body.id.checked_sub(first).filter(|_| body.id <= body.size);
    let count = count.ok_or_else(|| {
        diverged(format!(
            "the page ends with record {}, which is not between {first} and {}",
            body.id, body.size
        ))
    })?;
    if count > MAX_ITEMS {
        return Err(refused(format!("it has more than {MAX_ITEMS} records")));
    }
    if count == 0 && body.size > first {
        return Err(refused("it is empty, and the log has more records"));
    }
    let places = usize::try_from(count).map_err(|error| refused(error.to_string()))?;
    let mut items: Vec<Option<CheckedItem>> = vec![None; places];
    let mut put = |id: u64, last: &mut u64, item: CheckedItem| {
        if id <= *last {
            return Err(diverged(format!("record {id} of the page is out of order")));
        }
        *last = id;
        let place = id
            .checked_sub(first + 1)
            .and_then(|at| usize::try_from(at).ok());
        let place = place.and_then(|at| items.get_mut(at));
        match place {
            None => Err(diverged(format!("record {id} is not one of the page"))),
            Some(Some(_)) => Err(diverged(format!("record {id} is twice in the page"))),
            Some(place) => {
                *place = Some(item);
                Ok(())
            }
        }
    };
    for (list, action) in [
        (&body.added, LogAction::Add),
        (&body.deprecated, LogAction::Deprecate),
        (&body.deleted, LogAction::Delete),
    ] {
        let mut last = 0;
        for item in list {
            let record = Record::parse(item.record.as_bytes())
                .map_err(|error| refused(format!("record {} cannot be read: {error}", item.id)))?;
            if record.change().action() != action {
                return Err(refused(format!(
                    "record {} is in the list of another action",
                    item.id
                )));
            }
            let leaf = tlog::record_hash(item.record.as_bytes());
            let record = Some(record);
            put(item.id, &mut last, CheckedItem { leaf, record })?;
        }
    }
    let mut last = 0;
    for item in &body.withheld {
        let leaf = item
            .hash
            .parse()
            .map_err(|_| refused(format!("the hash of record {} cannot be read", item.id)))?;
        let record = None;
        put(item.id, &mut last, CheckedItem { leaf, record })?;
    }
    let missing = items.iter().position(Option::is_none);
    if let Some(missing) = missing {
        let id = first + 1 + missing as u64;
        return Err(diverged(format!(
            "the page has a gap: record {id} is missing"
        )));
    }
    Ok(items.into_iter().flatten().collect())
}

/// Checks that the log of the head begins with the tree of the page.
fn check_consistency(body: &DiffBody, page: &TreeHead, head: &TreeHead) -> Result<(), PageFault> {
    let other = || {
        diverged(format!(
            "its first {} records are not those of its head of {} records",
            page.size, head.size
        ))
    };
    if page.size == head.size {
        return if page == head { Ok(()) } else { Err(other()) };
    }
    let proof = read_proof(&body.proof)?;
    // An empty page before the end was refused, so the tree of the page has a record.
    tlog::check_tree(&proof, head.size, &head.root, page.size, &page.root).map_err(|_| other())
}

fn not_met(size: u64) -> PageFault {
    diverged(format!(
        "its first {size} records are not those that were merged before"
    ))
}

/// Checks that the longest tree that was merged begins with the tree of a page that has not come there yet.
fn check_met(body: &DiffBody, page: &TreeHead, met: Option<TreeHead>) -> Result<(), PageFault> {
    let Some(met) = met.filter(|met| page.size < met.size) else {
        return Ok(());
    };
    if body.met_proof.is_empty() {
        return Err(refused(format!(
            "it has no proof that it fits the {} records that were merged before",
            met.size
        )));
    }
    let proof = read_proof(&body.met_proof)?;
    tlog::check_tree(&proof, met.size, &met.root, page.size, &page.root)
        .map_err(|_| not_met(page.size))
}

fn read_proof(hashes: &[String]) -> Result<Vec<LogHash>, PageFault> {
    if hashes.len() > MAX_PROOF {
        return Err(refused("its proof is too long"));
    }
    let proof: Result<Vec<LogHash>, _> = hashes.iter().map(|hash| hash.parse()).collect();
    proof.map_err(|_| refused("its proof cannot be read"))
}

/// Returns the text of an answer that has no page, because the log has fewer records.
pub fn end_text(size: u64) -> String {
    format!("The log has {size} records.")
}

/// Returns the size of the log in such an answer. `None`: the answer is another one, for example of a proxy.
pub fn read_end_text(text: &str) -> Option<u64> {
    let size = text.trim().strip_prefix("The log has ")?;
    size.strip_suffix(" records.")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use lockkeeper_registry::records::{
        DeploymentName, LogId, RecordChange, RecordMaker, RecordNotice, UnsignedRecord,
    };
    use lockkeeper_registry::signed_note::{NoteSigner, sign_note};
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::fixed_seed;
    use crate::model::Reason;

    /// Log of a peer in memory.
    struct Log {
        signer: NoteSigner,
        records: Vec<String>,
    }

    impl Log {
        fn new(count: usize) -> Self {
            let signer = NoteSigner::from_seed("peer", &[7; 32]).unwrap();
            let mut log = Self {
                signer,
                records: Vec::new(),
            };
            for number in 0..count {
                log.add(&format!("go example.com/m v1.0.{number}"));
            }
            log
        }

        fn add(&mut self, key: &str) {
            let name: DeploymentName = "peer".parse().unwrap();
            let id = i64::try_from(self.records.len()).unwrap() + 1;
            let maker = RecordMaker {
                deployment: name,
                id: LogId::new(id).unwrap(),
            };
            let notice = RecordNotice {
                reason: Reason::read("old").unwrap().unwrap(),
                replacement: None,
            };
            let time = "2026-11-03T10:00:00Z".parse().unwrap();
            let change = RecordChange::Deprecate(notice);
            let record = UnsignedRecord::new(key.parse().unwrap(), change, time, maker).unwrap();
            self.records.push(record.sign(&self.signer).to_string());
        }

        fn edge(&self, size: usize) -> TreeEdge {
            let mut edge = TreeEdge::default();
            for record in &self.records[..size] {
                edge.add(tlog::record_hash(record.as_bytes())).unwrap();
            }
            edge
        }

        fn proof(&self, size: usize, old: usize) -> Vec<String> {
            let mut stored: Vec<LogHash> = Vec::new();
            let read = |stored: &[LogHash], places: &[u64]| -> Vec<LogHash> {
                let places = places.iter().map(|place| usize::try_from(*place).unwrap());
                places.map(|place| stored[place]).collect()
            };
            for (number, record) in (0..).zip(&self.records[..size]) {
                let leaf = tlog::record_hash(record.as_bytes());
                let query = tlog::stored_hashes(number, leaf).unwrap();
                let left = read(&stored, query.indexes());
                stored.extend(query.compute(&left).unwrap());
            }
            let query = tlog::prove_tree(size as u64, old as u64).unwrap();
            let hashes = read(&stored, query.indexes());
            let proof = query.compute(&hashes).unwrap();
            proof.iter().map(ToString::to_string).collect()
        }

        fn page(&self, after: usize, id: usize) -> DiffBody {
            let size = self.records.len();
            let head = self.edge(size).head().to_string();
            let items = (after + 1..=id).map(|id| DiffItem {
                id: id as u64,
                record: self.records[id - 1].clone(),
            });
            DiffBody {
                after: after as u64,
                id: id as u64,
                size: size as u64,
                head: sign_note(&head, &[&self.signer]).unwrap(),
                proof: if id == 0 || id == size {
                    Vec::new()
                } else {
                    self.proof(size, id)
                },
                sharing: "names-1_".to_owned(),
                deprecated: items.collect(),
                ..DiffBody::default()
            }
        }

        fn walk(&self, size: usize, head: Option<usize>) -> PeerWalk {
            PeerWalk {
                number: 1,
                edge: self.edge(size),
                head: head.map(|size| self.edge(size).head()),
                met: None,
                sharing: String::new(),
            }
        }

        fn check(&self, walk: &PeerWalk, page: &DiffBody) -> Result<usize, PageFault> {
            let body = serde_json::to_vec(page).unwrap();
            let checked = check_page(&body, walk, self.signer.verifier())?;
            Ok(checked.items.len())
        }
    }

    fn assert_diverged(result: Result<usize, PageFault>, part: &str) {
        match result {
            Err(PageFault::Diverged(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{part}: {other:?}"),
        }
    }

    fn assert_refused(result: Result<usize, PageFault>, part: &str) {
        match result {
            Err(PageFault::Refused(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{part}: {other:?}"),
        }
    }

    #[test]
    fn pages_follow_each_other_up_to_the_head() {
        let log = Log::new(7);
        for (after, id) in [(0, 0), (0, 3), (3, 4), (4, 7), (7, 7), (0, 7)] {
            let expected = if id == 0 { None } else { Some(id - after) };
            let checked = log.check(&log.walk(after, Some(after.max(2))), &log.page(after, id));
            match expected {
                Some(count) => assert_eq!(checked, Ok(count)),
                None => assert_refused(checked, "is empty"),
            }
        }
        let empty = Log::new(0);
        assert_eq!(empty.check(&empty.walk(0, None), &empty.page(0, 0)), Ok(0));
    }

    #[test]
    fn withheld_records_are_part_of_the_tree() {
        let log = Log::new(5);
        let mut page = log.page(1, 5);
        let hidden = page.deprecated.remove(2);
        let hash = tlog::record_hash(hidden.record.as_bytes()).to_string();
        page.withheld.push(WithheldItem {
            id: hidden.id,
            hash,
        });
        assert_eq!(log.check(&log.walk(1, None), &page), Ok(4));
        page.withheld[0].hash = LogHash::EMPTY_TREE.to_string();
        assert_diverged(
            log.check(&log.walk(1, None), &page),
            "not those of its head",
        );
    }

    #[test]
    fn a_log_that_was_cut_or_forked_is_found_out() {
        let log = Log::new(6);
        let cut = Log::new(4);
        assert_diverged(log.check(&log.walk(6, Some(6)), &cut.page(4, 4)), "was cut");
        assert_diverged(log.check(&log.walk(2, Some(6)), &cut.page(2, 4)), "was cut");

        let mut forked = Log::new(4);
        forked.add("go example.com/other v1.0.0");
        forked.add("go example.com/other v1.0.1");
        // Another head of the same size.
        let walk = log.walk(2, Some(6));
        assert_diverged(log.check(&walk, &forked.page(2, 6)), "two heads");
        // A longer log, which does not begin with the records that were seen.
        forked.add("go example.com/other v1.0.2");
        assert_diverged(log.check(&walk, &forked.page(2, 7)), "first 6 records");
        let merged = log.walk(6, Some(6));
        assert_diverged(log.check(&merged, &forked.page(6, 7)), "first 7 records");
    }

    #[test]
    fn a_walk_that_begins_again_fits_everything_that_was_merged() {
        let log = Log::new(7);
        let met = |walk: PeerWalk, size: usize| PeerWalk {
            met: Some(log.edge(size).head()),
            ..walk
        };
        // The page ends before, with and behind what was merged.
        for (after, id) in [(0, 2), (2, 5), (2, 6), (0, 7), (6, 7)] {
            let mut page = log.page(after, id);
            if id < 5 {
                page.met_proof = log.proof(5, id);
            }
            let walk = met(log.walk(after, None), 5);
            assert_eq!(log.check(&walk, &page), Ok(id - after));
        }
        let walk = met(log.walk(0, None), 5);
        assert_refused(log.check(&walk, &log.page(0, 2)), "no proof");
        let mut page = log.page(0, 2);
        page.met_proof = vec!["x".to_owned()];
        assert_refused(log.check(&walk, &page), "cannot be read");
        page.met_proof = vec![LogHash::EMPTY_TREE.to_string(); 131];
        assert_refused(log.check(&walk, &page), "too long");
        page.met_proof = log.proof(6, 2);
        assert_diverged(log.check(&walk, &page), "first 2 records");

        // Another past, under a head that is so large that the walk never comes there.
        let mut forked = Log::new(1);
        for number in 0..8 {
            forked.add(&format!("go example.com/other v1.0.{number}"));
        }
        for id in 2..=9 {
            let mut page = forked.page(0, id);
            if id < 5 {
                page.met_proof = forked.proof(5, id);
            }
            let expected = format!("first {} records", id.min(5));
            assert_diverged(log.check(&walk, &page), &expected);
        }
        // Fewer records, and as many.
        assert_diverged(log.check(&walk, &Log::new(4).page(0, 4)), "was cut");
        forked.records.truncate(7);
        let walk = met(log.walk(0, None), 7);
        assert_diverged(log.check(&walk, &forked.page(0, 7)), "first 7 records");
    }

    #[test]
    fn the_digest_of_what_is_shared_is_short_and_plain() {
        let log = Log::new(3);
        let check = |sharing: &str| {
            let mut page = log.page(0, 3);
            page.sharing = sharing.to_owned();
            log.check(&log.walk(0, None), &page)
        };
        for sharing in ["a", &"aZ09-_".repeat(21)] {
            assert_eq!(check(sharing), Ok(3), "{sharing}");
        }
        for sharing in ["", "\0", "a b", "ä", &"a".repeat(129)] {
            assert_refused(check(sharing), "digest");
        }
    }

    #[test]
    fn only_an_answer_of_a_peer_tells_the_end_of_its_log() {
        assert_eq!(read_end_text(&format!("{}\n", end_text(12))), Some(12));
        for text in ["", "Conflict", "The log has many records.", "The log has 1"] {
            assert_eq!(read_end_text(text), None, "{text}");
        }
    }

    #[test]
    fn every_record_is_in_the_page_once_and_in_order() {
        let log = Log::new(6);
        let walk = log.walk(2, Some(2));
        let check = |change: &dyn Fn(&mut DiffBody)| {
            let mut page = log.page(2, 6);
            change(&mut page);
            log.check(&walk, &page)
        };
        assert_eq!(check(&|_| ()), Ok(4));
        assert_diverged(
            check(&|page| drop(page.deprecated.remove(1))),
            "record 4 is missing",
        );
        assert_diverged(check(&|page| page.deprecated.swap(0, 1)), "out of order");
        assert_diverged(
            check(&|page| {
                page.withheld.push(WithheldItem {
                    id: 3,
                    hash: LogHash::EMPTY_TREE.to_string(),
                });
            }),
            "record 3 is twice",
        );
        assert_diverged(
            check(&|page| {
                page.withheld.push(WithheldItem {
                    id: 7,
                    hash: LogHash::EMPTY_TREE.to_string(),
                });
            }),
            "record 7 is not one of the page",
        );
        assert_diverged(
            check(&|page| page.after = 1),
            "after record 2 was requested",
        );
        assert_diverged(check(&|page| page.id = 7), "ends with record 7");
        assert_diverged(
            check(&|page| page.id = 5),
            "record 6 is not one of the page",
        );
        assert_refused(check(&|page| page.size = 9), "its head says 6");
        assert_refused(
            check(&|page| page.added = std::mem::take(&mut page.deprecated)),
            "list of another action",
        );
        assert_refused(
            check(&|page| page.deprecated[0].record.push('x')),
            "cannot be read",
        );
        assert_diverged(
            check(&|page| page.head = page.head.replace('6', "7")),
            "head",
        );
        let mut short = log.page(2, 4);
        short.proof.pop();
        assert_diverged(log.check(&walk, &short), "first 4 records");
        let huge = DiffBody {
            id: 6000,
            size: 6000,
            ..log.page(2, 6)
        };
        assert!(log.check(&walk, &huge).is_err());
        let garbage = check_page(b"{}", &walk, log.signer.verifier());
        assert!(matches!(garbage, Err(PageFault::Refused(_))), "{garbage:?}");
    }

    #[test]
    fn a_head_is_signed_by_the_key_of_the_peer() {
        let log = Log::new(3);
        let other = NoteSigner::from_seed("peer", &[8; 32]).unwrap();
        let mut page = log.page(0, 3);
        page.head = sign_note(&log.edge(3).head().to_string(), &[&other]).unwrap();
        assert_diverged(log.check(&log.walk(0, None), &page), "not valid");
    }

    #[test]
    fn hashes_that_are_too_many_are_not_kept() {
        let log = Log::new(3);
        for (count, kept) in [(MAX_PROOF, MAX_PROOF), (100_000, MAX_PROOF + 1)] {
            let page = DiffBody {
                proof: vec![String::new(); count],
                met_proof: vec![String::new(); count],
                ..log.page(0, 3)
            };
            let text = serde_json::to_string(&page).unwrap();
            let read: DiffBody = serde_json::from_str(&text).unwrap();
            assert_eq!((read.proof.len(), read.met_proof.len()), (kept, kept));
        }
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn the_end_of_a_log_is_read_as_it_was_written(size in any::<u64>(), text in "(The log has )?[ -~]{0,24}( records\\.)?") {
            prop_assert_eq!(read_end_text(&format!("{}\n", end_text(size))), Some(size));
            if let Some(size) = read_end_text(&text) {
                let digits: String = text.chars().filter(char::is_ascii_digit).collect();
                prop_assert_eq!(digits.parse(), Ok(size), "{}", text);
            }
        }
    }
}
