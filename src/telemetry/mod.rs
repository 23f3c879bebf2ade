//! Writes the log of the program to standard error, and collects metrics and panics.
//!
//! Nothing is redacted here. Secrets have the type [`crate::secret::Secret`], which cannot be printed, so no secret
//! can get into a line.

mod metrics;
mod panics;

pub use metrics::{Metric, Metrics, Sort, metric_table, status_class};
pub use panics::{Panic, Panics};

use std::fs::File;
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::server::{LogFormat, LogLevel};

/// Starts logging to standard error. Fails if logging was already started.
pub fn init(level: LogLevel, format: LogFormat) -> Result<(), TryInitError> {
    subscriber(level, format, stderr().is_terminal(), stderr).try_init()
}

/// Starts logging to a file, and also to standard error if `aloud`. Fails if logging was already started.
pub fn init_file(file: File, aloud: bool) -> Result<(), TryInitError> {
    let (level, format, file) = (LogLevel::default(), LogFormat::default(), Mutex::new(file));
    if aloud {
        subscriber(level, format, false, file.and(stderr)).try_init()
    } else {
        subscriber(level, format, false, file).try_init()
    }
}

/// Returns the filter: messages of Lockkeeper from `level` on, and of libraries only those that may explain a
/// failure.
fn directives(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => {
            "info,lockkeeper=debug,tower_http=debug,sqlx=info,hyper=info,octocrab=info,globset=warn"
        }
        LogLevel::Info => "warn,lockkeeper=info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

fn subscriber<W>(
    level: LogLevel,
    format: LogFormat,
    colours: bool,
    writer: W,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(level)))
        .with_writer(writer);
    match format {
        LogFormat::Text => Box::new(builder.with_target(false).with_ansi(colours).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing::{debug, info, warn};

    use super::*;
    use crate::secret::Secret;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that `log` writes, without the time at the start of each line.
    fn logged(level: LogLevel, format: LogFormat, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(level, format, false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn libraries_are_quieter_than_we_are() {
        let log = || {
            info!(target: "lockkeeper::queue", job = 7, "Claimed a job");
            debug!(target: "lockkeeper::queue", "Nothing to do");
            info!(target: "sqlx::query", "SELECT 1");
            warn!(target: "hyper", "Connection lost");
        };
        let text = logged(LogLevel::Info, LogFormat::Text, log);
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once("Z  ").map(|(_, rest)| rest))
            .collect();
        assert_eq!(lines, ["INFO Claimed a job job=7", "WARN Connection lost"]);
        assert_eq!(logged(LogLevel::Error, LogFormat::Text, log), "");
        assert_eq!(
            logged(LogLevel::Debug, LogFormat::Text, log)
                .lines()
                .count(),
            4
        );
    }

    #[test]
    fn json_lines_carry_the_fields() {
        let log = || info!(target: "lockkeeper::queue", job = 7, token = ?Secret::new("ghp_x"), "Claimed");
        let line: serde_json::Value =
            serde_json::from_str(&logged(LogLevel::Info, LogFormat::Json, log)).unwrap();
        assert_eq!(
            (&line["message"], &line["job"], &line["level"]),
            (&"Claimed".into(), &7.into(), &"INFO".into())
        );
        assert_eq!(line["token"], "Secret(…)");
    }
}
