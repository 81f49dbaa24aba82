//! Volumes on a real file system: made, mounted, in use, removed, and attacked from inside.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

struct Scene {
    directory: tempfile::TempDir,
    volumes: Volumes,
}

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn name(text: &str) -> VolumeName {
    VolumeName::new(text).unwrap()
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        let volumes = Volumes::open(&data, &owner("u1")).unwrap();
        Self { directory, volumes }
    }

    fn create(&self, volume: &str) -> PathBuf {
        assert!(create(&self.volumes, volume).unwrap());
        self.volumes.get(&name(volume)).unwrap().unwrap().path
    }

    /// Everything that lies in the owner's directory.
    fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.volumes.path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn create(volumes: &Volumes, volume: &str) -> Result<bool, Error> {
    volumes.create(&name(volume), &BTreeMap::new(), false, Time::from_ms(0))
}

fn reason(result: Result<Mounted, Error>) -> &'static str {
    match result {
        Err(Error::SubPath { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_is_made_once_and_listed_for_its_owner_only() {
    let scene = Scene::new();
    let path = scene.create("b");
    scene.create("a");
    assert!(!create(&scene.volumes, "a").unwrap());
    let listed = scene.volumes.list().unwrap();
    let names: Vec<_> = listed.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
    let data = DataDir::open(&scene.directory.path().join("data")).unwrap();
    let others = Volumes::open(&data, &owner("u2")).unwrap();
    assert_eq!(others.list().unwrap(), []);
    assert!(matches!(others.mount(&name("a"), None), Err(Error::NotFound(_))));
    assert!(matches!(others.remove(&name("a")), Err(Error::NotFound(_))));
}

#[test]
fn a_volume_in_use_is_not_removed() {
    let scene = Scene::new();
    let path = scene.create("a");
    std::fs::write(path.join("file"), "content").unwrap();
    let first = scene.volumes.mount(&name("a"), None).unwrap();
    let second = scene.volumes.mount(&name("a"), None).unwrap();
    drop(first);
    let me = std::process::id();
    match scene.volumes.remove(&name("a")) {
        Err(Error::InUse { processes, .. }) => {
            assert!(processes.is_empty() || processes == [me], "{processes:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(path.join("file")).unwrap(), b"content");
    drop(second);
    scene.volumes.remove(&name("a")).unwrap();
    assert_eq!(scene.entries(), [] as [&str; 0]);
    assert!(matches!(scene.volumes.remove(&name("a")), Err(Error::NotFound(_))));
}

#[test]
fn what_a_crash_has_left_is_removed_and_never_listed() {
    let scene = Scene::new();
    for left in [".new-1-0", ".removed-1-0"] {
        let below = scene.volumes.path.join(left).join("data/below");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    // Another process is just making this one.
    let (unfinished, _claimed) = claim(&scene.volumes.directory, NEW).unwrap();
    assert_eq!(scene.volumes.list().unwrap(), []);
    scene.create("a");
    let mut entries = scene.entries();
    entries.sort();
    assert_eq!(entries, [unfinished.as_os_str().to_str().unwrap(), "a"]);
}

#[test]
fn a_damaged_record_hides_nothing_else_and_can_be_removed() {
    let scene = Scene::new();
    let path = scene.create("a");
    scene.create("b");
    std::fs::write(path.parent().unwrap().join(RECORD), "{").unwrap();
    assert_eq!(scene.volumes.list().unwrap().len(), 1);
    assert!(matches!(scene.volumes.get(&name("a")), Err(Error::Record(_))));
    scene.volumes.remove(&name("a")).unwrap();
}

#[test]
fn no_path_leads_out_of_a_volume() {
    let scene = Scene::new();
    let path = scene.create("a");
    std::fs::create_dir_all(path.join("real/below")).unwrap();
    std::fs::write(path.join("real/file"), "").unwrap();
    symlink("real", path.join("link")).unwrap();
    symlink("/etc", path.join("outside")).unwrap();
    symlink("..", path.join("real/up")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
    let mount = |sub_path: &str| scene.volumes.mount(&name("a"), Some(Path::new(sub_path)));
    for good in ["real", "real/below", "./real/", "real/file"] {
        mount(good).unwrap();
    }
    for link in ["link", "link/below", "outside", "outside/ssl", "real/up", "real/up/real"] {
        assert_eq!(reason(mount(link)), "a link leads to it", "{link}");
    }
    for bad in ["..", "real/../..", "/etc", ""] {
        assert_eq!(reason(mount(bad)), "it is not a relative path without `..`", "{bad}");
    }
    assert_eq!(reason(mount("none")), "it does not exist");
    assert_eq!(reason(mount("socket")), "it is neither a directory nor a regular file");
}

#[test]
fn a_link_that_is_exchanged_meanwhile_never_wins() {
    let scene = Scene::new();
    let path = scene.create("a");
    let (inside, outside) = (path.join("sub"), scene.directory.path().join("outside"));
    std::fs::create_dir(&inside).unwrap();
    std::fs::create_dir(&outside).unwrap();
    symlink(&outside, path.join("other")).unwrap();
    let outside = std::fs::metadata(&outside).unwrap().ino();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = path.join("other");
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &inside, cwd, &other, flags).unwrap();
            }
        });
        for _ in 0..2000 {
            if let Ok(mounted) = scene.volumes.mount(&name("a"), Some(Path::new("sub"))) {
                assert_ne!(rustix::fs::fstat(&mounted.file).unwrap().st_ino, outside);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_parts_of_a_cache_are_created() {
    let scene = Scene::new();
    scene.create("a");
    for _ in 0..2 {
        let mounted = scene.volumes.mount_part(&name("a"), Part::Directory("registry")).unwrap();
        assert!(mounted.path.ends_with("a/data/registry") && mounted.path.is_dir());
        assert_eq!(mounted.path.metadata().unwrap().permissions().mode() & 0o777, 0o777);
        let mounted = scene.volumes.mount_part(&name("a"), Part::File("lock")).unwrap();
        assert_eq!(mounted.path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    }
}

#[test]
fn a_cache_is_named_after_its_project() {
    let mut mount = CacheMount {
        owner: owner("u1"),
        name: name("npm"),
        project: Some("/a".into()),
        inside: None,
    };
    let (one, labels) = of_cache(&mount).unwrap();
    assert!(one.as_str().starts_with("cache-npm-"));
    assert_eq!(labels[cache::LABEL], "npm");
    assert_eq!(labels[cache::PROJECT_LABEL], "/a");
    mount.project = Some("/b".into());
    assert_ne!(of_cache(&mount).unwrap().0, one);
    mount.project = None;
    assert_eq!(of_cache(&mount).unwrap().0.as_str(), "cache-npm");
}

#[test]
fn a_cache_is_reached_by_its_own_name_and_project_only() {
    let scene = Scene::new();
    let volumes = &scene.volumes;
    let cache = |text: &str, project: Option<&str>| CacheMount {
        owner: owner("u1"),
        name: name(text),
        project: project.map(Into::into),
        inside: None,
    };
    let (name, labels) = of_cache(&cache("npm", Some("/trusted"))).unwrap();
    volumes.create(&name, &labels, false, Time::from_ms(1)).unwrap();
    volumes.require_cache(&name, &labels).unwrap();
    assert!(matches!(volumes.refuse_cache(&name), Err(Error::Cache(_))));
    // A cache outside of any project, with a name that ends like that of the other one.
    let hash = name.as_str().strip_prefix("cache-npm-").unwrap();
    let (same, other) = of_cache(&cache(&format!("npm-{hash}"), None)).unwrap();
    assert_eq!(same, name);
    assert!(matches!(volumes.require_cache(&same, &other), Err(Error::OtherCache(_))));
    // A volume that was there before the cache is not used as one.
    let (planted, labels) = of_cache(&cache("pip", Some("/trusted"))).unwrap();
    volumes.create(&planted, &Default::default(), false, Time::from_ms(1)).unwrap();
    volumes.refuse_cache(&planted).unwrap();
    volumes.create(&planted, &labels, false, Time::from_ms(1)).unwrap();
    assert!(matches!(volumes.require_cache(&planted, &labels), Err(Error::OtherCache(_))));
}
