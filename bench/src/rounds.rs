//! Rounds: the contestants take turns (A B C A B C), each round with the same time, first as the disk is, then with
//! dearer flushes. Ratios are taken round by round, so what disturbs the machine for a while disturbs both sides.

use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::Place;
use crate::device::Traffic;
use crate::figures::{Spread, percentile};
use crate::result::{Bars, Cell, Table};

type Turn<'work> = Box<dyn FnMut(&mut Meter) -> Result<()> + 'work>;
type Settle<'work> = Box<dyn FnMut() -> Result<()> + 'work>;

/// One who takes part.
pub struct Contestant<'work> {
    /// As in tables: file system and what it does.
    pub name: String,
    place: Place,
    turn: Turn<'work>,
    settle: Option<Settle<'work>>,
}

impl<'work> Contestant<'work> {
    /// Works in `place`; `turn` does operations until the meter says that the round is over.
    pub fn new(
        name: impl Into<String>,
        place: &Place,
        turn: impl FnMut(&mut Meter) -> Result<()> + 'work,
    ) -> Contestant<'work> {
        Contestant { name: name.into(), place: place.clone(), turn: Box::new(turn), settle: None }
    }

    /// After each round, outside of its time, what was left for the background is done, so that it disturbs nobody.
    pub fn settling(self, settle: impl FnMut() -> Result<()> + 'work) -> Contestant<'work> {
        Contestant { settle: Some(Box::new(settle)), ..self }
    }
}

/// Times the operations of a round and says when it is over.
#[derive(Debug)]
pub struct Meter {
    /// Which round it is; the same for all contestants, so that they can draw the same offsets.
    pub round: u32,
    begun: Instant,
    duration: Duration,
    latencies_us: Vec<f32>,
    operations_max: u64,
    threads: usize,
}

impl Meter {
    /// A round of this length, or of so many operations where they are done sooner.
    pub fn new(round: u32, duration: Duration, operations_max: u64) -> Meter {
        Meter { round, begun: Instant::now(), duration, latencies_us: Vec::new(), operations_max, threads: 1 }
    }

    /// Whether another operation is to be done: at least one is.
    pub fn goes_on(&self) -> bool {
        self.latencies_us.is_empty()
            || (self.operations() < self.operations_max && self.begun.elapsed() < self.duration)
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.latencies_us.len() as u64
    }

    /// How much longer the round lasts, and how many operations it may still have: for others who do them and take their
    /// times.
    pub fn left(&self) -> (Duration, u64) {
        let left = self.duration.saturating_sub(self.begun.elapsed());
        (left, self.operations_max.saturating_sub(self.operations()))
    }

    /// Somebody else has done an operation, in this time.
    pub fn taken(&mut self, nanoseconds: u64) {
        self.latencies_us.push(nanoseconds as f32 / 1e3);
    }

    /// Does one operation and takes its time.
    pub fn time<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let done = operation()?;
        self.latencies_us.push(begun.elapsed().as_secs_f32() * 1e6);
        Ok(done)
    }

    /// The whole round is done by several threads; each is given its number and a meter of its own.
    pub fn threads(
        &mut self,
        count: usize,
        work: impl Fn(usize, &mut Meter) -> Result<()> + Sync,
    ) -> Result<()> {
        let (work, begun) = (&work, self.begun);
        let (round, duration, operations_max) = (self.round, self.duration, self.operations_max);
        let done: Vec<Result<Vec<f32>>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|number| {
                    scope.spawn(move || {
                        let mut meter = Meter { begun, ..Meter::new(round, duration, operations_max) };
                        work(number, &mut meter).map(|()| meter.latencies_us)
                    })
                })
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|done| done.unwrap_or_else(|_| Err("a thread of a round panicked".into()))).collect()
        });
        for latencies in done {
            self.latencies_us.extend(latencies?);
        }
        self.threads = count;
        Ok(())
    }
}

