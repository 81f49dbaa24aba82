//! Pulling, listing, running and removing images.

use super::sample::{self, Layout, architecture, shell_layer};
use super::server::{Registry, write};
use crate::harness::World;

fn an_image_is_pulled_listed_and_removed(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::an_image_is_pulled_listed_and_removed")) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "first"), "team/app:1");
    let name = registry.name("team/app:1");

    let pulled = world.stockade(&["image", "pull", &name]).finish();
    pulled.succeeds();
    assert_eq!(pulled.stdout, format!("{name}\n"), "{pulled}");
    let again = world.stockade(&["image", "pull", "--json", &name]).finish();
    again.succeeds();
    let answer = again.json();
    assert_eq!(answer["isNew"], false, "{again}");

    let listed = world.stockade(&["image", "ls", "--json"]).finish();
    let listed = listed.json()["images"].clone();
    assert_eq!(listed[0]["reference"].as_str(), Some(name.as_str()), "{listed}");
    assert_eq!(listed[0]["repositoryDigest"], answer["repositoryDigest"]);
    let table = world.stockade(&["image", "ls", "--digests"]).finish();
    assert!(table.stdout.contains(answer["repositoryDigest"].as_str().unwrap()), "{table}");
    let id = world.stockade(&["image", "ls", "-q"]).finish();
    let inspected = world.stockade(&["image", "inspect", id.stdout.trim()]).finish();
    assert_eq!(inspected.json()[0]["config"]["Env"][0], "OF_THE_IMAGE=yes", "{inspected}");

    // By digest, too.
    let digest = answer["repositoryDigest"].as_str().unwrap();
    let by_digest = registry.name(&format!("team/app@{digest}"));
    world.stockade(&["image", "pull", "-q", &by_digest]).finish().succeeds();

    // A tag that moves is another image.
    registry.push(&sample::image(world, "second", "second"), "team/app:1");
    let moved = world.stockade(&["image", "pull", "--json", &name]).finish().json();
    assert_eq!(moved["isNew"], true, "{moved}");
    assert_ne!(moved["digest"], answer["digest"]);

    world.stockade(&["image", "rm", &name]).finish().succeeds();
    world.stockade(&["image", "rm", &by_digest]).finish().succeeds();
    let gone = world.stockade(&["image", "rm", &name]).finish();
    gone.ends_with(1);
    assert!(gone.stderr.contains("[IMAGE_NOT_FOUND]"), "{gone}");
    world.stockade(&["image", "rm", "-f", &name]).finish().succeeds();
    world.stockade(&["image", "prune", "-f"]).finish().succeeds();
    for directory in ["images/blobs", "images/layers", "downloads"] {
        let left = std::fs::read_dir(world.data().join(directory)).unwrap().count();
        assert_eq!(left, 0, "{directory}");
    }
}

fn what_is_not_there_is_named(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::what_is_not_there_is_named")) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "first"), "team/app:1");
    for name in ["team/app:2", "team/other:1"] {
        let outcome = world.stockade(&["image", "pull", &registry.name(name)]).finish();
        outcome.ends_with(1);
        assert!(outcome.stderr.contains("[IMAGE_NOT_FOUND]"), "{outcome}");
    }
    let never = ["run", "--discard", "--pull", "never", "--image", &registry.name("team/app:1")];
    let outcome = world.stockade(&[&never[..], &["--", "true"]].concat()).finish();
    outcome.ends_with(125);
    assert!(outcome.stderr.contains("[IMAGE_NOT_FOUND]"), "{outcome}");
    let wrong = world.stockade(&["image", "pull", "Not A Name"]).finish();
    wrong.ends_with(2);
    let refused = world
        .stockade(&["image", "pull", "--max-size", "1K", &registry.name("team/app:1")])
        .finish();
    refused.ends_with(1);
    assert!(refused.stderr.contains("[IMAGE_TOO_LARGE]"), "{refused}");
}

fn the_platform_is_chosen(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::the_platform_is_chosen")) {
        return;
    }
    let registry = Registry::start(world);
    let layout = Layout::new(world, "layout");
    let other = if architecture() == "arm64" { "amd64" } else { "arm64" };
    let images = [
        layout.image(architecture(), &[shell_layer(world, "of this machine")]),
        layout.image(other, &[shell_layer(world, "of another")]),
    ];
    layout.finish(layout.index(&images));
    registry.push(&layout, "team/app:1");
    let name = registry.name("team/app:1");
    world.stockade(&["image", "pull", "-q", &name]).finish().succeeds();
    let platform = format!("linux/{other}");
    world.stockade(&["image", "pull", "-q", "--platform", &platform, &name]).finish().succeeds();
    let listed = world.stockade(&["image", "ls", "--json"]).finish().json();
    assert_eq!(listed["images"].as_array().unwrap().len(), 2, "{listed}");
    let missing = ["image", "pull", "--platform", "linux/riscv64", &name];
    let missing = world.stockade(&missing).finish();
    missing.ends_with(1);
    assert!(missing.stderr.contains("[IMAGE_PLATFORM_MISSING]"), "{missing}");
    assert!(missing.stderr.contains("--platform linux/"), "{missing}");
}

