//! Measures the registry of modules: answers to clients beside constant answers of the same size, many clients that want a
//! missing version, a long log, and the exchange of many versions between two deployments.

mod answers;
mod connection;
mod constant;
mod copies;
mod long_log;
mod office;
mod storm;

use std::path::Path;

use anyhow::Context as _;

use crate::report::Section;

pub use constant::{answer_constantly, is_constant_server};

/// Numbers of records that are measured.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Records of the long log.
    log: u64,
    /// Versions that another deployment gets.
    copied: u64,
}

impl Sizes {
    /// Returns the sizes that take a few minutes, or the largest ones.
    pub fn new(is_full: bool) -> Self {
        if is_full {
            Self {
                log: 1_000_000,
                copied: 100_000,
            }
        } else {
            Self {
                log: 100_000,
                copied: 20_000,
            }
        }
    }
}

/// Measures the registry and prints the sections of the report as soon as they are measured.
pub async fn measure(
    work: &Path,
    sizes: Sizes,
    print: &mut impl FnMut(Section),
) -> anyhow::Result<()> {
    let work = work.join("registry");
    std::fs::create_dir(&work)?;
    let section = Box::pin(answers::measure(&work)).await;
    print(section.context("answers")?);
    let section = Box::pin(storm::measure(&work)).await;
    print(section.context("a missing version")?);
    let section = Box::pin(long_log::measure(&work, sizes.log)).await;
    print(section.context("a long log")?);
    let section = Box::pin(copies::measure(&work, sizes.copied)).await;
    print(section.context("another deployment")?);
    Ok(())
}
