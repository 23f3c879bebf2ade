//! Measures the use of the processor.
//!
//! In a control group of its own, which a container is, a server counts what the group has used of the processors that
//! it may use. Otherwise it counts the idle time of the machine. Both counters are read from the kernel and grow since
//! its start, so a measurement is the difference of two of them.

use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

/// Counters of the control group of this process (version 2), if it sees the group as the root.
const GROUP: &str = "/sys/fs/cgroup/cpu.stat";
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
        let read = |path: &str| std::fs::read_to_string(path).ok();
        read(GROUP)
            .and_then(|stat| Self::of_group(&stat))
            .or_else(|| Self::of_machine(&read(MACHINE)?))
    }

    /// Parses the counters of a control group.
    fn of_group(stat: &str) -> Option<Self> {
        let used = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))?;
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Some(Self {
            used: Duration::from_micros(used.parse().ok()?),
            possible: SINCE.elapsed() * u32::try_from(processors).ok()?,
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
        let time = |ticks: u64| {
            Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1))
        };
        Some(Self {
            used: time(all.saturating_sub(idle + waiting)),
            possible: time(all),
        })
    }

    fn is_busy_since(self, last: Self) -> Option<bool> {
        let used = self.used.checked_sub(last.used)?.as_micros();
        let possible = self.possible.checked_sub(last.possible)?.as_micros();
        (possible > 0).then_some(used * 100 >= possible * BUSY)
    }
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
    fn the_group_counts_what_it_used() {
        let stat = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n";
        let time = UsedTime::of_group(stat).unwrap();
        assert_eq!(time.used, Duration::from_millis(1500));
        assert_eq!(UsedTime::of_group("nr_periods 0\n"), None);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let mut meter = ProcessorMeter::default();
        assert_eq!(meter.is_busy(), None);
        assert!(meter.last.is_some());
    }
}
