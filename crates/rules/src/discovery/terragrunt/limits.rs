//! Limits the size and the work of a Terragrunt configuration, because it comes from a pull request (P12).

/// Maximum number of units and stacks of one repository. Terragrunt itself is slow far below this number.
pub(super) const MAX_UNITS: usize = 20_000;

/// Maximum number of bytes of one file that are read.
pub(super) const MAX_FILE_BYTES: usize = 512 << 10;

/// Maximum number of bytes of all files of one search that are kept.
pub(super) const MAX_ALL_BYTES: usize = 64 << 20;

/// Maximum number of expressions that one unit may evaluate; real units need some hundreds.
pub(super) const MAX_STEPS: usize = 100_000;

/// Maximum number of expressions that all units together may evaluate: seconds of work.
pub(super) const MAX_ALL_STEPS: usize = 20_000_000;

/// Maximum number of bytes of values that one unit may make.
pub(super) const MAX_MADE_BYTES: usize = 32 << 20;

/// Maximum nesting of expressions, locals and files. Each level costs stack, and threads have two megabytes.
pub(super) const MAX_DEPTH: usize = 120;

/// Maximum size of one text in bytes.
pub(super) const MAX_TEXT: usize = 256 << 10;

/// Maximum number of elements of one list or object.
pub(super) const MAX_ITEMS: usize = 10_000;

/// Maximum nesting of lists and objects.
pub(super) const MAX_NESTING: usize = 48;

/// Maximum number of files that one unit reads or looks for.
pub(super) const MAX_READS: usize = 5_000;

/// Maximum number of directories of modules that one unit uses.
pub(super) const MAX_MODULES: usize = 500;

/// Maximum nesting of stacks in stacks.
pub(super) const MAX_STACKS: usize = 8;

/// Maximum number of unresolved items that are kept.
pub(super) const MAX_UNRESOLVED: usize = 1_000;
