//! The kinds of scenario.

/// Weights and sizes of one kind of scenario.
#[derive(Debug)]
pub struct Profile {
    /// As given on the command line.
    pub name: &'static str,
    /// Steps of one run.
    pub steps: usize,
    /// Transactions open at once.
    pub transactions_max: usize,
    /// Largest file.
    pub file_bytes_max: u64,
    /// Largest single write.
    pub write_bytes_max: u64,
    /// Inodes before the generator prefers to remove some.
    pub inodes_max: usize,
    /// Different names in one directory.
    pub names: u32,
    /// Segment size of the volume.
    pub segment_bytes: u64,
    /// Log bytes between checkpoints that the engine makes by itself.
    pub checkpoint_distance_bytes: u64,
    /// Unwritten data above which a transaction writes early.
    pub transaction_memory_bytes: usize,
    /// Durable, ordered, deferred.
    pub durability_weights: [u32; 3],
    /// Operations outside and inside transactions, begin, commit.
    pub base_weight: u32,
    /// Operations inside transactions.
    pub inside_weight: u32,
    /// Ends of transactions.
    pub commit_weight: u32,
    /// Transactions given up.
    pub abort_weight: u32,
    /// Syncs.
    pub sync_weight: u32,
    /// Checkpoints.
    pub checkpoint_weight: u32,
    /// Clean closes and opens.
    pub reopen_weight: u32,
    /// Share of operations that change data, out of 100; the rest is names and attributes.
    pub data_percent: u32,
    /// Share of operations that only look, out of 100.
    pub look_percent: u32,
    /// Power-cut images taken at each step of input and output.
    pub images_per_write: u32,
    /// What the disk holds at least, where it has a limit; the seed adds up to two segments.
    pub capacity_bytes: Option<u64>,
    /// Segments that the volume may have, where it has a limit.
    pub segments_max: Option<u64>,
    /// Cleanings.
    pub clean_weight: u32,
    /// Transactions that are kept or prepared, and ends of those.
    pub keep_weight: u32,
    /// Named snapshots.
    pub snapshot_weight: u32,
    /// Share of transactions that the volume is asked to record, out of 100.
    pub recorded_percent: u32,
    /// Commits undone.
    pub undo_weight: u32,
    /// What the volume's history may keep, in bytes, where it is not the volume's own choice.
    pub history_bytes_max: Option<u64>,
}

impl Profile {
    /// True when space can run out.
    pub fn is_limited(&self) -> bool {
        self.capacity_bytes.or(self.segments_max).is_some()
    }

    /// In the order of [`super::Action`].
    pub(super) fn action_weights(&self) -> [u32; 21] {
        [
            self.base_weight,
            self.commit_weight + 4,
            self.inside_weight,
            self.commit_weight,
            self.abort_weight,
            self.sync_weight,
            self.checkpoint_weight,
            4,
            self.reopen_weight,
            2,
            2,
            2,
            2,
            self.clean_weight,
            self.keep_weight,
            self.keep_weight * 2 / 3,
            self.keep_weight / 6,
            self.undo_weight,
            self.snapshot_weight,
            self.snapshot_weight / 2,
            self.keep_weight * 2 / 3,
        ]
    }
}

const KIB: u64 = 1024;

const SMALL: Profile = Profile {
    name: "small",
    steps: 120,
    transactions_max: 4,
    file_bytes_max: 48 * KIB,
    write_bytes_max: 6 * KIB,
    inodes_max: 24,
    names: 6,
    segment_bytes: 512 * KIB,
    checkpoint_distance_bytes: 1024 * KIB,
    transaction_memory_bytes: 1 << 20,
    durability_weights: [3, 4, 3],
    base_weight: 40,
    inside_weight: 40,
    commit_weight: 12,
    abort_weight: 2,
    sync_weight: 3,
    checkpoint_weight: 1,
    reopen_weight: 1,
    data_percent: 45,
    look_percent: 15,
    images_per_write: 3,
    capacity_bytes: None,
    segments_max: None,
    clean_weight: 2,
    keep_weight: 0,
    snapshot_weight: 0,
    recorded_percent: 0,
    undo_weight: 0,
    history_bytes_max: None,
};

