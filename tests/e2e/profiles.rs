//! Profiles of the user's own file and of a project's, which counts only while its content is trusted.

use std::os::unix::fs::{PermissionsExt, symlink};

use crate::harness::World;

as_root_and_as_user! {
    a_profile_of_the_users_gives_values_that_flags_replace,
    a_projects_file_is_ignored_until_its_content_is_trusted,
    what_is_outside_of_the_project_needs_consent_by_name,
    a_file_that_others_could_have_written_is_refused,
    a_sandbox_cannot_change_what_is_trusted,
    caches_volumes_and_limits_of_a_profile_apply_to_both_commands,
}

/// The user's own file.
fn configure(world: &World, text: &str) {
    let path = world.home().join(".config/stockade/config.toml");
    for directory in [world.home().join(".config"), world.home().join(".config/stockade")] {
        let _ = std::fs::create_dir(&directory);
        world.chown(&directory);
    }
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    world.chown(&path);
}

fn a_profile_of_the_users_gives_values_that_flags_replace(world: &World) {
    std::fs::write(world.outside().join("data"), "shown").unwrap();
    let outside = world.outside();
    let outside = outside.display();
    configure(
        world,
        &format!(
            "default = 'base'\n[profile.base]\nenv = {{ WHICH = 'base' }}\n[profile.data]\n\
             mount = ['{outside}:/data:ro']\nenv = ['WHICH=data', 'MINE']\nhide = ['a.txt']\n\
             [profile.data.limits]\ntimeout = '1h30m'\n"
        ),
    );
    let shell = |flags: &[&str], script: &str| {
        world.run(&[&["--discard"], flags].concat(), &["sh", "-c", script])
    };
    let outcome = shell(&[], "echo $WHICH");
    assert_eq!(outcome.succeeds().stdout, "base\n");
    assert!(outcome.stderr.contains("profile base of "), "{outcome}");
    assert_eq!(shell(&["--profile", "none"], "echo $WHICH").stdout, "\n");
    assert_eq!(shell(&["--profile", "data", "-e", "WHICH=flag"], "echo $WHICH").stdout, "flag\n");
    assert_eq!(shell(&["--profile", "data"], "cat /data/data; echo $WHICH").stdout, "showndata\n");
    let hidden = shell(&["--profile", "data"], "cat a.txt");
    assert!(!hidden.stdout.contains("alpha"), "{hidden}");
    let json = shell(&["--profile", "data", "--json"], "true").json();
    assert_eq!(json["profile"]["name"], "data");

    let unknown = shell(&["--profile", "dat"], "true");
    assert!(unknown.stderr.contains("hint: --profile data"), "{unknown}");
    configure(world, "[profile.x]\nalow = ['example.com']\n");
    let outcome = shell(&[], "true");
    assert!(outcome.is_refused().stderr.contains("did you mean `allow`?"), "{outcome}");
}

fn a_projects_file_is_ignored_until_its_content_is_trusted(world: &World) {
    let text = "default = 'ci'\n[profile.ci]\nenv = { WHICH = 'project' }\n";
    world.write("stockade.toml", text);
    let which = || world.run(&["--discard"], &["sh", "-c", "echo $WHICH"]);
    let ignored = which();
    assert_eq!(ignored.succeeds().stdout, "\n");
    assert!(ignored.stderr.contains("stockade.toml of this project is ignored"), "{ignored}");
    let named = world.run(&["--discard", "--profile", "ci"], &["true"]);
    assert!(named.is_refused().stderr.contains("hint: stockade trust"), "{named}");

    let shown = world.stockade(&["trust"]).finish();
    assert!(shown.succeeds().stdout.contains("[ci] env: WHICH=project"), "{shown}");
    let used = which();
    assert_eq!(used.succeeds().stdout, "project\n");
    assert!(used.stderr.contains("profile ci of "), "{used}");

    world.write("stockade.toml", format!("{text}# changed\n"));
    let changed = which();
    assert_eq!(changed.succeeds().stdout, "\n");
    assert!(changed.stderr.contains("has changed since it was trusted"), "{changed}");
    world.write("stockade.toml", text);
    assert_eq!(which().stdout, "project\n");
    world.stockade(&["trust", "--remove"]).finish().succeeds();
    assert_eq!(which().stdout, "\n");
}

