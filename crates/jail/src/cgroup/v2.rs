//! Groups of version 2 (Documentation/admin-guide/cgroup-v2.rst of the kernel).
//!
//! A group can give controllers to its children only while it contains no process itself (except
//! for the hierarchy's root), so most of this code finds a suitable parent. For some controllers,
//! `cpu` and `pids` among them, the kernel gives them nevertheless, but then no process can live in
//! the children ("Threads" there): such a parent is unsuitable.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::detect::Unified;
use super::files;
use super::{Cause, Limit, Limits, cpu_quota};

/// A group that was created, and what was moved for that.
#[derive(Debug)]
pub(super) struct NewGroup {
    pub(super) directory: PathBuf,
    /// The child of our own group that contains this process now.
    pub(super) leaf: Option<PathBuf>,
}

/// Creates the group `name` with `controllers`.
///
/// The parent is our own group where that may have children, after moving this process into a child
/// of it if it is alone there. Otherwise it is the nearest ancestor that is writable and already
/// gives out these controllers, as long as the new group would not escape a limit in between.
pub(super) fn create_group(
    unified: &Unified,
    name: &str,
    controllers: &[&str],
) -> Result<NewGroup, Cause> {
    let Unified { mount, own } = unified;
    let result = if lists(own, "cgroup.controllers", controllers) {
        create_in_own(own, name, controllers)
    } else if lists(mount, "cgroup.controllers", controllers) {
        Err(Cause::NotDelegated { group: own.clone() })
    } else {
        Err(Cause::NoController)
    };
    result.or_else(|cause| create_above_own(unified, name, controllers).ok_or(cause))
}

fn create_in_own(own: &Path, name: &str, controllers: &[&str]) -> Result<NewGroup, Cause> {
    let denied = |source| Cause::Denied { parent: own.to_owned(), source };
    let directory = own.join(name);
    // Processes of an outer pid namespace are listed as 0.
    let inhabitants = files::words(own, "cgroup.procs").map_err(denied)?;
    if inhabitants.is_empty() || is_root(own) {
        give(own, controllers).map_err(denied)?;
        make(&directory).map_err(denied)?;
        return Ok(NewGroup { directory, leaf: None });
    }
    if inhabitants != [std::process::id().to_string()] {
        return Err(Cause::Busy { group: own.to_owned() });
    }
    let leaf = own.join(format!("{name}.self"));
    fs::create_dir(&leaf).map_err(denied)?;
    let moved = files::write(&leaf, "cgroup.procs", "0")
        .and_then(|()| enable(own, controllers))
        .and_then(|()| make(&directory));
    if let Err(source) = moved {
        move_back(own, &leaf, controllers);
        return Err(denied(source));
    }
    Ok(NewGroup { directory, leaf: Some(leaf) })
}

/// Whether a group is the root of the whole hierarchy, which is not visible in a namespace or
/// container.
pub(super) fn is_root(group: &Path) -> bool {
    !group.join("cgroup.type").exists()
}

/// Creates a group that can contain processes.
fn make(directory: &Path) -> io::Result<()> {
    files::make_group(directory)?;
    let kind = files::words(directory, "cgroup.type").unwrap_or_default();
    if kind.is_empty() || kind == ["domain"] {
        return Ok(());
    }
    files::remove_group(directory)?;
    let text = format!("a child group is `{}`: no process can join it", kind.join(" "));
    Err(io::Error::other(text))
}

/// Moves this process into `leaf`, a new child of its group, if it is alone there and the group
/// could then give controllers to children.
pub(super) fn move_to_leaf(own: &Path, leaf: &Path) -> io::Result<()> {
    let useful = !files::words(own, "cgroup.controllers")?.is_empty();
    if is_root(own)
        || !useful
        || files::words(own, "cgroup.procs")? != [std::process::id().to_string()]
    {
        return Ok(());
    }
    fs::create_dir(leaf)?;
    files::write(leaf, "cgroup.procs", "0").inspect_err(|_| {
        // No process is in it.
        let _ = fs::remove_dir(leaf);
    })
}

/// Reverts `create_in_own`: this process returns to its group.
pub(super) fn move_back(own: &Path, leaf: &Path, controllers: &[&str]) {
    // Each step is best effort: the group is ours alone, and systemd removes it with everything
    // below.
    let _ = files::write(own, "cgroup.subtree_control", &switch('-', controllers));
    let _ = files::write(own, "cgroup.procs", "0");
    let _ = files::remove_group(leaf);
}

fn create_above_own(unified: &Unified, name: &str, controllers: &[&str]) -> Option<NewGroup> {
    let mut below = unified.own.as_path();
    while below != unified.mount {
        if is_limited(below) {
            return None;
        }
        let above = below.parent()?;
        // Moving a process requires write access here, in the common ancestor.
        let may_move = || {
            use rustix::fs::{Access, access};
            access(above.join("cgroup.procs"), Access::WRITE_OK).is_ok()
        };
        if delegates(above, controllers) && may_move() {
            let directory = above.join(name);
            if make(&directory).is_ok() {
                return Some(NewGroup { directory, leaf: None });
            }
        }
        below = above;
    }
    None
}