/// What one contestant did under one flush delay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its name.
    pub contestant: String,
    /// Added to each flush, in microseconds.
    pub flush_delay_us: u64,
    /// Operations in a second, of each round.
    pub rates: Vec<f64>,
    /// Median latency of each round.
    pub latencies_us: Vec<f64>,
    /// 99th percentile of each round.
    pub latencies_us_p99: Vec<f64>,
    /// 99.9th percentile of each round.
    pub latencies_us_p999: Vec<f64>,
    /// Operations of all rounds.
    pub operations: u64,
    /// What the device saw during the rounds and the settling after them.
    pub traffic: Option<Traffic>,
    /// Flushes that were asked for during the rounds.
    pub flushes: Option<u64>,
}

impl Outcome {
    /// Flushes that were asked for, for each operation.
    pub fn flushes_per_operation(&self) -> Option<f64> {
        self.flushes.map(|flushes| flushes as f64 / self.operations as f64)
    }

    /// Bytes that the device was given, for each operation.
    pub fn device_bytes_per_operation(&self) -> Option<f64> {
        self.traffic.map(|traffic| traffic.bytes as f64 / self.operations as f64)
    }
}

/// What all contestants did.
#[derive(Clone, Debug, Default)]
pub struct Contest {
    /// By flush delay, then in the order in which they took their turns.
    pub outcomes: Vec<Outcome>,
}

