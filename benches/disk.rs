//! What the disk alone needs: the measure for everything that has to be durable.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::load::wait_until;
use crate::stats::Samples;

/// Appends each of the bodies to one file and makes it durable, at this pace at most; measured without the wait for the
/// turn, so that it is what the disk needs and not what a queue before it would.
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
