//! Debian's registry as a process of the test, on the loopback.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::sample::Layout;
use crate::harness::World;

/// The user of a registry with authentication, and the file of `htpasswd -B` that has it.
pub(super) const USER: &str = "user:password";
const HTPASSWD: &str = "user:$2y$05$NKRBGYtuXUeWtZf3TpEbYeo5GA9idVSSEmPC9BaQAMGn3Xs13Xjr6\n";

/// A registry, which ends with this value.
pub(super) struct Registry {
    process: Child,
    /// Its host and port.
    pub(super) host: String,
    has_users: bool,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// A registry for everybody.
    pub(super) fn start(world: &World) -> Self {
        Self::with(world, "")
    }

    /// A registry for [`USER`].
    pub(super) fn with_users(world: &World) -> Self {
        let file = world.path("htpasswd");
        fs::write(&file, HTPASSWD).unwrap();
        let path = file.display();
        Self::with(world, &format!("auth: {{htpasswd: {{realm: test, path: \"{path}\"}}}}\n"))
    }

    fn with(world: &World, more: &str) -> Self {
        for attempt in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let directory = world.path(&format!("registry-{}", free.port()));
            fs::create_dir(&directory).unwrap();
            let config = directory.join("config.yml");
            let text = format!(
                "version: 0.1\nlog: {{level: error}}\n\
                 storage: {{filesystem: {{rootdirectory: \"{}\"}}}}\n\
                 http: {{addr: \"{free}\"}}\n{more}",
                directory.join("storage").display()
            );
            fs::write(&config, text).unwrap();
            let mut command = Command::new("docker-registry");
            command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
            let mut process = command.spawn().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while Instant::now() < deadline && process.try_wait().unwrap().is_none() {
                if TcpStream::connect(free).is_ok() {
                    let has_users = !more.is_empty();
                    return Self { process, host: free.to_string(), has_users };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = process.kill();
            let _ = process.wait();
            assert!(attempt < 4, "docker-registry does not listen");
        }
        unreachable!()
    }

    /// Pushes everything in a layout.
    pub(super) fn push(&self, layout: &Layout, name: &str) {
        self.push_from(&format!("oci:{}:1", layout.path.display()), name);
    }

    /// Pushes what skopeo reads from `source`.
    pub(super) fn push_from(&self, source: &str, name: &str) {
        let mut command = Command::new("skopeo");
        command.args(["--insecure-policy", "copy", "--all", "--quiet", "--dest-tls-verify=false"]);
        if self.has_users {
            command.args(["--dest-creds", USER]);
        }
        command.arg(source).arg(format!("docker://{}/{name}", self.host));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The name of an image of this registry.
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }
}

/// What skopeo says about an archive or layout.
pub(super) fn inspect(source: &str) -> serde_json::Value {
    let output = Command::new("skopeo").args(["inspect", source]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Writes a file as the world's identity.
pub(super) fn write(world: &World, path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    world.chown(path);
}
