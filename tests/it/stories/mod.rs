//! Stories: what people do at a pull request and the very comments they read, on both databases.

mod door;
mod plan;
