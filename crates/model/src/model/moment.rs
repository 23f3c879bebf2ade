//! Formats times for people.

use chrono::{DateTime, Utc};

/// Formats a time for people: `2026-12-24 18:00 UTC`.
pub fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}
