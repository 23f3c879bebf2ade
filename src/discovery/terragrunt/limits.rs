//! Limits on everything that a configuration of Terragrunt could make large or long: it comes from a pull request (P12).

/// Units and stacks of one repository. Terragrunt itself is slow far below this.
pub(super) const MAX_UNITS: usize = 20_000;

/// Bytes of one file that are read.
pub(super) const MAX_FILE_BYTES: usize = 512 << 10;

/// Bytes of all files of one search that are kept.
pub(super) const MAX_ALL_BYTES: usize = 64 << 20;

/// Expressions that one unit may evaluate: real ones need some hundreds.
pub(super) const MAX_STEPS: usize = 100_000;

/// Expressions that all units together may evaluate: seconds of work.
pub(super) const MAX_ALL_STEPS: usize = 20_000_000;

/// Bytes of values that one unit may make.
pub(super) const MAX_MADE_BYTES: usize = 32 << 20;

/// Expressions, locals and files inside each other: each level costs stack, and threads have two megabytes.
pub(super) const MAX_DEPTH: usize = 120;

/// Bytes of one text.
pub(super) const MAX_TEXT: usize = 256 << 10;

/// Elements of one list or object.
pub(super) const MAX_ITEMS: usize = 10_000;

/// Lists and objects inside each other.
pub(super) const MAX_NESTING: usize = 48;

/// Files that one unit reads or looks for.
pub(super) const MAX_READS: usize = 5_000;

/// Directories of modules that one unit uses.
pub(super) const MAX_MODULES: usize = 500;

/// Stacks inside stacks.
pub(super) const MAX_STACKS: usize = 8;

/// Things that could not be found out which are kept.
pub(super) const MAX_UNRESOLVED: usize = 1_000;
