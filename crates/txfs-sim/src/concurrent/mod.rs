//! Several threads on one engine.
//!
//! * [`overlap`]: the simulated disk holds every log write, and the scenario decides which worker gets the next command
//!   and which write completes next. So batches that are in flight together complete in any order, and power is lost in
//!   between.
//! * [`threads`]: nobody decides; threads commit as they like beside the engine's own threads until power is lost.
//!
//! What both promise is checked without knowing the schedule: every commit counts itself ([`work`]).

pub mod overlap;
pub mod threads;
pub mod work;
mod workers;
