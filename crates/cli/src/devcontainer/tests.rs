//! A project with a `devcontainer.json`: what is read, refused, and needs consent.

use std::fs;

use super::*;

struct Scene {
    _directory: tempfile::TempDir,
    project: Project,
    data: DataDir,
}

impl Scene {
    /// A project with this file, and an image in it.
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("project");
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join("rootfs/etc")).unwrap();
        fs::create_dir_all(directory.path().join("outside")).unwrap();
        fs::write(root.join("rootfs/etc/passwd"), "root:x:0:0:::\nvscode:x:1000:1001:::\n")
            .unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        let project = Project::open(&root, None).unwrap();
        let scene = Self { _directory: directory, project, data };
        scene.write(".devcontainer/devcontainer.json", text);
        scene
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.project.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self) -> Result<DevContainer, Problem> {
        DevContainer::read(&self.project, "")
    }
}

fn refused(text: &str) -> Problem {
    Scene::new(text).read().unwrap_err()
}

#[test]
fn comments_and_trailing_commas_are_accepted() {
    let scene = Scene::new(
        "\u{feff}// A comment\n{ /* one more */ \"image\": \"./rootfs\",\n\
         \"containerEnv\": { \"A\": \"${localWorkspaceFolderBasename}\", \"B\": \"b\", },\n\
         \"remoteEnv\": { \"PATH\": \"${containerEnv:PATH}:/x\", \"B\": null, \"C\": \"${containerEnv:A}\" },\n\
         \"remoteUser\": \"vscode\", \"customizations\": { \"vscode\": {} }, \"name\": \"x\",\n\
         \"postCreateCommand\": \"make\", }",
    );
    let read = scene.read().unwrap();
    let path = format!("PATH={}:/x", stockade_plan::environment::PATH);
    assert_eq!(read.environment, ["A=project", "C=project", path.as_str()]);
    assert_eq!(read.inside, Path::new("/workspaces/project"));
    let mut flags = SandboxFlags::default();
    read.apply(&mut flags, &scene.project).unwrap();
    assert_eq!(flags.image, Some(scene.project.root.join("./rootfs")));
    assert_eq!(flags.user, Some(UserArgument { user: 1000, group: 1001 }));
    // It opens nothing, so it needs no consent.
    DevContainer::trusted(&scene.project, "", &scene.data).unwrap();
}

#[test]
fn each_refused_property_is_named() {
    for (text, name) in [
        ("{ \"build\": { \"dockerfile\": \"Dockerfile\" } }", "`build`"),
        ("{ \"dockerFile\": \"Dockerfile\" }", "`dockerFile`"),
        ("{ \"dockerComposeFile\": \"x.yml\" }", "`dockerComposeFile`"),
        ("{ \"features\": { \"ghcr.io/x\": {} } }", "`features`"),
        ("{ \"privileged\": true }", "`privileged`"),
        ("{ \"capAdd\": [\"SYS_PTRACE\"] }", "`capAdd`"),
        ("{ \"securityOpt\": [\"seccomp=unconfined\"] }", "`securityOpt`"),
        ("{ \"initializeCommand\": \"x\" }", "`initializeCommand`"),
        ("{ \"appPort\": 3000 }", "`appPort`"),
    ] {
        let problem = refused(text);
        assert_eq!(problem.code, Code::Unsupported, "{text}");
        assert!(problem.message.contains(name) && problem.cause.is_some(), "{problem:?}");
    }
    for (text, part) in [
        ("{ \"imgae\": \"x\" }", "`imgae`"),
        ("{ \"image\": 1 }", "`image`"),
        ("{ \"mounts\": [\"/a:/b\"] }", "`mounts`"),
        ("{ \"mounts\": [{ \"source\": \"a\", \"readonly\": \"x\" }] }", "readonly"),
        ("{ \"workspaceMount\": \"source=/etc,target=/x,type=bind\" }", "another source"),
        ("{ \"workspaceMount\": \"\" }", "`workspaceMount`"),
        ("{ \"workspaceFolder\": \"x\" }", "absolute"),
        ("{ \"runArgs\": [\"--device=/dev/kvm\"] }", "--device"),
        ("{ \"forwardPorts\": [\"db:5432\"] }", "another container"),
        ("{ \"forwardPorts\": [70000] }", "not a port"),
        ("{ \"containerEnv\": { \"A=B\": \"x\" } }", "names no variable"),
        ("{ \"hostRequirements\": { \"memory\": \"9000tb\" } }", "hostRequirements.memory"),
        ("{ \"hostRequirements\": { \"gpu\": true } }", "hostRequirements.gpu"),
        ("{ \"postCreateCommand\": 1 }", "postCreateCommand"),
        ("[]", "invalid"),
        ("{", "invalid"),
    ] {
        let problem = refused(text);
        assert!(problem.message.contains(part), "{text}: {problem:?}");
    }
}