/// Whether the group itself enforces any limit that we know.
fn is_limited(group: &Path) -> bool {
    ["memory.max", "memory.high", "pids.max", "cpu.max"].iter().any(|file| {
        files::words(group, file).is_ok_and(|words| words.first().is_some_and(|max| max != "max"))
    })
}

/// Whether a group has the controller, and could give it to its children.
pub(super) fn has(group: &Path, controller: &str) -> bool {
    lists(group, "cgroup.controllers", &[controller])
}

/// Ensures that the children of a group have the controllers.
pub(super) fn give(parent: &Path, controllers: &[&str]) -> io::Result<()> {
    if delegates(parent, controllers) { Ok(()) } else { enable(parent, controllers) }
}

/// Whether children of the group have the controllers.
fn delegates(group: &Path, controllers: &[&str]) -> bool {
    lists(group, "cgroup.subtree_control", controllers)
}

fn lists(group: &Path, file: &str, controllers: &[&str]) -> bool {
    files::words(group, file).is_ok_and(|words| {
        controllers.iter().all(|controller| words.iter().any(|word| word == controller))
    })
}

fn enable(group: &Path, controllers: &[&str]) -> io::Result<()> {
    files::write(group, "cgroup.subtree_control", &switch('+', controllers))
}

fn switch(sign: char, controllers: &[&str]) -> String {
    let words: Vec<_> =
        controllers.iter().map(|controller| format!("{sign}{controller}")).collect();
    words.join(" ")
}

/// Sets `limits` in a group that was created for them.
pub(super) fn set(group: &Path, limits: &Limits) -> Result<(), Cause> {
    change(group, limits)
        .map_err(|(file, source)| Cause::Setting { file: group.join(file), source })
}

/// Sets `limits` in a group; the error names the file.
pub(super) fn change(group: &Path, limits: &Limits) -> Result<(), (&'static str, io::Error)> {
    for (file, value, optional) in settings(limits) {
        match files::write(group, file, &value) {
            Err(error) if optional && error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|source| (file, source))?,
        }
    }
    Ok(())
}

/// Lifts a limit that a group did not have before.
pub(super) fn lift(group: &Path, limit: Limit) -> io::Result<()> {
    let files: &[&str] = match limit {
        Limit::Memory => &["memory.max", "memory.swap.max"],
        Limit::Cpus => &["cpu.max"],
        Limit::Pids => &["pids.max"],
    };
    files.iter().try_for_each(|file| files::write(group, file, "max"))
}

/// The memory that the kernel cannot take back from the processes of a group, in bytes: all but the
/// cache of files. A limit below it would kill some of them.
pub(super) fn memory_in_use(group: &Path) -> io::Result<u64> {
    let used = files::number(group, "memory.current")?;
    let counted = |key| files::number_of(group, "memory.stat", key);
    let cache = counted("active_file")? + counted("inactive_file")?;
    Ok(used.saturating_sub(cache + counted("slab_reclaimable")?))
}

/// The files and values to write, and whether the file is missing in some kernels.
fn settings(limits: &Limits) -> Vec<(&'static str, String, bool)> {
    let mut settings = Vec::new();
    if let Some(bytes) = limits.memory_bytes {
        settings.push(("memory.max", bytes.to_string(), false));
        settings.push(("memory.swap.max", "0".to_owned(), true));
    }
    if let Some(millis) = limits.cpu_millis {
        let (quota, period) = cpu_quota(millis);
        settings.push(("cpu.max", format!("{quota} {period}"), false));
    }
    if let Some(pids) = limits.pids {
        settings.push(("pids.max", pids.to_string(), false));
    }
    settings
}

/// How many of the group's processes were killed for lack of memory.
pub(super) fn oom_kills(group: &Path) -> io::Result<u64> {
    files::number_of(group, "memory.events", "oom_kill")
}

/// The group's peak memory use, in bytes; since Linux 5.19.
pub(super) fn memory_peak(group: &Path) -> io::Result<u64> {
    files::number(group, "memory.peak")
}

