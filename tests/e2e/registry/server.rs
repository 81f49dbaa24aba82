//! Debian's registry as a process of the test, on the loopback.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::sample::Layout;
use crate::harness::World;

/// The user of a registry with authentication, and the file of `htpasswd -B` that has it.
pub(super) const USER: &str = "user:Zq83hTnw04LxvUe7";
const HTPASSWD: &str = "user:$2y$05$HpoVdsKtfaqc62YuScXJPOJGF/BoC.J2pNENH524zx0TlimqT7.MC\n";

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
        Self::with(world, "", "")
    }

    /// A registry that speaks TLS, and the file of the authority that signed its certificate.
    pub(super) fn with_tls(world: &World) -> (Self, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let certificate = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
        let file = |name: &str, text: &str| {
            let path = world.path(name);
            fs::write(&path, text).unwrap();
            path
        };
        let authorities = file("authorities.pem", &pem("CERTIFICATE", authority.der()));
        let certificate = file("certificate.pem", &pem("CERTIFICATE", certificate.der()));
        let key = file("key.pem", &pem("PRIVATE KEY", &own.serialize_der()));
        let (certificate, key) = (certificate.display(), key.display());
        let tls = format!(", tls: {{certificate: \"{certificate}\", key: \"{key}\"}}");
        (Self::with(world, &tls, ""), authorities)
    }

    /// A registry for [`USER`].
    pub(super) fn with_users(world: &World) -> Self {
        let file = world.path("htpasswd");
        fs::write(&file, HTPASSWD).unwrap();
        let path = file.display();
        Self::with(world, "", &format!("auth: {{htpasswd: {{realm: test, path: \"{path}\"}}}}\n"))
    }

    fn with(world: &World, http: &str, more: &str) -> Self {
        for attempt in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let directory = world.path(&format!("registry-{}", free.port()));
            fs::create_dir(&directory).unwrap();
            let config = directory.join("config.yml");
            let text = format!(
                "version: 0.1\nlog: {{level: error}}\n\
                 storage: {{filesystem: {{rootdirectory: \"{}\"}}}}\n\
                 http: {{addr: \"{free}\"{http}}}\n{more}",
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

/// A text of RFC 7468.
fn pem(label: &str, content: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(content);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines = lines.map(|line| format!("{line}\n")).collect::<String>();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
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
