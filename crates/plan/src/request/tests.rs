//! Requests that are refused. Also, that one request results in the same jail for a run and for a
//! persistent sandbox.

use std::ffi::CString;
use std::fs::File;

use stockade_core::access::Rules;
use stockade_core::network::Policy;
use stockade_jail::cgroup::Group;
use stockade_jail::{Payload, Rights, Streams};

use super::*;
use crate::layers::Origin;
use crate::one_shot::{OneShotInput, View};
use crate::{PersistentInput, Programs};

/// A data directory and a project with one directory in it.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for directory in ["data/skeleton", "data/view/upper", "data/view/work", "box"] {
            std::fs::create_dir_all(top.path().join(directory)).unwrap();
        }
        std::fs::create_dir_all(top.path().join("project/there")).unwrap();
        Self(top)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn spec(&self) -> SandboxSpec {
        let workspace = Workspace { host: self.path("project"), inside: "/project".into() };
        SandboxSpec { workspace: Some(workspace), ..SandboxSpec::default() }
    }

    fn check(&self, spec: &SandboxSpec) -> Result<Request, Error> {
        let users = Users::for_identity(&Identity::for_caller().unwrap());
        Request::check(spec, &spec.root, users, &|| HostPaths::new(&self.path("data")))
    }

    fn changed(&self, change: impl FnOnce(&mut SandboxSpec)) -> Result<Request, Error> {
        let mut spec = self.spec();
        change(&mut spec);
        self.check(&spec)
    }

    fn one_shot(&self, request: Request) -> JailSpec {
        let once = OneShotInput {
            ssh_agent: None,
            base: None,
            identity: Identity::for_caller().unwrap(),
            view: &View::Overlay(self.path("data/view")),
            payload: Payload::Program(vec![CString::from(c"true")]),
            environment: Vec::new(),
            working_directory: CString::from(c"/"),
            streams: Streams::Pipes,
            umask: 0o022,
            git: Vec::new(),
            etc: &self.path("data/view"),
            not_before: None,
            authorities: None,
            group: None,
            lock: File::open(self.path("data")).unwrap().into(),
        };
        request.one_shot_jail(once).unwrap()
    }

    fn persistent(&self, request: Request) -> JailSpec {
        let input = PersistentInput {
            identity: Identity::for_caller().unwrap(),
            directory: &self.path("box"),
            origin: Origin::New,
            bubblewrap: None,
            programs: &mut Programs::new(self.path("data/skeleton"), self.path("data")),
            group: Group::default(),
            listener: File::open(self.path("data")).unwrap().into(),
            descriptors: 1024,
        };
        request.persistent_jail(input).unwrap().spec
    }
}

fn mount(host: &str, inside: &str) -> HostMount {
    HostMount { host: host.into(), inside: inside.into(), writable: false }
}

#[test]
fn what_would_hide_the_sandbox_or_show_our_data_is_refused() {
    let scene = Scene::new();
    let refused = |mount| scene.changed(|spec| spec.mounts.push(mount)).unwrap_err();
    assert!(scene.changed(|_| {}).is_ok());
    for inside in ["/", "/proc/x"] {
        assert!(matches!(refused(mount("/usr", inside)), Error::Reserved(_)), "{inside}");
    }
    for inside in ["/a/../b", "a"] {
        assert!(matches!(refused(mount("/usr", inside)), Error::NotAbsolute(_)), "{inside}");
    }
    assert!(matches!(refused(mount("/", "/a")), Error::HostRoot));
    assert!(matches!(refused(mount("/no-such", "/a")), Error::HostPath { .. }));
    for own in ["", "data", "data/view"] {
        let path = scene.path(own);
        assert!(matches!(refused(mount(path.to_str().unwrap(), "/a")), Error::OwnData(_)), "{own}");
    }
    let workspace = |host| {
        let workspace = Workspace { host, inside: "/project".into() };
        scene.changed(|spec| spec.workspace = Some(workspace)).unwrap_err()
    };
    assert!(matches!(workspace(scene.path("data")), Error::OwnData(_)));
    assert!(matches!(workspace("/".into()), Error::HostRoot));
}

#[test]
fn a_mount_in_the_workspace_needs_its_path() {
    let scene = Scene::new();
    assert!(scene.changed(|spec| spec.mounts.push(mount("/usr", "/project/there"))).is_ok());
    let missing = scene.changed(|spec| spec.mounts.push(mount("/usr", "/project/missing")));
    assert!(matches!(missing, Err(Error::MissingInWorkspace(_))));
}

