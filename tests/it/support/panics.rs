//! Fails the test of a task that panics, even if the panic was caught. The threads of a test have its name.

use std::sync::{Mutex, Once, PoisonError};

/// Thread, and place with message, of each panic of this process.
static SEEN: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Message of a panic that is part of a test.
const ON_PURPOSE: &str = "on purpose";

/// Records every panic of the process from now on.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let words = info.to_string();
            if !words.contains(ON_PURPOSE) {
                SEEN.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((thread(), words));
            }
            before(info);
        }));
    });
}

/// Returns the name of the thread, which is that of the test.
pub fn thread() -> String {
    std::thread::current()
        .name()
        .unwrap_or("a thread without a name")
        .to_owned()
}

/// Asserts that nothing panicked in the threads of this test.
pub fn none_in(thread: &str) {
    let own: Vec<String> = {
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter()
            .filter(|(at, _)| at == thread)
            .map(|(_, words)| words.clone())
            .collect()
    };
    // The list must not be locked here, because this panic is recorded, too.
    assert_eq!(
        own, [""; 0],
        "something panicked, although the test went on"
    );
}

#[test]
#[should_panic(expected = "something panicked")]
fn a_task_that_panics_fails_its_story() {
    super::db::tell(async {
        tokio::spawn(async { panic!("nobody waits for it") })
            .await
            .unwrap_err();
    });
}

#[test]
fn a_panic_on_purpose_fails_no_story() {
    super::db::tell(async {
        tokio::spawn(async { panic!("on purpose") })
            .await
            .unwrap_err();
    });
}
