//! Records what clients of the registries saw, and finds what can never follow from it (R1 to R5).
//!
//! Many clients ask at once, so an answer is compared only with what was known before its request was sent.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::model::Sha256Digest;
use lockkeeper_registry::records::{LogAction, Record};
use lockkeeper_registry::signed_note::{NoteVerifier, open_note};
use lockkeeper_registry::states::VersionState;
use lockkeeper_registry::tlog::{LogHash, TreeEdge, TreeHead, record_hash};
use lockkeeper_registry::versions::VersionKey;

/// Everything that clients know of a version at one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenVersion {
    /// State that the version has reached.
    pub state: VersionState,
    /// Digest of its package, if it was served.
    pub digest: Option<Sha256Digest>,
}

impl Default for SeenVersion {
    fn default() -> Self {
        Self {
            state: VersionState::Absent,
            digest: None,
        }
    }
}

/// Content of an answer about a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenAnswer {
    /// The version has this state.
    State(VersionState),
    /// The version was changed, and has this state or a later one.
    Reached(VersionState),
    /// A package with this digest.
    Package(Sha256Digest),
    /// No package, and no reason: status 404.
    NoPackage,
    /// A refusal that names the takedown.
    TakenDown,
}

/// Answers of all deployments, by their number.
#[derive(Debug, Default)]
pub struct AnswerBook(BTreeMap<(usize, VersionKey), SeenVersion>);

impl AnswerBook {
    /// Returns what is known when a request is sent.
    pub fn known(&self, at: usize, key: &VersionKey) -> SeenVersion {
        self.0.get(&(at, key.clone())).cloned().unwrap_or_default()
    }

    /// Adds an answer. Returns the broken promise if it cannot follow what was known before.
    pub fn add(
        &mut self,
        at: usize,
        key: &VersionKey,
        before: &SeenVersion,
        answer: &SeenAnswer,
    ) -> Result<(), String> {
        let now = self.0.entry((at, key.clone())).or_default();
        let reached = match answer {
            SeenAnswer::State(state) if *state < before.state => {
                return Err(format!("R3: {key} was {} and is {state}", before.state));
            }
            SeenAnswer::Reached(state)
                if before.state == VersionState::Deleted && *state != VersionState::Deleted =>
            {
                return Err(format!("R3: {key} was taken down, and became {state}"));
            }
            SeenAnswer::State(state) | SeenAnswer::Reached(state) => *state,
            SeenAnswer::Package(_) if before.state == VersionState::Deleted => {
                return Err(format!("R1: {key} was served after its takedown"));
            }
            SeenAnswer::Package(digest) => {
                if let Some(first) = now.digest.as_ref().filter(|first| *first != digest) {
                    return Err(format!("R1: {key} was {first} and is {digest}"));
                }
                now.digest = Some(digest.clone());
                VersionState::Added
            }
            SeenAnswer::NoPackage if before.state == VersionState::Deleted => {
                return Err(format!("R1: {key} was taken down, and no reason was given"));
            }
            SeenAnswer::NoPackage if before.digest.is_some() => {
                return Err(format!("R1: {key} was served, and is not found"));
            }
            SeenAnswer::NoPackage => VersionState::Absent,
            SeenAnswer::TakenDown => VersionState::Deleted,
        };
        now.state = now.state.max(reached);
        Ok(())
    }
}

/// A log as its readers see it: all records from the first, and heads.
#[derive(Debug)]
pub struct WatchedLog {
    verifier: NoteVerifier,
    edge: TreeEdge,
    /// Root of the tree of each size.
    roots: Vec<LogHash>,
    records: Vec<(String, Record)>,
    actions: BTreeSet<(VersionKey, LogAction)>,
    /// Heads of more records than were read.
    ahead: BTreeMap<usize, LogHash>,
    /// Number of records in the largest head.
    largest: u64,
}

impl WatchedLog {
    /// Begins with an empty log.
    pub fn new(verifier: NoteVerifier) -> Self {
        Self {
            verifier,
            edge: TreeEdge::default(),
            roots: vec![LogHash::EMPTY_TREE],
            records: Vec::new(),
            actions: BTreeSet::new(),
            ahead: BTreeMap::new(),
            largest: 0,
        }
    }

    /// Returns the number of records that were read.
    pub fn size(&self) -> u64 {
        self.edge.size()
    }