#[test]
fn a_root_is_a_directory_and_no_name() {
    let scene = Scene::new();
    let root = |root| scene.changed(|spec| spec.root = root).unwrap_err();
    assert!(matches!(root(Root::Image("debian".to_owned())), Error::NoImage(_)));
    assert!(matches!(root(Root::Directory("/".into())), Error::HostRoot));
    assert!(matches!(root(Root::Directory("/etc/hosts".into())), Error::NotDirectory(_)));
    assert!(matches!(root(Root::Directory(scene.path(""))), Error::OwnData(_)));
    assert!(scene.changed(|spec| spec.root = Root::Directory("/usr".into())).is_ok());
}

#[test]
fn a_variable_and_a_directory_must_be_possible() {
    let scene = Scene::new();
    let variable = |name: &str, value: &str| {
        let set = |spec: &mut SandboxSpec| {
            spec.environment.insert(name.to_owned(), value.into());
        };
        scene.changed(set)
    };
    assert!(variable("A", "b=c\n").is_ok());
    for (name, value) in [("", "x"), ("a=b", "x"), ("a", "\0")] {
        assert!(matches!(variable(name, value), Err(Error::Variable(_))), "{name:?}");
    }
    let relative = scene.changed(|spec| spec.working_directory = Some("a".into()));
    assert!(matches!(relative, Err(Error::NotAbsolute(_))));
}

/// The requested mounts of a jail below its root, and their kinds.
fn requested(jail: &JailSpec) -> Vec<(PathBuf, String)> {
    let described = |mount: &Mount| match mount {
        Mount::Tree(Source::Host { tree, access, owners }) => {
            format!("{} {access:?} {owners:?}", tree.path.display())
        }
        Mount::Tree(Source::ReadOnly(tree)) => format!("{} read-only", tree.path.display()),
        Mount::Tree(Source::Overlay(overlay)) => {
            format!("view of {}", overlay.lower.path.display())
        }
        other => format!("{other:?}"),
    };
    let paths = ["/project", "/one", "/two", "/etc/resolv.conf"].map(Path::new);
    let is_it = |(path, _): &&(PathBuf, Mount)| paths.contains(&path.as_path());
    jail.mounts
        .iter()
        .filter(is_it)
        .filter(|(path, _)| path != Path::new("/etc/resolv.conf"))
        .map(|(path, mount)| (path.clone(), described(mount)))
        .collect()
}

#[test]
fn a_run_and_a_persistent_sandbox_get_the_same_of_one_request() {
    let scene = Scene::new();
    let mut spec = scene.spec();
    spec.mounts = vec![mount("/usr/share", "/one"), mount("/usr/lib", "/two")];
    spec.mounts[1].writable = true;
    spec.limits = Limits { processes: Some(7), ..Limits::default() };
    spec.best_effort = [BestEffort::Landlock].into();
    spec.access =
        Rules::from_stored(r#"[{"effect":"deny","level":"read","path":"/project/there"}]"#);
    spec.network = Some(Policy::default());
    let once = scene.one_shot(scene.check(&spec).unwrap());
    let persistent = scene.persistent(scene.check(&spec).unwrap());

    assert_eq!(requested(&once), requested(&persistent));
    assert_eq!(requested(&once).len(), 3);
    assert_eq!((once.rlimits.processes, persistent.rlimits.processes), (Some(7), Some(7)));
    assert_eq!((&once.hostname, once.network), (&persistent.hostname, persistent.network));
    assert!(once.landlock_optional && persistent.landlock_optional);
    let reaches = |jail: &JailSpec| -> Vec<(PathBuf, Rights)> {
        let access_mounts = jail.access_mounts.as_ref().unwrap();
        access_mounts.list.iter().map(|area| (area.path.clone(), area.rights)).collect()
    };
    assert_eq!(reaches(&once), reaches(&persistent));
    // Whether programs find a resolver is the same too, however its file is mounted.
    for jail in [&once, &persistent] {
        assert!(jail.mounts.iter().any(|(path, mount)| match mount {
            Mount::Tree(Source::Layer(tree)) if path == Path::new("/etc") => {
                tree.path.join("resolv.conf").exists()
            }
            _ => path == Path::new("/etc/resolv.conf"),
        }));
    }
}

#[test]
fn without_a_request_nothing_of_the_host_is_shown_but_its_programs() {
    let scene = Scene::new();
    let spec = SandboxSpec::default();
    let once = scene.one_shot(scene.check(&spec).unwrap());
    let persistent = scene.persistent(scene.check(&spec).unwrap());
    for jail in [&once, &persistent] {
        assert!(jail.access_mounts.is_none() && !jail.landlock_optional);
        assert_eq!((jail.network, jail.rlimits.processes), (Network::Off, Some(PROCESSES)));
        for (path, mount) in &jail.mounts {
            if let Mount::Tree(Source::Host { access, .. }) = mount {
                assert_eq!(*access, Access::Read, "{}", path.display());
            }
        }
    }
}
