//! Control groups in the kernel. The tests need a host on which they may create groups, that is,
//! root; a missing requirement is reported and the test is skipped. `cargo xtask guest` runs them
//! on version 2.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::chown;
use std::time::Instant;

use super::*;
use crate::testing::{
    ChildExit, become_other_user, fork_child, in_child, is_root, note, skipped, wait_for,
};

const MIB: u64 = 1 << 20;

/// A group with these limits, unless this host cannot enforce them for us.
fn group(limits: &Limits) -> Option<Group> {
    if !is_root() {
        skipped("only root makes groups here");
        return None;
    }
    match Group::create(&fresh_name(), limits) {
        Ok(group) => Some(group),
        Err(unavailable) => {
            skipped(&unavailable.to_string());
            None
        }
    }
}

/// A child that runs `body` once it has been added to the group.
fn start_in(group: &Group, body: impl FnOnce() -> i32) -> libc::pid_t {
    // A byte instead of the pipe's end, because children of other tests hold the write end as well.
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let child = fork_child(move || {
        wait.read_exact(&mut [0]).unwrap();
        body()
    });
    group.add(child).unwrap();
    go.write_all(&[0]).unwrap();
    child
}

fn run_in(group: &Group, body: impl FnOnce() -> i32) -> ChildExit {
    wait_for(start_in(group, body))
}

/// Uses this much memory, and returns whether it could.
fn use_memory(bytes: u64) -> i32 {
    let mut memory = vec![0_u8; usize::try_from(bytes).unwrap()];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
    0
}

/// Forks sleeping children until no more can be created, at most `most`; returns how many there
/// are.
fn fork_until_refused(most: i32) -> i32 {
    for made in 0..most {
        // SAFETY: the child only waits to be killed.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe {
                libc::sleep(20);
                libc::_exit(0)
            },
            -1 => {
                let refused = io::Error::last_os_error().raw_os_error();
                assert_eq!(refused, Some(libc::EAGAIN));
                return made;
            }
            _ => {}
        }
    }
    most
}

#[test]
fn nothing_is_made_when_nothing_is_limited() {
    let group = Group::create("stockade-never", &Limits::default()).unwrap();
    assert!(group.parts.is_empty());
    group.add(1).unwrap();
    assert_eq!(group.oom_kills().unwrap(), 0);
    assert!(Limit::ALL.into_iter().all(|limit| group.enforcer(limit).is_none()));
    group.remove().unwrap();
}

#[test]
fn too_much_memory_kills_and_is_told_apart() {
    let limits = Limits { memory_bytes: Some(32 * MIB), ..Limits::default() };
    let Some(group) = group(&limits) else { return };
    assert_eq!(group.parts.len(), 1);
    assert!(matches!(group.enforcer(Limit::Memory), Some("cgroup v1" | "cgroup v2")));
    assert_eq!(group.enforcer(Limit::Pids), None);

    assert_eq!(run_in(&group, || use_memory(8 * MIB)), ChildExit::Exited(0));
    assert_eq!(group.oom_kills().unwrap(), 0);
    // A kill from outside is not counted as one for lack of memory.
    let child = start_in(&group, || fork_until_refused(0) + use_memory(MIB) + wait_forever());
    group.kill().unwrap();
    assert_eq!(wait_for(child), ChildExit::Killed(libc::SIGKILL));
    assert_eq!(group.oom_kills().unwrap(), 0);

    assert_eq!(run_in(&group, || use_memory(64 * MIB)), ChildExit::Killed(libc::SIGKILL));
    assert!(group.oom_kills().unwrap() >= 1);
    let peak = group.memory_peak().unwrap();
    assert!((16 * MIB..=32 * MIB).contains(&peak), "{peak}");

    let directory = group.parts[0].directory.clone();
    group.remove().unwrap();
    assert!(!directory.exists());
}

fn wait_forever() -> i32 {
    // SAFETY: waits for the signal that kills this process.
    unsafe { libc::pause() }
}

