//! GitHub.
