//! Images from local files.

use stockade_bundle::data::DataDir;
use tar::Builder;

use super::*;
use crate::document::Process;
use crate::limits::Limits;
use crate::testing::{Layer, Parts, gzip, parts, parts_for, write_layout};

struct Scene {
    directory: tempfile::TempDir,
    store: Store,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        Self { store: Store::open(&data).unwrap(), directory }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn import(&self, source: &str, name: Option<&str>) -> Result<Vec<Image>, Error> {
        let source = source.replace('@', self.directory.path().to_str().unwrap());
        let name = name.map(|name| name.parse::<Reference>().unwrap());
        import(&self.store, &source.parse()?, name.as_ref(), None)
    }
}

fn image(file: &str) -> Parts {
    let layers = [Layer::new().file("base", "b").done(), Layer::new().file(file, file).done()];
    parts(&layers, Process { cmd: vec!["/run".to_owned()], ..Process::default() })
}

/// Writes a directory as a TAR.
fn pack(from: &Path, to: &Path) {
    let mut archive = Builder::new(std::fs::File::create(to).unwrap());
    archive.follow_symlinks(false);
    archive.append_dir_all(".", from).unwrap();
    archive.finish().unwrap();
}

#[test]
fn sources_are_read_and_shown() {
    for (text, shown) in [
        ("oci:/a/dir", "oci:/a/dir"),
        ("oci:/a/dir:tag", "oci:/a/dir:tag"),
        ("oci-archive:/a.tar:v1", "oci-archive:/a.tar:v1"),
        ("docker-archive:/a.tar", "docker-archive:/a.tar"),
        ("tar:/a:b.tar", "tar:/a:b.tar"),
        ("dir:.", "dir:."),
    ] {
        assert_eq!(text.parse::<Source>().unwrap().to_string(), shown);
    }
    for wrong in ["", "oci", "oci:", "zip:/a", "/a"] {
        assert!(wrong.parse::<Source>().is_err(), "{wrong}");
    }
}

#[test]
fn a_layout_is_imported_from_a_directory_and_an_archive() {
    let scene = Scene::new();
    write_layout(&scene.at("layout"), &[("one", &image("one")), ("two", &image("two"))]);
    pack(&scene.at("layout"), &scene.at("layout.tar"));
    for (source, name, file) in [
        ("oci:@/layout:one", "a", "one"),
        ("oci:@/layout:two", "b", "two"),
        ("oci-archive:@/layout.tar:one", "c", "one"),
    ] {
        let [made] = scene.import(source, Some(name)).unwrap().try_into().unwrap();
        assert!(made.layers[1].join(file).exists(), "{source}");
        assert_eq!(made.configuration.config.cmd, ["/run"]);
    }
    assert!(matches!(scene.import("oci:@/layout", Some("x")), Err(Error::Several { .. })));
    assert!(matches!(scene.import("oci:@/layout:no", Some("x")), Err(Error::NoTag { .. })));
    assert!(matches!(scene.import("oci:@/layout:one", None), Err(Error::NoName(_))));
    assert!(matches!(scene.import("oci:@/nowhere", Some("x")), Err(Error::Read { .. })));
}

#[test]
fn a_layout_with_a_link_or_a_wrong_blob_is_refused() {
    let scene = Scene::new();
    let whole = image("one");
    write_layout(&scene.at("layout"), &[("one", &whole)]);
    let blob = scene.at("layout/blobs/sha256").join(crate::Digest::of(&whole.blobs[0]).hex());
    std::fs::write(&blob, "something else").unwrap();
    assert!(scene.import("oci:@/layout", Some("x")).is_err());
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(scene.at("secret"), &whole.blobs[0]).unwrap();
    std::os::unix::fs::symlink(scene.at("secret"), &blob).unwrap();
    assert!(scene.import("oci:@/layout", Some("x")).is_err());
    assert!(scene.store.list().unwrap().is_empty());
}

#[test]
fn an_image_of_another_platform_is_chosen_only_by_name() {
    let scene = Scene::new();
    let other: Platform = "linux/s390x".parse().unwrap();
    let foreign = parts_for(&other, &[Layer::new().file("f", "").done()], Process::default());
    write_layout(&scene.at("layout"), &[("one", &foreign)]);
    let refused = scene.import("oci:@/layout", Some("x"));
    assert!(matches!(refused, Err(Error::Store(store::Error::Platform { .. }))), "{refused:?}");
    let source = Source::Layout { path: scene.at("layout"), tag: None };
    let name = "x".parse().unwrap();
    import(&scene.store, &source, Some(&name), Some(&other)).unwrap();
    assert!(scene.store.get(&name, &other).unwrap().is_some());
}

