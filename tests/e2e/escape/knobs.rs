//! The host's settings: /proc, /sys, cgroups and devices.

use super::{Comparison, assert_blocked};
use crate::harness::World;

/// CVE-2022-0811: a crash handler that the host runs as root.
fn core_pattern(world: &World) {
    let before = std::fs::read("/proc/sys/kernel/core_pattern").unwrap();
    assert_blocked(world, Comparison::Root, &["write-knob", "/proc/sys/kernel/core_pattern"]);
    assert_eq!(std::fs::read("/proc/sys/kernel/core_pattern").unwrap(), before);
}

fn sysrq_trigger(world: &World) {
    assert_blocked(world, Comparison::Root, &["write-knob", "/proc/sysrq-trigger"]);
}

fn uevent_helper(world: &World) {
    assert_blocked(
        world,
        Comparison::None,
        &[
            "write-knob",
            "/sys/kernel/uevent_helper",
            "/proc/sys/kernel/hotplug",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/fs/binfmt_misc/register",
            "/proc/sys/kernel/poweroff_cmd",
        ],
    );
}

/// CVE-2022-0492: a program that the host runs as root when a cgroup is empty.
fn release_agent(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["cgroup-files"]);
}

/// Every file below /proc that belongs to no process. As root each opens without a sandbox; the
/// settings of a namespace belong to its root, which the sandbox must not be either.
fn proc_writes(world: &World) {
    assert_blocked(world, Comparison::Root, &["write-proc"]);
}

/// Not proven without a sandbox: some drivers act when they are opened.
fn sys_writes(world: &World) {
    assert_blocked(world, Comparison::None, &["write-sys"]);
}

/// Linking and moving the masks of secret files (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881).
/// Not proven: without a sandbox it would remove the host's devices.
fn masks(world: &World) {
    assert_blocked(world, Comparison::None, &["proc-remount-targets"]);
}

fn kernel_secrets(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["kernel-secrets"]);
}

fn device_nodes(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["devices"]);
}

fn devices_by_name(world: &World) {
    assert_blocked(world, Comparison::Root, &["open-devices"]);
}

fn mknod(world: &World) {
    // As root in the world's own directory; the nodes are removed with it.
    assert_blocked(world, Comparison::Root, &["mknod"]);
    for path in [world.project.join("node-made-by-the-probe"), "/tmp/node-made-by-the-probe".into()]
    {
        let _ = std::fs::remove_file(path);
    }
}

fn core_files(world: &World) {
    let outcome = world.run(&["--review"], &["./probe", "dump-core"]);
    assert_eq!(outcome.code(), 128 + 6, "the limit stands and the abort is told: {outcome}");
    assert_eq!(world.bundles().len(), 0, "no core file came back");
}

as_root_and_as_user![
    core_pattern,
    sysrq_trigger,
    uevent_helper,
    release_agent,
    proc_writes,
    sys_writes,
    masks,
    kernel_secrets,
    device_nodes,
    devices_by_name,
    mknod,
    core_files,
];
