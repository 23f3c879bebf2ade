//! Summarizes a number of measurements.

use std::time::Duration;

/// Durations of one kind. All samples are kept, without rounding into buckets.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a sample to the others.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Returns the number of samples.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest sample that at least `percent` of the samples do not exceed (nearest rank).
    pub fn quantile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    /// Returns p50, p90, p99 and maximum in milliseconds, and the number of samples.
    pub fn cells(&self) -> Vec<String> {
        let mut cells: Vec<String> = [50, 90, 99, 100]
            .iter()
            .map(|percent| millis(self.quantile(*percent)))
            .collect();
        cells.push(self.count().to_string());
        cells
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl IntoIterator for Samples {
    type Item = Duration;
    type IntoIter = std::vec::IntoIter<Duration>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<Duration> for Samples {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, samples: I) {
        self.0.extend(samples);
    }
}

/// Formats milliseconds with two decimals.
pub fn millis(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1000.0)
}

/// Formats how many times as long `this` is as `that`: `2.6`, or `0.008` if it is much shorter.
pub fn ratio(this: Duration, that: Duration) -> String {
    let times = this.as_secs_f64() / that.as_secs_f64();
    let places = if times < 0.1 { 3 } else { 1 };
    format!("{times:.places$}")
}
