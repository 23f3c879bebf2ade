//! The command line: `make bench ARGS='-- --only door,locks --dir /data'`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Webhook acknowledgement and memory.
    Door,
    /// Taking and releasing locks.
    Locks,
    /// Releasing a lock that many wait for.
    Line,
    /// Claiming repositories for owners.
    Claims,
    /// Claiming and finishing jobs.
    Queue,
    /// From the death of a server to the work running again.
    Recovery,
    /// From webhook to comment.
    Comment,
    /// Finding projects.
    Discovery,
    /// The scheduler of mirrors with many repositories.
    Registry,
    /// Checking a large repository out.
    Checkouts,
    /// Pulls of a repository of many gigabytes.
    Large,
    /// Starting programs in the sandbox.
    Sandbox,
}

/// What to measure, and on which disk.
#[derive(Debug)]
pub struct Arguments {
    only: Vec<Part>,
    /// Directory for databases and checkouts.
    pub dir: PathBuf,
}

impl Arguments {
    /// Reads the words after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        // Often `/tmp` is in memory, where a sync costs nothing; `/var/tmp` outlives a restart and so is on a disk.
        let mut arguments = Self {
            only: Vec::new(),
            dir: PathBuf::from("/var/tmp"),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                // Cargo says so to every benchmark.
                "--bench" => {}
                "--only" => arguments.only = parts(&words.next().context("--only: no value")?)?,
                "--dir" => arguments.dir = words.next().context("--dir: no value")?.into(),
                other => bail!(
                    "`{other}` is not known; use --only \
                     door,locks,line,claims,queue,recovery,comment,discovery,registry,checkouts,large,sandbox or --dir DIRECTORY"
                ),
            }
        }
        Ok(arguments)
    }

    /// Whether a part is asked for; all are unless some are named.
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
        "discovery" => Ok(Part::Discovery),
        "registry" => Ok(Part::Registry),
        "checkouts" => Ok(Part::Checkouts),
        "large" => Ok(Part::Large),
        "sandbox" => Ok(Part::Sandbox),
        other => {
            bail!(
                "--only: `{other}` is none of door, locks, line, claims, queue, recovery, comment, discovery, registry, \
                 checkouts, large, sandbox"
            )
        }
    };
    text.split(',').map(part).collect()
}
