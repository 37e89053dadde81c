//! C programs whose calls are caught. Nothing is mounted: what they show is that the calls, the signals, the children and
//! the threads of a program are what they are without a transaction.

mod compile;

use compile::{Linked, run};

macro_rules! cases {
    ($(fn $test:ident(): $program:literal $case:literal;)*) => {
        $(
            #[test]
            fn $test() {
                run($program, $case, Linked::Shared);
            }
        )*
    };
}

cases! {
    fn a_caught_call_keeps_registers_flags_and_the_red_zone(): "calls" "registers";
    fn a_caught_call_keeps_errno(): "calls" "errno_stays";
    fn malloc_and_stdio_work_inside(): "calls" "memory_and_stdio";
    fn a_caught_call_has_all_six_arguments(): "calls" "six_arguments";
    fn what_would_take_the_trap_away_is_refused(): "calls" "what_is_refused";
    fn no_call_is_caught_outside_of_transactions(): "calls" "nothing_outside";
    fn a_caught_call_costs_microseconds(): "calls" "cost";

    fn a_signal_interrupts_a_blocking_read(): "signals" "read_is_interrupted";
    fn a_blocking_read_is_restarted(): "signals" "read_is_restarted";
    fn a_sleep_goes_on_after_a_stop(): "signals" "sleep_is_restarted_after_a_stop";
    fn handlers_that_make_calls_nest(): "signals" "handlers_nest";
    fn handlers_may_mask_every_signal(): "signals" "handlers_with_full_masks";
    fn masks_look_as_they_do_outside(): "signals" "masks_look_as_ever";
    fn sigsys_may_be_blocked_at_the_begin(): "signals" "sigsys_blocked_before";
    fn a_handler_may_jump_out_of_a_blocking_call(): "signals" "jump_out_of_a_blocking_call";
    fn calls_that_wait_may_mask_every_signal(): "signals" "waits_with_full_masks";
    fn handlers_run_on_their_alternative_stack(): "signals" "alternative_stack";
    fn a_sigsys_of_others_does_what_it_does_outside(): "signals" "sigsys_of_others";
    fn signals_at_any_moment_do_no_harm(): "signals" "storm";

    fn a_forked_child_is_outside(): "children" "fork_inside";
    fn a_child_of_a_raw_fork_is_outside(): "children" "raw_fork_inside";
    fn vfork_works_inside(): "children" "vfork_inside";
    fn posix_spawn_works_inside(): "children" "spawn_inside";
    fn system_and_popen_work_inside(): "children" "system_and_popen_inside";
    fn clone3_works_inside(): "children" "clone3_inside";
    fn a_child_with_its_own_stack_begins_on_it(): "children" "clone_with_a_stack";
    fn exec_works_inside(): "children" "exec_inside";
    fn a_process_may_die_inside(): "children" "death_inside";
    fn a_fork_beside_transactions_of_other_threads_is_usable(): "children" "fork_beside_other_threads";

    fn a_thread_made_inside_is_outside(): "threads" "create_inside";
    fn threads_that_end_inside_leave_nothing(): "threads" "end_inside";
    fn detached_threads_may_end_inside(): "threads" "end_inside_detached";
    fn a_thread_may_end_by_a_raw_call(): "threads" "end_by_a_raw_call";
    fn a_thread_is_cancelled_inside(): "threads" "cancel_inside";
    fn many_threads_begin_and_commit_at_once(): "threads" "many_at_once";
    fn a_million_pairs_leave_nothing(): "threads" "a_million_pairs";
    fn a_small_stack_is_enough(): "threads" "a_small_stack";

    fn a_kernel_without_dispatch_is_not_supported(): "filters" "without_dispatch";
    fn calls_that_seccomp_traps_go_to_the_programs_handler(): "filters" "trapped_calls";

    fn the_library_may_be_loaded_late(): "loaded" "in_every_thread";
    fn the_library_stays_when_it_is_closed(): "loaded" "closed";
}

#[test]
fn a_static_program_is_caught_too() {
    for case in ["registers", "memory_and_stdio", "nothing_outside"] {
        run("calls", case, Linked::Static);
    }
    for case in ["read_is_restarted", "masks_look_as_ever", "storm"] {
        run("signals", case, Linked::Static);
    }
    for case in ["fork_inside", "vfork_inside", "system_and_popen_inside"] {
        run("children", case, Linked::Static);
    }
    for case in ["end_inside", "cancel_inside", "many_at_once"] {
        run("threads", case, Linked::Static);
    }
}
