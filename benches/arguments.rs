//! Parses the command line: `make bench ARGS='-- --only door,locks --dir /data'`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// A part of the benchmarks that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Webhook acknowledgement and memory.
    Door,
    /// Taking and releasing locks.
    Locks,
    /// Releasing a lock for which many pull requests are queued.
    Line,
    /// Claiming repositories for owners.
    Claims,
    /// Claiming and finishing jobs.
    Queue,
    /// Time from the death of a server until its work runs again.
    Recovery,
    /// Time from a webhook to the comment that answers it.
    Comment,
    /// Whole commands as people wait for them.
    Whole,
    /// A small plan while a large one runs.
    Beside,
    /// Pages with long lists.
    Pages,
    /// Finding the projects of a change.
    Discovery,
    /// Evaluating policies on a large plan.
    Policies,
    /// The registry of modules.
    Registry,
    /// The scheduler of mirror syncs, with many repositories.
    Mirrors,
    /// Checking out a large repository.
    Checkouts,
    /// Pull requests of a repository of many gigabytes.
    Large,
    /// A hundred thousand accounts.
    Accounts,
    /// Starting programs in the sandbox.
    Sandbox,
}

/// Selected parts, and the disk to measure on.
#[derive(Debug)]
pub struct Arguments {
    only: Vec<Part>,
    /// Directory for databases and checkouts.
    pub dir: PathBuf,
    /// True for the largest sizes, which take much longer.
    pub is_full: bool,
}

impl Arguments {
    /// Reads the words after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        // `/tmp` is often in memory, where a sync costs nothing. `/var/tmp` survives a reboot, so it is on a disk.
        let mut arguments = Self {
            only: Vec::new(),
            dir: PathBuf::from("/var/tmp"),
            is_full: false,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                // Cargo passes this flag to every benchmark.
                "--bench" => {}
                "--only" => arguments.only = parts(&words.next().context("--only: no value")?)?,
                "--full" => arguments.is_full = true,
                "--dir" => arguments.dir = words.next().context("--dir: no value")?.into(),
                other => bail!(
                    "`{other}` is not known; use --only \
                     door,locks,line,claims,queue,recovery,comment,whole,beside,pages,discovery,policies,registry,mirrors,checkouts,large,accounts,sandbox, --full or --dir DIRECTORY"
                ),
            }
        }
        Ok(arguments)
    }

    /// Returns true if `part` was requested. Without `--only`, all parts are.
    pub fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

fn parts(text: &str) -> anyhow::Result<Vec<Part>> {
    let part = |name: &str| match name {
        "door" => Ok(Part::Door),
        "locks" => Ok(Part::Locks),
        "line" => Ok(Part::Line),
        "claims" => Ok(Part::Claims),
        "queue" => Ok(Part::Queue),
        "recovery" => Ok(Part::Recovery),
        "comment" => Ok(Part::Comment),
        "whole" => Ok(Part::Whole),
        "beside" => Ok(Part::Beside),
        "pages" => Ok(Part::Pages),
        "discovery" => Ok(Part::Discovery),
        "policies" => Ok(Part::Policies),
        "registry" => Ok(Part::Registry),
        "mirrors" => Ok(Part::Mirrors),
        "checkouts" => Ok(Part::Checkouts),
        "large" => Ok(Part::Large),
        "accounts" => Ok(Part::Accounts),
        "sandbox" => Ok(Part::Sandbox),
        other => {
            bail!(
                "--only: `{other}` is none of door, locks, line, claims, queue, recovery, comment, whole, beside, pages, discovery, policies, registry, mirrors, \
                 checkouts, large, accounts, sandbox"
            )
        }
    };
    text.split(',').map(part).collect()
}
