//! Images are untrusted: neither unpacking an image nor running from it may touch anything outside
//! it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::harness::World;
use crate::host::Tree;

/// One entry of a tar archive, encoded by hand: no library would write these.
struct TarEntry<'a> {
    name: &'a str,
    kind: u8,
    link: &'a str,
    mode: u32,
    content: &'a [u8],
}

impl<'a> TarEntry<'a> {
    fn file(name: &'a str, content: &'a [u8]) -> Self {
        Self { name, kind: b'0', link: "", mode: 0o755, content }
    }

    fn link(name: &'a str, link: &'a str) -> Self {
        Self { name, kind: b'2', link, mode: 0o777, content: b"" }
    }

    fn hard_link(name: &'a str, link: &'a str) -> Self {
        Self { name, kind: b'1', link, mode: 0o644, content: b"" }
    }

    /// The header in the ustar format of POSIX, and the content in blocks of 512 bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, self.name.as_bytes());
        put(100, format!("{:07o}", self.mode).as_bytes());
        put(108, b"0000000");
        put(116, b"0000000");
        put(124, format!("{:011o}", self.content.len()).as_bytes());
        put(136, b"00000000000");
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, self.link.as_bytes());
        put(257, b"ustar\x0000");
        put(329, b"0000001");
        put(337, b"0000003");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut bytes = header.to_vec();
        bytes.extend(self.content);
        bytes.resize(bytes.len().div_ceil(512) * 512, 0);
        bytes
    }
}

fn archive(world: &World, name: &str, entries: &[TarEntry<'_>]) -> PathBuf {
    let mut bytes: Vec<u8> = entries.iter().flat_map(TarEntry::bytes).collect();
    bytes.extend([0; 1024]);
    let path = world.path(name);
    fs::write(&path, bytes).unwrap();
    world.chown(&path);
    path
}

/// A small root file system: the host's shell and the files that it needs.
fn image(world: &World) -> PathBuf {
    let root = world.path("image");
    let script = "set -e; mkdir -p \"$0/bin\" \"$0/etc\" \"$0/tmp\"; cp /bin/sh /bin/cat \"$0/bin\"; \
        for f in $(ldd /bin/sh /bin/cat | grep -o '/[^ ]*so[^ ]*' | sort -u); do \
        mkdir -p \"$0$(dirname $f)\"; cp -L $f \"$0$f\"; done; echo of-the-image > \"$0/etc/name\"";
    world.on_host("/bin/sh".as_ref(), &["-c", script, root.to_str().unwrap()]).finish().succeeds();
    root
}

fn run_in(world: &World, image: &Path, script: &str) -> crate::call::Outcome {
    let image = image.to_str().unwrap();
    world.run(&["--discard", "--image", image], &["/bin/sh", "-c", script])
}

fn directory_as_image(world: &World) {
    let image = image(world);
    let before = Tree::of(&image);
    let script = "cat /etc/name a.txt; echo x > /etc/name; echo x > /made; echo x > /tmp/made && \
        cat /etc/passwd /usr/bin/env; echo end";
    let outcome = run_in(world, &image, script);
    assert!(outcome.stdout.starts_with("of-the-image\nalpha\n"), "{outcome}");
    assert!(outcome.stdout.ends_with("end\n"), "{outcome}");
    before.assert_same(&Tree::of(&image), "the image");
    let json = world
        .stockade(&[
            "run",
            "--json",
            "--discard",
            "--image",
            image.to_str().unwrap(),
            "--",
            "/bin/sh",
            "-c",
            "exit 0",
        ])
        .finish();
    json.succeeds();
}

/// Proves that archives are unpacked at all, and run.
fn archive_as_image(world: &World) {
    let image = image(world);
    let tar = world.path("image.tar");
    let words = ["-C".as_ref(), image.as_os_str(), "-cf".as_ref(), tar.as_os_str(), ".".as_ref()];
    world.on_host("/bin/tar".as_ref(), &words).finish().succeeds();
    let outcome = run_in(world, &tar, "cat /etc/name a.txt; echo x > /etc/name; echo end");
    assert_eq!(outcome.stdout, "of-the-image\nalpha\nend\n", "{outcome}");
    let left = Tree::of(&world.data()).entries;
    let kept = left.keys().filter(|path| path.ends_with("etc/name")).count();
    assert!(kept <= 1, "unpacked {kept} times");
}

/// The image has symbolic links where the sandbox puts its own files and mounts. The files of
/// `/etc` are written by a process that still has the caller's descriptors: a link into
/// `/proc/self/fd` would lead to the caller's own standard output (the class of CVE-2025-31133).
fn links_where_the_sandbox_mounts(world: &World) {
    let log = world.outside().join("log");
    world.plant(&log, "what was there before\n");
    for target in [
        "/proc/self/fd/1",
        "/proc/self/fd/2",
        "/proc/self/fd/0",
        "/proc/1/fd/1",
        "/dev/stdout",
        "/proc/self/exe",
        "/proc/sys/kernel/hostname",
    ] {
        let image = image(world);
        for name in ["passwd", "group", "hosts", "hostname"] {
            symlink(target, image.join("etc").join(name)).unwrap();
            world.chown(&image.join("etc").join(name));
        }
        let open = fs::OpenOptions::new().append(true).read(true).open(&log).unwrap();
        let run =
            ["run", "--discard", "--image", image.to_str().unwrap(), "--", "/bin/sh", "-c", "true"];
        world.stockade(&run).output_to(open).finish();
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text, "what was there before\n", "through {target}");
        fs::remove_dir_all(&image).unwrap();
    }
}

