//! The store: what is added, found, held and removed, also by several processes at once.

use std::io::Write as _;
use std::path::Path;

use super::*;
use crate::document::Process;
use crate::testing::{Layer, Parts, parts, parts_for};

struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn store(&self) -> Store {
        Store::open(&DataDir::open(&self.path().join("data")).unwrap()).unwrap()
    }

    fn names(&self, below: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join("data/images").join(below)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn add(store: &Store, name: &str, image: &Parts) -> Result<Image, Error> {
    let addition = store.start().unwrap();
    for blob in &image.blobs {
        let mut writer = addition.write_blob(&Digest::of(blob), blob.len() as u64)?;
        writer.write_all(blob).unwrap();
        writer.finish()?;
    }
    addition.add(&name.parse().unwrap(), None, &image.manifest, None)
}

fn image(file: &str) -> Parts {
    let base = Layer::new().file("base", "base").done();
    parts(&[base, Layer::new().file(file, file).done()], Process::default())
}

fn host() -> Platform {
    Platform::host()
}

#[test]
fn an_image_is_found_by_its_names_and_digests() {
    let scene = Scene::new();
    let store = scene.store();
    assert!(store.get(&"app".parse().unwrap(), &host()).unwrap().is_none());
    let added = add(&store, "app:1", &image("one")).unwrap();
    assert_eq!(added.layers.len(), 2);
    assert_eq!(std::fs::read_to_string(added.layers[1].join("one")).unwrap(), "one");
    let pinned = format!("app@{}", added.digest);
    let both = format!("docker.io/library/app:other@{}", added.digest);
    for name in ["app:1", "docker.io/library/app:1", &pinned, &both] {
        let found = scene.store().get(&name.parse().unwrap(), &host()).unwrap().unwrap();
        assert_eq!(found.digest, added.digest, "{name}");
    }
    for name in ["app", "app:2", "other:1", &pinned.replace("app", "other")] {
        assert!(store.get(&name.parse().unwrap(), &host()).unwrap().is_none(), "{name}");
    }
    let of_config = &added.manifest.config.digest;
    assert_eq!(store.get_by_digest(of_config, &host()).unwrap().unwrap().digest, added.digest);
    let [record] = store.list().unwrap().try_into().unwrap();
    assert_eq!((record.digest, record.platform), (added.digest, host()));
}

#[test]
fn layers_are_shared_and_a_name_moves() {
    let scene = Scene::new();
    let store = scene.store();
    let first = add(&store, "app", &image("one")).unwrap();
    let second = add(&store, "app", &image("two")).unwrap();
    assert_eq!(first.layers[0], second.layers[0]);
    assert_eq!(scene.names("layers").len(), 3);
    assert_eq!(store.list().unwrap().len(), 1);
    let found = store.get(&"app".parse().unwrap(), &host()).unwrap().unwrap();
    assert_eq!(found.digest, second.digest);
}

#[test]
fn platforms_are_told_apart() {
    let scene = Scene::new();
    let store = scene.store();
    let other = "linux/s390x".parse().unwrap();
    let layers = [Layer::new().file("f", "x").done()];
    let foreign = parts_for(&other, &layers, Process::default());
    add(&store, "app", &image("one")).unwrap();
    let added = add(&store, "app", &foreign).unwrap();
    let name = "app".parse().unwrap();
    assert_eq!(store.get(&name, &other).unwrap().unwrap().digest, added.digest);
    assert_ne!(store.get(&name, &host()).unwrap().unwrap().digest, added.digest);
    let addition = store.start().unwrap();
    let refused = addition.add(&name, Some(&host()), &foreign.manifest, None);
    assert!(matches!(refused, Err(Error::Platform { .. })), "{refused:?}");
}

#[test]
fn a_blob_that_is_not_what_it_should_be_leaves_nothing() {
    let scene = Scene::new();
    let store = scene.store();
    let addition = store.start().unwrap();
    let digest = Digest::of(b"content");
    let write = |content: &[u8], size| {
        let mut writer = addition.write_blob(&digest, size).unwrap();
        writer.write_all(content).map_err(|_| None)?;
        writer.finish().map_err(Some)
    };
    assert!(matches!(write(b"CONTENT", 7), Err(Some(Error::Digest { .. }))));
    assert!(matches!(write(b"conten", 7), Err(Some(Error::Size { found: 6, .. }))));
    assert!(matches!(write(b"content and more", 7), Err(None)));
    drop(addition.write_blob(&digest, 7).unwrap());
    assert!(scene.names("blobs").is_empty() && !store.has_blob(&digest).unwrap());
    write(b"content", 7).unwrap();
    write(b"content", 7).unwrap();
    assert!(store.has_blob(&digest).unwrap());
    assert!(matches!(addition.write_blob(&digest, 1 << 50), Err(Error::TooLarge { .. })));
}

#[test]
fn an_image_without_a_part_or_with_a_wrong_layer_gets_no_name() {
    let scene = Scene::new();
    let store = scene.store();
    let whole = image("one");
    for missing in 0..whole.blobs.len() {
        let scene = Scene::new();
        let mut blobs = whole.blobs.clone();
        blobs.remove(missing);
        let partial = Parts { manifest: whole.manifest.clone(), blobs };
        let refused = add(&scene.store(), "app", &partial);
        assert!(matches!(refused, Err(Error::MissingBlob(_))), "{refused:?}");
        assert!(scene.store().list().unwrap().is_empty());
    }
    let evil = parts(&[Layer::new().file("../x", "x").done()], Process::default());
    assert!(matches!(add(&store, "app", &evil), Err(Error::Layer { .. })));
    assert!(store.list().unwrap().is_empty() && scene.names("layers").is_empty());
    assert!(!scene.path().join("data/images/x").exists());
}

#[test]
fn a_crash_in_the_middle_leaves_nothing_that_is_used() {
    let scene = Scene::new();
    let store = scene.store();
    let images = scene.path().join("data/images");
    std::fs::create_dir(images.join("layers/.unfinished-1-0")).unwrap();
    std::fs::write(images.join("blobs/.unfinished-1-0"), "half").unwrap();
    std::fs::write(images.join("references.json.next"), "[").unwrap();
    add(&store, "app", &image("one")).unwrap();
    let removed = store.prune(false, &InUse::new()).unwrap();
    assert_eq!((removed.records.len(), scene.names("layers").len()), (0, 2));
    assert!(scene.names("blobs").iter().all(|name| !name.starts_with('.')));
    assert!(store.get(&"app".parse().unwrap(), &host()).unwrap().is_some());
}

#[test]
fn only_what_nothing_needs_is_removed() {
    let scene = Scene::new();
    let store = scene.store();
    let (one, two) = (image("one"), image("two"));
    let first = add(&store, "one", &one).unwrap();
    add(&store, "also-one", &one).unwrap();
    add(&store, "two", &two).unwrap();
    let none = InUse::new();
    let name = |text: &str| text.parse::<Reference>().unwrap();
    // It has another name.
    let removed = store.remove(&name("one"), &none).unwrap();
    assert_eq!((removed.records.len(), removed.layers, removed.blobs), (1, 0, 0));
    let used = InUse::from([(first.digest.clone(), "sandbox box".to_owned())]);
    let refused = store.remove(&name("also-one"), &used);
    assert!(matches!(refused, Err(Error::InUse { by, .. }) if by == "sandbox box"));
    // A name that has moved on leaves an image that a sandbox uses.
    add(&store, "also-one", &two).unwrap();
    store.prune(true, &used).unwrap();
    assert!(store.list().unwrap().is_empty());
    assert_eq!(store.load(&first.digest, None).unwrap().layers, first.layers);
    // A running sandbox keeps its layers even if nobody says so.
    let locks = store.hold(&first).unwrap();
    let kept = store.prune(true, &none).unwrap();
    assert_eq!((kept.layers, kept.kept_layers), (0, 2));
    drop(locks);
    assert_eq!(store.prune(true, &none).unwrap().layers, 2);
    assert!(scene.names("layers").is_empty() && scene.names("blobs").is_empty());
    assert!(store.hold(&first).is_err());
    assert_eq!(store.usage(&none).unwrap(), Usage::default());
}

#[test]
fn several_can_add_the_same_image_at_once() {
    let scene = Scene::new();
    let shared = image("one");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (scene, shared) = (&scene, &shared);
            scope.spawn(move || {
                let store = scene.store();
                add(&store, &format!("app:{}", number % 4), shared).unwrap();
            });
        }
    });
    assert_eq!(scene.store().list().unwrap().len(), 4);
    assert_eq!(scene.names("layers").len(), 2);
}

