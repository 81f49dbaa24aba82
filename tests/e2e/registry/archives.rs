//! Images in files: what is exported, other tools read, and comes back the same.

use std::fs;

use super::sample;
use super::server::{Registry, inspect};
use crate::harness::World;

fn an_export_is_the_same_each_time_and_read_by_others(world: &World) {
    let test = concat!(module_path!(), "::an_export_is_the_same_each_time_and_read_by_others");
    if !super::has_programs(test) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "exported"), "team/app:1");
    let name = registry.name("team/app:1");
    world.stockade(&["image", "pull", "-q", &name]).finish().succeeds();
    let digest = world.stockade(&["image", "ls", "--json"]).finish().json()["images"][0]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut archives = Vec::new();
    for kind in ["oci-archive", "docker-archive"] {
        let paths = ["one", "two"].map(|name| world.home().join(format!("{kind}-{name}.tar")));
        for path in &paths {
            let target = format!("{kind}:{}", path.display());
            world.stockade(&["image", "export", &name, &target]).finish().succeeds();
        }
        assert_eq!(fs::read(&paths[0]).unwrap(), fs::read(&paths[1]).unwrap(), "{kind}");
        let seen = inspect(&format!("{kind}:{}", paths[0].display()));
        assert_eq!(seen["Env"][0], "OF_THE_IMAGE=yes", "{seen}");
        if kind == "oci-archive" {
            assert_eq!(seen["Digest"].as_str(), Some(digest.as_str()), "{seen}");
        }
        archives.push(paths[0].clone());
    }
    // Without the kind, and under another name.
    world.stockade(&["image", "rm", &name]).finish().succeeds();
    for archive in &archives {
        let path = archive.to_str().unwrap();
        let imported = world.stockade(&["image", "import", path, "other/app:2"]).finish();
        imported.succeeds();
        assert_eq!(imported.stdout, "other/app:2\n", "{imported}");
        let listed = world.stockade(&["image", "ls", "--json"]).finish().json();
        assert_eq!(listed["images"][0]["digest"].as_str(), Some(digest.as_str()), "{listed}");
        world.stockade(&["image", "rm", "other/app:2"]).finish().succeeds();
    }
    // The archive of Docker has the name.
    let path = archives[1].to_str().unwrap();
    let loaded = world.stockade(&["image", "load", path]).finish();
    assert_eq!(loaded.stdout, format!("{name}\n"), "{loaded}");
}

fn what_is_no_archive_is_refused(world: &World) {
    let path = world.home().join("nonsense");
    fs::write(&path, "nonsense").unwrap();
    world.chown(&path);
    let path = path.to_str().unwrap();
    for source in [format!("oci-archive:{path}"), format!("docker-archive:{path}")] {
        let refused = world.stockade(&["image", "import", &source, "a/b:1"]).finish();
        assert!(!refused.stderr.contains("panicked") && refused.code() != 0, "{refused}");
    }
    let listed = world.stockade(&["image", "ls", "--json"]).finish();
    assert_eq!(listed.json()["images"].as_array().unwrap().len(), 0, "{listed}");
    let exported = world.stockade(&["image", "export", "a/b:1", "nonsense"]).finish();
    exported.ends_with(2);
    assert!(exported.stderr.contains("docker-archive:nonsense"), "{exported}");
}

as_root_and_as_user! {
    an_export_is_the_same_each_time_and_read_by_others,
    what_is_no_archive_is_refused,
}
