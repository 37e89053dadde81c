//! Reference model, seeded scenarios, oracles and crash campaigns for TxFS.
//!
//! A scenario runs on a volume on the simulated disk and, step by step, on the model. Power is cut at any step of
//! input or output; every image that a cut may leave is recovered and compared: *the recovered volume equals the
//! model after some prefix of the commit order that includes every acknowledged durable commit*. Every run depends
//! on its seed only.

pub mod broken;
pub mod campaign;
pub mod compare;
pub mod concurrent;
pub mod dump;
pub mod engine_mode;
pub mod every_write;
pub mod faults;
pub mod generator;
pub mod hash;
pub mod histories;
pub mod history;
pub mod images;
pub mod model;
pub mod operation;
pub mod session;
pub mod verify;
pub mod violation;
pub mod volume;
