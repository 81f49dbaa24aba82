//! The copies of a `<Sandbox>`: its project, its request, the programs of a child and the directory of the result.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use stockade_core::SandboxSpec;
use stockade_core::sandbox::{HostMount, Workspace};
use stockade_runtime::{Error, Runtime as _, SandboxPath};

use crate::double::Agents;
use crate::doubled::{Fixture, id, sh, with_double};

#[test]
fn a_sandbox_of_a_workflow_has_its_files() {
    with_double(Agents::None, 0, async |fixture: &Fixture| {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        for name in ["project/.smithers", "request/.smithers", "result"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("project/file"), "of the host\n").unwrap();
        fs::write(path("project/gone"), "").unwrap();
        // Sockets are left out, here and there.
        let _listener = std::os::unix::net::UnixListener::bind(path("project/socket")).unwrap();
        fs::write(path("project/.smithers/old"), "").unwrap();
        fs::write(path("request/README.md"), "asked\n").unwrap();
        fs::write(path("request/.smithers/new"), "shown\n").unwrap();
        fs::write(path("child"), "#!/bin/sh\necho done > /result/README.md\n").unwrap();
        fs::set_permissions(path("child"), fs::Permissions::from_mode(0o755)).unwrap();
        let mount = |host: &str, inside: &str| HostMount {
            host: path(host),
            inside: inside.into(),
            writable: false,
        };
        let spec = SandboxSpec {
            workspace: Some(Workspace { host: path("project"), inside: "/workspace".into() }),
            mounts: vec![
                mount("request/.smithers", "/workspace/.smithers"),
                mount("request", "/request"),
                mount("child", "/opt/stockade/bin/smithers"),
                mount("result", "/result"),
            ],
            working_directory: Some("/workspace".into()),
            ..Fixture::spec()
        };
        let (runtime, id) = (fixture.client(), id("flow"));
        runtime.create(&id, &spec).await.unwrap();
        let script =
            "test ! -e socket && cat file /request/README.md .smithers/*; echo more >> file; rm gone; echo new > new;
                      echo changed > .smithers/new; /opt/stockade/bin/smithers";
        let output = sh(&runtime, &id, "run", script).await;
        assert_eq!(output, "of the host\nasked\nshown\n");
        // Another create of the same one copies nothing again.
        runtime.create(&id, &spec).await.unwrap();
        runtime
            .collect(&id, &SandboxPath::new("/result").unwrap(), &path("out"), 1000)
            .await
            .unwrap();
        assert_eq!(fs::read_to_string(path("out/README.md")).unwrap(), "done\n");
        let changes = runtime.changes(&id, &path("changes")).await.unwrap();
        let removed: Vec<_> = changes.removed.iter().map(|path| path.as_bytes()).collect();
        assert_eq!(removed, [b"gone"]);
        assert_eq!(fs::read_to_string(path("changes/file")).unwrap(), "of the host\nmore\n");
        assert!(path("changes/new").exists() && !path("changes/.smithers").exists());
        assert_eq!(fs::read_to_string(path("project/file")).unwrap(), "of the host\n");
        runtime.cleanup(&id).await.unwrap();
        let left = fs::read_dir(fixture.data().join("runtime-kubernetes/copies")).unwrap();
        assert_eq!(left.count(), 0);
    });
}

#[test]
fn what_cannot_be_copied_makes_no_pod() {
    with_double(Agents::None, 0, async |fixture: &Fixture| {
        let top = tempfile::tempdir().unwrap();
        let (runtime, id) = (fixture.client(), id("none"));
        let workspace = Workspace { host: top.path().join("missing"), inside: "/workspace".into() };
        let spec = SandboxSpec { workspace: Some(workspace), ..Fixture::spec() };
        let refused = runtime.create(&id, &spec).await.unwrap_err();
        assert!(matches!(refused, Error::Host { .. }), "{refused:?}");
        assert!(fixture.names("pods").is_empty());
        let writable =
            HostMount { host: top.path().to_owned(), inside: "/shared".into(), writable: true };
        let spec = SandboxSpec { mounts: vec![writable], ..Fixture::spec() };
        let refused = runtime.create(&id, &spec).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        assert!(fixture.names("pods").is_empty());
    });
}
