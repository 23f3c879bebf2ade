//! Measures the time that the disk alone needs: the reference for everything that has to be durable.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::load::wait_until;
use crate::stats::Samples;

/// Appends each of the bodies to one file and makes it durable, at most one per `every`. The time of a sample begins
/// when its turn comes, so that it is the time of the disk and not that of a queue in front of it.
pub fn append(
    dir: &Path,
    bodies: impl Iterator<Item = Vec<u8>>,
    every: Duration,
) -> anyhow::Result<Samples> {
    let path = dir.join("append");
    let mut file = File::create(&path).context("cannot make a file")?;
    let (start, mut samples) = (Instant::now(), Samples::default());
    for (number, body) in (0..).zip(bodies) {
        wait_until(start + every * number);
        let since = Instant::now();
        file.write_all(&body)
            .and_then(|()| file.sync_data())
            .context("cannot append to a file")?;
        samples.push(since.elapsed());
    }
    std::fs::remove_file(path).context("cannot remove a file")?;
    Ok(samples)
}
