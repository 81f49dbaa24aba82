//! Tests of copying layers: all properties of a layer, what is refused, and that an overlay
//! cannot distinguish the copy from the original.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::testing::{chmod, skipped};
use crate::view;

struct Layers {
    root: tempfile::TempDir,
}

impl Layers {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["from", "to"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        Self { root }
    }

    fn from(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join("from").join(path)
    }

    fn to(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join("to").join(path)
    }

    fn copy(&self, limit_bytes: u64, owners: Owners) -> Result<u64, Error> {
        let open = |path| Dir::open(path).unwrap();
        copy(&open(&self.from("")), &open(&self.to("")), limit_bytes, owners)
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn node(path: impl AsRef<Path>, kind: FileType, mode: u32, device: u64) {
    let mode = Mode::from_bits_truncate(mode);
    rustix::fs::mknodat(rustix::fs::CWD, path.as_ref(), kind, mode, device).unwrap();
}

fn set_attribute(path: impl AsRef<Path>, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path.as_ref(), name, value, XattrFlags::empty()).unwrap();
}

fn set_times(path: impl AsRef<Path>, seconds: i64) {
    let time = |seconds| Timestamp { seconds, nanoseconds: 5 };
    let (cwd, flags) = (rustix::fs::CWD, AtFlags::SYMLINK_NOFOLLOW);
    let both = times(Some(time(seconds - 1)), time(seconds));
    rustix::fs::utimensat(cwd, path.as_ref(), &both, flags).unwrap();
}

/// A description of everything below a directory, with ids moved down by `base`.
fn describe(top: &Path, base: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = vec![top.to_owned()];
    while let Some(path) = pending.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(top).unwrap();
        let mut line = format!(
            "{name:?} {:o} {}:{} {} {} {} {}.{}",
            stat.mode(),
            stat.uid() - base,
            stat.gid() - base,
            stat.rdev(),
            if stat.is_dir() { 0 } else { stat.len() },
            if stat.is_dir() { 0 } else { stat.nlink() },
            stat.mtime(),
            stat.mtime_nsec(),
        );
        if stat.is_symlink() {
            line.push_str(&format!(" {:?}", fs::read_link(&path).unwrap()));
        } else if stat.is_dir() || stat.is_file() {
            if !is_root() {
                chmod(&path, stat.mode() | 0o700);
            }
            let file = fs::File::open(&path).unwrap();
            for name in attributes::names(&file).unwrap() {
                let value = attributes::value(&file, &name).unwrap();
                line.push_str(&format!(" {}={value:?}", name.escape_ascii()));
            }
            if stat.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if stat.len() < 1 << 20 {
                line.push_str(&format!(" {:?}", fs::read(&path).unwrap()));
            }
        }
        lines.push(line);
    }
    lines.sort();
    lines
}

#[test]
fn everything_that_makes_up_a_layer_is_copied() {
    let layers = Layers::new();
    let from = |path: &str| layers.from(path);
    fs::write(from("file"), "content").unwrap();
    fs::create_dir_all(from("opaque/below")).unwrap();
    set_attribute(from("opaque"), "user.overlay.opaque", b"y");
    set_attribute(from("file"), "user.overlay.origin", &[0, 0xfb, 0xff]);
    set_attribute(from("file"), "user.own", &[b'x'; 300]);
    fs::write(from("program"), "set-id").unwrap();
    chmod(from("program"), 0o6755);
    fs::write(from("locked"), "secret").unwrap();
    fs::write(from("opaque/below/deep"), "").unwrap();
    fs::hard_link(from("file"), from("opaque/second name")).unwrap();
    fs::hard_link(from("file"), from("opaque/below/third\nname")).unwrap();
    node(from("deleted"), FileType::CharacterDevice, 0, 0);
    node(from("also deleted"), FileType::CharacterDevice, 0, 0);
    fs::hard_link(from("also deleted"), from("opaque/deleted by the same inode")).unwrap();
    node(from("pipe"), FileType::Fifo, 0o622, 0);
    symlink("/no/such/target", from("link")).unwrap();
    let mut holes = fs::File::create(from("holes")).unwrap();
    holes.set_len(1 << 30).unwrap();
    holes.seek(io::SeekFrom::Start(1 << 29)).unwrap();
    holes.write_all(b"data").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from("socket")).unwrap();
    chmod(from("locked"), 0);
    chmod(from("opaque/below"), 0);
    for name in ["link", "file", "program", "deleted", "pipe", "opaque"] {
        set_times(from(name), 1_000_000_007);
    }
    chmod(from(""), 0o1755);
    set_times(from(""), 77);

    let accessed = fs::metadata(from("program")).unwrap().atime();
    let size_bytes = layers.copy(1 << 24, Owners::Same).unwrap();

    let after = fs::symlink_metadata(from("opaque/below")).unwrap();
    assert_eq!(after.mode() & 0o7777, 0, "the original is locked again");
    assert_eq!(fs::metadata(layers.to("program")).unwrap().atime(), accessed);
    let (holes, copy) = [from("holes"), layers.to("holes")].map(|p| p.metadata().unwrap()).into();
    assert!(copy.blocks() <= holes.blocks());
    assert!((4096 * 3..1 << 20).contains(&size_bytes), "{size_bytes}");
    fs::remove_file(from("socket")).unwrap();
    set_times(from(""), 77);
    assert_eq!(describe(&layers.to(""), 0), describe(&from(""), 0));
}

