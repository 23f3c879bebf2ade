//! All features of Lockkeeper, a folder for each: its rules, SQL, routes, pages, API, command line, comments and
//! reconcilers. A feature uses another one only through its `mod.rs`.
//!
//! A feature registers itself with one value, [`Feature`], in [`FEATURES`].

pub mod accounts;
pub mod applications;
pub mod apply_locks;
pub(crate) mod audit;
mod credentials;
pub mod events;
mod jobs;
pub(crate) mod leases;
pub mod locks;
mod mirrors;
pub mod operations;
pub(crate) mod owners;
pub mod planning;
mod policies;
pub mod registry;
pub(crate) mod renames;
pub mod replies;
pub(crate) mod runs;

use std::sync::Arc;

pub use jobs::Jobs;

use crate::kit::jobs::JobKind;
use crate::kit::reconcile::Reconciler;
use crate::kit::term::Subcommand;
use crate::kit::web::{Routes, WebState};

/// Parts that a feature adds to the server and to the command line.
struct Feature {
    /// Routes of the pages and the API.
    routes: fn() -> Routes<Arc<WebState>>,
    /// `lockkeeper NAME`.
    subcommands: &'static [Subcommand],
    /// Reconcilers of the feature, which run periodically.
    reconcilers: &'static [Reconciler],
    /// Kinds of jobs in the queue.
    jobs: &'static [JobKind],
}

/// All features, in the order of the help text and of the page of operations.
const FEATURES: &[Feature] = &[
    events::FEATURE,
    planning::FEATURE,
    replies::FEATURE,
    renames::FEATURE,
    locks::FEATURE,
    apply_locks::FEATURE,
    runs::FEATURE,
    mirrors::FEATURE,
    owners::FEATURE,
    applications::FEATURE,
    credentials::FEATURE,
    accounts::FEATURE,
    registry::FEATURE,
    policies::FEATURE,
    audit::FEATURE,
    leases::FEATURE,
    operations::FEATURE,
];

/// Returns the routes of all features.
pub(crate) fn routes() -> Routes<Arc<WebState>> {
    let all = FEATURES.iter().map(|feature| (feature.routes)());
    all.fold(Routes::new(), Routes::merge)
}

/// Returns the subcommands of all features.
pub(crate) fn subcommands() -> impl Iterator<Item = &'static Subcommand> {
    FEATURES.iter().flat_map(|feature| feature.subcommands)
}

/// Returns every reconciler, in the order of the page of operations.
pub fn reconcilers() -> impl Iterator<Item = &'static Reconciler> {
    FEATURES.iter().flat_map(|feature| feature.reconcilers)
}

/// Returns the kinds of jobs of all features.
fn job_kinds() -> impl Iterator<Item = &'static JobKind> {
    FEATURES.iter().flat_map(|feature| feature.jobs)
}

/// Finds the reconciler with this name.
pub fn reconciler(name: &str) -> Option<&'static Reconciler> {
    reconcilers().find(|reconciler| reconciler.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::config::server::Periods;

    #[test]
    fn names_are_snake_case_and_used_once_and_every_one_says_what_it_repairs() {
        let mut seen = BTreeSet::new();
        for Reconciler {
            name,
            repairs,
            period,
            ..
        } in reconcilers()
        {
            assert!(seen.insert(name), "{name} is in the list twice");
            assert!(
                name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'),
                "{name}"
            );
            assert!(
                repairs.ends_with('.') && repairs.len() > 20,
                "{name}: {repairs}"
            );
            assert!(*period >= Duration::from_secs(1), "{name}");
            assert!(reconciler(name).is_some());
        }
    }

    #[test]
    fn without_settings_every_period_is_the_usual_one() {
        for reconciler in reconcilers() {
            assert_eq!(
                reconciler.every(&Periods::DEFAULT),
                reconciler.period,
                "{}",
                reconciler.name
            );
        }
        let often = Periods {
            claims: Duration::from_secs(7),
            ..Periods::DEFAULT
        };
        assert_eq!(
            reconciler("claims").unwrap().every(&often),
            Duration::from_secs(7)
        );
    }

    #[test]
    fn the_table_in_the_documentation_has_every_reconciler() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md"))
                .unwrap();
        for Reconciler { name, .. } in reconcilers() {
            assert!(
                text.contains(&format!("| `{name}` |")),
                "docs/operations.md does not tell of `{name}`"
            );
        }
    }
}
