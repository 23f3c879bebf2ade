//! Reads the ledger of the fake Terraform: the beginning and the end of each apply, by the digest of the plan file.

use std::collections::BTreeMap;
use std::path::Path;

/// Number of times that an apply of a plan file began, and that it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of starts of Terraform with the plan file.
    pub begun: usize,
    /// Number of applies that Terraform finished.
    pub ended: usize,
}

/// Returns every apply by the SHA-256 of the plan file.
pub fn read(path: &Path) -> BTreeMap<String, Applied> {
    let mut applied = BTreeMap::<String, Applied>::new();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (what, digest) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let entry = applied.entry(digest.to_owned()).or_default();
        match what {
            "begin" => entry.begun += 1,
            "end" => entry.ended += 1,
            other => panic!("the ledger has a line with `{other}`"),
        }
    }
    applied
}
