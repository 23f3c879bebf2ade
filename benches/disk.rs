//! What the disk alone needs: the measure for everything that has to be durable.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::load::wait_until;
use crate::stats::Samples;

/// Appends each of the bodies to one file and makes it durable, at this pace; measured from the time it was due.
pub fn append(dir: &Path, bodies: impl Iterator<Item = Vec<u8>>, every: Duration) -> anyhow::Result<Samples> {
    let path = dir.join("append");
    let mut file = File::create(&path).context("cannot make a file")?;
    let (start, mut samples) = (Instant::now(), Samples::default());
    for (number, body) in (0..).zip(bodies) {
        let due = start + every * number;
        wait_until(due);
        file.write_all(&body).and_then(|()| file.sync_data()).context("cannot append to a file")?;
        samples.push(due.elapsed());
    }
    std::fs::remove_file(path).context("cannot remove a file")?;
    Ok(samples)
}
