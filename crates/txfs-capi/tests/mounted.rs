//! Transactions around unmodified system calls: C programs that know the installed header only, and Python, on a real
//! mount. Each test has a volume of its own.

mod installed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use installed::{Installed, Linked, command, done};
use txfs_fuse::{MountOptions, MountedVolume, mount};
use volume::Volume;

/// A mounted volume, and a directory outside of it.
struct Fixture {
    mounted: Option<MountedVolume>,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: /dev/fuse is missing here");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        for name in ["mount", "outside"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Volume::create(&path).unwrap();
        let opened = Volume::open(&path).unwrap();
        let mounted = mount(opened, &path, &directory.path().join("mount"), &MountOptions::default());
        Some(Fixture { mounted: Some(mounted.unwrap()), directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unmounts properly: nothing of the program's may be left that keeps the mount busy.
    fn finish(mut self) {
        let mounted = self.mounted.take().unwrap();
        let started = std::time::Instant::now();
        // Children of other tests, between fork and exec, keep it busy for a moment.
        while let Err(error) = mounted.unmount(false) {
            assert!(started.elapsed().as_secs() < 20, "unmounting: {error}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        mounted.wait().unwrap();
        let checked = Volume::open(self.path("volume")).unwrap();
        drop(checked);
    }
}

fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(Installed::new)
}

fn program(name: &str, linked: Linked) -> PathBuf {
    static COMPILED: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    let key = format!("{name} {linked:?}");
    let mut compiled = COMPILED.lock().unwrap();
    if let Some((_, path)) = compiled.iter().find(|(known, _)| *known == key) {
        return path.clone();
    }
    let path = installed().program(&format!("mounted/{name}.c"), linked);
    compiled.push((key, path.clone()));
    path
}

fn run_linked(name: &str, test: &str, linked: Linked) {
    let program = program(name, linked);
    let Some(fixture) = Fixture::new() else { return };
    let mut command = command(&program);
    command.arg(test).arg(fixture.path("mount")).arg(fixture.path("outside")).current_dir("/");
    // Other tests have mounts too.
    command.env("TXFS_MOUNT", fixture.path("mount"));
    print!("{}", done(&mut command));
    fixture.finish();
}

macro_rules! tests {
    ($(fn $test:ident(): $program:literal $case:literal;)*) => {
        $(
            #[test]
            fn $test() {
                run_linked($program, $case, Linked::Shared);
            }
        )*
    };
}

tests! {
    fn the_example_of_the_manual_works(): "descriptors" "example";
    fn a_descriptor_of_before_has_its_offset_inside(): "descriptors" "offsets_of_before";
    fn a_descriptor_of_before_appends(): "descriptors" "appending";
    fn duplicates_share_their_offset(): "descriptors" "duplicates";
    fn descriptors_go_on_after_the_commit(): "descriptors" "going_on_after_commit";
    fn descriptors_go_on_after_an_abort(): "descriptors" "going_on_after_abort";
    fn standard_io_is_part_of_it(): "descriptors" "standard_io";
    fn mapped_memory_is_part_of_it(): "descriptors" "mapped";
    fn data_moves_between_files(): "descriptors" "moving_data";
    fn the_librarys_descriptors_are_not_the_programs(): "descriptors" "own_descriptors";
    fn a_reused_number_is_what_it_is_now(): "descriptors" "reused_numbers";
    fn links_lead_in_and_out(): "paths" "links";
    fn parent_steps_lead_where_the_kernel_says(): "paths" "parent_steps";
    fn directories_of_before_and_of_inside_lead_into_the_view(): "paths" "directories";
    fn the_current_directory_is_the_transactions(): "paths" "current_directory";
    fn other_threads_stay_where_they_are(): "paths" "current_directory_of_other_threads";
    fn links_of_proc_mean_the_view(): "paths" "links_of_proc";
    fn attributes_are_part_of_it(): "paths" "attributes";
    fn wrong_arguments_are_refused_as_ever(): "paths" "wrong_arguments";
    fn special_files_work(): "paths" "special_files";
    fn threads_share_a_descriptor_of_before(): "isolation" "threads_with_a_descriptor_of_before";
    fn threads_append_to_their_own(): "isolation" "threads_append";
    fn a_thread_sees_its_own(): "isolation" "threads_see_their_own";
    fn a_conflict_shows_at_the_commit(): "isolation" "conflict_at_commit";
    fn a_conflict_shows_at_the_call(): "isolation" "conflict_at_the_call";
    fn nesting_is_flat(): "isolation" "nesting_is_flat";
    fn the_end_of_a_thread_aborts(): "isolation" "end_of_a_thread_aborts";
    fn a_process_that_dies_inside_leaves_nothing(): "isolation" "a_child_dies_inside";
    fn a_child_is_outside(): "isolation" "a_child_is_outside";
    fn threads_agree_about_two_files(): "isolation" "random_operations_on_two_files";
    fn a_directory_descriptor_works_without_interception(): "isolation" "explicit_transactions";
    fn threads_join_a_transaction(): "isolation" "threads_join";
    fn processes_join_a_transaction(): "isolation" "processes_join";
    fn files_without_a_name_are_part_of_it(): "descriptors" "without_a_name";
    fn a_temporary_file_gets_a_name(): "descriptors" "temporary_file_gets_a_name";
    fn other_places_are_left_alone(): "isolation" "other_places_are_left_alone";
    fn a_group_is_committed_and_others_pass(): "groups" "members_only";
    fn an_aborted_group_leaves_nothing(): "groups" "abort";
    fn what_is_made_in_a_member_directory_is_a_member(): "groups" "member_directory";
    fn names_move_into_a_group(): "groups" "renames";
    fn a_file_is_in_one_group(): "groups" "one_group";
    fn members_stay_while_it_runs(): "groups" "members_stay";
    fn processes_share_a_group(): "groups" "processes";
    fn threads_share_a_group(): "groups" "threads";
    fn deleting_a_group_aborts_its_transaction(): "groups" "deletion";
    fn wrong_use_of_groups_is_refused(): "groups" "wrong_use";
    fn pairs_leave_nothing(): "isolation" "pairs";
}

#[test]
fn mounts_on_the_volume_and_binds_of_it_are_what_they_are() {
    // It makes mounts.
    if std::fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t0") {
        run_linked("paths", "mounts", Linked::Shared);
    } else {
        eprintln!("skipped: only root may mount");
    }
}

#[test]
fn a_static_program_works_alike() {
    for (name, test) in
        [("descriptors", "example"), ("descriptors", "standard_io"), ("isolation", "threads_append")]
    {
        run_linked(name, test, Linked::Static);
    }
}

/// A language that only uses the C library: its own files, directories and copies are in the transaction.
#[test]
fn python_works_unchanged() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3 here");
        return;
    }
    let Some(fixture) = Fixture::new() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mounted/unchanged.py");
    let mut command = command(Path::new("python3"));
    command.arg(script).arg(installed().path("usr/lib/libtxfs.so"));
    command.arg(fixture.path("mount")).arg(fixture.path("outside")).current_dir("/");
    print!("{}", done(&mut command));
    fixture.finish();
}
