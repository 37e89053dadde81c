//! How long something takes, as a histogram that any thread adds to without a lock.
//!
//! Buckets are powers of two, each cut into eight: a figure read out is at most an eighth too high. Counting one takes
//! an atomic addition and, for the largest so far, an atomic maximum. Times come from the caller and decide nothing, so
//! runs in the simulator stay reproducible.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CUTS: usize = 8;
/// Up to 2^42 ns, which is more than an hour; what takes longer counts as that.
const POWERS: usize = 43;

/// A histogram of durations.
#[derive(Debug)]
pub(crate) struct LatencyHistogram {
    buckets: Box<[AtomicU64]>,
    ns_max: AtomicU64,
}

/// Percentiles of how long something took, in microseconds; rounded up by an eighth at most, and all 0 when nothing was
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyStat {
    /// How often it happened.
    pub count: u64,
    /// Half of them took no longer than this.
    pub p50_us: f64,
    /// 90 of 100 took no longer.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
    /// The longest, exactly.
    pub max_us: f64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        let buckets = (0..CUTS * POWERS).map(|_| AtomicU64::new(0)).collect();
        LatencyHistogram { buckets, ns_max: AtomicU64::new(0) }
    }
}

impl LatencyHistogram {
    /// Counts one.
    pub(crate) fn count(&self, taken: Duration) {
        let ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        if ns > self.ns_max.load(Ordering::Relaxed) {
            self.ns_max.fetch_max(ns, Ordering::Relaxed);
        }
    }

    /// The figures so far.
    pub(crate) fn stat(&self) -> LatencyStat {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max_us = self.ns_max.load(Ordering::Relaxed) as f64 / 1e3;
        let percentile = |share: f64| {
            let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
            let mut seen = 0;
            let at = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            at.map_or(0.0, |at| (bucket_end(at) as f64 / 1e3).min(max_us))
        };
        LatencyStat {
            count,
            p50_us: percentile(0.5),
            p90_us: percentile(0.9),
            p99_us: percentile(0.99),
            p999_us: percentile(0.999),
            max_us,
        }
    }
}

/// The bucket of a duration: small ones have one each, the others share one with those of the same leading four bits.
fn bucket(ns: u64) -> usize {
    if ns < CUTS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    let cut = (ns >> (power - 3)) as usize & (CUTS - 1);
    ((power - 2) * CUTS + cut).min(CUTS * POWERS - 1)
}

/// The longest duration of a bucket, in nanoseconds.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < CUTS {
        return bucket as u64;
    }
    let (power, cut) = (bucket / CUTS + 2, bucket % CUTS);
    ((CUTS + cut + 1) as u64) << (power - 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for ns in (0..5000).chain((12..42).map(|power| (1u64 << power) + 12345)) {
            let end = bucket_end(bucket(ns));
            assert!(ns <= end && end <= ns + ns / 8 + 1, "{ns}: {end}");
        }
        assert_eq!(bucket(u64::MAX), CUTS * POWERS - 1);
    }

    #[test]
    fn percentiles_of_known_durations() {
        let histogram = LatencyHistogram::default();
        assert_eq!(histogram.stat(), LatencyStat::default());
        for us in 1..=1000 {
            histogram.count(Duration::from_micros(us));
        }
        let stat = histogram.stat();
        assert_eq!((stat.count, stat.max_us), (1000, 1000.0));
        for (found, exact) in
            [(stat.p50_us, 500.0), (stat.p90_us, 900.0), (stat.p99_us, 990.0), (stat.p999_us, 999.0)]
        {
            assert!(found >= exact && found <= exact * 1.126, "{found} for {exact}");
        }
    }
}
