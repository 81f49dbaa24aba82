//! Persistent sandboxes with a network by policy: they can connect to what their policy names, as
//! long as an egress process serves them, and nothing that runs inside changes that.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use stockade_core::access::Effect;
use stockade_core::network::{Policy, Rule};
use stockade_core::sandbox::{HostMount, Root, User};
use stockade_core::{SandboxId, SandboxSpec, SnapshotId};
use stockade_egress_control::{Message, OwnerSocket, Request};
use stockade_jail::network::Listeners;
use stockade_runtime::{Capability, EgressListeners, Ending, Error, Runtime as _};
use stockade_runtime_native::Native;

use crate::attacks::SandboxUnderTest;
use crate::native::NativeFixture;
use stockade_test_support::program;

/// The path of the probe inside.
const PROBE: &str = "/opt/probe/probe";
/// The names that the host resolves: no name server is queried.
const NAMES: &str = "127.0.0.1 service.test other.test";

crate::identity::scenes! {
    what_the_policy_names_is_reached,
    it_is_reached_again_whoever_was_killed,
    where_nobody_serves_nobody_is_reached,
    nothing_inside_changes_the_way,
    sandboxes_do_not_meet,
    an_image_keeps_its_own_resolver,
    what_an_image_has_in_the_way_leads_nowhere,
}

/// A data directory, and a server of the host.
struct NetworkFixture {
    fixture: NativeFixture,
    native: Native,
    server: Server,
    directory: tempfile::TempDir,
}

fn run_scene(scene: fn(NetworkFixture) -> Pin<Box<dyn Future<Output = ()>>>) {
    let dir = tempfile::Builder::new().prefix("stockade-network-").tempdir().unwrap();
    for directory in [dir.path().to_owned(), dir.path().join("probe")] {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::copy(program("probe"), dir.path().join("probe/probe")).unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path().join("probe/probe"), open).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let kept = NativeFixture::new(1);
        let native = kept.client();
        if let Err(unsupported) = native.supports(Capability::Egress).await {
            return stockade_runtime::conformance::skipped(&unsupported.reason);
        }
        let server = Server::start();
        scene(NetworkFixture { fixture: kept, native: native.clone(), server, directory: dir })
            .await;
        for status in native.list(&std::collections::BTreeMap::new()).await.unwrap() {
            native.cleanup(&status.id).await.unwrap();
        }
        native.drain().await.unwrap();
    });
}

impl NetworkFixture {
    /// A sandbox with the probe in it. It may connect to the server by its name.
    async fn sandbox(&self, name: &str) -> SandboxUnderTest {
        SandboxUnderTest::create_with(&self.native, name, &self.spec()).await
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            mounts: vec![HostMount {
                host: self.directory.path().join("probe"),
                inside: PathBuf::from("/opt/probe"),
                writable: false,
            }],
            network: Some(self.policy()),
            lease: Some(Duration::from_secs(120)),
            ..SandboxSpec::default()
        }
    }

    fn policy(&self) -> Policy {
        let ports = vec![self.server.address.port()];
        let allow = |target: &str| Rule {
            action: Effect::Allow,
            target: target.parse().unwrap(),
            ports: ports.clone(),
            internal: false,
            requests: Default::default(),
        };
        Policy::new(Effect::Deny, vec![allow("service.test"), allow("127.0.0.1")]).unwrap()
    }

    fn at_server(&self, name: &str) -> String {
        format!("{name}:{}", self.server.address.port())
    }

    /// A small root file system: the host's shell and the files that it needs.
    fn image(&self, name: &str) -> PathBuf {
        let root = self.directory.path().join(name);
        let script = "set -e; mkdir -p \"$0/bin\" \"$0/etc\" \"$0/root\" \"$0/tmp\"; cp /bin/sh /bin/cat \
            /bin/rm /bin/ln \"$0/bin\"; for f in $(ldd /bin/sh /bin/cat /bin/rm /bin/ln | \
            grep -o '/[^ ]*so[^ ]*' | sort -u); do mkdir -p \"$0$(dirname $f)\"; \
            cp -L $f \"$0$f\"; done; chmod 755 \"$0\"";
        let made = std::process::Command::new("sh").args(["-c", script]).arg(&root).status();
        assert!(made.unwrap().success());
        root
    }
}

