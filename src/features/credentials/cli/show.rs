//! Formats credentials for the terminal, without their secrets.

use std::fmt::Write as _;

use serde_json::json;

use crate::claims::Rotation;
use crate::features::credentials::view::CredentialView;
use crate::kit::term::safe;
use crate::model::minute;
use crate::store::CredentialRow;

pub(super) fn line(row: &CredentialRow) -> String {
    let used = row.used_at.map_or_else(
        || "never used".to_owned(),
        |at| format!("used {}", minute(at)),
    );
    let line = format!(
        "{} {} {}: {} ({}), added by {} on {}, {used}, key {}",
        row.id,
        row.owner_name,
        row.url,
        row.kind.words(),
        row.public.0,
        row.created_by,
        minute(row.created_at),
        row.key_id
    );
    safe(&line)
}

pub(super) fn json_line(row: &CredentialRow) -> serde_json::Value {
    json!(CredentialView::from(row))
}

pub(super) fn rotation(key: &str, rotation: &Rotation) -> String {
    let mut text = format!(
        "{} credentials were encrypted with the key `{key}`.",
        rotation.resealed
    );
    if rotation.changed > 0 {
        let _infallible = write!(
            text,
            " {} were changed at the same time: run the command again.",
            rotation.changed
        );
    }
    if rotation.unreadable > 0 {
        let _infallible = write!(
            text,
            " {} cannot be read; they are unchanged.",
            rotation.unreadable
        );
    }
    if rotation.is_complete() {
        text.push_str(" The older keys are no longer needed.");
    }
    text
}

pub(super) fn json_rotation(key: &str, rotation: &Rotation) -> serde_json::Value {
    json!({
        "key": key,
        "encrypted": rotation.resealed,
        "changed": rotation.changed,
        "unreadable": rotation.unreadable,
        "complete": rotation.is_complete(),
    })
}
