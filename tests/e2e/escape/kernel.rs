//! System calls that a sandboxed command must not make.

use super::{Comparison, assert_blocked};
use crate::harness::World;

/// One test for each named group of system calls in the probe's table.
macro_rules! calls_are_refused {
    ($($name:ident: $proof:ident $calls:expr;)+) => {
        $(
            fn $name(world: &World) {
                let mut words = vec!["syscall"];
                words.extend($calls);
                assert_blocked(world, Comparison::$proof, &words);
            }
        )+
        as_root_and_as_user![$($name),+];
    };
}

calls_are_refused! {
    unshare_user_namespace: Anyone ["unshare-user"];
    unshare_other_namespaces: Root
        ["unshare-mount", "unshare-network", "unshare-pid"];
    bpf: Root ["bpf"];
    perf_event_open: Anyone ["perf_event_open"];
    userfaultfd: Anyone ["userfaultfd"];
    keyctl: Anyone ["keyctl"];
    add_key_and_request_key: Anyone ["add_key", "request_key"];
    kcmp: Anyone ["kcmp"];
    kexec: Root ["kexec_load", "kexec_file_load"];
    kernel_modules: Root ["init_module", "finit_module", "delete_module"];
    reboot: Root ["reboot"];
    swap: Root ["swapon", "swapoff"];
    acct: Root ["acct"];
    quotactl: Root ["quotactl"];
    mount_by_old_calls: Root ["mount", "umount2", "pivot_root", "chroot"];
    // CVE-2021-41133 and CVE-2022-0185: system calls that a list written for `mount` misses.
    mount_by_new_calls: Root
        ["fsopen", "fspick", "fsconfig", "fsmount", "open_tree", "move_mount", "mount_setattr"];
    mount_by_newest_call: Root ["open_tree_attr"];
    open_by_handle_call: Root ["open_by_handle_at"];
    kernel_log: Root ["syslog"];
    io_ports: Root ["iopl", "ioperm"];
    host_name_set: Root ["sethostname", "setdomainname"];
    // As root it would hang up the terminal of the user who runs the tests.
    vhangup: None ["vhangup"];
    modify_ldt: Anyone ["modify_ldt"];
    io_uring: Anyone ["io_uring_setup", "io_uring_enter", "io_uring_register"];
}

fn clone_with_user_namespace(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["clone-user-namespace"]);
}

/// `clone3` takes its flags through a pointer, which a seccomp filter cannot follow.
fn clone3(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["clone3"]);
}

fn setns(world: &World) {
    assert_blocked(world, Comparison::Root, &["setns"]);
}

fn pidfd_getfd(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["pidfd-getfd"]);
}

fn int80(world: &World) {
    // The filter kills the process or returns ENOSYS; neither gives the caller its pid.
    assert_blocked(world, Comparison::Anyone, &["int80"]);
}

/// Most kernels lack x32 system calls and return ENOSYS by themselves: no proof without a sandbox.
fn x32(world: &World) {
    assert_blocked(world, Comparison::None, &["x32"]);
}

/// CVE-2017-5226, CVE-2019-10063 (high bits), CVE-2023-28100 (TIOCLINUX).
fn terminal_ioctl(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["terminal-ioctl"]);
}

fn personality(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["personality"]);
}

/// Not proven without a sandbox: it would change the machine's clock.
fn clock_set(world: &World) {
    assert_blocked(world, Comparison::None, &["clock-set"]);
}

/// CVE-2022-0847; fixed in every kernel that Stockade runs on, so it cannot be proven.
fn dirty_pipe(world: &World) {
    assert_blocked(world, Comparison::None, &["dirty-pipe", "/etc/passwd"]);
}

as_root_and_as_user![
    clone_with_user_namespace,
    clone3,
    setns,
    pidfd_getfd,
    int80,
    x32,
    terminal_ioctl,
    personality,
    clock_set,
    dirty_pipe,
];