/// A server on the host's loopback that sends one sentence to every client.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\ngreetings",
                );
            }
        });
        Self { address, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The egress process, which enforces the policy. It ends when this is dropped.
struct Egress {
    owner: Arc<OwnerSocket>,
    serving: tokio::task::JoinHandle<()>,
}

impl Egress {
    /// Serves a sandbox with a policy.
    async fn serve(sandbox: &SandboxUnderTest, policy: Policy) -> Self {
        let listeners = sandbox.native.listeners(&sandbox.id).await.unwrap();
        let (owner, theirs) = OwnerSocket::pair().unwrap();
        let serving = tokio::spawn(async { stockade_egress::serve(theirs).await.unwrap() });
        let egress = Self { owner: Arc::new(owner), serving };
        // No name server listens there.
        let resolv_conf = "nameserver 127.0.0.53\n".to_owned();
        egress.request(Request::Names { resolv_conf, hosts: NAMES.to_owned() }, None).await;
        let add = Request::Add { sandbox: sandbox.id.clone(), policy };
        egress.request(add, Some(&listeners)).await;
        egress
    }

    async fn request(&self, request: Request, listeners: Option<&EgressListeners>) {
        let descriptors: Vec<_> = listeners.iter().flat_map(|listeners| listeners.each()).collect();
        self.owner.send(1, request, &descriptors).unwrap();
        let owner = Arc::clone(&self.owner);
        let message = tokio::task::spawn_blocking(move || owner.receive()).await.unwrap().unwrap();
        assert!(matches!(message, Some(Message::Response { problem: None, .. })), "{message:?}");
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl SandboxUnderTest {
    /// The probe's output after requests to servers.
    async fn fetch(&self, route: &str, servers: &[&str]) -> String {
        let words: Vec<&str> = [PROBE, "fetch", route].iter().chain(servers).copied().collect();
        let (ending, written) = self.run(&words, None).await;
        assert_eq!(ending, Ending::Exited(0), "{written}");
        written
    }
}

/// The users to attack as: root inside, the ordinary user and another one; if there is only one id,
/// that one.
fn users() -> Vec<Option<User>> {
    if rustix::process::geteuid().is_root() {
        [0, 1000, 4000].map(|id| Some(User { user: id, group: id })).to_vec()
    } else {
        vec![None]
    }
}

fn what_the_policy_names_is_reached(stage: NetworkFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox("one").await;
        let _egress = Egress::serve(&sandbox, stage.policy()).await;
        let (service, other) = (stage.at_server("service.test"), stage.at_server("other.test"));
        for (number, way) in ["direct", "proxy"].into_iter().enumerate() {
            let output = sandbox.fetch(way, &[&service]).await;
            assert!(output.contains("greetings"), "{way}: {output}");
            assert_eq!(stage.server.connections(), number + 1);
            let output = sandbox.fetch(way, &[&other, "10.0.0.1:80", "service.test:1"]).await;
            assert!(!output.contains("greetings"), "{way}: {output}");
            assert_eq!(stage.server.connections(), number + 1);
        }
        for user in users() {
            let (_, output) = sandbox.run(&[PROBE, "fetch", "direct", &service], user).await;
            assert!(output.contains("greetings"), "{user:?}: {output}");
        }
        let isolation = sandbox.native.inspect(&sandbox.id).await.unwrap().isolation;
        let wall = isolation.walls.iter().find(|wall| wall.name == "network").unwrap();
        assert!(wall.raised && wall.reason.as_ref().unwrap().starts_with("by policy"), "{wall:?}");
        assert!(isolation.reasons.iter().all(|reason| !reason.contains("network")));
    })
}

fn it_is_reached_again_whoever_was_killed(
    stage: NetworkFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox("one").await;
        let service = stage.at_server("service.test");
        for _ in 0..2 {
            let egress = Egress::serve(&sandbox, stage.policy()).await;
            assert!(sandbox.fetch("direct", &[&service]).await.contains("greetings"));
            sandbox.native.pause(&sandbox.id).await.unwrap();
            sandbox.native.resume(&sandbox.id).await.unwrap();
            assert!(sandbox.fetch("proxy", &[&service]).await.contains("greetings"));
            let keeper = stage.fixture.process().unwrap();
            pidfd_send_signal(&keeper, Signal::KILL).unwrap();
            // The egress proxy does not depend on the keeper.
            assert!(sandbox.fetch("direct", &[&service]).await.contains("greetings"));
            drop(egress);
        }
        let snapshot = SnapshotId::new("kept").unwrap();
        sandbox.native.snapshot(&sandbox.id, &snapshot).await.unwrap();
        let id = SandboxId::new("restored").unwrap();
        sandbox.native.restore(&snapshot, &id, &stage.spec()).await.unwrap();
        let spec = SandboxSpec { root: Root::Snapshot(snapshot.clone()), ..stage.spec() };
        let restored = SandboxUnderTest::create_with(&stage.native, "restored", &spec).await;
        let _egress = Egress::serve(&restored, stage.policy()).await;
        assert!(restored.fetch("direct", &[&service]).await.contains("greetings"));
        sandbox.native.remove_snapshot(&snapshot).await.unwrap();
    })
}