#[test]
fn owners_move_from_range_to_range() {
    if !is_root() {
        skipped("only root can give files away");
        return;
    }
    const FIRST: u32 = 0x7000_0000;
    let layers = Layers::new();
    let access = |user: u32| {
        let entry =
            |tag: u16, id: u32| [&tag.to_le_bytes()[..], &[6, 0], &id.to_le_bytes()[..]].concat();
        let none = u32::MAX;
        let named = [entry(1, none), entry(2, user), entry(4, none), entry(16, none)];
        [vec![2, 0, 0, 0], named.concat(), entry(32, none)].concat()
    };
    fs::create_dir(layers.from("directory")).unwrap();
    fs::write(layers.from("file"), "").unwrap();
    chmod(layers.from("file"), 0o4755);
    symlink("target", layers.from("link")).unwrap();
    set_attribute(layers.from("directory"), "system.posix_acl_access", &access(FIRST + 9));
    set_attribute(layers.from("directory"), "system.posix_acl_default", &access(FIRST + 9));
    for (name, id) in [("", 0), ("directory", 1000), ("file", 1), ("link", 65_535)] {
        std::os::unix::fs::lchown(layers.from(name), Some(FIRST + id), Some(FIRST)).unwrap();
    }
    chmod(layers.from("file"), 0o4755);
    let original = describe(&layers.from(""), FIRST);

    layers.copy(1 << 20, moved_down(FIRST)).unwrap();

    let stored = fs::metadata(layers.to("file")).unwrap();
    assert_eq!((stored.uid(), stored.mode() & 0o7777), (Owners::STORED + 1, 0o4755));
    let restored = tempfile::tempdir().unwrap();
    let open = |path| Dir::open(path).unwrap();
    let moved = Owners::Shifted { from: Owners::STORED, to: FIRST };
    copy(&open(&layers.to("")), &open(restored.path()), 1 << 20, moved).unwrap();
    assert_eq!(describe(restored.path(), FIRST), original);

    chown(layers.from("directory"), Some(0), None).unwrap();
    fs::remove_dir_all(layers.to("")).unwrap();
    fs::create_dir(layers.to("")).unwrap();
    let refused = layers.copy(1 << 20, moved_down(FIRST)).unwrap_err();
    assert!(matches!(&refused, Error::Owner { path, id: 0 } if path == "/directory"), "{refused}");
}

fn moved_down(from: u32) -> Owners {
    Owners::Shifted { from, to: Owners::STORED }
}

#[test]
fn a_layer_over_its_bounds_is_refused() {
    let layers = Layers::new();
    fs::write(layers.from("file"), vec![1; 1 << 20]).unwrap();
    let refused = layers.copy(1 << 20, Owners::Same).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { limit_bytes: 0x10_0000 }), "{refused}");

    let layers = Layers::new();
    let mut deep = layers.from("");
    for _ in 0..MAX_DEPTH {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    layers.copy(1 << 30, Owners::Same).unwrap();
    fs::create_dir(deep.join("d")).unwrap();
    fs::remove_dir_all(layers.to("d")).unwrap();
    let refused = layers.copy(1 << 30, Owners::Same).unwrap_err();
    assert!(matches!(refused, Error::TooDeep { .. }), "{refused}");
}