#[test]
fn what_opens_something_needs_consent_to_exactly_this_content() {
    for (text, grant) in [
        (
            "\"mounts\": [\"type=bind,source=${localWorkspaceFolder}/../outside,target=/o\"]",
            "mount",
        ),
        (
            "\"mounts\": [{ \"type\": \"bind\", \"source\": \"${localWorkspaceFolder}\", \"target\": \"/o\" }]",
            "mount",
        ),
        ("\"mounts\": [\"type=volume,source=data,target=/o\"]", "volume"),
        ("\"runArgs\": [\"-v\", \"data:/o\"]", "volume"),
        ("\"runArgs\": [\"--env\", \"HOME\"]", "variable"),
        ("\"containerEnv\": { \"A\": \"${localEnv:HOME}\" }", "variable"),
        ("\"postCreateCommand\": \"echo ${localEnv:HOME}\"", "variable"),
    ] {
        let scene = Scene::new(&format!("{{ \"image\": \"rootfs\", {text} }}"));
        let grants = scene.read().unwrap().grants(&scene.project).unwrap();
        let counts = [
            ("mount", grants.mounts.len()),
            ("volume", grants.volumes.len()),
            ("variable", grants.variables.len()),
        ];
        assert!(counts.iter().all(|(name, count)| (*count > 0) == (*name == grant)), "{text}");
        let untrusted = DevContainer::trusted(&scene.project, "", &scene.data).unwrap_err();
        assert_eq!(untrusted.code, Code::PathRefused, "{text}");
        assert_eq!(untrusted.remediation.as_deref(), Some("stockade trust --devcontainer"));
        let file = Path::new(".devcontainer/devcontainer.json");
        crate::profile::record(&scene.project, &scene.data, file, &grants).unwrap();
        DevContainer::trusted(&scene.project, "", &scene.data).unwrap();
        scene.write(
            ".devcontainer/devcontainer.json",
            &format!("{{ \"image\": \"rootfs\", {text} }} // changed"),
        );
        DevContainer::trusted(&scene.project, "", &scene.data).unwrap_err();
    }
}

#[test]
fn a_directory_of_the_host_as_an_image_needs_consent() {
    for image in ["/etc", "../outside", "./../outside", "rootfs/../../outside"] {
        let scene = Scene::new(&format!("{{ \"image\": {image:?} }}"));
        let grants = scene.read().unwrap().grants(&scene.project).unwrap();
        assert_eq!(grants.mounts.len(), 1, "{image}");
        DevContainer::trusted(&scene.project, "", &scene.data).unwrap_err();
    }
}