/// Traffic arrives at the listeners of the sandbox, and goes no further.
fn where_nobody_serves_nobody_is_reached(
    stage: NetworkFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox("one").await;
        let here = stage.server.address.to_string();
        for target in ["192.0.2.1:80", "169.254.169.254:80", "[fd00::1]:80", &here] {
            let script = format!("timeout 1 {PROBE} fetch direct {target}; true");
            let output = sandbox.shell(&script).await;
            assert!(!output.contains("greetings"), "{output}");
        }
        assert_eq!(stage.server.connections(), 0);
        let listeners = stage.native.listeners(&sandbox.id).await.unwrap();
        let everything = TcpListener::from(listeners.everything);
        everything.set_nonblocking(true).unwrap();
        let (arrived, _) = everything.accept().unwrap();
        assert_eq!(arrived.local_addr().unwrap().ip().to_canonical().to_string(), "192.0.2.1");
    })
}

/// No other kind of socket, no rule, no route and no port of the listeners is accessible inside.
fn nothing_inside_changes_the_way(stage: NetworkFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox("one").await;
        let _egress = Egress::serve(&sandbox, stage.policy()).await;
        let namespace = std::fs::read_link("/proc/self/ns/net").unwrap();
        let namespace = namespace.to_str().unwrap();
        let here = stage.server.address.to_string();
        // No policy allows this one.
        let unnamed = Server::start();
        let port = unnamed.address.port();
        let addresses = [
            unnamed.address.to_string(),
            format!("[::ffff:127.0.0.1]:{port}"),
            format!("[::1]:{port}"),
            format!("0.0.0.0:{port}"),
            format!("127.1.2.3:{port}"),
            format!("service.test:{port}"),
        ];
        let attacks: &[&[&str]] = &[
            &["socket", "40", "1", "0"],
            &["socket", "17", "3", "768"],
            &["socket", "2", "3", "1"],
            &["socket", "2", "3", "255"],
            &["socket", "10", "3", "58"],
            &["netlink"],
            &["socket-families"],
            &["interfaces"],
            &["setns"],
            &["pidfd-getfd"],
            &["syscall", "unshare-user", "unshare-network"],
            &["send-udp", namespace, &here],
        ];
        // What a sandbox's listeners have is not taken from them; other low ports are free.
        let binds = "use IO::Socket::INET; for ('0.0.0.0:1022 tcp', '127.0.0.1:1022 tcp', \
            '127.0.0.1:1023 tcp', '127.0.0.1:53 tcp', '127.0.0.1:53 udp', '192.0.2.1:53 tcp', \
            '192.0.2.1:53 udp') { my ($at, $proto) = split; print \"TAKEN $at $proto\\n\" if \
            IO::Socket::INET->new(LocalAddr => $at, Proto => $proto, ReuseAddr => 1, \
            ReusePort => 1, $proto eq 'tcp' ? (Listen => 1) : ()) } print \"tried\\n\";";
        for user in users() {
            for attack in attacks {
                let words: Vec<&str> = [PROBE].iter().chain(*attack).copied().collect();
                let (ending, written) = sandbox.run(&words, user).await;
                assert_eq!(ending, Ending::Exited(0), "{attack:?} as {user:?}: {written}");
                assert!(written.starts_with("held:"), "{attack:?} as {user:?}: {written}");
            }
            let (ending, written) = sandbox.run(&["perl", "-e", binds], user).await;
            assert_eq!((ending, written.as_str()), (Ending::Exited(0), "tried\n"), "{user:?}");
            let reach = [PROBE, "reach", "greetings"].into_iter();
            let words: Vec<&str> = reach.chain(addresses.iter().map(String::as_str)).collect();
            let (ending, written) = sandbox.run(&words, user).await;
            assert_eq!(ending, Ending::Exited(0), "{user:?}: {written}");
            assert_eq!(unnamed.connections(), 0, "{user:?}: {written}");
            let (_, open) = sandbox.run(&["ls", "/proc/self/fd"], user).await;
            assert_eq!(open, "0\n1\n2\n3\n", "{user:?}");
        }
        let service = stage.at_server("service.test");
        assert!(sandbox.fetch("direct", &[&service]).await.contains("greetings"));
    })
}

