//! How a volume is mounted.

/// Options of a mount. `Default` is for one user's own mount: nobody else gets in, no set-user-id, no devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Let users other than the mounting one use the mount. The kernel checks modes and owners in any case.
    pub allow_other: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Honour set-user-id and set-group-id bits.
    pub allow_suid: bool,
    /// Honour device nodes.
    pub allow_devices: bool,
    /// Allow programs to be run.
    pub allow_exec: bool,
    /// When a conflict is one, for transactions that do not say it themselves.
    pub policy: txfs::Policy,
    /// What the volume's history may keep for undoing commits; by default what the volume is opened with.
    pub history_bytes_max: Option<u64>,
    /// How many threads serve requests; also how many `fsync`s can share a flush.
    pub threads: usize,
    /// Show this named snapshot instead of the volume as it is; such a mount refuses changes.
    pub snapshot: Option<String>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            allow_other: false,
            read_only: false,
            allow_suid: false,
            allow_devices: false,
            allow_exec: true,
            policy: txfs::Policy::default(),
            history_bytes_max: None,
            threads: 8,
            snapshot: None,
        }
    }
}
