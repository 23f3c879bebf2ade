//! Defines the limits of a search for projects (P12), because a pull request must not keep the server busy for long.

/// Maximum number of projects that the patterns of a configuration may expand to.
pub(super) const MAX_CONFIGURED: usize = 50_000;

/// Maximum number of comparisons of a file with a pattern, for all projects of a command together: seconds of work.
pub(super) const MAX_PATTERN_TESTS: usize = 50_000_000;

/// Maximum number of names of changed files, including names through symbolic links.
pub(super) const MAX_LINKED: usize = 50_000;

/// Maximum number of directories and links to look at for those names: a second or two of work.
pub(super) const MAX_LINK_LOOKS: usize = 1_000_000;

/// Maximum number of path parts to pass in order to find where all links lead, including parts in the texts of links.
/// The work takes a few seconds, and the limit allows 25 parts for each of 200,000 links.
pub(super) const MAX_LINK_PARTS: usize = 5_000_000;

/// Maximum number of path parts to pass in order to find where the sources of all modules lead, including parts in
/// the texts of links. The work takes some seconds.
pub(super) const MAX_SOURCE_PARTS: usize = 20_000_000;

/// Maximum number of directories whose modules are read.
pub(super) const MAX_MODULE_DIRS: usize = 50_000;

/// Maximum number of bytes of code that are read for the modules of a repository.
pub(super) const MAX_MODULE_BYTES: usize = 256 << 20;

/// A limit that a search for projects exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// The command would run too many projects.
    #[error(
        "this command concerns {found} projects, and {allowed} are allowed at once: change fewer of them in one pull \
         request, or choose some with `-d` or `-p`; an administrator can allow more with `--max-projects`"
    )]
    Projects {
        /// Number of projects found.
        found: usize,
        /// Number of projects allowed.
        allowed: usize,
    },
    /// The patterns of `dir` match too many directories.
    #[error(
        "the patterns of `dir` in the configuration file match more than {MAX_CONFIGURED} directories: write narrower \
         patterns"
    )]
    Configured,
    /// The changed files and the patterns are too many to compare.
    #[error(
        "too many files changed for the number of patterns in `when_modified`, so the search for projects was given \
         up: use fewer patterns, or choose projects with `-d` or `-p`"
    )]
    PatternTests,
    /// Links multiply the changed files, or are too much work to follow.
    #[error(
        "the changed files have more than {MAX_LINKED} names through symbolic links, or following the links took too \
         long, so the search for projects was given up: choose projects with `-d` or `-p`"
    )]
    Links,
    /// The modules have too much code, or their paths are too long, to find out which projects use them.
    #[error(
        "there is too much code (more than {MAX_MODULE_DIRS} directories or {} MiB), or there are too many or too \
         long module sources, to find out which project uses which module: an administrator can name fewer files with \
         `--autoplan-modules-from-projects`",
        MAX_MODULE_BYTES >> 20
    )]
    Modules,
}
