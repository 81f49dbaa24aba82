//! All cases, each with its needs: the one list from which both [`CASES`] and the tests of every
//! backend are generated.

use super::Case;
use super::Need::{Can, Holder, Pipes, Processes, RawPaths, Server, Shell};
use super::cases::{
    again, agents, capabilities, commands, environment, files, holder, input, leases, lifecycle,
    limits, links, many, names, network, pause, ports, recovery, snapshots, streams, survivors,
    terminal, transfer, usage, users, workspaces,
};
use crate::capability::Capability::{
    DiskLimit, Egress, HostMounts, MemoryLimit, Pause, Ports, ProcessLimit, Snapshot, SshAgent,
    Terminal, Users, Volumes, Workspace,
};

/// Passes the list to a macro, which is named by its path, after the arguments of that macro.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    (($($then:tt)+) $context:tt) => {
        $($then)+! { $context
            lifecycle {
                a_new_sandbox_runs [];
                created_again_it_is_the_same [];
                created_again_differently_it_conflicts [];
                created_many_times_at_once_it_is_one [];
                what_does_not_exist_is_told [];
                they_are_listed_by_their_labels [];
                cleaned_up_twice_it_is_gone [];
                cleanup_ends_what_runs [];
            }
            leases {
                it_ends_with_its_lease [];
                its_commands_end_with_it [];
                a_renewed_one_lives_on [];
                a_lease_can_be_made_shorter [];
                creating_again_does_not_renew [];
            }
            commands {
                exit_codes_are_told [];
                every_exit_code_is_told [Shell];
                signals_are_told_from_codes [Shell, Processes];
                a_signal_can_be_sent [];
                a_signal_can_be_caught [Shell];
                a_signal_goes_to_the_whole_group [Shell];
                what_is_no_signal_is_refused [];
                what_cannot_be_run_is_told_as_the_end [];
                a_program_can_be_written_and_run [Shell];
                a_command_without_sense_is_refused [];
                arguments_come_as_they_are [Shell];
                arguments_may_be_long [];
                arguments_that_are_too_long_are_told [];
                a_command_that_kills_everything_is_told [Shell];
                its_status_is_known [];
            }
            environment {
                it_is_the_sandboxes_and_the_commands [];
                it_has_nothing_of_the_hosts [];
                values_come_as_they_are [Shell];
                it_may_be_large [];
                commands_start_where_they_are_told [];
                by_default_they_start_at_home [];
                where_nothing_is_they_do_not_start [];
            }
            users {
                commands_run_as_they_are_told [Shell, Can(Users)];
                one_user_cannot_harm_another [Shell, Can(Users)];
                files_belong_to_whom_they_are_given [Shell, Can(Users)];
                files_are_the_ordinary_users [Shell];
            }
            streams {
                silence_has_an_end [];
                output_is_whole_and_in_order [Shell];
                the_two_streams_are_told_apart [Shell];
                any_byte_may_come [Shell];
                output_is_heard_while_a_command_runs [Shell];
                everybody_hears_everything [Shell];
                a_slow_reader_misses_nothing [Shell];
                who_stops_listening_is_not_waited_for [Shell, Pipes];
                who_does_not_read_holds_up_nobody_else [Shell, Pipes];
                closed_streams_are_not_the_end [Shell];
                children_that_stay_are_no_reason_to_wait [Shell];
                every_end_is_told [Shell];
                #[ignore = "slow: ten gigabytes"]
                ten_gigabytes_pass [Shell];
            }
            input {
                a_mebibyte_comes_back [];
                without_input_it_is_at_its_end [];
                it_comes_piece_by_piece [];
                closed_and_empty_it_ends [];
                dropped_it_stays_open [];
                never_read_it_does_no_harm [];
                read_in_part_it_does_no_harm [Shell];
                after_the_end_it_is_refused [];
                after_its_close_it_is_refused [];
                given_whole_it_is_whole [];
                given_whole_it_is_the_commands_own [Shell];
                given_whole_it_needs_nobody [Shell];
                too_long_it_is_not_given_whole [];
                with_a_terminal_it_is_not_given_whole [Can(Terminal)];
            }
            again {
                executed_twice_it_is_one [];
                executed_at_once_it_runs_once [Shell];
                ids_belong_to_their_sandbox [];
                attached_from_an_offset_the_rest_comes [];
                attached_while_it_runs_nothing_is_doubled [Shell];
                what_was_never_started_is_told [];
                acknowledged_its_id_is_free [];
                acknowledged_with_children_its_id_is_free [Shell];
                what_runs_is_not_acknowledged [];
            }
            survivors {
                a_kill_leaves_none [Shell];
                a_timeout_leaves_none [Shell];
                too_much_output_leaves_none [Shell];
                others_survive [Shell];
                the_time_is_up_for_one_that_is_stopped [Shell];
                the_time_is_up [];
                who_is_in_time_is_left_alone [];
                output_has_its_limit [Shell];
            }
            terminal {
                it_is_one_of_this_size [Shell, Can(Terminal)];
                without_one_there_is_none [Shell];
                it_is_the_controlling_one [Shell, Can(Terminal)];
                its_size_changes [Shell, Can(Terminal)];
                what_has_none_cannot_be_resized [Can(Terminal)];
                it_interrupts [Shell, Can(Terminal)];
                it_ends_input [Shell, Can(Terminal)];
                it_echoes [Shell, Can(Terminal)];
                children_that_stay_are_no_reason_to_wait [Shell, Can(Terminal)];
                much_comes_through [Shell, Can(Terminal)];
                a_slow_reader_misses_nothing [Shell, Can(Terminal)];
            }
            files {
                contents_come_back [];
                commands_see_what_is_written [];
                what_commands_write_is_seen [Shell];
                parts_are_read [];
                what_is_absent_is_told [];
                missing_directories_are_made [];
                modes_are_as_asked [];
                writing_replaces_the_whole [];
                what_cannot_be_written_whole_is_not_written [];
                readers_see_no_half [];
                directories_and_files_are_not_confused [];
                names_are_changed [];
                trees_are_removed [];
                closed_directories_are_removed [Shell];
                times_are_told [Shell];
                #[ignore = "slow: a gigabyte"]
                a_gigabyte_passes [];
            }
            names {
                odd_ones_are_names [RawPaths];
                odd_ones_name_directories [RawPaths];
                commands_see_the_same_names [Shell, RawPaths];
                one_that_is_too_long_is_refused [];
            }
            links {
                to_files_outside_lead_nowhere [];
                to_directories_outside_lead_nowhere [];
                to_what_every_system_has_stay_inside [Shell];
                inside_they_are_followed [];
                they_are_told_as_links [];
                what_they_lead_to_is_left_alone [];
                races_are_lost [Shell];
                what_is_no_file_is_refused [Shell];
            }
            transfer {
                what_is_shipped_is_collected [];
                shipped_twice_it_is_the_same [];
                a_tree_goes_through_a_stream [RawPaths];
                what_is_shipped_can_be_used [Shell];
                what_commands_left_is_collected [Shell];
                what_is_too_large_leaves_nothing [];
                what_is_hollow_counts_as_long [Shell];
                what_is_absent_is_told [];
                only_a_new_directory_is_collected_to [];
                what_is_no_file_is_not_shipped [];
            }
            capabilities {
                what_cannot_be_done_is_refused [];
                what_can_be_done_is_not_refused [];
                it_has_a_name [];
            }
            limits {
                they_hold_or_are_refused [];
                best_effort_says_what_it_was [];
                they_change_while_it_runs [];
                want_of_memory_is_told [Shell, Can(MemoryLimit)];
                other_ends_are_not_want_of_memory [Shell, Can(MemoryLimit)];
                memory_is_the_sandboxes_own [Shell, Can(MemoryLimit)];
                processes_run_out [Shell, Can(ProcessLimit)];
                the_disk_does_not_run_out_bit_by_bit [Shell, Can(DiskLimit)];
                the_disk_runs_out [Shell, Can(DiskLimit)];
            }
            workspaces {
                changes_are_kept_apart [Can(Workspace)];
                commands_work_in_it [Shell, Can(Workspace)];
                snapshots_keep_its_changes [Can(Snapshot), Can(Workspace)];
                its_changes_are_told [Can(Workspace)];
                changes_are_told_while_commands_run [Shell, Can(Workspace)];
                changes_are_told_of_what_stands_still [Can(Pause), Can(Workspace)];
                changes_are_told_of_snapshots [Can(Snapshot), Can(Workspace)];
                what_the_host_changes_meanwhile_is_told [Can(Workspace)];
                what_the_host_changes_is_not_a_restored_ones [Can(Snapshot), Can(Workspace)];
                removed_paths_are_listed [Can(Workspace)];
                without_one_there_are_no_changes [];
                mounts_are_shown_as_they_are [Shell, Can(HostMounts)];
                mounts_may_be_writable [Shell, Can(HostMounts)];
                a_volume_is_shared_and_outlives_its_sandboxes [Shell, Can(Volumes)];
                a_volume_may_be_read_only_or_a_part [Shell, Can(Volumes)];
                a_volume_belongs_to_one_owner [Shell, Can(Volumes)];
            }
            ports {
                a_tcp_port_answers [Can(Ports), Server];
                a_unix_socket_answers [Can(Ports), Server];
                where_nobody_listens_it_is_refused [Can(Ports)];
                ports_are_the_sandboxes_own [Can(Ports), Server];
                many_connections_are_held_at_once [Can(Ports), Server];
                connections_end_with_their_sandbox [Can(Ports), Server];
            }
            network {
                its_ways_out_are_handed_out [Can(Egress)];
                they_are_the_same_each_time [Can(Egress)];
                each_sandbox_has_its_own [Can(Egress)];
                without_a_policy_there_are_none [Can(Egress)];
                of_nothing_there_are_none [Can(Egress)];
                another_policy_is_another_sandbox [Can(Egress)];
                a_paused_one_has_them [Can(Egress), Can(Pause)];
                a_restored_one_has_its_own [Can(Egress), Can(Snapshot)];
                commands_find_their_way [Shell, Can(Egress)];
                nothing_of_it_is_in_a_snapshot [Shell, Can(Egress), Can(Snapshot)];
                its_ways_out_outlast_the_holder [Can(Egress), Holder];
                certificates_are_replaced [Shell, Can(Egress)];
                certificates_are_in_no_snapshot [Shell, Can(Egress), Can(Snapshot)];
                certificates_need_a_policy [Can(Egress)];
            }
            agents {
                its_socket_cannot_be_replaced_from_inside [Shell, Can(SshAgent)];
                without_one_there_is_no_socket [Can(SshAgent)];
            }
            pause {
                it_is_told [Can(Pause)];
                twice_is_once [Can(Pause)];
                processes_stop_and_go_on [Shell, Can(Pause)];
                nothing_is_started [Can(Pause)];
                what_runs_loses_nothing [Shell, Can(Pause)];
                a_lease_ends_all_the_same [Can(Pause)];
                the_time_is_up_meanwhile [Shell, Can(Pause)];
                what_is_paused_can_be_killed [Shell, Can(Pause)];
                what_is_paused_is_cleaned_up [Can(Pause)];
                files_can_be_reached [Can(Pause)];
            }
            snapshots {
                what_was_is_again [Can(Snapshot)];
                files_of_an_ended_sandbox_remain [Can(Snapshot)];
                deletions_are_kept [Can(Snapshot)];
                what_commands_made_is_kept [Shell, Can(Snapshot)];
                those_restored_are_independent [Can(Snapshot)];
                processes_go_on [Shell, Can(Snapshot)];
                taken_twice_it_is_one [Can(Snapshot)];
                it_outlives_its_sandbox [Can(Snapshot)];
                removed_it_is_gone [Can(Snapshot)];
                a_spec_can_name_it [Can(Snapshot)];
                of_nothing_there_is_none [Can(Snapshot)];
                a_paused_one_stays_paused [Can(Pause), Can(Snapshot)];
            }
            usage {
                it_grows_with_what_is_done [];
                the_time_of_what_has_ended_counts [Shell];
                of_nothing_there_is_none [];
            }
            many {
                sandboxes_live_side_by_side [];
                commands_run_side_by_side [];
                commands_wait_for_each_other [Shell];
                sandboxes_do_not_see_each_other [Shell];
            }
            recovery {
                a_sandbox_is_found_again [];
                a_command_is_found_again [];
                an_end_is_not_missed [Shell];
                a_pause_outlasts_its_client [Can(Pause)];
                what_was_left_is_cleaned_up [];
            }
            holder {
                a_command_goes_on [Shell, Holder];
                an_end_meanwhile_is_told [Shell, Holder];
                it_is_killed_while_much_is_written [Shell, Holder];
                a_slow_reader_misses_nothing [Shell, Holder];
                input_goes_on [Holder];
                input_that_was_given_is_whole [Shell, Holder];
                who_listens_is_not_left_waiting [Shell, Holder];
                sandboxes_are_found_again [Shell, Holder];
                leases_end_all_the_same [Holder];
                timeouts_end_all_the_same [Holder];
                nothing_runs_twice [Shell, Holder];
                a_pause_outlasts_it [Shell, Can(Pause), Holder];
                again_and_again [Holder];
            }
        }
    };
}

macro_rules! table {
    ([] $($group:ident { $($(#[$attribute:meta])* $name:ident [$($need:expr),*];)* })*) => {
        /// All cases.
        pub const CASES: &[Case] = &[$($(Case {
            name: concat!(stringify!($group), "::", stringify!($name)),
            needs: &[$($need),*],
            run: |harness| Box::pin($group::$name(harness)),
        }),*),*];
    };
}

conformance_list! { (table) [] }