fn mount_points_are_links(world: &World) {
    let outside = Tree::of(&world.outside());
    for name in ["proc", "dev", "sys", "tmp", "home", "root", "run", "etc"] {
        for target in [
            world.outside().display().to_string(),
            "/".into(),
            "../../../..".into(),
            "/proc/self/root".into(),
            "/proc/1/root".into(),
            "/proc/self/cwd".into(),
        ] {
            let image = image(world);
            let _ = fs::remove_dir_all(image.join(name));
            symlink(&target, image.join(name)).unwrap();
            let outcome = run_in(
                world,
                &image,
                "cat /proc/kallsyms /etc/shadow; echo x > /proc/sys/kernel/core_pattern; echo end",
            );
            assert!(!outcome.stdout.contains("root:"), "{name} -> {target}: {outcome}");
            assert!(
                outcome.code() == 125 || outcome.stdout == "end\n",
                "{name} -> {target}: {outcome}"
            );
            outside.assert_same(&Tree::of(&world.outside()), "what is outside");
            fs::remove_dir_all(&image).unwrap();
        }
    }
}

/// While a jail is created, the host's root is briefly above its own: no directory that an image
/// replaces by a link leads there.
fn links_past_the_root(world: &World) {
    let outside = world.outside();
    world.plant(&outside.join("resolv.conf"), "what was there before\n");
    let before = Tree::of(&outside);
    for name in ["dev", "proc", "sys", "tmp", "home", "etc"] {
        let up = format!("{}{}", "../".repeat(12), outside.strip_prefix("/").unwrap().display());
        for target in [format!("/..{}", outside.display()), up] {
            let image = image(world);
            let _ = fs::remove_dir_all(image.join(name));
            symlink(&target, image.join(name)).unwrap();
            world.chown(&image.join(name));
            let options = ["--discard", "--net", "policy", "--image", image.to_str().unwrap()];
            // Whether it succeeds or fails.
            world.run(&options, &["/bin/sh", "-c", "echo x > /tmp/made; echo x > /home/made"]);
            before.assert_same(&Tree::of(&outside), &format!("what is outside, by /{name}"));
            fs::remove_dir_all(&image).unwrap();
        }
    }
}

/// The only file that is written over an image's own, by a process that still has descriptors of
/// the host: whatever the image has instead of the file or its directory, nothing else is written.
fn a_resolver_that_leads_elsewhere(world: &World) {
    let run = |image: &Path| {
        let options = ["--discard", "--net", "policy", "--image", image.to_str().unwrap()];
        world.run(&options, &["/bin/sh", "-c", "cat /etc/resolv.conf"])
    };
    let log = world.outside().join("log");
    world.plant(&log, "what was there before\n");
    let pipe: fn(&Path) = |path| {
        let status = std::process::Command::new("/usr/bin/mkfifo").arg(path).status();
        assert!(status.unwrap().success());
    };
    let outside = log.display().to_string();
    for target in [outside.as_str(), "/nowhere/at/all", "/proc/self/fd/1", "/dev/stdout", "pipe"] {
        let image = image(world);
        let file = image.join("etc/resolv.conf");
        if target == "pipe" {
            pipe(&file);
        } else {
            symlink(target, &file).unwrap();
        }
        world.chown(&file);
        let before = Tree::of(&image);
        let outcome = run(&image);
        assert_eq!(outcome.stdout, "nameserver 127.0.0.1\n", "{target}: {outcome}");
        before.assert_same(&Tree::of(&image), "the image");
        assert_eq!(fs::read_to_string(&log).unwrap(), "what was there before\n", "{target}");
        fs::remove_dir_all(&image).unwrap();
    }
    let image = image(world);
    fs::remove_dir_all(image.join("etc")).unwrap();
    for target in (0..24).map(|number| format!("/proc/self/fd/{number}")).chain([
        "/proc/self/cwd".into(),
        "/proc/1/cwd".into(),
        "/proc/self/root/tmp".into(),
    ]) {
        symlink(&target, image.join("etc")).unwrap();
        run(&image);
        let tree = Tree::of(&world.path(""));
        let written = tree.entries.keys().find(|path| path.ends_with("resolv.conf"));
        assert_eq!(written, None, "by way of {target}");
        fs::remove_file(image.join("etc")).unwrap();
    }
}

