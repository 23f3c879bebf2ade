//! What Terraform and OpenTofu print, made readable and understood (reference 6.6, 9.6, 9.9).
//!
//! All functions take the raw output of a stage, with or without colours, and look only at the text: no plan file, no
//! network. Sentences they rely on are quoted beside the patterns.

mod agreement;
mod clean;
mod counts;
mod diagnose;
mod diff;

pub use agreement::disagreement;
pub use clean::{Part, clean, parts, without_progress};
pub use counts::{ApplyCounts, PlanSummary, apply_summary, summary};
pub use diagnose::{StateLock, error_part, plan_is_stale, state_lock};
pub use diff::{DiffStyle, plan_text};