/// Runs all rounds of all contestants under each flush delay.
pub fn compete(bench: &Bench, contestants: &mut [Contestant<'_>]) -> Result<Contest> {
    compete_for(bench, contestants, u64::MAX)
}

/// As [`compete`], and each round ends after so many operations where time is left.
pub fn compete_for(
    bench: &Bench,
    contestants: &mut [Contestant<'_>],
    operations_max: u64,
) -> Result<Contest> {
    let mut contest = Contest::default();
    let steps = bench.flush_delays_us.len() * (bench.rounds as usize + 1) * contestants.len();
    bench.progress.begin(steps as u64);
    for &flush_delay_us in &bench.flush_delays_us {
        let mut outcomes: Vec<Outcome> = contestants
            .iter()
            .map(|contestant| Outcome {
                contestant: contestant.name.clone(),
                flush_delay_us,
                ..Outcome::default()
            })
            .collect();
        bench.flush_delay.set_us(flush_delay_us)?;
        // a short round first, that counts for nothing: caches, allocations, threads
        for round in 0..=bench.rounds {
            for (contestant, outcome) in contestants.iter_mut().zip(&mut outcomes) {
                let what = || format!("{} (+{} us a flush)", contestant.name, flush_delay_us);
                bench.progress.step(&what());
                let share = if round == 0 { 4 } else { 1 };
                let meter = Meter::new(round, bench.round_duration / share, operations_max);
                let played = play(bench, contestant, meter, (round > 0).then_some(outcome));
                played.map_err(|error| format!("{}: {error}", contestant.name))?;
            }
        }
        contest.outcomes.extend(outcomes);
        bench.flush_delay.set_us(0)?;
    }
    Ok(contest)
}

fn play(
    bench: &Bench,
    contestant: &mut Contestant<'_>,
    mut meter: Meter,
    outcome: Option<&mut Outcome>,
) -> Result<()> {
    let (traffic_before, flushes_before) = (contestant.place.traffic()?, bench.flush_delay.flushes()?);
    meter.begun = Instant::now();
    (contestant.turn)(&mut meter)?;
    let flushes_after = bench.flush_delay.flushes()?;
    if let Some(settle) = &mut contestant.settle {
        settle()?;
    }
    contestant.place.flush()?;
    let traffic_after = contestant.place.traffic()?;
    let Some(outcome) = outcome else { return Ok(()) };

    let mut sorted: Vec<f64> = meter.latencies_us.iter().map(|&latency| f64::from(latency)).collect();
    sorted.sort_by(f64::total_cmp);
    // by the time that operations took, not by what was done between them
    let busy_seconds = sorted.iter().sum::<f64>() / 1e6 / meter.threads as f64;
    outcome.rates.push(sorted.len() as f64 / busy_seconds);
    outcome.latencies_us.push(percentile(&sorted, 0.5));
    outcome.latencies_us_p99.push(percentile(&sorted, 0.99));
    outcome.latencies_us_p999.push(percentile(&sorted, 0.999));
    outcome.operations += sorted.len() as u64;
    if let (Some(before), Some(after)) = (traffic_before, traffic_after) {
        outcome.traffic = Some(outcome.traffic.unwrap_or_default().plus(after.since(before)));
    }
    if let (Some(before), Some(after)) = (flushes_before, flushes_after) {
        outcome.flushes = Some(outcome.flushes.unwrap_or(0) + (after - before));
    }
    Ok(())
}

impl Contest {
    /// What this contestant did under this flush delay; nothing when it did not take part.
    pub fn find(&self, contestant: &str, flush_delay_us: u64) -> Option<&Outcome> {
        let wanted =
            |outcome: &&Outcome| outcome.contestant == contestant && outcome.flush_delay_us == flush_delay_us;
        self.outcomes.iter().find(wanted)
    }

    /// How many times the rate of `other` this contestant's rate was, round by round.
    pub fn rate_ratio(&self, contestant: &str, other: &str, flush_delay_us: u64) -> Option<Spread> {
        let (one, other) = (self.find(contestant, flush_delay_us)?, self.find(other, flush_delay_us)?);
        Some(Spread::of_ratios(&one.rates, &other.rates))
    }

    /// How many times the median latency of `other` this contestant's was, round by round.
    pub fn latency_ratio(&self, contestant: &str, other: &str, flush_delay_us: u64) -> Option<Spread> {
        let (one, other) = (self.find(contestant, flush_delay_us)?, self.find(other, flush_delay_us)?);
        Some(Spread::of_ratios(&one.latencies_us, &other.latencies_us))
    }

    /// The flush delays that were played.
    pub fn flush_delays_us(&self) -> Vec<u64> {
        let mut delays: Vec<u64> = self.outcomes.iter().map(|outcome| outcome.flush_delay_us).collect();
        delays.dedup();
        delays
    }

    /// One table for each flush delay.
    pub fn tables(&self) -> Vec<Table> {
        self.flush_delays_us().into_iter().map(|delay| self.table(delay)).collect()
    }

    fn table(&self, flush_delay_us: u64) -> Table {
        let outcomes = self.outcomes.iter().filter(|outcome| outcome.flush_delay_us == flush_delay_us);
        let columns = ["", "a second", "median, us", "99th percentile, us", "flushes", "device bytes"];
        Table {
            caption: format!("{}; flushes and device bytes for each operation", delay_text(flush_delay_us)),
            columns: columns.map(str::to_owned).to_vec(),
            rows: outcomes
                .map(|outcome| {
                    vec![
                        Cell::text(&outcome.contestant),
                        Cell::figure(Spread::of(&outcome.rates), 0),
                        Cell::figure(Spread::of(&outcome.latencies_us), 1),
                        Cell::figure(Spread::of(&outcome.latencies_us_p99), 0),
                        Cell::number(outcome.flushes_per_operation(), 2),
                        Cell::number(outcome.device_bytes_per_operation(), 0),
                    ]
                })
                .collect(),
        }
    }

    /// Rates as bars, a group for each flush delay.
    pub fn bars(&self, name: &str, title: &str, unit: &str) -> Bars {
        let group = |delay: u64| {
            let outcomes = self.outcomes.iter().filter(|outcome| outcome.flush_delay_us == delay);
            let bars = outcomes.map(|outcome| (outcome.contestant.clone(), Spread::of(&outcome.rates)));
            (delay_text(delay), bars.collect())
        };
        Bars {
            name: name.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            logarithmic: true,
            groups: self.flush_delays_us().into_iter().map(group).collect(),
        }
    }
}

/// How a flush delay is called on the page.
pub fn delay_text(flush_delay_us: u64) -> String {
    match flush_delay_us {
        0 => "as the disk is".to_owned(),
        delay if delay % 1000 == 0 => format!("+{} ms a flush", delay / 1000),
        delay => format!("+{delay} us a flush"),
    }
}
