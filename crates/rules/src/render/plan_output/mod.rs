//! Reads the output of Terraform and OpenTofu and makes it readable (reference 6.6, 9.6, 9.9).
//!
//! All functions take the raw output of a stage, with or without colours. They look only at the text and use no plan
//! file and no network. The sentences that they rely on are quoted next to the patterns.

mod agreement;
mod clean;
mod counts;
mod diagnose;
mod diff;

pub use agreement::disagreement;
pub use clean::{LinePart, clean, parts, without_progress};
pub use counts::{ApplyCounts, PlanSummary, apply_summary, summary};
pub use diagnose::{StateLock, error_part, plan_is_stale, state_lock};
pub use diff::{DiffStyle, plan_text};