fn an_image_of_a_registry_runs_also_offline(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::an_image_of_a_registry_runs_also_offline")) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "from the registry"), "team/app:1");
    let name = registry.name("team/app:1");
    let run = ["--discard", "--image", &name];
    let script = ["/bin/sh", "-c", "cat /etc/name; echo \" $OF_THE_IMAGE\""];
    let first = world.run(&run, &script);
    first.succeeds();
    assert_eq!(first.stdout, "from the registry yes\n", "{first}");
    drop(registry);
    let offline = world.run(&run, &script);
    offline.succeeds();
    assert_eq!(offline.stdout, first.stdout);
    let always = world.run(&["--discard", "--pull", "always", "--image", &name], &script);
    always.ends_with(125);
    assert!(always.stderr.contains("[REGISTRY_UNREACHABLE]"), "{always}");
    // Without the program that downloads, what is there can be used.
    std::fs::remove_file(world.path("bin/stockade-server")).unwrap();
    let alone = world.run(&run, &script);
    alone.succeeds();
    let pull = world.stockade(&["image", "pull", &name]).finish();
    pull.ends_with(125);
    assert!(pull.stderr.contains("[UNSUPPORTED]"), "{pull}");
}

fn certificates_are_verified(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::certificates_are_verified")) {
        return;
    }
    let (registry, authorities) = Registry::with_tls(world);
    registry.push(&sample::image(world, "layout", "secured"), "team/app:1");
    let name = registry.name("team/app:1");
    let pull = || world.stockade(&["image", "pull", &name]);
    // The loopback may be reached without TLS, but not with a wrong certificate.
    let refused = pull().finish();
    refused.ends_with(1);
    assert!(refused.stderr.contains("[REGISTRY_UNREACHABLE]"), "{refused}");
    assert!(refused.stderr.contains("certificate"), "{refused}");
    pull().env("SSL_CERT_FILE", &authorities).finish().succeeds();
}

fn a_mirror_is_asked_first(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::a_mirror_is_asked_first")) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "of the mirror"), "library/debian:12");
    let config = world.home().join(".config/stockade/config.toml");
    let mirrors = format!("[registries.mirrors]\n\"docker.io\" = [\"{}\"]\n", registry.host);
    write(world, &config, &mirrors);
    world.stockade(&["image", "pull", "debian:12"]).finish().succeeds();
    let listed = world.stockade(&["image", "ls"]).finish();
    assert!(listed.stdout.contains("debian"), "{listed}");
    write(world, &config, "[registries]\nmirror = 1\n");
    let wrong = world.stockade(&["image", "pull", "debian:12"]).finish();
    wrong.ends_with(2);
    assert!(wrong.stderr.contains("did you mean `mirrors`?"), "{wrong}");
}

fn the_commands_of_readme_do_what_it_says(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::the_commands_of_readme_do_what_it_says")) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "debian"), "library/debian:12");
    let config = world.home().join(".config/stockade/config.toml");
    let mirrors = format!("[registries.mirrors]\n\"docker.io\" = [\"{}\"]\n", registry.host);
    write(world, &config, &mirrors);
    let call = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let outcome = world.stockade(&words).finish();
        outcome.succeeds();
        outcome
    };
    call("image pull debian:12");
    let run = call("run --image debian:12 -- cat /etc/os-release");
    assert_eq!(run.stdout, "ID=sample\n", "{run}");
    assert!(call("image ls --digests").stdout.contains("sha256:"));
    call("image inspect debian:12");
    call("image export debian:12 -o debian.tar");
    call("image rm debian:12");
    assert_eq!(call("image import debian.tar").stdout, "debian:12\n");
    assert_eq!(call("image prune --all").stdout, "debian:12\n");
}

fn an_image_that_a_sandbox_uses_stays(world: &World) {
    if !super::has_programs(concat!(module_path!(), "::an_image_that_a_sandbox_uses_stays")) {
        return;
    }
    let registry = Registry::start(world);
    registry.push(&sample::image(world, "layout", "used"), "team/app:1");
    let name = registry.name("team/app:1");
    world.stockade(&["create", "--id", "box", "--image", &name]).finish().succeeds();
    let read = world.stockade(&["exec", "box", "--", "/bin/cat", "/etc/name"]).finish();
    assert_eq!(read.stdout, "used", "{read}");
    let refused = world.stockade(&["image", "rm", &name]).finish();
    refused.ends_with(1);
    assert!(
        refused.stderr.contains("[IMAGE_IN_USE]") && refused.stderr.contains("box"),
        "{refused}"
    );
    world.stockade(&["image", "prune", "--all"]).finish().succeeds();
    world.stockade(&["exec", "box", "--", "/bin/cat", "/etc/name"]).finish().succeeds();
    world.stockade(&["kill", "box"]).finish().succeeds();
    world.stockade(&["image", "rm", &name]).finish().succeeds();
}

as_root_and_as_user! {
    the_commands_of_readme_do_what_it_says,
    an_image_that_a_sandbox_uses_stays,
    an_image_is_pulled_listed_and_removed,
    what_is_not_there_is_named,
    the_platform_is_chosen,
    an_image_of_a_registry_runs_also_offline,
    a_mirror_is_asked_first,
    certificates_are_verified,
}
