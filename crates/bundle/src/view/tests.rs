//! Views: created, left behind, found again.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::testing::chmod;

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 5 };

struct Scratch {
    _directory: tempfile::TempDir,
    root: PathBuf,
    data: DataDir,
}

fn scratch() -> Scratch {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().join("project");
    std::fs::create_dir_all(root.join(".git")).unwrap();
    let data = DataDir::open(&directory.path().join("data")).unwrap();
    Scratch { _directory: directory, root, data }
}

impl Scratch {
    fn project(&self) -> Project {
        Project::find(&self.root, None).unwrap()
    }

    fn view(&self, kind: ViewKind) -> View {
        let command = ["cargo".to_owned(), "test".to_owned()];
        View::create(&self.data, &self.project(), kind, None, &command, NOW).unwrap()
    }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_killed_run_leaves_a_view_that_is_found() {
    let scratch = scratch();
    chmod(&scratch.root, 0o2751);
    let view = scratch.view(ViewKind::Overlay);
    let at = scratch.data.path().join("views").join(view.id());
    assert_eq!((mode(&at), mode(&at.join("upper"))), (0o711, 0o2751));
    assert!(view.work().is_some() && view.copy().is_none());

    let listed = View::list(&scratch.data).unwrap();
    assert_eq!((listed.len(), listed[0].live), (1, true));
    assert!(matches!(View::open(&scratch.data, &view.id()), Err(Error::InUse(_))));
    assert_eq!(View::sweep(&scratch.data).unwrap(), 0);

    let id = view.id();
    drop(view);
    let listed = View::list(&scratch.data).unwrap();
    let record = listed[0].record.as_ref().unwrap();
    assert!(!listed[0].live);
    assert_eq!(record.project(), scratch.root);
    assert_eq!(record.command, ["cargo", "test"]);
    assert!(record.started > NOW);
    let again = View::open(&scratch.data, &id).unwrap();
    assert_eq!(again.record(), record);
    again.remove().unwrap();
    assert_eq!(View::list(&scratch.data).unwrap(), []);
    for id in ["nothing", "../views", ""] {
        assert!(matches!(View::open(&scratch.data, id), Err(Error::NotFound(_))), "{id}");
    }
}

/// What the host changed before a view has no timestamp later than its start, and what it
/// changes afterwards has none earlier, however close both are.
#[test]
fn changes_are_before_or_after_the_start() {
    let scratch = scratch();
    let change = |name: &str| {
        std::fs::write(scratch.root.join(name), "x").unwrap();
        let file = RelativePath::new(name).unwrap();
        scratch.project().dir.stat(&file).unwrap().unwrap().changed
    };
    let mut ticks = 0;
    for _ in 0..50 {
        change("before");
        let before = change("before");
        let view = scratch.view(ViewKind::Overlay);
        let started = view.record().started;
        let after = change("after");
        assert!(before <= started && started <= after, "{before:?} {started:?} {after:?}");
        ticks += usize::from(started == after);
        view.release().unwrap();
    }
    if ticks > 25 {
        crate::testing::skipped("this kernel stamps changes with ticks that many share");
    }
}

/// If a change elsewhere got a timestamp of its own, all changes until the next tick have that
/// timestamp, before a moment and after it.
#[test]
fn changes_elsewhere_move_no_moment() {
    let scratch = scratch();
    let project = &scratch.project().dir;
    let elsewhere = scratch.root.join("elsewhere");
    for _ in 0..50 {
        // The second change is the one that gets a timestamp of its own.
        for mode in [0o700, 0o755] {
            std::fs::create_dir_all(&elsewhere).unwrap();
            std::fs::set_permissions(&elsewhere, Permissions::from_mode(mode)).unwrap();
            std::fs::metadata(&elsewhere).unwrap();
        }
        std::fs::write(scratch.root.join("before"), "x").unwrap();
        let since = boundary_time(project, 0o755).unwrap();
        let file = RelativePath::literal("before");
        let before = project.stat(&file).unwrap().unwrap().changed;
        assert!(before <= since, "{before:?} {since:?}");
    }
}

#[test]
fn views_without_a_description_are_swept() {
    let scratch = scratch();
    let kept = scratch.view(ViewKind::Overlay);
    let views = scratch.data.path().join("views");
    std::fs::create_dir_all(views.join("half/upper/x")).unwrap();
    std::fs::remove_file(views.join(kept.id()).join("view.json")).unwrap();
    assert_eq!(View::sweep(&scratch.data).unwrap(), 1);
    assert_eq!(View::list(&scratch.data).unwrap().len(), 1, "a live one stays");
}

#[test]
fn removal_ends_what_forbids_looking_and_follows_no_link() {
    let scratch = scratch();
    let outside = scratch.root.join("precious");
    std::fs::write(&outside, "x").unwrap();
    let view = scratch.view(ViewKind::Overlay);
    let at = scratch.data.path().join("views").join(view.id());
    for directory in ["upper/a", "work/work/b"] {
        std::fs::create_dir_all(at.join(directory)).unwrap();
        std::fs::write(at.join(directory).join("file"), "").unwrap();
        symlink(&scratch.root, at.join(directory).join("link")).unwrap();
        chmod(at.join(directory), 0);
    }
    chmod(at.join("work/work"), 0);
    view.remove().unwrap();
    assert!(!at.exists());
    assert!(outside.exists());
}

#[test]
fn a_copy_has_the_same_content_modes_times_and_links() {
    let scratch = scratch();
    let root = &scratch.root;
    std::fs::create_dir_all(root.join("d/locked")).unwrap();
    std::fs::write(root.join("d/file"), vec![7; 300_000]).unwrap();
    std::fs::write(root.join("d/locked/inner"), "inner").unwrap();
    std::fs::write(root.join("script"), "#!").unwrap();
    chmod(root.join("script"), 0o750);
    chmod(root.join("d/locked"), 0o555);
    symlink("../outside", root.join("d/link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let view = scratch.view(ViewKind::Copy);
    let copy = scratch.data.path().join("views").join(view.id()).join("copy");
    for name in ["d", "d/file", "d/locked", "d/locked/inner", "script", "d/link", ".git"] {
        let (ours, theirs) = (copy.join(name), root.join(name));
        assert_eq!(mode(&ours), mode(&theirs), "{name}");
        let modified = |path: &Path| {
            let metadata = path.symlink_metadata().unwrap();
            (metadata.mtime(), metadata.mtime_nsec())
        };
        assert_eq!(modified(&ours), modified(&theirs), "{name}");
        if theirs.is_file() {
            assert_eq!(std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
        }
    }
    assert_eq!(std::fs::read_link(copy.join("d/link")).unwrap(), Path::new("../outside"));
    assert!(!copy.join("socket").exists());
    assert!(view.record().copied.is_some());
    view.remove().unwrap();
    chmod(root.join("d/locked"), 0o755);
}

#[test]
fn layers_belong_to_the_ids_inside() {
    let scratch = scratch();
    if !rustix::process::geteuid().is_root() {
        crate::testing::skipped("only root gives files away");
        return;
    }
    std::fs::write(scratch.root.join("file"), "x").unwrap();
    std::os::unix::fs::chown(scratch.root.join("file"), Some(7), Some(8)).unwrap();
    std::os::unix::fs::chown(&scratch.root, Some(1000), Some(1001)).unwrap();
    let ownership = Ownership { host_start: 0x7000_0000, count: 65_536 };
    for (kind, layers) in [(ViewKind::Overlay, &["upper", "work"][..]), (ViewKind::Copy, &["copy"])]
    {
        let view = View::create(&scratch.data, &scratch.project(), kind, Some(ownership), &[], NOW)
            .unwrap();
        let at = scratch.data.path().join("views").join(view.id());
        let owner = |path: PathBuf| {
            let metadata = path.metadata().unwrap();
            (metadata.uid() - 0x7000_0000, metadata.gid() - 0x7000_0000)
        };
        for layer in layers {
            assert_eq!(owner(at.join(layer)), (1000, 1001), "{layer}");
        }
        if kind == ViewKind::Copy {
            assert_eq!(owner(at.join("copy/file")), (7, 8));
        }
    }
    // What has no id inside belongs to root there.
    let few = Ownership { host_start: 0x7000_0000, count: 10 };
    let made =
        View::create(&scratch.data, &scratch.project(), ViewKind::Overlay, Some(few), &[], NOW);
    assert_eq!(made.unwrap().upper().unwrap().stat_self().unwrap().uid, 0x7000_0000);
    let none = Ownership { host_start: u32::MAX, count: 2000 };
    let refused =
        View::create(&scratch.data, &scratch.project(), ViewKind::Overlay, Some(none), &[], NOW);
    assert!(matches!(refused, Err(Error::Unmapped { owner: 1000, .. })), "{refused:?}");
    assert!(View::list(&scratch.data).unwrap().iter().all(|view| view.record.is_some()));
}

/// A view that a run left untouched is reused; one in which it left anything is not.
#[test]
fn an_untouched_view_is_used_again_and_no_other() {
    let scratch = scratch();
    let inode = |view: &View| view.upper().unwrap().stat_self().unwrap().inode;
    let first = scratch.view(ViewKind::Overlay);
    let kept = inode(&first);
    first.release().unwrap();
    std::thread::sleep(pool::REUSE_DELAY * 2);
    chmod(&scratch.root, 0o755);
    let second = scratch.view(ViewKind::Overlay);
    assert_eq!(inode(&second), kept);
    assert_ne!(second.id(), "spare-0");
    let at = scratch.data.path().join("views").join(second.id());
    assert_eq!(mode(&at.join("upper")), 0o755);
    assert!(View::list(&scratch.data).unwrap()[0].record.is_some());

    std::fs::write(at.join("upper/left"), "by the command").unwrap();
    second.release().unwrap();
    assert!(!at.exists());
    let third = scratch.view(ViewKind::Overlay);
    let at = scratch.data.path().join("views").join(third.id());
    rustix::fs::setxattr(at.join("upper"), "user.note", b"x", rustix::fs::XattrFlags::empty())
        .unwrap();
    third.release().unwrap();
    assert!(!at.exists(), "an attribute is a trace too");
    assert_eq!(scratch.data.path().join("views").read_dir().unwrap().count(), 0);
}

/// Otherwise no overlay could be created from its layers.
#[test]
fn a_view_can_be_passed_through_whatever_the_umask() {
    let scratch = scratch();
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let view = scratch.view(ViewKind::Overlay);
    rustix::process::umask(before);
    assert_eq!(mode(&scratch.data.path().join("views").join(view.id())), 0o711);
}

/// What a `volatile` overlay leaves in its working directory makes the kernel refuse the next overlay
/// there (`filesystems/overlayfs.rst`, "Volatile mount").
#[test]
fn each_use_of_a_view_has_a_working_directory_in_which_nothing_is_left() {
    let scratch = scratch();
    let mut killed = false;
    for _ in 0..4 {
        let view = scratch.view(ViewKind::Overlay);
        let at = scratch.data.path().join("views").join(view.id());
        assert_eq!(at.join("work").read_dir().unwrap().count(), 0);
        assert_eq!(view.work().unwrap().stat_self().unwrap().mode & 0o777, 0o700);
        std::fs::create_dir_all(at.join("work/work/incompat/volatile")).unwrap();
        chmod(at.join("work/work"), 0);
        // Every second one is killed before it has tidied up.
        if !killed {
            drop(view.tidy());
            assert!(!at.join("worn/work").exists());
        }
        killed = !killed;
        view.release().unwrap();
        std::thread::sleep(pool::REUSE_DELAY * 2);
    }
}

/// Unused views belong to no run: they are not listed, are swept, and their number is limited.
#[test]
fn spares_are_few_and_swept() {
    let scratch = scratch();
    let views: Vec<_> = (0..pool::CAPACITY + 2).map(|_| scratch.view(ViewKind::Overlay)).collect();
    for view in views {
        view.release().unwrap();
    }
    assert_eq!(scratch.data.path().join("views").read_dir().unwrap().count(), pool::CAPACITY);
    assert!(View::list(&scratch.data).unwrap().iter().all(|view| view.record.is_none()));
    assert_eq!(View::sweep(&scratch.data).unwrap(), pool::CAPACITY);
    assert_eq!(scratch.data.path().join("views").read_dir().unwrap().count(), 0);
}
