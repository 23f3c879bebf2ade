//! Large futures on the heap.

use std::pin::Pin;

/// Makes a future on the heap. `Box::pin(future())` does the same, but a program without optimisation keeps room on the stack of
/// the caller for the future that it moves, as long as the caller waits. A command awaits dozens of functions inside each
/// other, and a thread has a stack of 2 MiB.
#[inline(never)]
pub(crate) fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
}
