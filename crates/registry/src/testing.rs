//! Configuration of all property tests, strategies for names and versions, and the answers of Go's own packages.

use proptest::test_runner::{Config, RngSeed};

/// Returns a configuration with a fixed seed, so that a failing case is the same on every machine.
pub(crate) fn fixed_seed() -> Config {
    Config {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(19),
        ..Config::default()
    }
}

/// Returns the fields of each line of `go_vectors.txt` that begins with a word.
pub(crate) fn go_vectors(word: &str) -> Vec<Vec<&'static str>> {
    let lines = include_str!("testdata/go_vectors.txt").lines();
    let lines = lines.filter_map(|line| line.strip_prefix(word)?.strip_prefix('\t'));
    let vectors: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    assert!(!vectors.is_empty(), "there are no vectors for {word}");
    vectors
}
