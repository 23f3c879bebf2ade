//! Configuration of all property tests: a failing case is the same on every machine.

use proptest::test_runner::{Config, RngSeed};

/// Returns a configuration with a fixed seed.
pub(crate) fn fixed_seed() -> Config {
    Config {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(18),
        ..Config::default()
    }
}
