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
mod limits;
mod machine;
mod reset;
mod sandbox;
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
    if word == sandbox::SANDBOX_COMMAND {
        return sandbox::part(&arguments.next().unwrap_or_default().to_string_lossy());
    }
    // It mounts over the root and shuts the machine down.
    if word == reset::DRAIN {
        return reset::drain(arguments.next().unwrap_or_default().into());
    }
    let work: fn() = match word.to_str() {
        Some(BOOT) => run_all_checks,
        Some(BEFORE_RESET) => work_until_reset,
        Some(AFTER_RESET) => check_after_reset,
        _ => panic!("this is the first process of a machine of its own"),
    };
    if std::process::id() != 1 {
        panic!("this is the first process of a machine of its own");
    }
    if let Err(panic) = catch_unwind(work) {
        print_line(&format!("FAIL machine: {}", panic_message(panic.as_ref())));
    }
    machine::end();
}

fn run_all_checks() {
    machine::prepare();
    let groups = Groups::create();
    run_checks(&groups, &[limits::CHECKS, sandbox::CHECKS, unit_tests::CHECKS, delegation::CHECKS]);
}

/// Leaves Stockade running on the persistent disk.
fn work_until_reset() {
    machine::prepare();
    let groups = Groups::create();
    let _running = reset::before(&groups);
    print_line("DONE");
    machine::reset();
}

fn check_after_reset() {
    machine::prepare();
    let groups = Groups::create();
    run_checks(&groups, &[reset::CHECKS]);
}

fn run_checks(groups: &Groups, checks: &[&[Check]]) {
    for (name, check) in checks.iter().copied().flatten() {
        match catch_unwind(AssertUnwindSafe(|| check(groups))) {
            Ok(detail) => print_line(&format!("PASS {name}: {detail}")),
            Err(panic) => print_line(&format!("FAIL {name}: {}", panic_message(panic.as_ref()))),
        }
    }
    print_line("DONE");
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// Writes one line for the process that booted the machine.
fn print_line(line: &str) {
    let line = line.trim().replace('\n', " | ");
    let port = OpenOptions::new().write(true).open("/dev/ttyS1");
    let _ = port.and_then(|mut port| port.write_all(format!("{line}\n").as_bytes()));
}