#[test]
fn one_of_several_is_chosen_by_name() {
    let scene = Scene::new("{}");
    fs::remove_file(scene.project.root.join(".devcontainer/devcontainer.json")).unwrap();
    assert_eq!(scene.read().unwrap_err().code, Code::NotFound);
    scene.write(".devcontainer/one/devcontainer.json", "{ \"image\": \"one\" }");
    assert_eq!(scene.read().unwrap().image.as_deref(), Some("one"));
    scene.write(".devcontainer/two/devcontainer.json", "{ \"image\": \"two\" }");
    let several = scene.read().unwrap_err();
    assert_eq!(several.remediation.as_deref(), Some("--devcontainer=one"));
    let two = DevContainer::read(&scene.project, "two").unwrap();
    assert_eq!(two.image.as_deref(), Some("two"));
    for bad in ["..", "../x", "three", "."] {
        DevContainer::read(&scene.project, bad).unwrap_err();
    }
    scene.write(".devcontainer.json", "{ \"image\": \"root\" }");
    assert_eq!(scene.read().unwrap().image.as_deref(), Some("root"));
}

#[test]
fn a_link_to_a_file_elsewhere_is_refused() {
    let scene = Scene::new("{}");
    let directory = scene.project.root.join(".devcontainer");
    let elsewhere = scene.project.root.join("../outside/devcontainer.json");
    fs::write(&elsewhere, "{}").unwrap();
    fs::remove_file(directory.join("devcontainer.json")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, directory.join("devcontainer.json")).unwrap();
    assert!(scene.read().unwrap_err().cause.unwrap().contains("link"));
    fs::remove_dir_all(&directory).unwrap();
    std::os::unix::fs::symlink(scene.project.root.join("../outside"), &directory).unwrap();
    scene.read().unwrap_err();
}

/// What becomes of a property, by its value in the example.
#[derive(Debug, PartialEq)]
enum Effect {
    /// The sandbox is another one than without it.
    Honoured,
    /// It is the same.
    Ignored,
    /// The error names it.
    Refused,
}

/// Every property of the reference of containers.dev, with a value that asks for something.
const REFERENCE: [(&str, &str, Effect); 49] = {
    use Effect::{Honoured, Ignored, Refused};
    [
        // General properties.
        ("$schema", "\"https://example.com/schema.json\"", Ignored),
        ("name", "\"a name\"", Ignored),
        ("forwardPorts", "[3000, \"localhost:5432\"]", Honoured),
        (
            "portsAttributes",
            "{ \"3000\": { \"label\": \"web\", \"onAutoForward\": \"notify\" } }",
            Ignored,
        ),
        ("otherPortsAttributes", "{ \"onAutoForward\": \"silent\" }", Ignored),
        ("containerEnv", "{ \"A\": \"b\" }", Honoured),
        ("remoteEnv", "{ \"A\": \"b\" }", Honoured),
        ("remoteUser", "\"vscode\"", Honoured),
        ("containerUser", "\"vscode\"", Honoured),
        ("updateRemoteUserUID", "false", Ignored),
        ("userEnvProbe", "\"loginInteractiveShell\"", Refused),
        ("overrideCommand", "false", Refused),
        ("shutdownAction", "\"stopContainer\"", Ignored),
        ("init", "true", Ignored),
        ("privileged", "true", Refused),
        ("capAdd", "[\"SYS_PTRACE\"]", Refused),
        ("capDrop", "[\"ALL\"]", Refused),
        ("securityOpt", "[\"seccomp=unconfined\"]", Refused),
        ("mounts", "[\"type=volume,source=data,target=/data\"]", Honoured),
        ("features", "{ \"ghcr.io/devcontainers/features/git:1\": {} }", Refused),
        ("overrideFeatureInstallOrder", "[\"ghcr.io/devcontainers/features/git\"]", Refused),
        ("customizations", "{ \"vscode\": { \"extensions\": [] } }", Ignored),
        ("settings", "{ \"a\": 1 }", Ignored),
        ("extensions", "[\"a.b\"]", Ignored),
        ("devPort", "1234", Ignored),
        ("secrets", "{ \"TOKEN\": { \"description\": \"a token\" } }", Ignored),
        // An image or a Dockerfile.
        ("image", "\"debian:12\"", Honoured),
        ("build", "{ \"dockerfile\": \"Dockerfile\", \"context\": \"..\" }", Refused),
        ("dockerFile", "\"Dockerfile\"", Refused),
        ("dockerfile", "\"Dockerfile\"", Refused),
        ("context", "\"..\"", Refused),
        ("appPort", "[3000]", Refused),
        ("workspaceMount", "\"source=${localWorkspaceFolder},target=/w,type=bind\"", Honoured),
        ("workspaceFolder", "\"/workspaces/project/src\"", Honoured),
        ("runArgs", "[\"--memory\", \"1g\"]", Honoured),
        ("containerName", "\"mine\"", Refused),
        ("extends", "\"./other.json\"", Refused),
        ("workspaceTrust", "\"trusted\"", Refused),
        // Compose.
        ("dockerComposeFile", "\"compose.yml\"", Refused),
        ("service", "\"app\"", Refused),
        ("runServices", "[\"db\"]", Refused),
        // The commands of the lifecycle.
        ("initializeCommand", "\"make\"", Refused),
        ("onCreateCommand", "\"make\"", Honoured),
        ("updateContentCommand", "[\"make\", \"all\"]", Honoured),
        ("postCreateCommand", "{ \"a\": \"make\" }", Honoured),
        ("postStartCommand", "\"make\"", Honoured),
        ("postAttachCommand", "\"make\"", Honoured),
        ("waitFor", "\"onCreateCommand\"", Ignored),
        // What the host must have: nothing changes where it has that.
        ("hostRequirements", "{ \"cpus\": 1, \"memory\": \"1mb\", \"storage\": \"1mb\" }", Ignored),
    ]
};

