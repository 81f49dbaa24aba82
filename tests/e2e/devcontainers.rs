//! `--devcontainer`: the properties of a project's `devcontainer.json`, and what needs consent.

use std::fs;

use crate::call::Outcome;
use crate::harness::World;

as_root_and_as_user! {
    it_gives_an_image_variables_a_place_and_commands,
    a_sandbox_is_created_from_it,
    what_it_opens_needs_consent,
    each_refused_property_is_named,
}

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

fn describe(world: &World, text: &str) {
    world.plant(&world.project.join(".devcontainer/devcontainer.json"), text);
}

fn refused(outcome: &Outcome, part: &str) {
    assert!(!outcome.status.success() && outcome.stderr.contains(part), "not {part:?}: {outcome}");
}

/// A root file system with the programs of this host.
fn image(world: &World) -> String {
    let image = world.project.join("rootfs");
    for directory in ["usr", "etc", "tmp", "proc", "dev", "workspaces"] {
        fs::create_dir_all(image.join(directory)).unwrap();
    }
    for link in ["bin", "lib", "lib64"] {
        let _ = std::os::unix::fs::symlink(format!("usr/{link}"), image.join(link));
    }
    world.chown(&image);
    for entry in fs::read_dir(&image).unwrap() {
        world.chown(&entry.unwrap().path());
    }
    // The programs of the host, so that nothing has to be copied.
    "--mount=/usr:/usr:ro".to_owned()
}

fn it_gives_an_image_variables_a_place_and_commands(world: &World) {
    let programs = image(world);
    describe(
        world,
        "{ // A comment\n \"image\": \"./rootfs\", \"containerEnv\": { \"WHERE\": \
         \"${containerWorkspaceFolder}\" }, \"remoteEnv\": { \"MORE\": \"${containerEnv:WHERE}/x\" },\n\
         \"workspaceMount\": \"source=${localWorkspaceFolder},target=/workspaces/here,type=bind\",\n\
         \"workspaceFolder\": \"/workspaces/here/src\",\n\
         \"onCreateCommand\": \"echo created > /tmp/log\",\n\
         \"postCreateCommand\": { \"one\": [\"touch\", \"/tmp/one\"], \"two\": \"touch /tmp/two\" },\n\
         \"customizations\": {}, }",
    );
    let script = "pwd; echo $WHERE $MORE; cat /tmp/log; ls /tmp; echo x > new";
    let outcome = world.run(&["--devcontainer", &programs], &["/bin/sh", "-c", script]);
    let expected = "/workspaces/here/src\n/workspaces/here/src /workspaces/here/src/x\ncreated\n";
    assert!(outcome.succeeds().stdout.starts_with(expected), "{outcome}");
    assert!(outcome.stdout.contains("one\n") && outcome.stdout.contains("two\n"), "{outcome}");
    // The project is a view at its other place too.
    assert!(!world.project.join("src/new").exists());
    call(world, &["apply", "latest"]).succeeds();
    assert_eq!(world.read("src/new"), "x\n");
    let text = "{ \"image\": \"./rootfs\", \"postCreateCommand\": \"exit 3\" }";
    describe(world, text);
    let failed = world.run(&["--devcontainer", &programs], &["/bin/sh", "-c", "echo ran"]);
    assert_eq!((failed.code(), failed.stdout.as_str()), (3, ""), "{failed}");
    assert!(failed.stderr.contains("postCreateCommand failed"), "{failed}");
}