/// Each has its own loopback and listeners.
fn sandboxes_do_not_meet(stage: NetworkFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let (one, other) = (stage.sandbox("one").await, stage.sandbox("other").await);
        let _egress = Egress::serve(&one, stage.policy()).await;
        let service = stage.at_server("service.test");
        assert!(one.fetch("direct", &[&service]).await.contains("greetings"));
        let script = format!("timeout 1 {PROBE} fetch proxy {service}; true");
        assert!(!other.shell(&script).await.contains("greetings"));
        assert_eq!(stage.server.connections(), 1);
        let networks = [&one, &other].map(|sandbox| {
            let (native, id) = (sandbox.native.clone(), sandbox.id.clone());
            async move {
                let listeners = native.listeners(&id).await.unwrap().into_descriptors();
                let listeners = Listeners::from_descriptors(listeners.into()).unwrap();
                listeners.network().unwrap()
            }
        });
        let [first, second] = networks;
        assert_ne!(first.await, second.await);
    })
}

/// Whatever an image has at the path of the resolver file, names are resolved by Stockade's, and
/// the image's own file is visible again without a network.
fn an_image_keeps_its_own_resolver(stage: NetworkFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let canary = stage.directory.path().join("canary");
        std::fs::write(&canary, "what was there before\n").unwrap();
        let fifo = |path: &Path| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        };
        let outside = canary.to_str().unwrap().to_owned();
        let up = format!("/..{outside}");
        for (number, target) in
            ["file", "none", "pipe", "/nowhere", "/proc/self/fd/1", &outside, &up]
                .into_iter()
                .enumerate()
        {
            let image = stage.image(&format!("image-{number}"));
            let location = image.join("etc/resolv.conf");
            match target {
                "file" => std::fs::write(&location, "nameserver 192.0.2.53\n").unwrap(),
                "none" => {}
                "pipe" => fifo(&location),
                target => symlink(target, &location).unwrap(),
            }
            let root = Root::Directory(image.clone());
            let spec = SandboxSpec { root, ..stage.spec() };
            let spec = SandboxSpec { mounts: Vec::new(), ..spec };
            let name = format!("image-{number}");
            let sandbox = SandboxUnderTest::create_with(&stage.native, &name, &spec).await;
            let found = sandbox.shell("cat /etc/resolv.conf").await;
            assert_eq!(found, "nameserver 127.0.0.1\n", "{target}");
            sandbox.run(&["sh", "-c", "echo x >/etc/resolv.conf; rm /etc/resolv.conf"], None).await;
            assert_eq!(sandbox.shell("cat /etc/resolv.conf").await, found, "{target}");
            let snapshot = SnapshotId::new(name.as_str()).unwrap();
            stage.native.snapshot(&sandbox.id, &snapshot).await.unwrap();
            let root = Root::Snapshot(snapshot.clone());
            let plain = SandboxSpec { root, network: None, ..spec };
            let restored =
                SandboxUnderTest::create_with(&stage.native, &format!("plain-{number}"), &plain)
                    .await;
            let script = "test -p /etc/resolv.conf && exit; cat /etc/resolv.conf || true";
            let left = restored.shell(script).await;
            let expected = if target == "file" { "nameserver 192.0.2.53\n" } else { "" };
            assert!(!left.contains("127.0.0.1"), "{target}: {left}");
            assert!(left.contains(expected), "{target}: {left}");
            stage.native.remove_snapshot(&snapshot).await.unwrap();
            assert_eq!(std::fs::read_to_string(&canary).unwrap(), "what was there before\n");
        }
    })
}

