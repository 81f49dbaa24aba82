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
