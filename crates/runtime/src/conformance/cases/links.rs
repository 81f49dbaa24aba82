//! Links are followed only inside, whatever their targets are; special files are never waited for.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::super::harness::{Harness, path, within};
use super::super::sandbox::{Sandbox, content, script};
use crate::files::{FileKind, WriteOptions};

const SECRET: &str = "a secret of the host\n";

/// A directory of the host with a secret, which must be unreachable from inside.
struct Outside(PathBuf);

impl Outside {
    fn new(harness: &Harness) -> Self {
        let directory = harness.host().join("outside");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("secret"), SECRET).unwrap();
        fs::create_dir(directory.join("directory")).unwrap();
        Self(directory)
    }

    /// All link targets that try to reach it, and the path below it.
    fn paths(&self, below: &str) -> Vec<PathBuf> {
        let there = self.0.join(below);
        let relative = there.strip_prefix("/").unwrap();
        let prefixes = [
            "/",
            "../../../../../../../../../..",
            "/proc/self/root",
            "/proc/1/root",
            "/proc/self/cwd/../../../../..",
            "/dev/fd/../../root",
        ];
        prefixes.iter().map(|prefix| Path::new(prefix).join(relative)).collect()
    }

    fn is_untouched(&self) {
        assert_eq!(fs::read_to_string(self.0.join("secret")).unwrap(), SECRET);
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["directory", "secret"]);
        assert!(fs::read_dir(self.0.join("directory")).unwrap().next().is_none());
    }
}

/// Creates links below `/data/links` in a sandbox, by their names.
async fn plant(harness: &Harness, sandbox: &Sandbox<'_>, links: &[(String, PathBuf)]) {
    let directory = harness.host().join(harness.name());
    fs::create_dir(&directory).unwrap();
    for (name, target) in links {
        symlink(target, directory.join(name)).unwrap();
    }
    let (runtime, to) = (sandbox.runtime(), path("/data/links"));
    within("shipping", runtime.ship(sandbox.id(), &directory, &to)).await.unwrap();
}

fn numbered(paths: Vec<PathBuf>) -> Vec<(String, PathBuf)> {
    paths.into_iter().enumerate().map(|(number, way)| (number.to_string(), way)).collect()
}

pub(crate) async fn to_files_outside_lead_nowhere(harness: &Harness) {
    let outside = Outside::new(harness);
    let sandbox = harness.sandbox().await;
    let links = numbered(outside.paths("secret"));
    plant(harness, &sandbox, &links).await;
    for (name, target) in &links {
        let link = format!("/data/links/{name}");
        if let Ok(read) = sandbox.try_read(&link).await {
            assert_ne!(read, SECRET.as_bytes(), "{}", target.display());
        }
        // Whether a file is created inside, at the link's target, is unspecified.
        let _ = sandbox.try_write(&link, "overwritten").await;
        outside.is_untouched();
        let (runtime, link) = (sandbox.runtime(), path(&link));
        within("a removal", runtime.remove(sandbox.id(), &link)).await.unwrap();
        outside.is_untouched();
    }
}

pub(crate) async fn to_directories_outside_lead_nowhere(harness: &Harness) {
    let outside = Outside::new(harness);
    let sandbox = harness.sandbox().await;
    let links = numbered(outside.paths(""));
    plant(harness, &sandbox, &links).await;
    sandbox.write("/data/own", "own").await;
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    let shipped = harness.host().join("shipped");
    fs::create_dir(&shipped).unwrap();
    fs::write(shipped.join("new"), "new").unwrap();
    let options = WriteOptions::default();
    // First the operations that read, before a file of that name is created inside.
    for (name, target) in &links {
        let (link, way) = (format!("/data/links/{name}"), target.display());
        within("answers", async {
            assert!(sandbox.stat(&format!("{link}/secret")).await.is_err(), "{way}");
            assert!(sandbox.try_read(&format!("{link}/secret")).await.is_err(), "{way}");
            let link = path(&link);
            if let Ok(listed) = runtime.read_directory(id, &link).await {
                assert!(listed.iter().all(|info| info.name != b"secret"), "{way}");
            }
            let collected = harness.host().join(harness.name());
            let _ = runtime.collect(id, &link, &collected, 1 << 20).await;
            assert!(!collected.join("secret").exists(), "{way}");
        })
        .await;
    }
    // Then the operations that write. Their effect inside is unspecified.
    for (name, _) in &links {
        let below = |file: &str| path(format!("/data/links/{name}/{file}"));
        let (secret, new) = (below("secret"), below("new"));
        within("answers", async {
            let _ = runtime.write_file(id, &secret, content("overwritten"), options).await;
            let _ = runtime.write_file(id, &new, content("new"), options).await;
            let _ = runtime.make_directory(id, &below("made"), options).await;
            let _ = runtime.rename(id, &path("/data/own"), &new).await;
            let _ = runtime.rename(id, &secret, &path("/data/stolen")).await;
            let _ = runtime.remove(id, &secret).await;
            let _ = runtime.remove(id, &below("directory")).await;
            let _ = runtime.ship(id, &shipped, &below("directory")).await;
            let _ = runtime.ship(id, &shipped, &below("")).await;
        })
        .await;
        outside.is_untouched();
    }
}