/// An image, or a process that changed it before a snapshot, has symbolic links instead of the
/// resolver's directory: no file of the host is written, and no sandbox is created without its
/// resolver.
fn what_an_image_has_in_the_way_leads_nowhere(
    stage: NetworkFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let outside = stage.directory.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("resolv.conf"), "what was there before\n").unwrap();
        let up = format!("/..{}", outside.display());
        let back = format!("{}{}", "../".repeat(12), outside.strip_prefix("/").unwrap().display());
        let mut targets = vec![up, back, "/proc/self/cwd".to_owned(), "/proc/1/root".to_owned()];
        targets.extend((3..20).map(|number| format!("/proc/self/fd/{number}")));
        for (number, target) in targets.iter().enumerate() {
            let image = stage.image(&format!("image-{number}"));
            let of_image = Root::Directory(image.clone());
            let spec = SandboxSpec { mounts: Vec::new(), root: of_image, ..stage.spec() };
            // By the image itself, and by a process inside.
            let plain = SandboxSpec { network: None, ..spec.clone() };
            let first =
                SandboxUnderTest::create_with(&stage.native, &format!("a-{number}"), &plain).await;
            let script = format!("rm -rf /etc && ln -s {target} /etc");
            let (ending, written) = first.run(&["sh", "-c", &script], users()[0]).await;
            assert_eq!(ending, Ending::Exited(0), "{written}");
            let snapshot = SnapshotId::new(format!("a-{number}")).unwrap();
            stage.native.snapshot(&first.id, &snapshot).await.unwrap();
            std::fs::remove_dir_all(image.join("etc")).unwrap();
            symlink(target, image.join("etc")).unwrap();
            let restored = SandboxSpec { root: Root::Snapshot(snapshot.clone()), ..spec.clone() };
            for (kind, spec) in [("b", &spec), ("c", &restored)] {
                let id = SandboxId::new(format!("{kind}-{number}")).unwrap();
                match stage.native.create(&id, spec).await {
                    Ok(_) => {
                        let made =
                            SandboxUnderTest::create_with(&stage.native, id.as_str(), spec).await;
                        let (_, found) = made.run(&["cat", "/etc/resolv.conf"], None).await;
                        assert!(!found.contains("what was there before"), "{target}: {found}");
                    }
                    Err(Error::Wall { wall, .. }) => assert_eq!(wall, "root", "{target}"),
                    Err(other) => panic!("{target}: {other:?}"),
                }
                let text = std::fs::read_to_string(outside.join("resolv.conf")).unwrap();
                assert_eq!(text, "what was there before\n", "{target}");
                assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "{target}");
            }
            stage.native.remove_snapshot(&snapshot).await.unwrap();
            for kind in ["a", "b", "c"] {
                let id = SandboxId::new(format!("{kind}-{number}")).unwrap();
                stage.native.cleanup(&id).await.unwrap();
            }
        }
    })
}
