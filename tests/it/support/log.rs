//! Records the log lines on the thread of a test.
//!
//! One listener serves the whole test binary. A listener per test would not work: the decision whether a log
//! statement is enabled is cached for all threads, so a test that ends would disable it for another.

use std::cell::RefCell;
use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex, Once};

use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

thread_local! {
    static HEARD: RefCell<Option<Arc<Mutex<Vec<u8>>>>> = const { RefCell::new(None) };
}

/// Records everything that is logged on this thread from now on, down to the most detailed level of the server.
/// [`Listening::end`] returns the lines.
pub fn listen() -> Listening {
    static START: Once = Once::new();
    START.call_once(|| {
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_writer(|| Ear);
        let heard = dynamic_filter_fn(|_, _| HEARD.with_borrow(Option::is_some));
        let listener =
            Registry::default().with(lines.with_filter(heard).with_filter(LevelFilter::DEBUG));
        tracing::subscriber::set_global_default(listener)
            .expect("nobody else listens to the whole program");
    });
    let heard = Arc::default();
    HEARD.set(Some(Arc::clone(&heard)));
    Listening(heard)
}

/// Returns the lines about statements that read or write tables. A new connection of a pool begins with settings of its own.
pub fn statements(heard: &str) -> Vec<&str> {
    let reads_or_writes = |line: &&str| {
        ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"]
            .iter()
            .any(|verb| line.contains(&format!("summary=\"{verb} ")))
    };
    heard.lines().filter(reads_or_writes).collect()
}

/// A recording, which ends on drop.
pub struct Listening(Arc<Mutex<Vec<u8>>>);

impl Listening {
    /// Returns the lines so far.
    pub fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Returns the recorded lines.
    pub fn end(self) -> String {
        String::from_utf8(take(&mut *self.0.lock().unwrap())).expect("log lines are text")
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        HEARD.set(None);
    }
}

struct Ear;

impl io::Write for Ear {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        HEARD.with_borrow(|heard| {
            if let Some(heard) = heard {
                heard.lock().unwrap().extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
