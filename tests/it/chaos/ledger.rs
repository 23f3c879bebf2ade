//! The ledger of the stand-in for Terraform: each apply when it begins and when it ends, by the plan file's digest.

use std::collections::BTreeMap;
use std::path::Path;

/// How often an apply of a plan file began, and how often it came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Terraform was started with it.
    pub begun: usize,
    /// Terraform was done with it.
    pub ended: usize,
}

/// Every apply by the SHA-256 of the plan file.
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
