//! Faults that are there on purpose, so that it can be shown that the simulator notices them.
//!
//! Only a build with the feature `broken` has them, and in that the environment variable [`VARIABLE`] chooses one; without
//! it, such a build is sound. Every other build has none: the question is answered when it is compiled.

/// Names the fault that a build with the feature `broken` is to have.
pub const VARIABLE: &str = "TXFS_BROKEN";

macro_rules! faults {
    ($($(#[$meaning:meta])* $fault:ident = $name:literal,)*) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$meaning])* $fault,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$fault,)*];

            /// As in [`VARIABLE`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => $name,)*
                }
            }
        }
    };
}

faults! {
    /// Durable commits are acknowledged without a flush.
    SkipFlush = "skip-flush",
    /// Recovery and reads accept bytes without comparing checksums.
    IgnoreChecksum = "ignore-checksum",
    /// A durable commit is acknowledged when only the first sector of its record was flushed.
    PublishTorn = "publish-torn",
    /// A durable log write counts as acknowledged although an earlier one is still in flight.
    AcknowledgeOutOfOrder = "acknowledge-out-of-order",
    /// A segment is used again although a snapshot can still see what is in it.
    RecycleInSight = "recycle-in-sight",
    /// A segment is used again although the index on stable storage still refers to what is in it.
    RecycleBeforeCheckpoint = "recycle-before-checkpoint",
    /// The cleaner gives an extent its new place without looking whether it is still the one that was copied.
    CleanBlindly = "clean-blindly",
    /// What kept and prepared transactions have read and written is not claimed again when a volume is opened.
    ForgetKept = "forget-kept",
    /// Named snapshots do not keep what prepared mutations replace.
    UnsavedPrepared = "unsaved-prepared",
    /// Changes of pages are undone without looking whether they are still there.
    UndoBlindly = "undo-blindly",
}

/// Whether this engine is to have this fault.
#[cfg(not(feature = "broken"))]
pub const fn has(_fault: Fault) -> bool {
    false
}

/// Whether this engine is to have this fault.
#[cfg(feature = "broken")]
pub fn has(fault: Fault) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        Fault::ALL.iter().copied().find(|fault| fault.name() == name)
    });
    *chosen == Some(fault)
}
