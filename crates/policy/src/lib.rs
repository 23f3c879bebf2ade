//! The rules of policy checks. Nothing here opens a file, starts a program, asks the network or knows a database.
//!
//! - [`sets`] are the policy sets that an administrator configures: where the policies are, which engine evaluates
//!   them, on which projects, and who may approve violations.
//! - [`findings`] are what an engine found in a plan, and [`verdict`] is the result of one set for one plan.
//! - [`decision`] decides from the configured sets, the verdicts and the approvals whether a plan may be applied.
//! - [`conftest`], [`sarif`], [`junit`] and [`plain`] read what other tools print.
//! - [`embedded`] evaluates Rego inside the program, and [`facts`] is what policies learn about the pull request.
//! - [`waivers`] take findings out for a time.
//!
//! Everything that is read may come from a hostile pull request: readers bound memory and never panic, and everything that
//! cannot be determined counts as not passed (P6).

mod bounded;
pub mod conftest;
pub mod decision;
pub mod embedded;
pub mod facts;
pub mod findings;
pub mod junit;
pub mod plain;
#[cfg(test)]
mod real_reports;
pub mod sarif;
pub mod sets;
pub mod verdict;
pub mod waivers;
