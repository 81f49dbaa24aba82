//! Registries that ask who one is.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine as _;

use super::sample;
use super::server::{Registry, USER, write};
use crate::harness::World;

fn a_private_image_needs_the_credentials_of_docker(world: &World) {
    let test = concat!(module_path!(), "::a_private_image_needs_the_credentials_of_docker");
    if !super::has_programs(test) {
        return;
    }
    let registry = Registry::with_users(world);
    registry.push(&sample::image(world, "layout", "private"), "team/app:1");
    let name = registry.name("team/app:1");
    let pull = || world.stockade(&["image", "pull", &name]);
    let refused = pull().finish();
    refused.ends_with(1);
    assert!(refused.stderr.contains("[REGISTRY_UNAUTHORIZED]"), "{refused}");
    assert!(refused.stderr.contains(&format!("docker login {}", registry.host)), "{refused}");

    let config = world.home().join(".docker/config.json");
    let auths = |user: &str| {
        let auth = base64::engine::general_purpose::STANDARD.encode(user);
        serde_json::json!({ "auths": { (registry.host.as_str()): { "auth": auth } } }).to_string()
    };
    write(world, &config, &auths("user:wrong-password"));
    let wrong = pull().finish();
    wrong.ends_with(1);
    assert!(wrong.stderr.contains("[REGISTRY_UNAUTHORIZED]"), "{wrong}");
    assert!(!wrong.stderr.contains("wrong-password"), "{wrong}");
    write(world, &config, &auths(USER));
    pull().finish().succeeds();
    let (_, password) = USER.split_once(':').unwrap();
    let encoded = base64::engine::general_purpose::STANDARD.encode(USER);
    for secret in [password, &encoded] {
        assert!(world.files_with(&world.data(), secret).is_empty());
    }

    // Another directory, and a helper.
    world.stockade(&["image", "rm", &name]).finish().succeeds();
    let directory = world.path("docker");
    let helpers = serde_json::json!({ "credHelpers": { (registry.host.as_str()): "test" } });
    write(world, &directory.join("config.json"), &helpers.to_string());
    let helper = world.path("bin/docker-credential-test");
    let script = "#!/bin/sh\n[ \"$1\" = get ] || exit 1\nread host\n\
        printf '{\"ServerURL\":\"%s\",\"Username\":\"user\",\"Secret\":\"Zq83hTnw04LxvUe7\"}' \"$host\"\n";
    write(world, &helper, script);
    fs::set_permissions(&helper, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", world.path("bin").display());
    let with_helper = || pull().env("DOCKER_CONFIG", &directory).env("PATH", &path);
    with_helper().finish().succeeds();
    write(world, &helper, "#!/bin/sh\necho a-secret-text\nexit 1\n");
    fs::set_permissions(&helper, PermissionsExt::from_mode(0o755)).unwrap();
    let failed = with_helper().finish();
    failed.ends_with(1);
    assert!(failed.stderr.contains("docker-credential-test"), "{failed}");
    assert!(!failed.stderr.contains("a-secret-text"), "{failed}");
}

as_root_and_as_user! {
    a_private_image_needs_the_credentials_of_docker,
}
