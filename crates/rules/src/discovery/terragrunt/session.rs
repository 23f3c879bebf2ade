//! Collects the results of evaluating the configuration of one unit, and limits the work.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::files::UnitFiles;
use super::limits::{MAX_DEPTH, MAX_MADE_BYTES, MAX_READS, MAX_STEPS};
use super::value::{HclValue, UnknownValue};
use super::{FileUse, Unresolved};
use crate::model::RepoPath;

/// Decoded texts by their address in memory and their language. The texts are kept so that no other text gets the
/// same address.
type Decoded = HashMap<(usize, &'static str), (Rc<str>, HclValue)>;

/// Evaluation of one unit.
pub(super) struct UnitEvaluation<'w> {
    pub(super) files: &'w UnitFiles<'w>,
    reads: RefCell<BTreeMap<RepoPath, FileUse>>,
    unresolved: RefCell<Vec<Unresolved>>,
    /// Configurations that were read with `read_terragrunt_config`; `None` while one is being read.
    pub(super) configs: RefCell<HashMap<RepoPath, Option<HclValue>>>,
    decoded: RefCell<Decoded>,
    steps: Cell<usize>,
    made: Cell<usize>,
    depth: Cell<usize>,
}

impl<'w> UnitEvaluation<'w> {
    pub(super) fn new(files: &'w UnitFiles<'w>) -> Self {
        Self {
            files,
            reads: RefCell::default(),
            unresolved: RefCell::default(),
            configs: RefCell::default(),
            decoded: RefCell::default(),
            steps: Cell::new(MAX_STEPS),
            made: Cell::new(MAX_MADE_BYTES),
            depth: Cell::new(0),
        }
    }

    /// Enters one level and counts one step; [`UnitEvaluation::leave`] must follow unless it fails.
    pub(super) fn enter(&self) -> Result<(), String> {
        let (own, all) = (self.steps.get(), self.files.steps.get());
        if own == 0 || all == 0 || self.made.get() == 0 {
            return Err("the configuration takes too much work to evaluate".to_owned());
        }
        if self.depth.get() >= MAX_DEPTH {
            return Err("the configuration is nested too deeply".to_owned());
        }
        self.steps.set(own - 1);
        self.files.steps.set(all - 1);
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub(super) fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Counts the size of a value that is kept.
    pub(super) fn charge(&self, bytes: usize) {
        self.made.set(self.made.get().saturating_sub(bytes));
    }

    /// Notes that a file is read or looked for. The most informative way is kept.
    pub(super) fn note(&self, file: RepoPath, how: FileUse) {
        let mut reads = self.reads.borrow_mut();
        if reads.len() < MAX_READS {
            let kept = reads.entry(file).or_insert(how);
            *kept = how.max(*kept);
        }
    }

    /// Notes that a fact could not be determined.
    pub(super) fn report(&self, fault: &UnknownValue) {
        let UnknownValue { file, line, what } = fault.clone();
        let unresolved = Unresolved { file, line, what };
        let mut all = self.unresolved.borrow_mut();
        if !all.contains(&unresolved) && all.len() < 100 {
            all.push(unresolved);
        }
    }

    /// Reports a limit that was reached, because files may then be missed.
    pub(super) fn report_limits(&self, dir: &RepoPath) {
        let exhausted =
            self.steps.get() == 0 || self.files.steps.get() == 0 || self.made.get() == 0;
        if exhausted || self.reads.borrow().len() >= MAX_READS {
            let what = "its configuration takes too much work to evaluate, so changes of the files that it reads may \
                        be missed";
            self.report(&UnknownValue {
                file: dir.clone(),
                line: 1,
                what: what.to_owned(),
            });
        }
    }

    /// Runs an attempt that may fail, and forgets the reports of one that does.
    pub(super) fn attempt<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let before = self.unresolved.borrow().len();
        let outcome = work();
        if outcome.is_err() {
            self.unresolved.borrow_mut().truncate(before);
        }
        outcome
    }

    /// Returns the value of a text in a data language, decoded once.
    pub(super) fn decoded<E>(
        &self,
        text: &Rc<str>,
        language: &'static str,
        decode: impl FnOnce() -> Result<HclValue, E>,
    ) -> Result<HclValue, E> {
        let key = (text.as_ptr().addr(), language);
        if let Some((_, value)) = self.decoded.borrow().get(&key) {
            return Ok(value.clone());
        }
        // A value takes far more memory than its text.
        self.charge(text.len() * 16);
        let value = decode()?;
        self.decoded
            .borrow_mut()
            .insert(key, (Rc::clone(text), value.clone()));
        Ok(value)
    }

    /// Returns the noted files and reports.
    pub(super) fn into_parts(self) -> (BTreeMap<RepoPath, FileUse>, Vec<Unresolved>) {
        (self.reads.into_inner(), self.unresolved.into_inner())
    }
}