    /// Returns the number of records in the largest head that was seen.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Returns all records that were read.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(|(_, record)| record)
    }

    /// Adds a record that a page of the log has. A record that was read before has to be the same.
    pub fn add(&mut self, id: u64, text: &str) -> Result<(), String> {
        if id <= self.size() {
            let place = usize::try_from(id).map_err(|error| error.to_string())?;
            let known = place.checked_sub(1).and_then(|at| self.records.get(at));
            return match known {
                Some((known, _)) if known == text => Ok(()),
                _ => Err(format!("R5: record {id} was changed")),
            };
        }
        if id != self.size() + 1 {
            return Err(format!("R2: record {id} follows record {}", self.size()));
        }
        let record = Record::parse(text.as_bytes());
        let record = record.map_err(|error| format!("R2: record {id} cannot be read: {error}"))?;
        let (key, action) = (record.key().clone(), record.change().action());
        if !self.actions.insert((key.clone(), action)) {
            return Err(format!("R3: record {id} is another {action} of {key}"));
        }
        let added = self.edge.add(record_hash(text.as_bytes()));
        added.map_err(|error| error.to_string())?;
        let root = self.edge.head().root;
        let early = self.ahead.remove(&self.roots.len());
        self.roots.push(root);
        self.records.push((text.to_owned(), record));
        if early.is_some_and(|early| early != root) {
            return Err(format!(
                "R5: the first {id} records are not those of the head that was signed"
            ));
        }
        Ok(())
    }

    /// Adds a signed head. It has at least as many records as the largest one that was seen before its request.
    pub fn add_head(&mut self, note: &[u8], before: u64) -> Result<(), String> {
        let note = open_note(note, std::slice::from_ref(&self.verifier));
        let note = note.map_err(|error| format!("R5: a head is not valid: {error}"))?;
        let head = note.text.parse::<TreeHead>();
        let head = head.map_err(|error| format!("R5: a head is not valid: {error}"))?;
        if head.size < before {
            return Err(format!(
                "R5: the log was cut: it had {before} records, and has {}",
                head.size
            ));
        }
        self.largest = self.largest.max(head.size);
        let place = usize::try_from(head.size).map_err(|error| error.to_string())?;
        let known = match self.roots.get(place) {
            Some(root) => *root,
            None => *self.ahead.entry(place).or_insert(head.root),
        };
        if known != head.root {
            return Err(format!(
                "R5: the log was forked: there are two heads of {} records",
                head.size
            ));
        }
        Ok(())
    }

    /// Returns the states that follow from the records.
    pub fn states(&self) -> BTreeMap<VersionKey, VersionState> {
        let mut states = BTreeMap::new();
        for record in self.records() {
            let reached = match record.change().action() {
                LogAction::Add => VersionState::Added,
                LogAction::Deprecate => VersionState::Deprecated,
                LogAction::Delete => VersionState::Deleted,
            };
            let state = states.entry(record.key().clone()).or_insert(reached);
            *state = reached.max(*state);
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper::model::Reason;
    use lockkeeper_registry::records::{
        DeploymentName, LogId, RecordChange, RecordMaker, RecordNotice, TakedownKind,
        UnsignedRecord,
    };
    use lockkeeper_registry::signed_note::{NoteSigner, sign_note};

    use super::*;

    fn key(text: &str) -> VersionKey {
        text.parse().unwrap()
    }

    /// Plays answers that follow each other. Returns the promise that the last one breaks.
    fn last(answers: &[SeenAnswer]) -> Option<String> {
        let (mut book, key) = (AnswerBook::default(), key("module acme/vpc/aws 1.0.0"));
        let mut end = None;
        for answer in answers {
            assert_eq!(end, None, "only the last answer may break a promise");
            let before = book.known(0, &key);
            end = book.add(0, &key, &before, answer).err();
        }
        end
    }

    #[test]
    fn answers_that_cannot_follow_each_other_break_a_promise() {
        use SeenAnswer::{NoPackage, Package, Reached, State, TakenDown};
        use VersionState::{Absent, Added, Deleted, Deprecated};
        let (one, other) = (Sha256Digest::of(b"one"), Sha256Digest::of(b"other"));
        let package = |digest: &Sha256Digest| Package(digest.clone());
        for (answers, promise) in [
            (vec![State(Added), State(Absent)], "R3"),
            (vec![Reached(Deprecated), State(Added)], "R3"),
            (vec![State(Deleted), State(Deprecated)], "R3"),
            (vec![TakenDown, Reached(Added)], "R3"),
            (vec![TakenDown, State(Absent)], "R3"),
            (vec![package(&one), State(Absent)], "R3"),
            (vec![package(&one), package(&other)], "R1"),
            (vec![package(&one), NoPackage], "R1"),
            (vec![package(&one), TakenDown, package(&one)], "R1"),
            (vec![Reached(Deleted), NoPackage], "R1"),
        ] {
            let end = last(&answers);
            let found = end.as_deref().unwrap_or_default();
            assert!(found.starts_with(promise), "{answers:?}: {found}");
        }
        let good = [
            State(Absent),
            NoPackage,
            Reached(Added),
            // Its package may still be at a peer that nobody has read.
            NoPackage,
            package(&one),
            State(Added),
            Reached(Deprecated),
            package(&one),
            Reached(Deleted),
            Reached(Deleted),
            TakenDown,
            State(Deleted),
        ];
        assert_eq!(last(&good), None);
    }

    #[test]
    fn an_answer_is_compared_with_what_was_known_before_its_request() {
        let (mut book, key) = (AnswerBook::default(), key("go example.com/acme/m v1.0.0"));
        let early = book.known(0, &key);
        let down = SeenAnswer::Reached(VersionState::Deleted);
        assert_eq!(book.add(0, &key, &early, &down), Ok(()));
        // The package was sent before the takedown, and comes later.
        let package = SeenAnswer::Package(Sha256Digest::of(b"one"));
        assert_eq!(book.add(0, &key, &early, &package), Ok(()));
        let late = book.known(0, &key);
        assert_eq!(late.state, VersionState::Deleted);
        book.add(0, &key, &late, &package).unwrap_err();
        // Another deployment knows nothing of it.
        let other = book.known(1, &key);
        assert_eq!(book.add(1, &key, &other, &package), Ok(()));
    }

    /// A log with its key.
    struct Fixture {
        signer: NoteSigner,
        texts: Vec<String>,
    }

    impl Fixture {
        fn new(keys: &[&str]) -> Self {
            let signer = NoteSigner::from_seed("one.example.com", &[7; 32]).unwrap();
            let notice = RecordNotice {
                reason: Reason::read("wrong").unwrap().unwrap(),
                replacement: None,
            };
            let texts = (1..).zip(keys).map(|(id, text)| {
                let maker = RecordMaker {
                    deployment: "one.example.com".parse::<DeploymentName>().unwrap(),
                    id: LogId::new(id).unwrap(),
                };
                let change = RecordChange::Delete(TakedownKind::Mistake, notice.clone());
                let time = "2026-11-03T10:00:00Z".parse().unwrap();
                let record = UnsignedRecord::new(key(text), change, time, maker).unwrap();
                record.sign(&signer).to_string()
            });
            Self {
                texts: texts.collect(),
                signer,
            }
        }

        fn watch(&self) -> WatchedLog {
            WatchedLog::new(self.signer.verifier().clone())
        }

        fn head(&self, size: usize) -> Vec<u8> {
            let mut edge = TreeEdge::default();
            for text in &self.texts[..size] {
                edge.add(record_hash(text.as_bytes())).unwrap();
            }
            let note = sign_note(&edge.head().to_string(), &[&self.signer]);
            note.unwrap().into_bytes()
        }
    }

    fn broken(result: Result<(), String>, promise: &str) {
        let why = result.unwrap_err();
        assert!(why.starts_with(promise), "{why}");
    }

    #[test]
    fn a_log_with_gaps_or_another_past_breaks_a_promise() {
        let keys = [
            "module acme/a/aws 1.0.0",
            "module acme/b/aws 1.0.0",
            "module acme/c/aws 1.0.0",
        ];
        let log = Fixture::new(&keys);
        let forked = Fixture::new(&[keys[0], keys[2], keys[1]]);

        let mut watch = log.watch();
        watch.add_head(&log.head(2), 0).unwrap();
        watch.add(1, &log.texts[0]).unwrap();
        watch.add(1, &log.texts[0]).unwrap();
        broken(watch.add(3, &log.texts[2]), "R2");
        broken(watch.add(1, &log.texts[1]), "R5");
        broken(watch.add(2, "add nothing\n"), "R2");
        watch.add(2, &log.texts[1]).unwrap();
        watch.add_head(&log.head(2), 2).unwrap();
        watch.add_head(&log.head(3), watch.largest()).unwrap();
        assert_eq!((watch.size(), watch.largest()), (2, 3));
        broken(watch.add_head(&log.head(2), 3), "R5: the log was cut");
        broken(watch.add_head(&forked.head(2), 2), "R5: the log was forked");
        let mut wrong = log.head(3);
        wrong.pop();
        broken(watch.add_head(&wrong, 0), "R5");
        let states = watch.states();
        assert_eq!(states.len(), 2);
        assert_eq!(states[&key(keys[0])], VersionState::Deleted);

        // The head was seen before its records, and they are others.
        let mut watch = log.watch();
        watch.add_head(&log.head(2), 0).unwrap();
        watch.add(1, &forked.texts[0]).unwrap();
        broken(watch.add(2, &forked.texts[1]), "R5");
        // A change that is recorded twice.
        let twice = Fixture::new(&[keys[0], keys[0]]);
        let mut watch = twice.watch();
        watch.add(1, &twice.texts[0]).unwrap();
        broken(watch.add(2, &twice.texts[1]), "R3");
    }
}