#[test]
fn devices_are_refused() {
    if !is_root() {
        skipped("only root can make devices");
        return;
    }
    let layers = Layers::new();
    node(layers.from("null"), FileType::CharacterDevice, 0o666, rustix::fs::makedev(1, 3));
    let refused = layers.copy(1 << 20, Owners::Same).unwrap_err();
    assert!(matches!(refused, Error::Foreign { what: "a device", .. }), "{refused}");
}

#[test]
fn links_are_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let layers = Layers::new();
    symlink(outside.path(), layers.from("directory")).unwrap();
    symlink(outside.path().join("file"), layers.from("file")).unwrap();
    layers.copy(1 << 20, Owners::Same).unwrap();
    for name in ["directory", "file"] {
        let copied = fs::read_link(layers.to(name)).unwrap();
        assert_eq!(copied, fs::read_link(layers.from(name)).unwrap());
    }
}

/// Mounts an overlay in new namespaces, runs a script in it, and returns the script's output.
fn in_overlay(root: &Path, upper: &str, script: &str) -> Result<String, String> {
    let mount = format!(
        "mount -t overlay -o userxattr,lowerdir=lower,upperdir={upper},workdir=work overlay mnt \
         && cd mnt && {script}"
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn an_overlay_shows_the_same_on_a_copy() {
    let layers = Layers::new();
    let root = layers.root.path();
    for name in ["lower/replaced/old", "lower/kept", "lower/removed/deep", "work", "mnt"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["changed", "removed/file", "replaced/file", "kept/file", "kept/gone"] {
        fs::write(root.join("lower").join(name), name).unwrap();
    }
    let changes = "rm -r removed replaced kept/gone && mkdir replaced && echo new > replaced/new \
                   && echo more >> changed && ln changed kept/linked && mkfifo pipe \
                   && ln -s ../changed kept/link && chmod 0 kept/file";
    if let Err(reason) = in_overlay(root, "from", changes) {
        skipped(&format!("no overlay can be mounted here: {reason}"));
        return;
    }
    let look = "find . -printf '%p %y %M %n %s %l\\n' | sort && cat changed replaced/new";
    let shown = in_overlay(root, "from", look).unwrap();
    assert!(shown.contains("./replaced/new f") && !shown.contains("./removed"), "{shown}");

    layers.copy(1 << 20, Owners::Same).unwrap();
    assert_eq!(in_overlay(root, "to", look).unwrap(), shown);
}

#[test]
fn what_a_layer_removes_is_listed() {
    let layers = Layers::new();
    for name in ["replaced/below", "plain"] {
        fs::create_dir_all(layers.from(name)).unwrap();
    }
    fs::write(layers.from("replaced/new"), "new").unwrap();
    set_attribute(layers.from("replaced"), "user.overlay.opaque", b"y");
    // Linux lets every user create device 0:0, which is not a real device.
    for name in ["deleted", "plain/deleted"] {
        node(layers.from(name), FileType::CharacterDevice, 0, 0);
    }
    // Deletions may share an inode.
    fs::hard_link(layers.from("deleted"), layers.from("linked")).unwrap();
    let [from, to] = [layers.from(""), layers.to("")].map(|path| Dir::open(&path).unwrap());
    let mut removed = copy_listed(&from, &to, Owners::Same).unwrap();
    removed.sort();
    let removed: Vec<_> = removed.iter().map(RelativePath::quoted).collect();
    assert_eq!(removed, ["deleted", "linked", "plain/deleted", "replaced"]);
    assert_eq!(describe(&layers.to(""), 0), describe(&layers.from(""), 0), "the marks are kept");
}

/// Copies from a plain copy what an overlay would have stored separately.
#[test]
fn what_differs_from_the_original_is_copied() {
    let layers = Layers::new();
    let project = layers.root.path().join("project");
    for directory in ["same/deep", "changed", "gone/deep"] {
        fs::create_dir_all(project.join(directory)).unwrap();
    }
    for file in
        ["same/deep/file", "edited", "masked", "changed/one", "changed/two", "gone/deep/file"]
    {
        fs::write(project.join(file), file).unwrap();
    }
    let open = |path: &Path| Dir::open(path).unwrap();
    let root = open(layers.root.path());
    let since = view::boundary_time(&root, 0o700).unwrap();
    view::copy_whole(&open(&project), &open(&layers.from("")), None).unwrap();
    let copied = view::later_stamp(&root).unwrap();
    fs::write(layers.from("edited"), "other").unwrap();
    fs::write(layers.from("changed/one"), "other").unwrap();
    fs::write(layers.from("new"), "new").unwrap();
    fs::remove_dir_all(layers.from("gone")).unwrap();
    // A character device that looks like an overlay's mark has no meaning in a plain copy.
    fs::remove_file(layers.from("masked")).unwrap();
    node(layers.from("masked"), FileType::CharacterDevice, 0, 0);
    set_attribute(layers.from("changed"), "user.overlay.opaque", b"y");
    set_attribute(layers.from("changed"), "user.kept", b"y");
    // Files that the host creates meanwhile never were in the copy.
    fs::write(project.join("of-host"), "new").unwrap();
    fs::create_dir(project.join("same/of-host")).unwrap();

    let directory = open(&project);
    let original = Original { directory: &directory, since, copied: Some(copied) };
    let (from, to) = (open(&layers.from("")), open(&layers.to("")));
    let removed = copy_changed(&from, &to, Owners::Same, original).unwrap();
    let mut removed: Vec<_> = removed.iter().map(RelativePath::quoted).collect();
    removed.sort();
    assert_eq!(removed, ["gone", "masked"]);
    let there = |path: &str| fs::symlink_metadata(layers.to(path)).is_ok();
    assert!(["edited", "new", "changed", "changed/one"].into_iter().all(there));
    for path in ["same", "masked", "gone", "changed/two", "of-host"] {
        assert!(!there(path), "{path}");
    }
    let changed = fs::File::open(layers.to("changed")).unwrap();
    assert_eq!(attributes::names(&changed).unwrap(), [b"user.kept".to_vec()]);

    // Without a recorded timestamp, everything that may have changed is copied.
    let layers_again = tempfile::tempdir().unwrap();
    let to = open(layers_again.path());
    let original = Original { copied: None, ..original };
    assert_eq!(copy_changed(&from, &to, Owners::Same, original).unwrap().len(), 2);
    assert!(layers_again.path().join("same/deep/file").exists());
}

/// A copy of a project, as a sandbox gets it at its start if there is no overlay.
struct ProjectCopy {
    layers: Layers,
    since: Timestamp,
    copied: Timestamp,
}

impl ProjectCopy {
    fn of(files: &[&str]) -> Self {
        let layers = Layers::new();
        let project = layers.root.path().join("project");
        for file in files {
            let path = project.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, file).unwrap();
        }
        let open = |path: &Path| Dir::open(path).unwrap();
        let root = open(layers.root.path());
        let since = view::boundary_time(&root, 0o700).unwrap();
        view::copy_whole(&open(&project), &open(&layers.from("")), None).unwrap();
        let copied = view::later_stamp(&root).unwrap();
        Self { layers, since, copied }
    }

    fn project(&self, path: &str) -> PathBuf {
        self.layers.root.path().join("project").join(path)
    }

    /// The changes in the copy at a path, or in the first one: names of files, and what was
    /// removed.
    fn changed(&self, copy: &Path, copied: Timestamp) -> Vec<String> {
        let to = tempfile::tempdir().unwrap();
        let open = |path: &Path| Dir::open(path).unwrap();
        let directory = open(&self.project(""));
        let original = Original { directory: &directory, since: self.since, copied: Some(copied) };
        let removed = copy_changed(&open(copy), &open(to.path()), Owners::Same, original).unwrap();
        let mut changed: Vec<_> =
            removed.iter().map(|path| format!("-{}", path.quoted())).collect();
        let mut pending = vec![to.path().to_owned()];
        while let Some(next) = pending.pop() {
            for entry in fs::read_dir(&next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    chmod(&path, 0o700);
                    pending.push(path);
                } else {
                    changed.push(path.strip_prefix(to.path()).unwrap().display().to_string());
                }
            }
        }
        changed.sort();
        changed
    }
}

/// When a directory moves, its content keeps its timestamps.
#[test]
fn what_has_moved_with_its_directory_is_copied() {
    let scene = ProjectCopy::of(&["a/x", "a/deep/y", "b/x", "c/one", "c/two", "d/z", "kept/file"]);
    let at = |path: &str| scene.layers.from(path);
    for (from, to) in [("a", "moved"), ("b", "a"), ("d", "kept/d")] {
        fs::rename(at(from), at(to)).unwrap();
    }
    fs::write(at("c/new"), "new").unwrap();
    // Changes that the host makes in a directory that was not moved do not count as the copy's.
    fs::write(scene.project("c/one"), "other").unwrap();
    fs::remove_file(scene.project("c/two")).unwrap();
    fs::write(scene.project("kept/file"), "other").unwrap();
    let moved = ["-a/deep", "-b", "-d", "a/x", "c/new", "kept/d/z", "moved/deep/y", "moved/x"];
    let changed = scene.changed(&at(""), scene.copied);
    // If nothing is left that the host has not changed, it cannot be determined who removed a file.
    let mut expected: Vec<_> = moved.iter().chain(&["c/one", "c/two"]).copied().collect();
    expected.sort_unstable();
    assert_eq!(changed, expected);
}

/// The same changes can be determined from a copy of the copy, and from a copy of that.
#[test]
fn what_was_changed_before_is_told_of_copies() {
    let files = ["same/file", "same/deep/file", "edited", "renamed", "gone", "of-host", "dir/file"];
    let scene = ProjectCopy::of(&files);
    let at = |path: &str| scene.layers.from(path);
    fs::write(at("edited"), "other").unwrap();
    fs::rename(at("renamed"), at("same/renamed")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/new"), "new").unwrap();
    fs::hard_link(at("edited"), at("linked")).unwrap();
    symlink("edited", at("link")).unwrap();
    fs::rename(at("dir"), at("moved")).unwrap();
    chmod(at("closed"), 0o000);
    fs::write(scene.project("of-host"), "other").unwrap();
    let expected = [
        "-dir",
        "-gone",
        "-renamed",
        "closed/new",
        "edited",
        "link",
        "linked",
        "moved/file",
        "same/renamed",
    ];
    let root = Dir::open(scene.layers.root.path()).unwrap();
    let mut copies = vec![(at(""), scene.copied)];
    for name in ["second", "third"] {
        let (from, copied) = copies.last().unwrap().clone();
        let to = scene.layers.root.path().join(name);
        fs::create_dir(&to).unwrap();
        let (source, target) = (Dir::open(&from).unwrap(), Dir::open(&to).unwrap());
        copy(&source, &target, u64::MAX, Owners::Same).unwrap();
        let again = view::later_stamp(&root).unwrap();
        let before = describe(&to, 0);
        mark_changed(&source, &target, copied).unwrap();
        assert_eq!(describe(&to, 0), before, "nothing else changes");
        copies.push((to, again));
    }
    for (path, copied) in &copies {
        assert_eq!(scene.changed(path, *copied), expected, "{}", path.display());
        // This makes it removable.
        chmod(path.join("closed"), 0o700);
    }
}

/// An overlay of the host makes its deletions as the host's root, and has its marks where no sandbox can
/// write. Both are in the copy, whatever the owners.
#[test]
fn the_marks_of_an_overlay_of_the_host_are_copied() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for path in [&from, &to, &from.join("renamed")] {
        fs::create_dir(path).unwrap();
    }
    let (source, target) = (Dir::open(&from).unwrap(), Dir::open(&to).unwrap());
    if !rustix::process::geteuid().is_root() || Marks::of_new(&source) == Marks::User {
        skipped("only root of the host has such marks");
        return;
    }
    let start = 0x7000_0000;
    for path in [&from, &from.join("renamed")] {
        chown(path, Some(start), Some(start)).unwrap();
    }
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(from.join("renamed"), name, value, XattrFlags::empty()).unwrap();
    };
    set("trusted.overlay.redirect", b"/old");
    set("trusted.other", b"x");
    set("user.overlay.opaque", b"y");
    let device = FileType::CharacterDevice;
    rustix::fs::mknodat(&source, "deleted", device, Mode::empty(), 0).unwrap();
    let owners = Owners::Shifted { from: start, to: Owners::STORED };
    let removed = copy_listed(&source, &target, owners).unwrap();
    assert_eq!(removed, [RelativePath::new("deleted").unwrap()], "what the sandbox set is no mark");
    assert_eq!(Marks::of(&target), Marks::Trusted);
    let names = attributes::names(target.open_dir(&RelativePath::new("renamed").unwrap()).unwrap());
    let mut names = names.unwrap();
    names.sort();
    assert_eq!(names, [&b"trusted.overlay.redirect"[..], b"user.overlay.opaque"]);
}
