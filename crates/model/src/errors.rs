//! Turns an error and its causes into text.

use std::error::Error;

/// Formats an error and its causes in one line.
pub fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
