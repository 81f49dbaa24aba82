//! The first process of a machine whose kernel has only control groups of version 2, which `cargo
//! xtask guest` boots: it tests what hosts of version 1 cannot show, and reports for each promise
//! whether it was kept.
//!
//! A line `PASS NAME: DETAIL` or `FAIL NAME: DETAIL` for each check goes to the second serial port;
//! the kernel and everything else write to the first. Nothing here runs on the host.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "checks fail by panicking, as tests do; each is caught"
)]

mod caller;
mod delegation;
mod groups;
mod held;
mod limits;
mod machine;
mod reset;
mod unit_tests;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use groups::Groups;

/// The arguments for this program on the kernel's command line: what the machine is booted for.
const BOOT: &str = "boot";
const BEFORE_RESET: &str = "before-reset";
const AFTER_RESET: &str = "after-reset";

/// One promise: its name, and the function that checks it, or panics.
pub(crate) type Check = (&'static str, fn(&Groups) -> String);

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next().unwrap_or_default();
    if word == caller::ENTER {
        caller::enter(arguments);
    }
    if word == held::HELD {
        return held::part(&arguments.next().unwrap_or_default().to_string_lossy());
    }
    // It mounts over the root and shuts the machine down.
    if word == reset::DRAIN {
        return reset::drain(arguments.next().unwrap_or_default().into());
    }
    let work: fn() = match word.to_str() {
        Some(BOOT) => try_everything,
        Some(BEFORE_RESET) => work_until_reset,
        Some(AFTER_RESET) => try_what_is_left,
        _ => panic!("this is the first process of a machine of its own"),
    };
    if std::process::id() != 1 {
        panic!("this is the first process of a machine of its own");
    }
    if let Err(panic) = catch_unwind(work) {
        say(&format!("FAIL machine: {}", words_of(panic.as_ref())));
    }
    machine::end();
}

fn try_everything() {
    machine::prepare();
    let groups = Groups::make();
    try_all(&groups, &[limits::CHECKS, held::CHECKS, unit_tests::CHECKS, delegation::CHECKS]);
}

/// Leaves Stockade running on the persistent disk.
fn work_until_reset() {
    machine::prepare();
    let groups = Groups::make();
    let _running = reset::before(&groups);
    say("DONE");
    machine::reset();
}

fn try_what_is_left() {
    machine::prepare();
    let groups = Groups::make();
    try_all(&groups, &[reset::CHECKS]);
}

fn try_all(groups: &Groups, checks: &[&[Check]]) {
    for (name, check) in checks.iter().copied().flatten() {
        match catch_unwind(AssertUnwindSafe(|| check(groups))) {
            Ok(detail) => say(&format!("PASS {name}: {detail}")),
            Err(panic) => say(&format!("FAIL {name}: {}", words_of(panic.as_ref()))),
        }
    }
    say("DONE");
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// Writes one line for the process that booted the machine.
fn say(line: &str) {
    let line = line.trim().replace('\n', " | ");
    let port = OpenOptions::new().write(true).open("/dev/ttyS1");
    let _ = port.and_then(|mut port| port.write_all(format!("{line}\n").as_bytes()));
}
