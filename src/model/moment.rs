//! Times as people read them.

use chrono::{DateTime, Utc};

/// As people read a time: `2026-12-24 18:00 UTC`.
pub fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}
