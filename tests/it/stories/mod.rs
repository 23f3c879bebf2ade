//! Stories: what people do at a pull request and the very comments they read, on both databases.

mod comments;
mod crash;
mod door;
mod outbox;
mod plan;
mod refusals;
mod replicas;
