//! Faults of the machine: the keeper is killed, or the disk, descriptors or the process table are
//! exhausted. Existing sandboxes keep running, requests that cannot be executed are refused with a
//! typed error, and when resources are free again everything is as before.
//!
//! Faults that every backend must survive are cases of `stockade_runtime::conformance`: the holder
//! is killed (`holder`), and commands flood, close their streams, fork away, stop themselves or
//! fill the disk (`streams`, `survivors`, `limits`). Clocks are set in `tests/programs/guest`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod copied_views;
mod descriptors;
mod disk;
mod inits;
mod many_sandboxes;
mod removed_data_dir;
mod restart;
mod scene;
mod update;

use self::copied_views::{
    what_is_copied_keeps_every_promise, where_there_can_be_no_overlay_files_are_copied,
};
use self::descriptors::{
    clients_are_refused_alone, descriptors_in_flight_are_ones_own,
    sandboxes_work_without_descriptors,
};
use self::disk::a_full_disk_ends_nothing;
use self::inits::{
    a_killed_init_ends_its_sandbox_alone, a_stopped_init_is_ended_alone,
    what_a_killed_sandbox_had_changed_is_told,
};
use self::many_sandboxes::five_hundred_at_once;
use self::removed_data_dir::{what_was_removed_is_ended, who_makes_way_leaves_nothing};
use self::restart::what_ended_with_its_host_is_known;
use self::update::old_skeletons_are_collected;

/// One test as root and one as an ordinary user for each fault.
macro_rules! faults {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod root {
            //! As root.
            $(#[test]
            $(#[$attribute])*
            fn $name() {
                crate::identity::do_as_root(super::$name);
            })+
        }

        mod user {
            //! As an ordinary user.
            $(#[test]
            $(#[$attribute])*
            fn $name() {
                crate::identity::do_as_user(super::$name);
            })+
        }
    };
}

faults! {
    a_killed_init_ends_its_sandbox_alone,
    a_stopped_init_is_ended_alone,
    what_a_killed_sandbox_had_changed_is_told,
    a_full_disk_ends_nothing,
    where_there_can_be_no_overlay_files_are_copied,
    what_is_copied_keeps_every_promise,
    sandboxes_work_without_descriptors,
    clients_are_refused_alone,
    descriptors_in_flight_are_ones_own,
    what_ended_with_its_host_is_known,
    old_skeletons_are_collected,
    what_was_removed_is_ended,
    who_makes_way_leaves_nothing,
    five_hundred_at_once,
}