/// Kills every process of the group, in a single operation where the kernel supports it (since
/// Linux 5.14).
pub(super) fn kill(group: &Path) -> io::Result<()> {
    match files::write(group, "cgroup.kill", "1") {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    files::kill_processes(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory tree that imitates a hierarchy.
    struct Fake {
        dir: tempfile::TempDir,
    }

    impl Fake {
        fn new() -> Self {
            let fake = Self { dir: tempfile::tempdir().unwrap() };
            fake.group("", "cpu memory pids", "cpu memory pids", "");
            fake
        }

        fn group(&self, path: &str, controllers: &str, subtree: &str, processes: &str) -> PathBuf {
            let directory = self.dir.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            if !path.is_empty() {
                fs::write(directory.join("cgroup.type"), "domain\n").unwrap();
            }
            for (file, content) in [
                ("cgroup.controllers", controllers),
                ("cgroup.subtree_control", subtree),
                ("cgroup.procs", processes),
                ("memory.max", "max\n"),
                ("pids.max", "max\n"),
                ("cpu.max", "max 100000\n"),
            ] {
                fs::write(directory.join(file), content).unwrap();
            }
            directory
        }

        fn unified(&self, own: &str) -> Unified {
            Unified { mount: self.dir.path().to_owned(), own: self.dir.path().join(own) }
        }
    }

    const MEMORY_AND_PIDS: &[&str] = &["memory", "pids"];

    #[test]
    fn our_own_group_is_taken_when_it_gives_the_controllers_already() {
        let fake = Fake::new();
        let own = fake.group("own", "memory pids", "memory pids", "");
        let made = create_group(&fake.unified("own"), "new", MEMORY_AND_PIDS).unwrap();
        assert_eq!(made.directory, own.join("new"));
        assert_eq!(made.leaf, None);
        assert!(made.directory.is_dir());
    }

    #[test]
    fn our_own_group_is_made_to_give_them_when_it_can() {
        let fake = Fake::new();
        let own = fake.group("own", "cpu memory pids", "", "");
        let made = create_group(&fake.unified("own"), "new", MEMORY_AND_PIDS).unwrap();
        assert_eq!(made.directory, own.join("new"));
        let written = fs::read_to_string(own.join("cgroup.subtree_control")).unwrap();
        assert_eq!(written, "+memory +pids");
    }

    /// The kernel would give `cpu` and `pids`, but then the new group could contain no process.
    #[test]
    fn our_own_group_is_not_taken_while_others_live_in_it() {
        let fake = Fake::new();
        for processes in ["1\n2\n".to_owned(), format!("0\n{}\n", std::process::id())] {
            let own = fake.group("container", "pids", "", &processes);
            let result = create_group(&Unified { mount: own.clone(), own }, "new", &["pids"]);
            assert!(matches!(result, Err(Cause::Busy { .. })), "{result:?}");
        }
        // The hierarchy's own root may contain processes.
        let top = Unified { mount: fake.dir.path().to_owned(), own: fake.dir.path().to_owned() };
        fs::write(top.own.join("cgroup.procs"), "1\n2\n").unwrap();
        assert!(create_group(&top, "new", &["pids"]).is_ok());
    }

    #[test]
    fn a_group_above_is_taken_only_when_it_gives_them_and_nothing_is_escaped() {
        let fake = Fake::new();
        fake.group("slice", "cpu memory pids", "memory pids", "");
        // Our own group has no controllers, like a scope in a session that delegates nothing.
        let own = fake.group("slice/scope", "", "", "1\n");
        let unified = fake.unified("slice/scope");
        let made = create_group(&unified, "new", MEMORY_AND_PIDS).unwrap();
        assert_eq!(made.directory, fake.dir.path().join("slice/new"));
        // Only the top gives the `cpu` controller.
        let made = create_group(&unified, "cpus", &["cpu"]).unwrap();
        assert_eq!(made.directory, fake.dir.path().join("cpus"));
        // A limit in between rules out both parents.
        fs::write(own.join("memory.max"), "1000000\n").unwrap();
        assert!(matches!(
            create_group(&unified, "no", MEMORY_AND_PIDS),
            Err(Cause::NotDelegated { .. })
        ));
        fs::write(own.join("memory.max"), "max\n").unwrap();
        fs::write(own.join("cpu.max"), "50000 100000\n").unwrap();
        assert!(matches!(
            create_group(&unified, "no", MEMORY_AND_PIDS),
            Err(Cause::NotDelegated { .. })
        ));
        assert!(!fake.dir.path().join("no").exists() && !own.join("no").exists());
    }

    #[test]
    fn the_mount_is_the_highest_place() {
        let fake = Fake::new();
        fake.group("container", "memory pids", "", "");
        let container = Unified {
            mount: fake.dir.path().join("container"),
            own: fake.dir.path().join("container"),
        };
        let result = create_group(&container, "new", &["cpu"]);
        assert!(matches!(result, Err(Cause::NoController)));
        assert!(!fake.dir.path().join("new").exists());
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let limits = Limits { memory_bytes: Some(1 << 20), cpu_millis: Some(1500), pids: Some(64) };
        let written: Vec<_> = settings(&limits)
            .into_iter()
            .map(|(file, value, _)| format!("{file}={value}"))
            .collect();
        assert_eq!(
            written,
            ["memory.max=1048576", "memory.swap.max=0", "cpu.max=150000 100000", "pids.max=64",]
        );
    }
}
