//! Measures the memory and the processor time of a process, as Linux counts them.

use anyhow::Context as _;

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident pages, including those shared with other processes.
    pub rss: u64,
    /// Resident pages, with each shared page divided by the number of processes that share it.
    pub pss: u64,
    /// Resident pages that belong to no file. The others are those of the program, which the system can drop.
    pub anonymous: u64,
}

impl Memory {
    /// Reads the memory of a process from `/proc/PID/smaps_rollup`.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .context("cannot read smaps_rollup")?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("smaps_rollup has no field {name}"))
        };
        Ok(Self {
            rss: field("Rss:")?,
            pss: field("Pss:")?,
            anonymous: field("Anonymous:")?,
        })
    }

    /// Reads the most resident memory that a process ever had, in MiB, from `/proc/PID/status`.
    pub fn peak(pid: u32) -> anyhow::Result<String> {
        let text =
            std::fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        Ok(mebibytes(kibibytes.context("status has no VmHWM")?))
    }

    /// Returns resident, proportional and anonymous memory in MiB.
    pub fn cells(self) -> Vec<String> {
        vec![
            mebibytes(self.rss),
            mebibytes(self.pss),
            mebibytes(self.anonymous),
        ]
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory below 2^52 KiB")]
fn mebibytes(kibibytes: u64) -> String {
    format!("{:.1}", kibibytes as f64 / 1024.0)
}

/// Returns the processor time that a process has used so far, in milliseconds. proc(5): fields 14 and 15 of `stat`,
/// in hundredths of a second.
pub fn processor_millis(pid: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot read stat")?;
    // The name of the program, field 2, may contain spaces.
    let (_, rest) = text.rsplit_once(')').context("stat has no program name")?;
    let fields: Vec<u64> = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Ok(fields.iter().sum::<u64>() * 10)
}