#[test]
fn each_property_of_the_reference_has_an_effect_or_is_refused_by_name() {
    /// Everything that the file gives to a sandbox.
    fn given(text: &str) -> Result<String, Problem> {
        let scene = Scene::new(text);
        let mut read = scene.read()?;
        read.content.clear();
        let top = scene.project.root.parent().unwrap().to_string_lossy().into_owned();
        Ok(format!("{read:?}").replace(&top, ""))
    }
    let without = given("{ \"image\": \"./rootfs\" }").unwrap();
    let listed: BTreeSet<_> = PROPERTIES.iter().map(|(name, _)| *name).collect();
    let tried: BTreeSet<_> = REFERENCE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(listed, tried);
    for (name, value, expected) in REFERENCE {
        let first = if name == "image" { "" } else { "\"image\": \"./rootfs\", " };
        let effect = match given(&format!("{{ {first}\"{name}\": {value} }}")) {
            Err(problem) => {
                assert_eq!(problem.code, Code::Unsupported, "{name}");
                assert!(problem.message.contains(&format!("`{name}`")), "{}", problem.message);
                Effect::Refused
            }
            Ok(given) if given == without => Effect::Ignored,
            Ok(_) => Effect::Honoured,
        };
        assert_eq!(effect, expected, "{name}");
    }
    for requirement in ["\"cpus\": 100000", "\"memory\": \"900tb\"", "\"gpu\": true"] {
        let text =
            format!("{{ \"image\": \"./rootfs\", \"hostRequirements\": {{ {requirement} }} }}");
        let problem = given(&text).unwrap_err();
        assert!(problem.message.contains("hostRequirements"), "{}", problem.message);
    }
}

#[test]
fn the_command_of_a_start_is_a_script_of_its_own() {
    let scene = Scene::new(
        "{ \"image\": \"./rootfs\", \"postCreateCommand\": \"one\", \"postStartCommand\": \"two\" }",
    );
    let script = scene.read().unwrap().start_script().unwrap();
    assert!(script.contains("two") && !script.contains("one"), "{script}");
    let none = Scene::new("{ \"image\": \"./rootfs\", \"postCreateCommand\": \"one\" }");
    assert_eq!(none.read().unwrap().start_script(), None);
}
