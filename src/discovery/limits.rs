//! Limits of a search for projects (P12): a pull request must not keep the server busy for long.

/// Projects a configuration may come to when its patterns are carried out.
pub(super) const MAX_CONFIGURED: usize = 50_000;

/// Times that a file is held against a pattern, for all projects of a command together: seconds of work.
pub(super) const MAX_PATTERN_TESTS: usize = 50_000_000;

/// Names under which changed files are seen, through symbolic links too.
pub(super) const MAX_LINKED: usize = 50_000;

/// Directories and links that are looked at for those names: a second or two of work.
pub(super) const MAX_LINK_LOOKS: usize = 1_000_000;

/// Parts of paths that are passed to find where all links lead, those in the texts of links too: a few seconds of work,
/// and 25 for each of 200,000 links.
pub(super) const MAX_LINK_PARTS: usize = 5_000_000;

/// Parts of paths that are passed to find where the sources of all modules lead, those in the texts of links too: some
/// seconds of work.
pub(super) const MAX_SOURCE_PARTS: usize = 20_000_000;

/// Directories whose modules are read.
pub(super) const MAX_MODULE_DIRS: usize = 50_000;

/// Bytes of code that are read for the modules of a repository.
pub(super) const MAX_MODULE_BYTES: usize = 256 << 20;

/// A search for projects came to more than is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// The command would run too many projects.
    #[error(
        "this command concerns {found} projects, and {allowed} are allowed at once: change fewer of them in one pull \
         request, or choose some with `-d` or `-p`; whoever runs Lockkeeper can allow more with `--max-projects`"
    )]
    Projects {
        /// Projects found.
        found: usize,
        /// Projects allowed.
        allowed: usize,
    },
    /// The patterns of `dir` match too much.
    #[error(
        "the patterns of `dir` in the configuration file match more than {MAX_CONFIGURED} directories: write narrower ones"
    )]
    Configured,
    /// Too many files and patterns.
    #[error(
        "so many files changed, and the projects have so many patterns in `when_modified`, that the search for projects \
         was given up: use fewer patterns, or choose projects with `-d` or `-p`"
    )]
    PatternTests,
    /// Links multiply the changed files, or are too much work to follow.
    #[error(
        "the changed files are seen under more than {MAX_LINKED} names through symbolic links, or the links are so \
         many or so long that following them took too long, so the search for projects was given up: choose projects \
         with `-d` or `-p`"
    )]
    Links,
    /// Too much code to find out who uses which module, or too long ways to the modules.
    #[error(
        "there is so much code (more than {MAX_MODULE_DIRS} directories or {} MiB), or so many and long sources of modules, \
         that who uses which was not found out: whoever runs Lockkeeper can name fewer files with \
         `--autoplan-modules-from-projects`",
        MAX_MODULE_BYTES >> 20
    )]
    Modules,
}
