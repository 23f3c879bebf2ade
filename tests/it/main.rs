#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test, here and in the helpers of tests")]

mod architecture;
mod store;
mod support;