/// What `docker save` wrote before it wrote OCI layouts: layers as `ID/layer.tar`, and links
/// between equal ones.
fn docker_archive(scene: &Scene, tags: &str) -> PathBuf {
    let image = image("one");
    let config = image.blobs.last().unwrap();
    let layers = [Layer::new().file("base", "b").done(), Layer::new().file("one", "one").done()];
    let archive = Layer::new()
        .file("c.json", config)
        .directory("a")
        .file("a/layer.tar", &layers[0])
        .directory("b")
        .file("real/layer.tar", &layers[1])
        .link("b/layer.tar", "../real/layer.tar")
        .file("../../evil", "evil")
        .file(
            "manifest.json",
            format!(
                r#"[{{"Config":"c.json","RepoTags":{tags},"Layers":["a/layer.tar","b/layer.tar"]}}]"#
            ),
        )
        .done();
    let path = scene.at("saved.tar");
    std::fs::write(&path, gzip(&archive)).unwrap();
    path
}

#[test]
fn what_docker_saves_is_imported_with_its_names() {
    let scene = Scene::new();
    docker_archive(&scene, r#"["app:1","reg.example/team/app:2"]"#);
    let made = scene.import("docker-archive:@/saved.tar", None).unwrap();
    assert_eq!(made.len(), 2);
    assert!(made[0].layers[1].join("one").exists());
    let found = scene.store.get(&"reg.example/team/app:2".parse().unwrap(), &Platform::host());
    assert_eq!(found.unwrap().unwrap().digest, made[0].digest);
    scene.import("docker-archive:@/saved.tar:app:1", Some("own")).unwrap();
    let refused = scene.import("docker-archive:@/saved.tar:app:9", None);
    assert!(matches!(refused, Err(Error::NoTag { known, .. }) if known.len() == 2));
    docker_archive(&scene, "null");
    assert!(matches!(scene.import("docker-archive:@/saved.tar", None), Err(Error::NoName(_))));
    assert!(matches!(scene.import("oci-archive:@/saved.tar", Some("x")), Err(Error::Kind { .. })));
}

#[test]
fn an_archive_with_thousands_of_names_is_imported_at_once() {
    let scene = Scene::new();
    let names = |count: usize| {
        let names: Vec<_> = (0..count).map(|number| format!("\"app:{number}\"")).collect();
        format!("[{}]", names.join(","))
    };
    docker_archive(&scene, &names(10_000));
    // If each name wrote the whole list again, the test would reach its time limit.
    let made = scene.import("docker-archive:@/saved.tar", None).unwrap();
    assert_eq!((made.len(), scene.store.list().unwrap().len()), (10_000, 10_000));
    docker_archive(&scene, &names(10_001));
    let refused = scene.import("docker-archive:@/saved.tar", None);
    assert!(matches!(refused, Err(Error::Kind { .. })), "{refused:?}");
}

#[test]
fn an_archive_with_one_wrong_image_changes_no_name() {
    let scene = Scene::new();
    docker_archive(
        &scene,
        r#"["app:1"]},{"Config":"c.json","RepoTags":["app:2"],"Layers":["none"]},{"Config":"c.json","RepoTags":["app:3"]"#,
    );
    assert!(scene.import("docker-archive:@/saved.tar", None).is_err());
    assert!(scene.store.list().unwrap().is_empty());
}

#[test]
fn a_tar_and_a_directory_become_an_image_of_one_layer() {
    let scene = Scene::new();
    let root = scene.at("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::write(root.join("bin/tool"), "tool").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    pack(&root, &scene.at("root.tar"));
    let packed = std::fs::read(scene.at("root.tar")).unwrap();
    std::fs::write(scene.at("root.tar.gz"), gzip(&packed)).unwrap();
    for source in ["dir:@/root", "tar:@/root.tar", "tar:@/root.tar.gz"] {
        let [made] = scene.import(source, Some("app")).unwrap().try_into().unwrap();
        assert_eq!(std::fs::read_to_string(made.layers[0].join("bin/tool")).unwrap(), "tool");
        let link = std::fs::read_link(made.layers[0].join("link")).unwrap();
        assert_eq!(link, Path::new("/etc/passwd"));
    }
    assert!(matches!(scene.import("dir:@/root", None), Err(Error::NoName(_))));
    assert!(matches!(scene.import("dir:@/root.tar", Some("x")), Err(Error::Kind { .. })));
    std::fs::write(scene.at("text"), "this is no archive").unwrap();
    assert!(scene.import("tar:@/text", Some("x")).is_err());
}

#[test]
fn a_compressed_tar_is_bounded_before_it_is_unpacked() {
    let scene = Scene::new();
    let data = DataDir::open(&scene.at("bounded")).unwrap();
    let limits = Limits { layer_bytes: 1 << 20, layer_entries: 10, ..Limits::default() };
    let store = Store::with_limits(&data, limits).unwrap();
    std::fs::write(scene.at("bomb.tar.gz"), gzip(&vec![0; 4 << 20])).unwrap();
    let source = Source::Tar(scene.at("bomb.tar.gz"));
    let refused = import(&store, &source, Some(&"app".parse().unwrap()), None);
    let Err(Error::Layer { source: crate::layer::Error::Limit { limit, .. }, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(limit, "bytes");
    let blobs = std::fs::read_dir(data.path().join("images/blobs")).unwrap();
    assert_eq!(blobs.count(), 0);
}
