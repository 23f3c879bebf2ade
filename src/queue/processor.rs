//! Measures the use of the processor.
//!
//! With control groups of version 2, in containers and in units of systemd for example, a server counts what its own group
//! has used of the processors that it may use: what others do on the machine says nothing about it. Otherwise it counts the
//! idle time of the machine. The counters grow since the start of the group or machine, so a measurement is the difference
//! of two of them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::process::of_ticks;

/// Control groups of this process. The line of version 2 begins with [`VERSION_2`].
const OWN_GROUPS: &str = "/proc/self/cgroup";
const VERSION_2: &str = "0::/";
/// Directory of the groups of version 2.
const GROUPS: &str = "/sys/fs/cgroup";
/// Names of the files with the counters and the limit of a group.
const GROUP_STAT: &str = "cpu.stat";
const GROUP_LIMIT: &str = "cpu.max";
/// Counters of the machine.
const MACHINE: &str = "/proc/stat";
/// Share of the processor time, in percent, from which on the processor is busy.
const BUSY: u128 = 90;

/// Time from which the possible time of a control group is counted.
static SINCE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Compares the use of the processor with that at the last call.
#[derive(Debug, Default)]
pub(super) struct ProcessorMeter {
    last: Option<UsedTime>,
}

/// Processor time that was used up to now, and that could have been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UsedTime {
    used: Duration,
    possible: Duration,
}

impl ProcessorMeter {
    /// Returns true if the processor was busy since the last call. Returns `None` at the first call, and where the kernel
    /// gives no numbers.
    pub(super) fn is_busy(&mut self) -> Option<bool> {
        let now = UsedTime::read()?;
        let last = self.last.replace(now)?;
        now.is_busy_since(last)
    }
}

impl UsedTime {
    fn read() -> Option<Self> {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let of_group = || {
            let group = own_group(&read(Path::new(OWN_GROUPS))?)?;
            let limit = read(&group.join(GROUP_LIMIT)).unwrap_or_default();
            Self::of_group(&read(&group.join(GROUP_STAT))?, &limit)
        };
        of_group().or_else(|| Self::of_machine(&read(Path::new(MACHINE))?))
    }

    /// Parses the counters and the limit of a control group. Without a limit, or with a larger one, it may use all processors
    /// of this process.
    fn of_group(stat: &str, limit: &str) -> Option<Self> {
        let used = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))?;
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let all = SINCE.elapsed() * u32::try_from(processors).ok()?;
        let possible = match quota(limit) {
            Some((time, period)) => all.min(SINCE.elapsed() * time / period),
            None => all,
        };
        Some(Self {
            used: Duration::from_micros(used.parse().ok()?),
            possible,
        })
    }

    /// Parses the counters of the machine. The fourth and the fifth are idle time.
    fn of_machine(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|number| number.parse().ok())
            .collect();
        let (idle, waiting) = (ticks.get(3)?, ticks.get(4)?);
        // The last two are part of the first two.
        let all: u64 = ticks.iter().take(8).sum();
        Some(Self {
            used: of_ticks(all.saturating_sub(idle + waiting)),
            possible: of_ticks(all),
        })
    }

    fn is_busy_since(self, last: Self) -> Option<bool> {
        let used = self.used.checked_sub(last.used)?.as_micros();
        let possible = self.possible.checked_sub(last.possible)?.as_micros();
        (possible > 0).then_some(used * 100 >= possible * BUSY)
    }
}

/// Parses the processor time that a group may use in a period. `None`: as much as there is.
fn quota(limit: &str) -> Option<(u32, u32)> {
    let (time, period) = limit.trim().split_once(' ')?;
    let (time, period) = (time.parse().ok()?, period.parse().ok()?);
    (period > 0).then_some((time, period))
}

/// Returns the directory of the group of version 2 that this process is in.
fn own_group(groups: &str) -> Option<PathBuf> {
    let below = groups
        .lines()
        .find_map(|line| line.strip_prefix(VERSION_2))?;
    Some(Path::new(GROUPS).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(used: u64, possible: u64) -> UsedTime {
        UsedTime {
            used: Duration::from_millis(used),
            possible: Duration::from_millis(possible),
        }
    }

    #[test]
    fn the_machine_is_busy_if_little_of_its_time_is_idle() {
        let stat = "cpu  3428491 8854 930603 956079 18278 0 37481 1520 77 5\ncpu0 1 2 3 4\n";
        let time = UsedTime::of_machine(stat).unwrap();
        assert_eq!(time, millis(44_069_490, 53_813_060));
        for broken in ["", "cpu0 1 2 3 4 5", "cpu  1 2 3", "cpu  a b c d e"] {
            assert_eq!(UsedTime::of_machine(broken), None, "{broken}");
        }
        let busy = |used: u64, possible: u64| {
            millis(1000 + used, 2000 + possible).is_busy_since(millis(1000, 2000))
        };
        assert_eq!(busy(190, 200), Some(true));
        assert_eq!(busy(180, 200), Some(true));
        assert_eq!(busy(170, 200), Some(false));
        // Neither no time nor counters that go back say anything.
        assert_eq!(busy(0, 0), None);
        assert_eq!(millis(1, 2).is_busy_since(millis(2, 1)), None);
    }

    #[test]
    fn the_own_group_counts_and_not_the_one_of_the_machine() {
        for (groups, expected) in [
            ("0::/\n", Some("/sys/fs/cgroup/")),
            (
                "0::/system.slice/lockkeeper.service\n",
                Some("/sys/fs/cgroup/system.slice/lockkeeper.service"),
            ),
            ("4:memory:/x\n1:cpu:/\n", None),
        ] {
            assert_eq!(own_group(groups).as_deref(), expected.map(Path::new));
        }
    }

    #[test]
    fn the_group_counts_what_it_used() {
        let stat = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n";
        let time = UsedTime::of_group(stat, "").unwrap();
        assert_eq!(time.used, Duration::from_millis(1500));
        assert_eq!(UsedTime::of_group("nr_periods 0\n", ""), None);
        for (limit, expected) in [
            ("150000 100000\n", Some((150_000, 100_000))),
            ("max 100000\n", None),
            ("1 0", None),
            ("", None),
        ] {
            assert_eq!(quota(limit), expected, "{limit}");
        }
    }

    #[test]
    fn this_machine_can_be_measured() {
        let mut meter = ProcessorMeter::default();
        assert_eq!(meter.is_busy(), None);
        assert!(meter.last.is_some());
    }
}