/// Kinds that a campaign goes round by itself; the others, which come last, run when they are named.
pub const PROFILES_IN_TURN: usize = 19;

/// All kinds.
pub static PROFILES: [Profile; 19] = [
    SMALL,
    Profile {
        name: "many-commits",
        steps: 160,
        write_bytes_max: 600,
        file_bytes_max: 12 * KIB,
        base_weight: 70,
        commit_weight: 20,
        durability_weights: [6, 2, 2],
        ..SMALL
    },
    Profile {
        name: "large-commits",
        steps: 80,
        write_bytes_max: 160 * KIB,
        file_bytes_max: 320 * KIB,
        inodes_max: 14,
        inside_weight: 60,
        base_weight: 12,
        commit_weight: 8,
        data_percent: 75,
        images_per_write: 4,
        transaction_memory_bytes: 128 << 10,
        ..SMALL
    },
    Profile {
        name: "segment-switching",
        steps: 100,
        write_bytes_max: 60 * KIB,
        file_bytes_max: 120 * KIB,
        inodes_max: 12,
        checkpoint_distance_bytes: 512 * KIB,
        data_percent: 80,
        sync_weight: 5,
        checkpoint_weight: 2,
        ..SMALL
    },
    // Files that are overwritten in pieces, in a volume that has to be cleaned for them all the time.
    Profile {
        name: "cleaning",
        steps: 140,
        write_bytes_max: 90 * KIB,
        file_bytes_max: 320 * KIB,
        inodes_max: 16,
        checkpoint_distance_bytes: 700 * KIB,
        transaction_memory_bytes: 96 << 10,
        data_percent: 85,
        look_percent: 10,
        segments_max: Some(12),
        clean_weight: 5,
        ..SMALL
    },
    Profile {
        name: "checkpoints",
        steps: 100,
        checkpoint_weight: 14,
        sync_weight: 6,
        reopen_weight: 4,
        ..SMALL
    },
    Profile {
        name: "ordered-groups",
        steps: 140,
        durability_weights: [1, 10, 6],
        sync_weight: 1,
        checkpoint_weight: 1,
        base_weight: 60,
        ..SMALL
    },
    Profile {
        name: "namespace",
        steps: 140,
        write_bytes_max: 400,
        file_bytes_max: 4 * KIB,
        inodes_max: 32,
        names: 4,
        data_percent: 10,
        ..SMALL
    },
    // Nearly every transaction writes its data before its commit, and many are given up after that.
    Profile {
        name: "stealing",
        steps: 110,
        transactions_max: 6,
        write_bytes_max: 40 * KIB,
        file_bytes_max: 160 * KIB,
        inodes_max: 12,
        transaction_memory_bytes: 4 << 10,
        inside_weight: 60,
        base_weight: 10,
        abort_weight: 8,
        checkpoint_weight: 6,
        checkpoint_distance_bytes: 512 * KIB,
        data_percent: 75,
        ..SMALL
    },
    // A small disk and small files, so that names and attributes fill the log.
    Profile {
        name: "full-of-names",
        steps: 220,
        write_bytes_max: 6 * KIB,
        file_bytes_max: 24 * KIB,
        inodes_max: 48,
        names: 20,
        base_weight: 80,
        checkpoint_distance_bytes: 256 * KIB,
        capacity_bytes: Some(7 << 19),
        images_per_write: 2,
        ..SMALL
    },
    // A disk on which most things fit only after something was deleted.
    Profile {
        name: "full-disk",
        steps: 160,
        write_bytes_max: 120 * KIB,
        file_bytes_max: 400 * KIB,
        inodes_max: 20,
        transaction_memory_bytes: 32 << 10,
        checkpoint_distance_bytes: 512 * KIB,
        data_percent: 70,
        look_percent: 5,
        sync_weight: 4,
        checkpoint_weight: 3,
        capacity_bytes: Some(5 << 20),
        images_per_write: 2,
        ..SMALL
    },
    // So few segments, written over so fast, that a snapshot of a while ago holds most of them.
    Profile {
        name: "held-space",
        steps: 140,
        write_bytes_max: 140 * KIB,
        file_bytes_max: 280 * KIB,
        inodes_max: 12,
        checkpoint_distance_bytes: 700 * KIB,
        transaction_memory_bytes: 96 << 10,
        data_percent: 85,
        look_percent: 5,
        segments_max: Some(9),
        clean_weight: 3,
        ..SMALL
    },
    // Transactions are kept and prepared, across crashes, among others that touch the same.
    Profile {
        name: "kept",
        steps: 140,
        inodes_max: 16,
        base_weight: 30,
        inside_weight: 50,
        keep_weight: 9,
        clean_weight: 3,
        transaction_memory_bytes: 16 << 10,
        ..SMALL
    },
    // The same in a volume that runs full meanwhile.
    Profile {
        name: "kept-full",
        steps: 140,
        write_bytes_max: 100 * KIB,
        file_bytes_max: 300 * KIB,
        inodes_max: 16,
        transaction_memory_bytes: 64 << 10,
        checkpoint_distance_bytes: 512 * KIB,
        data_percent: 65,
        look_percent: 5,
        segments_max: Some(10),
        keep_weight: 9,
        clean_weight: 3,
        ..SMALL
    },
    // Much is recorded, and undone soon after or much later.
    Profile {
        name: "undo",
        steps: 130,
        inodes_max: 20,
        recorded_percent: 75,
        undo_weight: 14,
        reopen_weight: 3,
        ..SMALL
    },
    // Large changes, cleaned and undone, of which little is kept.
    Profile {
        name: "undo-large",
        steps: 110,
        write_bytes_max: 70 * KIB,
        file_bytes_max: 200 * KIB,
        inodes_max: 14,
        transaction_memory_bytes: 48 << 10,
        data_percent: 70,
        clean_weight: 5,
        checkpoint_weight: 4,
        recorded_percent: 80,
        undo_weight: 12,
        history_bytes_max: Some(400 * KIB),
        ..SMALL
    },
    // So little space that what is kept has to go again and again.
    Profile {
        name: "undo-full",
        steps: 150,
        write_bytes_max: 80 * KIB,
        file_bytes_max: 240 * KIB,
        inodes_max: 16,
        transaction_memory_bytes: 96 << 10,
        data_percent: 75,
        look_percent: 5,
        segments_max: Some(10),
        clean_weight: 3,
        recorded_percent: 70,
        undo_weight: 8,
        history_bytes_max: Some(64 << 20),
        ..SMALL
    },
    // Named snapshots of what is changed, cleaned and moved about, and removed in any order.
    Profile {
        name: "snapshots",
        steps: 120,
        inodes_max: 20,
        snapshot_weight: 7,
        clean_weight: 4,
        checkpoint_weight: 3,
        transaction_memory_bytes: 24 << 10,
        ..SMALL
    },
    // The same in a volume that runs full meanwhile, with commits of many names.
    Profile {
        name: "snapshots-full",
        steps: 120,
        write_bytes_max: 100 * KIB,
        file_bytes_max: 300 * KIB,
        inodes_max: 16,
        transaction_memory_bytes: 64 << 10,
        checkpoint_distance_bytes: 512 * KIB,
        data_percent: 65,
        look_percent: 5,
        segments_max: Some(10),
        snapshot_weight: 6,
        clean_weight: 3,
        ..SMALL
    },
];

/// The kind with this name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}