pub(crate) async fn to_what_every_system_has_stay_inside(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.good("ln -s /etc/passwd /data/passwd && ln -s /etc /data/etc").await;
    let inside = sandbox.sh("cat /etc/passwd 2>/dev/null").await.output;
    for file in ["/data/passwd", "/data/etc/passwd", "/etc/passwd"] {
        let read = sandbox.try_read(file).await.unwrap_or_default();
        assert!(read == inside, "{file} is not what it is inside");
    }
}

pub(crate) async fn inside_they_are_followed(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/real/file", "content").await;
    let link = |name: &str, target: &str| (name.to_owned(), PathBuf::from(target));
    let links = [
        link("absolute", "/data/real/file"),
        link("relative", "../real/file"),
        link("chain", "relative"),
        link("above", "../../../../../../data/real/file"),
        link("directory", "../real"),
        link("dangling", "nothing"),
        link("loop", "pool"),
        link("pool", "loop"),
    ];
    plant(harness, &sandbox, &links).await;
    for file in ["absolute", "relative", "chain", "above", "directory/file"] {
        assert_eq!(sandbox.read(&format!("/data/links/{file}")).await, "content", "{file}");
    }
    for file in ["dangling", "loop", "loop/below", "directory/none"] {
        assert!(sandbox.try_read(&format!("/data/links/{file}")).await.is_err(), "{file}");
    }
    assert_eq!(sandbox.names("/data/links/directory").await, [b"file"]);
    sandbox.write("/data/links/directory/new", "through a link").await;
    assert_eq!(sandbox.read("/data/real/new").await, "through a link");
    sandbox.write("/data/links/absolute", "changed").await;
    assert_eq!(sandbox.read("/data/links/absolute").await, "changed");
}

pub(crate) async fn they_are_told_as_links(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let target = PathBuf::from("/data/some where");
    let links = [("link".to_owned(), target.clone()), ("..x".to_owned(), "..".into())];
    plant(harness, &sandbox, &links).await;
    let info = sandbox.stat("/data/links/link").await.unwrap();
    assert_eq!(info.kind, FileKind::Link);
    assert_eq!(info.link.as_deref(), Some(target.as_os_str().as_bytes()));
    assert_eq!(info.size_bytes, target.as_os_str().len() as u64);
    let (runtime, directory) = (sandbox.runtime(), path("/data/links"));
    let listed = runtime.read_directory(sandbox.id(), &directory).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|info| info.kind == FileKind::Link && info.link.is_some()));
}

/// Removing and renaming affect the link, not its target.
pub(crate) async fn what_they_lead_to_is_left_alone(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    sandbox.write("/data/real/file", "stays").await;
    let links = [("one".to_owned(), "/data/real".into()), ("two".to_owned(), "../real".into())];
    plant(harness, &sandbox, &links).await;
    within("changes", async {
        runtime.rename(id, &path("/data/links/one"), &path("/data/links/moved")).await.unwrap();
        assert_eq!(sandbox.stat("/data/links/moved").await.unwrap().kind, FileKind::Link);
        runtime.remove(id, &path("/data/links/moved")).await.unwrap();
        runtime.remove(id, &path("/data/links")).await.unwrap();
    })
    .await;
    assert!(!sandbox.exists("/data/links").await);
    assert_eq!(sandbox.read("/data/real/file").await, "stays");
}

/// A command that changes what a path leads to during its resolution gains nothing.
pub(crate) async fn races_are_lost(harness: &Harness) {
    let outside = Outside::new(harness);
    let sandbox = harness.sandbox().await;
    let text = format!(
        "mkdir /data/in; echo inside > /data/in/secret; ln -s '{}' /data/out; ln -s in /data/x
         while :; do
             rm -rf /data/x; ln -s out /data/x
             rm -rf /data/x; mkdir /data/x; echo inside > /data/x/secret
             rm -rf /data/x; ln -s in /data/x
         done",
        outside.0.display()
    );
    let racer = sandbox.start(&script(&text)).await;
    sandbox.appears("/data/x").await;
    for _ in 0..300 {
        if let Ok(read) = sandbox.try_read("/data/x/secret").await {
            assert_ne!(read, SECRET.as_bytes());
        }
        let _ = sandbox.try_write("/data/x/secret", "changed").await;
    }
    sandbox.kill(&racer.exec).await;
    racer.count_only().finish().await;
    outside.is_untouched();
}

/// Pipes and devices are visible, but are neither opened nor waited for.
pub(crate) async fn what_is_no_file_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    sandbox.good("cd /data && mkfifo pipe && ln -s pipe link && ln -s /dev/zero zero").await;
    assert_eq!(sandbox.stat("/data/pipe").await.unwrap().kind, FileKind::Other);
    for file in ["/data/pipe", "/data/link", "/data/zero", "/dev/zero"] {
        assert!(sandbox.try_read(file).await.is_err(), "{file}");
    }
    for file in ["/data/pipe", "/dev/null", "/dev/zero"] {
        assert!(sandbox.try_write(file, "x").await.is_err(), "{file}");
        let listed = within("a list", runtime.read_directory(id, &path(file))).await;
        assert!(listed.is_err(), "{file}");
    }
    assert_eq!(sandbox.stat("/data/pipe").await.unwrap().kind, FileKind::Other);
    within("a removal", runtime.remove(id, &path("/data/pipe"))).await.unwrap();
    assert!(!sandbox.exists("/data/pipe").await);
}