fn what_is_outside_of_the_project_needs_consent_by_name(world: &World) {
    let outside = world.outside();
    std::fs::write(outside.join("data"), "secret").unwrap();
    let mount = format!("{}:/data:ro", outside.display());
    let inside = "src:/sources:ro";
    for (line, flag, value) in [
        (format!("mount = ['{mount}']"), "--accept-mount", mount.as_str()),
        ("mount = ['src:/sources']".to_owned(), "--accept-mount", "src:/sources"),
        ("mount = ['link:/data:ro']".to_owned(), "--accept-mount", "link:/data:ro"),
        ("volume = ['data:/data']".to_owned(), "--accept-volume", "data:/data"),
        ("tools = ['node']".to_owned(), "--accept-tools", "node"),
        ("env = ['MINE']".to_owned(), "--accept-env", "MINE"),
        ("secret = ['TOKEN@example.com']".to_owned(), "--accept-secret", "TOKEN@example.com"),
    ] {
        let link = world.project.join("link");
        let _ = std::fs::remove_file(&link);
        symlink(&outside, &link).unwrap();
        world.write("stockade.toml", format!("default = 'p'\n[profile.p]\n{line}\n"));
        let refused = world.stockade(&["trust"]).finish();
        assert!(refused.is_refused().stderr.contains(flag), "{line}: {refused}");
        let other = world.stockade(&["trust", flag, "other"]).finish();
        other.is_refused();
        world.stockade(&["trust", flag, value]).finish().succeeds();
    }
    world.write("stockade.toml", format!("default = 'p'\n[profile.p]\nmount = ['{inside}']\n"));
    world.stockade(&["trust"]).finish().succeeds();
    let shown = world.run(&["--discard"], &["cat", "/sources/main.rs"]);
    assert!(shown.succeeds().stdout.contains("fn main"), "{shown}");
    // The directory becomes a link to elsewhere after it was trusted.
    std::fs::rename(world.project.join("src"), world.project.join("moved")).unwrap();
    symlink(&outside, world.project.join("src")).unwrap();
    let refused = world.run(&["--discard"], &["cat", "/sources/data"]);
    assert!(refused.is_refused().stderr.contains("now leads to"), "{refused}");
}

fn a_file_that_others_could_have_written_is_refused(world: &World) {
    let elsewhere = world.outside().join("stockade.toml");
    std::fs::write(&elsewhere, "default = 'p'\n[profile.p]\n").unwrap();
    symlink(&elsewhere, world.project.join("stockade.toml")).unwrap();
    let refused = world.stockade(&["trust"]).finish();
    assert!(refused.is_refused().stderr.contains("it is a link"), "{refused}");
    world.run(&["--discard"], &["true"]).succeeds();

    configure(world, "[profile.p]\n");
    let own = world.home().join(".config/stockade/config.toml");
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o666)).unwrap();
    let refused = world.run(&["--discard"], &["true"]);
    assert!(refused.is_refused().stderr.contains("others can write it"), "{refused}");
    assert!(refused.stderr.contains(&format!("hint: chmod go-w {}", own.display())), "{refused}");
}

fn a_sandbox_cannot_change_what_is_trusted(world: &World) {
    let text = "default = 'p'\n[profile.p]\nenv = { WHICH = 'mine' }\n";
    world.write("stockade.toml", text);
    world.stockade(&["trust"]).finish().succeeds();
    world.run(&[], &["sh", "-c", "echo 'env = {}' >> stockade.toml; echo x > x"]).succeeds();
    let applied = world.stockade(&["apply", "latest"]).finish();
    assert!(applied.stderr.contains("EXECUTED_FILE"), "{applied}");
    assert_eq!(world.read("stockade.toml"), text);
    world.stockade(&["apply", "latest", "--allow-executed"]).finish().succeeds();
    let ignored = world.run(&["--discard"], &["sh", "-c", "echo $WHICH"]);
    assert_eq!(ignored.succeeds().stdout, "\n");
    assert!(ignored.stderr.contains("has changed since it was trusted"), "{ignored}");
}

fn caches_volumes_and_limits_of_a_profile_apply_to_both_commands(world: &World) {
    configure(
        world,
        "default = 'p'\n[profile.p]\ncache = ['pip']\nvolume = ['data:/data']\n\
         [profile.p.limits]\ntimeout = '2s'\n",
    );
    let script = "echo kept > /data/file; echo kept > $PIP_CACHE_DIR/file";
    world.run(&["--discard"], &["sh", "-c", script]).succeeds();
    let made = world.stockade(&["create", "--workspace", "."]).finish();
    let id = made.succeeds().stdout.trim().to_owned();
    let exec = |flags: &[&str], script: &str| {
        let command = ["--", "sh", "-c", script];
        world.stockade(&[&["exec", &id], flags, &command[..]].concat()).finish()
    };
    let seen = exec(&[], "cat /data/file $PIP_CACHE_DIR/file");
    assert_eq!(seen.succeeds().stdout, "kept\nkept\n", "{seen}");
    exec(&[], "sleep 60").ends_with(124);
    exec(&["--timeout", "none"], "sleep 3").succeeds();
    world.stockade(&["kill", &id]).finish().succeeds();
    configure(world, "[profile.p]\nvolume = ['/etc:/x']\n");
    let outcome = world.run(&["--discard"], &["true"]);
    assert!(outcome.is_refused().stderr.contains("belongs to `mount`"), "{outcome}");
}