fn a_sandbox_is_created_from_it(world: &World) {
    let programs = image(world);
    describe(
        world,
        "{ \"image\": \"./rootfs\", \"containerEnv\": { \"A\": \"b\" }, \"runArgs\": [\"--pids-limit\", \
         \"500\"], \"postCreateCommand\": \"echo $A > /workspaces/made\", \
         \"postStartCommand\": \"echo started >> /workspaces/starts\" }",
    );
    let made = call(world, &["create", "--devcontainer", &programs]);
    let id = made.succeeds().stdout.trim().to_owned();
    let seen =
        call(world, &["exec", &id, "--", "/bin/sh", "-c", "cat /workspaces/made; echo $A; pwd"]);
    let name = world.project.file_name().unwrap().to_str().unwrap();
    assert_eq!(seen.succeeds().stdout, format!("b\nb\n/workspaces/{name}\n"), "{seen}");
    // Each start runs the command for it, and no other one.
    call(world, &["stop", &id]).succeeds();
    call(world, &["start", &id]).succeeds();
    let starts = call(world, &["exec", &id, "--", "/bin/cat", "/workspaces/starts"]);
    assert_eq!(starts.succeeds().stdout, "started\nstarted\n", "{starts}");
    assert!(!call(world, &["ls"]).succeeds().stdout.contains("started"));
    call(world, &["kill", &id]).succeeds();
    describe(
        world,
        "{ \"image\": \"./rootfs\", \"postStartCommand\": \"test ! -e /workspaces/bad\" }",
    );
    let id =
        call(world, &["create", "--devcontainer", &programs]).succeeds().stdout.trim().to_owned();
    call(world, &["exec", &id, "--", "/bin/touch", "/workspaces/bad"]).succeeds();
    call(world, &["stop", &id]).succeeds();
    let failed = call(world, &["start", &id]);
    refused(&failed, "a command of the devcontainer.json failed");
    call(world, &["exec", &id, "--", "/bin/true"]).succeeds();
    call(world, &["kill", &id]).succeeds();
    describe(world, "{ \"image\": \"./rootfs\", \"postCreateCommand\": \"echo why >&2; exit 3\" }");
    let failed = call(world, &["create", "--devcontainer", &programs]);
    refused(&failed, "exit code 3");
    assert!(failed.stderr.contains("why"), "{failed}");
    assert_eq!(call(world, &["ls", "-q"]).stdout, "");
}

fn what_it_opens_needs_consent(world: &World) {
    let programs = image(world);
    let outside = world.outside();
    fs::write(outside.join("secret"), "of the host").unwrap();
    let mount = format!("type=bind,source={},target=/given,readonly", outside.display());
    describe(
        world,
        &format!(
            "{{ \"image\": \"./rootfs\", \"mounts\": [\"{mount}\", \
             \"type=volume,source=data,target=/data\"], \"containerEnv\": {{ \"H\": \
             \"${{localEnv:HOME}}\" }} }}"
        ),
    );
    let run =
        || world.run(&["--discard", "--devcontainer", &programs], &["/bin/cat", "/given/secret"]);
    refused(&run(), "hint: stockade trust --devcontainer");
    assert!(run().stderr.contains("[PATH_REFUSED]"));
    let asked = call(world, &["trust", "--devcontainer"]);
    for flag in ["--accept-mount", "--accept-volume", "--accept-env HOME"] {
        refused(&asked, flag);
    }
    let volume = "type=volume,source=data,target=/data";
    let accept = ["--accept-mount", &mount, "--accept-volume", volume, "--accept-env", "HOME"];
    call(world, &[&["trust", "--devcontainer"], &accept[..]].concat()).succeeds();
    assert_eq!(run().succeeds().stdout, "of the host");
    // A record about one file says nothing about another, nor about another content.
    let text = world.read(".devcontainer/devcontainer.json");
    describe(world, &format!("{text} // changed"));
    refused(&run(), "it has changed");
    describe(world, &text);
    run().succeeds();
    call(world, &["trust", "--devcontainer", "--remove"]).succeeds();
    refused(&run(), "it is not trusted");
}

fn each_refused_property_is_named(world: &World) {
    for (text, name) in [
        ("\"build\": { \"dockerfile\": \"x\" }", "`build`"),
        ("\"privileged\": true", "`privileged`"),
        ("\"features\": { \"x\": {} }", "`features`"),
        ("\"runArgs\": [\"--privileged\"]", "--privileged"),
        ("\"initializeCommand\": \"touch x\"", "`initializeCommand`"),
        ("\"forwardPorts\": [3000]", "`forwardPorts`"),
        ("\"imgae\": \"x\"", "`imgae`"),
    ] {
        describe(world, &format!("{{ \"image\": \"x\", {text} }}"));
        refused(&world.run(&["--devcontainer"], &["true"]), name);
    }
    fs::remove_dir_all(world.project.join(".devcontainer")).unwrap();
    refused(&world.run(&["--devcontainer"], &["true"]), "[NOT_FOUND]");
    for name in ["one", "two"] {
        let path = format!(".devcontainer/{name}/devcontainer.json");
        world.plant(&world.project.join(path), "{ \"privileged\": true }");
    }
    refused(&world.run(&["--devcontainer"], &["true"]), "--devcontainer=one");
    refused(&world.run(&["--devcontainer=two"], &["true"]), "`privileged`");
}