#[test]
fn the_layers_of_an_image_are_bounded_together() {
    let scene = Scene::new();
    let data = DataDir::open(&scene.path().join("data")).unwrap();
    let limits = Limits { image_bytes: 2500, ..Limits::default() };
    let store = Store::with_limits(&data, limits).unwrap();
    let layer = |name: &str| Layer::new().file(name, [7; 1000]).done();
    let two = parts(&[layer("a"), layer("b")], Process::default());
    add(&store, "two", &two).unwrap();
    // Layers that are there already count too.
    let three = parts(&[layer("a"), layer("b"), layer("c")], Process::default());
    let refused = add(&store, "three", &three).unwrap_err();
    let limit = std::error::Error::source(&refused).unwrap().to_string();
    assert!(limit.contains("`bytes`: 500"), "{limit}");
    assert_eq!(store.list().unwrap().len(), 1);
    assert_eq!(scene.names("layers").len(), 2);
}

#[test]
fn a_user_has_the_groups_that_list_it_unless_a_group_is_named() {
    let scene = Scene::new();
    let store = scene.store();
    let layer = Layer::new()
        .file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:\n")
        .file(
            "etc/group",
            "root:x:0:\nnode:x:1000:\nvideo:x:44:other,node\naudio:x:29:node\nbad:x:y:node\n\
             again:x:29:node\nnodes:x:50:nodes\n",
        )
        .done();
    let image = add(&store, "app", &parts(&[layer], Process::default())).unwrap();
    let tree = crate::Tree::open(&image).unwrap();
    let groups = |text: &str| image.user(text, &tree).unwrap().groups;
    assert_eq!(groups("node"), [29, 44]);
    assert_eq!(groups("1000"), [29, 44]);
    assert!(groups("node:node").is_empty() && groups("node:44").is_empty());
    assert!(groups("root").is_empty() && groups("7").is_empty());
}