/// Archives that leave the target directory while they are unpacked.
fn archives_that_leave(world: &World) {
    world.plant(&world.outside().join("canary"), "host\n");
    let outside = world.outside();
    let absolute = outside.join("absolute").display().to_string();
    let directory = outside.display().to_string();
    let canary = outside.join("canary").display().to_string();
    let through_absolute = format!("{directory}/canary");
    let before = Tree::of(&outside);
    let up = "../".repeat(12);
    let climbing = format!("{up}{}/climbed", directory.trim_start_matches('/'));
    let up_link = format!("{up}{}", directory.trim_start_matches('/'));
    let archives: Vec<(&str, Vec<TarEntry<'_>>)> = vec![
        ("absolute", vec![TarEntry::file(&absolute, b"x")]),
        ("climbing", vec![TarEntry::file(&climbing, b"x")]),
        ("link", vec![TarEntry::link("way", &directory), TarEntry::file("way/made", b"x")]),
        ("relative-link", vec![TarEntry::link("way", &up_link), TarEntry::file("way/made", b"x")]),
        ("file-link", vec![TarEntry::link("file", &canary), TarEntry::file("file", b"x")]),
        ("hard-link", vec![TarEntry::hard_link("file", &canary), TarEntry::file("file", b"x")]),
        (
            "hard-link-up",
            vec![TarEntry::hard_link("file", &through_absolute), TarEntry::file("file", b"x")],
        ),
        (
            "two-links",
            vec![
                TarEntry::link("a", "b"),
                TarEntry::link("b", &directory),
                TarEntry::file("a/made", b"x"),
            ],
        ),
        (
            "link-for-directory",
            vec![
                TarEntry { name: "d/", kind: b'5', link: "", mode: 0o755, content: b"" },
                TarEntry::link("d", &directory),
                TarEntry { name: "d/", kind: b'5', link: "", mode: 0o777, content: b"" },
                TarEntry::file("d/made", b"x"),
            ],
        ),
        (
            "mode-through-link",
            vec![
                TarEntry::link("canary", &canary),
                TarEntry { name: "canary", kind: b'0', link: "", mode: 0o6777, content: b"" },
            ],
        ),
        (
            "devices",
            vec![
                TarEntry { name: "disk", kind: b'4', link: "", mode: 0o666, content: b"" },
                TarEntry { name: "null", kind: b'3', link: "", mode: 0o666, content: b"" },
                TarEntry { name: "pipe", kind: b'6', link: "", mode: 0o666, content: b"" },
            ],
        ),
        (
            "empty-name",
            vec![TarEntry::file("", b"x"), TarEntry::file(".", b"x"), TarEntry::file("..", b"x")],
        ),
    ];
    for (name, entries) in &archives {
        let path = archive(world, &format!("{name}.tar"), entries);
        let outcome = run_in(world, &path, "true");
        assert_ne!(outcome.code(), 0, "{name}: there is no shell in it: {outcome}");
        assert!(!outcome.stderr.contains("panicked"), "{name}: {outcome}");
        before.assert_same(&Tree::of(&outside), name);
        for (path, entry) in Tree::of(&world.data()).entries {
            let special = matches!(entry.mode & 0o170_000, 0o060_000 | 0o020_000);
            let device = fs::symlink_metadata(&path).map_or(0, |metadata| metadata.rdev());
            assert!(!special || device == 0, "{name}: {} is a device", path.display());
        }
    }
}

/// Archives that never end or declare wrong sizes.
fn archives_that_lie(world: &World) {
    let mut truncated = TarEntry::file("file", &[1; 4000]).bytes();
    truncated.truncate(1000);
    let mut huge = TarEntry::file("file", b"").bytes();
    huge[124..135].copy_from_slice(b"77777777777");
    for (name, bytes) in [
        ("truncated", truncated),
        ("huge", huge),
        ("noise", vec![0xa5; 5000]),
        ("nothing", Vec::new()),
    ] {
        let path = world.path(name);
        fs::write(&path, bytes).unwrap();
        let outcome = run_in(world, &path, "true");
        assert_ne!(outcome.code(), 0, "{name}: {outcome}");
        assert!(!outcome.stderr.contains("panicked"), "{name}: {outcome}");
    }
    // Neither a directory nor a regular file: it is refused without blocking or reading.
    let pipe = world.path("pipe");
    world.on_host("/usr/bin/mkfifo".as_ref(), &[&pipe]).finish().succeeds();
    for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/does/not/exist")] {
        let run = ["run", "--discard", "--image", path.to_str().unwrap(), "--", "true"];
        world.stockade(&run).deadline(20).finish().is_refused();
    }
}

as_root_and_as_user![
    directory_as_image,
    archive_as_image,
    links_where_the_sandbox_mounts,
    mount_points_are_links,
    a_resolver_that_leads_elsewhere,
    links_past_the_root,
    archives_that_leave,
    archives_that_lie,
];