#[test]
fn no_more_processes_than_allowed_can_be_made() {
    let limits = Limits { pids: Some(6), ..Limits::default() };
    let Some(group) = group(&limits) else { return };
    let child = start_in(&group, || fork_until_refused(50));
    assert_eq!(wait_for(child), ChildExit::Exited(5));
    group.kill().unwrap();
    group.remove().unwrap();
}

#[test]
fn a_fork_bomb_is_killed_with_all_it_made() {
    let limits = Limits { pids: Some(200), ..Limits::default() };
    let Some(group) = group(&limits) else { return };
    let child = start_in(&group, || {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            // SAFETY: parent and child both continue to fork until they are killed.
            unsafe { libc::fork() };
        }
        0
    });
    while files::processes(&group.parts[0].directory).unwrap().len() < 50 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let killing = Instant::now();
    group.kill().unwrap();
    note(&format!("killed a fork bomb of up to 200 in {:?}", killing.elapsed()));
    assert_eq!(wait_for(child), ChildExit::Killed(libc::SIGKILL));
    assert_eq!(files::processes(&group.parts[0].directory).unwrap(), []);
    group.remove().unwrap();
}

#[test]
fn processor_time_is_rationed() {
    let limits = Limits { cpu_millis: Some(100), ..Limits::default() };
    let Some(group) = group(&limits) else { return };
    let start = Instant::now();
    let ended = run_in(&group, || {
        let used = || {
            let clock = rustix::time::ClockId::ProcessCPUTime;
            Duration::try_from(rustix::time::clock_gettime(clock)).unwrap()
        };
        // The time of five periods: without a limit it would be used up in the first.
        while used() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
    note(&format!("50 ms of processor time at 10 ms in 100 took {:?}", start.elapsed()));
    let throttled = files::number_of(&group.parts[0].directory, "cpu.stat", "nr_throttled");
    assert!(throttled.unwrap() > 0);
    group.remove().unwrap();
}

#[test]
fn all_limits_hold_at_once_and_leave_nothing_behind() {
    let limits = Limits { memory_bytes: Some(64 * MIB), cpu_millis: Some(1500), pids: Some(20) };
    let Some(group) = group(&limits) else { return };
    assert!(Limit::ALL.into_iter().all(|limit| group.enforcer(limit).is_some()));
    let child = start_in(&group, || i32::from(fork_until_refused(50) != 19));
    assert_eq!(wait_for(child), ChildExit::Exited(0));
    let directories: Vec<_> = group.parts.iter().map(|part| part.directory.clone()).collect();
    group.kill().unwrap();
    drop(group);
    assert!(directories.iter().all(|directory| !directory.exists()));
}

#[test]
fn a_value_that_the_kernel_refuses_is_an_error_and_leaves_nothing() {
    if group(&Limits { cpu_millis: Some(100), ..Limits::default() }).is_none() {
        return;
    }
    let name = fresh_name();
    let limits = Limits { cpu_millis: Some(0), memory_bytes: Some(64 * MIB), pids: None };
    let unavailable = Group::create(&name, &limits).unwrap_err();
    let [refusal] = &unavailable.refusals[..] else { panic!("{unavailable:?}") };
    assert_eq!(refusal.limit, Limit::Cpus);
    assert!(refusal.reason.contains("refused the value"), "{refusal:?}");
    let found = hierarchies();
    let own = found.v1.into_iter().map(|(_, own)| own).chain(found.v2.map(|unified| unified.own));
    for own in own {
        assert!(!own.join(&name).exists());
    }
}

#[test]
fn an_ordinary_user_is_told_why_and_what_to_do() {
    let ended = in_child(|| {
        become_other_user();
        let limits = Limits { memory_bytes: Some(64 * MIB), pids: Some(9), cpu_millis: None };
        let Err(unavailable) = Group::create(&fresh_name(), &limits) else {
            skipped("this host lets ordinary users make groups");
            return 0;
        };
        let limits: Vec<_> = unavailable.refusals.iter().map(|refusal| refusal.limit).collect();
        assert_eq!(limits, [Limit::Memory, Limit::Pids]);
        for refusal in &unavailable.refusals {
            let remedy = refusal.remedy.text_for("CMD");
            let delegated = remedy == "systemd-run --user --scope -p Delegate=yes CMD";
            assert!(delegated || remedy.starts_with("sudo "), "{remedy}");
            assert!(!refusal.reason.is_empty());
        }
        assert!(unavailable.to_string().starts_with("the memory limit: "), "{unavailable}");
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

/// Follows the remedy that a user without systemd gets.
#[test]
fn a_user_whom_root_gave_a_group_can_limit_memory() {
    let Some(given) = group(&Limits { memory_bytes: Some(256 * MIB), ..Limits::default() }) else {
        return;
    };
    let directory = given.parts[0].directory.clone();
    for file in fs::read_dir(&directory).unwrap() {
        chown(file.unwrap().path(), Some(0x7000_0000), None).unwrap();
    }
    chown(&directory, Some(0x7000_0000), None).unwrap();
    let ended = run_in(&given, || {
        become_other_user();
        let limits = Limits { memory_bytes: Some(32 * MIB), ..Limits::default() };
        let group = Group::create(&fresh_name(), &limits).unwrap();
        assert!(group.parts[0].directory.starts_with(&directory));
        assert_eq!(run_in(&group, || use_memory(64 * MIB)), ChildExit::Killed(libc::SIGKILL));
        assert!(group.oom_kills().unwrap() >= 1);
        group.remove().unwrap();
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
    given.remove().unwrap();
}

#[test]
fn a_group_of_version_2_is_killed_at_once() {
    let Some(unified) = hierarchies().v2.filter(|_| is_root()) else {
        skipped("no hierarchy of version 2 that may be written");
        return;
    };
    let directory = unified.own.join(fresh_name());
    fs::create_dir(&directory).unwrap();
    let part =
        Part { version: Version::Two, directory: directory.clone(), enforced: vec![], leaf: None };
    let group = Group { parts: vec![part], freezer: None };
    let child = start_in(&group, || fork_until_refused(20) + wait_forever());
    while files::processes(&directory).unwrap().len() < 21 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(fs::remove_dir(&directory).is_err());
    group.kill().unwrap();
    assert_eq!(wait_for(child), ChildExit::Killed(libc::SIGKILL));
    group.remove().unwrap();
    assert!(!directory.exists());
}

/// The kernel's rule that a group with processes gives no controllers to its children, tested with
/// the one controller that hosts of version 1 leave to version 2.
#[test]
fn a_process_alone_in_its_group_of_version_2_makes_way() {
    let Some(unified) = hierarchies().v2.filter(|v2| is_root() && v2.own == v2.mount) else {
        skipped("this is not the root of the hierarchy of version 2");
        return;
    };
    let spare = "hugetlb";
    if !files::words(&unified.mount, "cgroup.controllers").unwrap().contains(&spare.to_owned()) {
        skipped("no controller to spare in the hierarchy of version 2");
        return;
    }
    let given = files::words(&unified.mount, "cgroup.subtree_control").unwrap();
    files::write(&unified.mount, "cgroup.subtree_control", "+hugetlb").unwrap();
    let own = unified.mount.join(fresh_name());
    fs::create_dir(&own).unwrap();
    let seen = detect::Unified { mount: own.clone(), own: own.clone() };
    let part = Part { version: Version::Two, directory: own.clone(), enforced: vec![], leaf: None };
    let inhabited = Group { parts: vec![part], freezer: None };

    let ended = run_in(&inhabited, || {
        let made = v2::create_group(&seen, "jail", &[spare]).unwrap();
        assert_eq!(made.directory, own.join("jail"));
        let leaf = made.leaf.unwrap();
        let ourselves = i32::try_from(std::process::id()).unwrap();
        assert_eq!(files::processes(&leaf).unwrap(), [ourselves]);
        // The group can contain processes, and has the controller.
        assert!(made.directory.join("hugetlb.2MB.max").exists());
        let child = fork_child(wait_forever);
        files::write(&made.directory, "cgroup.procs", &child.to_string()).unwrap();
        v2::kill(&made.directory).unwrap();
        wait_for(child);

        files::remove_group(&made.directory).unwrap();
        v2::move_back(&own, &leaf, &[spare]);
        assert_eq!(files::processes(&own).unwrap(), [ourselves]);
        assert!(!leaf.exists());
        assert!(files::words(&own, "cgroup.subtree_control").unwrap().is_empty());

        // A process that creates many groups moves once.
        let leaf = own.join("settled.self");
        v2::move_to_leaf(&own, &leaf).unwrap();
        assert_eq!(files::processes(&leaf).unwrap(), [ourselves]);
        for name in ["first", "second"] {
            let made = v2::create_group(&seen, name, &[spare]).unwrap();
            assert_eq!((made.directory.clone(), made.leaf), (own.join(name), None));
            files::remove_group(&made.directory).unwrap();
        }
        v2::move_back(&own, &leaf, &[spare]);
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));

    // With another process in the group, nothing is moved and nothing is created.
    let other = start_in(&inhabited, wait_forever);
    let ended = run_in(&inhabited, || {
        let result = v2::create_group(&seen, "jail", &[spare]);
        i32::from(!matches!(result, Err(Cause::Busy { group }) if group == own))
    });
    assert_eq!(ended, ChildExit::Exited(0));
    assert_eq!(fs::read_dir(&own).unwrap().flatten().filter(|e| e.path().is_dir()).count(), 0);
    inhabited.kill().unwrap();
    wait_for(other);
    inhabited.remove().unwrap();
    if !given.contains(&spare.to_owned()) {
        files::write(&unified.mount, "cgroup.subtree_control", "-hugetlb").unwrap();
    }
}

/// Runs a child that counts into a pipe, in a group that can be stopped, beside another child that
/// stands in for init.
fn stop_and_resume(hierarchies: Hierarchies, limits: &Limits) {
    let parent = ParentGroup::from_hierarchies(hierarchies);
    let group = parent.create(&fresh_name(), limits).unwrap();
    assert!(group.can_stop());
    let init = start_in(&group, wait_forever);
    let (ticks, mut tick) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&ticks, true).unwrap();
    let child = start_in(&group, move || {
        while tick.write_all(&[1]).is_ok() {
            std::thread::sleep(Duration::from_micros(200));
        }
        0
    });
    let ticked = || (&ticks).read(&mut [0; 4096]).unwrap_or(0);
    let wait_until = |done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_until(&|| ticked() > 0);
    // Another process takes the groups over, and finds them unchanged.
    let record = group.to_record();
    group.release();
    let mut group = Group::from_record(&record).unwrap();
    assert_eq!(group.to_record(), record);
    for _ in 0..2 {
        group.stop(init).unwrap();
        wait_until(&|| group.has_stopped().unwrap());
        while ticked() > 0 {}
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(ticked(), 0);
        // Init is not stopped.
        let state = fs::read_to_string(format!("/proc/{init}/wchan")).unwrap_or_default();
        assert!(!state.contains("freez") && !state.contains("refrigerator"), "{state}");
        group.resume(init).unwrap();
        wait_until(&|| ticked() > 0);
    }
    let freezer = group.freezer.clone().unwrap();
    let mut inhabitants = files::processes(&freezer.directory).unwrap();
    inhabitants.sort_unstable();
    let mut both = [init, child];
    both.sort_unstable();
    assert_eq!(inhabitants, both);
    // A process that is killed while it is stopped dies once it is resumed.
    group.stop(init).unwrap();
    wait_until(&|| group.has_stopped().unwrap());
    assert!(group.try_remove().is_err());
    for process in [init, child] {
        crate::sys::kill(process, libc::SIGKILL).unwrap();
    }
    group.thaw().unwrap();
    assert_eq!(wait_for(init), ChildExit::Killed(libc::SIGKILL));
    assert_eq!(wait_for(child), ChildExit::Killed(libc::SIGKILL));
    wait_until(&|| freezer.directory.parent().is_none() || group_is_gone(&record));
}

fn group_is_gone(record: &[u8]) -> bool {
    Group::from_record(record).unwrap().try_remove().is_ok()
}

#[test]
fn what_is_in_a_group_of_version_1_can_be_stopped() {
    let found = hierarchies();
    if !is_root() || found.freezer.is_none() {
        skipped("no hierarchy of version 1 with a freezer that may be written");
        return;
    }
    stop_and_resume(Hierarchies { v2: None, ..found }, &Limits::default());
}

#[test]
fn what_is_in_a_group_of_version_2_can_be_stopped() {
    let found = hierarchies();
    if !is_root() || found.v2.is_none() {
        skipped("no hierarchy of version 2 that may be written");
        return;
    }
    stop_and_resume(Hierarchies { v2: found.v2, ..Hierarchies::default() }, &Limits::default());
}

#[test]
fn a_limited_group_can_be_stopped() {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    if group(&limits).is_none() {
        return;
    }
    stop_and_resume(hierarchies(), &limits);
}

#[test]
fn what_is_no_record_of_groups_is_refused() {
    for record in [&b"3 holds, /x\n"[..], b"1 holds,memory\n", b"1 keeps, /x\n", b"1 holds,air /x"]
    {
        assert!(Group::from_record(record).is_none(), "{record:?}");
    }
    let group = Group::from_record(b"1 holds,memory,cpus /a b/c\n2 stops /d\n").unwrap();
    assert_eq!(group.enforcer(Limit::Cpus), Some("cgroup v1"));
    assert_eq!(group.parts[0].directory, Path::new("/a b/c"));
    group.release();
}

#[test]
fn only_abandoned_groups_are_swept() {
    let Some(host) = group(&Limits { pids: Some(50), ..Limits::default() }) else { return };
    let parent = host.parts[0].directory.clone();
    let dead = fork_child(|| 0);
    wait_for(dead);
    let living = std::process::id();
    let abandoned = parent.join(format!("stockade-{dead}-0123"));
    let inhabited = parent.join(format!("stockade-{dead}-4567"));
    let owned = parent.join(format!("stockade-{living}-89ab"));
    let strange = parent.join("another");
    for directory in [&abandoned, &inhabited, &owned, &strange] {
        fs::create_dir(directory).unwrap();
    }
    let child = fork_child(wait_forever);
    files::write(&inhabited, "cgroup.procs", &child.to_string()).unwrap();

    assert_eq!(sweep_in(&parent, Duration::from_secs(60)), 0);
    assert_eq!(sweep_in(&parent, Duration::ZERO), 1);
    // For a creator of this pid namespace, it is known immediately whether it lives.
    let name = fresh_name().replacen(&living.to_string(), &dead.to_string(), 1);
    fs::create_dir(parent.join(name)).unwrap();
    assert_eq!(sweep_in(&parent, Duration::from_secs(60)), 1);
    assert!(!abandoned.exists() && inhabited.exists() && owned.exists() && strange.exists());

    files::kill_processes(&inhabited).unwrap();
    wait_for(child);
    for directory in [&inhabited, &owned, &strange] {
        files::remove_group(directory).unwrap();
    }
    host.remove().unwrap();
}

#[test]
fn small_shares_of_a_processor_have_a_quota_that_the_kernel_takes() {
    assert_eq!(cpu_quota(1000), (100_000, 100_000));
    assert_eq!(cpu_quota(2500), (250_000, 100_000));
    assert_eq!(cpu_quota(10), (1000, 100_000));
    assert_eq!(cpu_quota(1), (1000, 1_000_000));
}

/// Prints the cost of the groups of a limited jail.
#[test]
fn cost_of_a_group() {
    let limits = Limits { memory_bytes: Some(64 * MIB), cpu_millis: Some(1000), pids: Some(64) };
    if group(&limits).is_none() {
        return;
    }
    let start = Instant::now();
    let group = Group::create(&fresh_name(), &limits).unwrap();
    let made = start.elapsed();
    let child = fork_child(wait_forever);
    let start = Instant::now();
    group.add(child).unwrap();
    let joined = start.elapsed();
    group.kill().unwrap();
    wait_for(child);
    let start = Instant::now();
    group.remove().unwrap();
    note(&format!(
        "group: made in {made:?}, joined in {joined:?}, removed in {:?}",
        start.elapsed()
    ));
}
