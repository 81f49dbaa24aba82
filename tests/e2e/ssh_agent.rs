//! The ssh agent of a run: OpenSSH logs in at a server on this machine, and git signs a commit, with
//! keys that stay in the caller's agent. All else that a program inside asks for is refused.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::call::{Outcome, Running};
use crate::harness::{World, tests_run_as_root};

/// A directory with keys, an agent that has two of them, and the key of a host.
pub(crate) struct Keys {
    pub(crate) directory: PathBuf,
    _agent: Running,
}

impl Keys {
    pub(crate) fn new(world: &World) -> Self {
        let directory = world.outside();
        for name in ["own", "other", "host", "other-host"] {
            let path = directory.join(name);
            let file = path.to_str().unwrap();
            let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", "a@b.example", "-f", file];
            let made = world.on_host(Path::new("ssh-keygen"), &arguments).finish();
            made.succeeds();
        }
        let socket = directory.join("agent");
        let arguments = ["-D", "-a", socket.to_str().unwrap()];
        let agent = world.on_host(Path::new("ssh-agent"), &arguments).start();
        wait_for(|| socket.exists());
        let keys = Self { directory, _agent: agent };
        for name in ["own", "other"] {
            let key = keys.directory.join(name);
            let add = world.on_host(Path::new("ssh-add"), &["-q", key.to_str().unwrap()]);
            let added = add.env("SSH_AUTH_SOCK", &socket).finish();
            added.succeeds();
        }
        keys
    }

    pub(crate) fn public(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.directory.join(format!("{name}.pub"))).unwrap();
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn fingerprint(&self, name: &str) -> String {
        let path = self.directory.join(format!("{name}.pub"));
        let told = Command::new("ssh-keygen").arg("-lf").arg(path).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        told.split(' ').nth(1).unwrap().to_owned()
    }

    /// Permissions of the key `own`: to log in at the host as a user, and to sign for git.
    pub(crate) fn permissions(&self, world: &World, user: &str) -> PathBuf {
        let (own, host) = (self.fingerprint("own"), self.public("host"));
        let text = format!(
            "[[allow]]\nkey = \"{own}\"\nhost-keys = [\"{host}\"]\nusers = [\"{user}\"]\n\
             [[allow]]\nkey = \"{own}\"\nnamespaces = [\"git\"]\n"
        );
        let path = self.directory.join("permissions.toml");
        world.plant(&path, &text);
        path
    }

    /// `stockade run --json` with the agent.
    fn run(&self, world: &World, options: &[&str], script: &str) -> (Outcome, Value) {
        let file = self.directory.join("permissions.toml");
        let mut arguments = vec!["run", "--json", "--discard", "--ssh-agent"];
        arguments.push(file.to_str().unwrap());
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", script]);
        let call = world.stockade(&arguments);
        let outcome = call.env("SSH_AUTH_SOCK", self.directory.join("agent")).finish();
        let json = outcome.json();
        (outcome, json)
    }
}

/// A server of OpenSSH.
pub(crate) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(keys: &Keys, host_key: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (directory, own) = (&keys.directory, keys.public("own"));
        let authorized = directory.join(format!("authorized-{host_key}"));
        std::fs::write(&authorized, format!("{own}\n{}\n", keys.public("other"))).unwrap();
        // The server refuses a key of a host that others may read.
        let key = directory.join(format!("served-{host_key}"));
        std::fs::copy(directory.join(host_key), &key).unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let settings = directory.join(format!("sshd-{host_key}"));
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             PidFile none\nForceCommand echo logged-in\n",
            key.display(),
            authorized.display()
        );
        std::fs::write(&settings, text).unwrap();
        if tests_run_as_root() {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let mut command = Command::new("/usr/sbin/sshd");
        let command = command.arg("-D").arg("-f").arg(&settings);
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, port }
    }

    pub(crate) fn allow(&self) -> String {
        format!("host.stockade.internal:{}", self.port)
    }

    pub(crate) fn login(&self, user: &str) -> String {
        format!(
            "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -p {} {user}@host.stockade.internal 2>&1",
            self.port
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_for(is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn own_name() -> String {
    let told = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(told.stdout).unwrap().trim().to_owned()
}

pub(crate) fn has_programs(name: &str) -> bool {
    let missing = ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-agent"];
    match missing.iter().find(|path| !Path::new(path).exists()) {
        Some(path) => {
            crate::harness::skip(name, &format!("{path} is not installed"));
            false
        }
        None => true,
    }
}

/// The requests of a report with a decision.
fn with_decision<'a>(json: &'a Value, decision: &str) -> Vec<&'a Value> {
    let all = json["sshAgent"]["requests"].as_array().unwrap();
    all.iter().filter(|request| request["decision"] == decision).collect()
}

fn a_login_is_signed_outside_for_the_named_host_and_user(world: &World) {
    if !has_programs("ssh_agent::a_login_is_signed_outside_for_the_named_host_and_user") {
        return;
    }
    let (keys, user) = (Keys::new(world), own_name());
    keys.permissions(world, &user);
    let (server, other) = (Server::start(&keys, "host"), Server::start(&keys, "other-host"));
    let script = format!("ssh-add -L; {}", server.login(&user));
    let (outcome, json) = keys.run(world, &["--allow", &server.allow()], &script);
    let told = json["stdout"].as_str().unwrap();
    assert!(told.contains("logged-in"), "{outcome}");
    // Of two keys, the one that is named, without the caller's comment.
    assert!(told.contains(&keys.public("own")) && !told.contains(&keys.public("other")), "{told}");
    assert!(!told.contains("a@b.example"), "{told}");
    let signed = with_decision(&json, "signed");
    assert_eq!(signed.len(), 1, "{json}");
    assert_eq!(signed[0]["key"], json!(keys.fingerprint("own")));
    let request = signed[0]["request"].as_str().unwrap();
    assert!(request.contains(&user) && request.contains(&keys.fingerprint("host")), "{json}");
    let records = world.stockade(&["audit", "ls", "--json"]).finish();
    assert!(records.stdout.contains(request), "{records}");

    // Another host, whose name is the same.
    let (outcome, json) = keys.run(world, &["--allow", &other.allow()], &other.login(&user));
    assert!(!json["stdout"].as_str().unwrap().contains("logged-in"), "{outcome}");
    let refused = with_decision(&json, "refused");
    assert_eq!(refused[0]["reason"], "the key may not log in at that host", "{json}");
    assert!(with_decision(&json, "signed").is_empty(), "{json}");

    // Another user.
    let (outcome, json) = keys.run(world, &["--allow", &server.allow()], &server.login("nobody"));
    assert!(!json["stdout"].as_str().unwrap().contains("logged-in"), "{outcome}");
    let refused = with_decision(&json, "refused");
    assert_eq!(refused[0]["reason"], "the key may not log in as that user", "{json}");
}

fn a_commit_is_signed_outside(world: &World) {
    if !has_programs("ssh_agent::a_commit_is_signed_outside") {
        return;
    }
    let keys = Keys::new(world);
    keys.permissions(world, "git");
    let (own, other) = (keys.public("own"), keys.public("other"));
    let script = |key: &str| {
        format!(
            "echo 'test@localhost {key}' > /tmp/signers; echo x >> a.txt; \
             git -c user.name=Test -c user.email=test@localhost -c gpg.format=ssh \
             -c user.signingkey='key::{key}' commit -q -S -a -m signed 2>&1 && \
             git -c gpg.ssh.allowedSignersFile=/tmp/signers log -1 --format='signature %G?'"
        )
    };
    let (outcome, json) = keys.run(world, &[], &script(&own));
    assert!(json["stdout"].as_str().unwrap().contains("signature G"), "{outcome}");
    let signed = with_decision(&json, "signed");
    assert_eq!(signed[0]["request"], "sign a message of the namespace git", "{json}");
    let (outcome, json) = keys.run(world, &[], &script(&other));
    assert!(!json["stdout"].as_str().unwrap().contains("signature G"), "{outcome}");
    assert!(with_decision(&json, "signed").is_empty(), "{json}");
    // A file, with the same program and key.
    let script = format!(
        "echo '{own}' > /tmp/key.pub; ssh-keygen -Y sign -n file -f /tmp/key.pub a.txt 2>&1"
    );
    let (outcome, json) = keys.run(world, &[], &script);
    assert_ne!(json["exitCode"], 0, "{outcome}");
    let refused = with_decision(&json, "refused");
    assert_eq!(refused[0]["request"], "sign a message of the namespace file", "{json}");
}

/// A private key in a file, without an agent. Programs inside have the socket, and not the key.
fn a_key_in_a_file_signs_too(world: &World) {
    if !has_programs("ssh_agent::a_key_in_a_file_signs_too") {
        return;
    }
    let keys = Keys::new(world);
    let path = keys.permissions(world, "git");
    let text = std::fs::read_to_string(&path).unwrap();
    let with = |key: &str| {
        let key = keys.directory.join(key);
        world.plant(&path, &format!("private-keys = [\"{}\"]\n{text}", key.display()));
    };
    let run = |script: &str| {
        let file = path.to_str().unwrap();
        let words = ["run", "--json", "--discard", "--ssh-agent", file, "--", "sh", "-c", script];
        world.stockade(&words).finish()
    };
    with("own");
    let public = keys.public("own");
    let script = format!(
        "echo '{public}' > /tmp/key.pub; echo x > /tmp/text; \
         ssh-keygen -Y sign -n git -f /tmp/key.pub /tmp/text 2>&1; cat /tmp/text.sig; \
         grep -rl 'OPENSSH PRIVATE' /proc/self/environ /run /tmp /etc 2>/dev/null; env"
    );
    let outcome = run(&script);
    let told = outcome.json()["stdout"].as_str().unwrap().to_owned();
    assert!(told.contains("BEGIN SSH SIGNATURE") && !told.contains("PRIVATE"), "{outcome}");
    assert_eq!(with_decision(&outcome.json(), "signed").len(), 1, "{outcome}");
    // Keys of RSA sign with SHA-2.
    let make = |name: &str, kind: &str, bits: &str, passphrase: &str| {
        let made = keys.directory.join(name);
        let file = made.to_str().unwrap();
        let options = ["-q", "-t", kind, "-b", bits, "-N", passphrase, "-f", file];
        world.on_host(Path::new("ssh-keygen"), &options).finish().succeeds();
    };
    make("of-rsa", "rsa", "2048", "");
    let rsa = keys.fingerprint("of-rsa");
    let file = keys.directory.join("of-rsa");
    world.plant(
        &path,
        &format!(
            "private-keys = [\"{}\"]\n[[allow]]\nkey = \"{rsa}\"\nnamespaces = [\"git\"]\n",
            file.display()
        ),
    );
    let script = format!(
        "echo '{}' > /tmp/key.pub; echo x > /tmp/text; \
         ssh-keygen -Y sign -n git -f /tmp/key.pub /tmp/text 2>&1; \
         ssh-keygen -Y check-novalidate -n git -s /tmp/text.sig < /tmp/text",
        keys.public("of-rsa")
    );
    let outcome = run(&script);
    let told = outcome.json()["stdout"].as_str().unwrap().to_owned();
    assert!(told.contains("Good \"git\" signature with RSA key"), "{outcome}");
    // A key that is there and not named, and files that are no such key.
    make("with-passphrase", "ed25519", "256", "secret");
    make("small", "rsa", "1024", "");
    for (key, said) in [
        ("other", "there is no key"),
        ("with-passphrase", "it has a passphrase"),
        ("small", "2048 to 8192 bits"),
        ("permissions.toml", "not in the format of OpenSSH"),
        ("nothing", "cannot read the private key"),
    ] {
        with(key);
        let outcome = run("true");
        assert_eq!(outcome.code(), 125, "{outcome}");
        assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains(said), "{key}: {outcome}");
    }
}

/// Messages of a program inside: the first byte of the answer to each.
pub(crate) const ATTACK: &str = r#"
import os, socket, struct
def string(b): return struct.pack('>I', len(b)) + b
def ask(*messages):
    c = socket.socket(socket.AF_UNIX); c.settimeout(20); c.connect(os.environ['SSH_AUTH_SOCK'])
    for m in messages:
        c.sendall(string(m))
        n = struct.unpack('>I', c.recv(4, socket.MSG_WAITALL))[0]
        answer = c.recv(n, socket.MSG_WAITALL)
    return answer
listed = ask(bytes([11]))
n = struct.unpack('>I', listed[5:9])[0]
key = listed[9:9+n]
def sign(data, flags=0): return bytes([13]) + string(key) + string(data) + struct.pack('>I', flags)
session = os.urandom(32)
login = string(session) + bytes([50]) + string(b'root') + string(b'ssh-connection') + \
    string(b'publickey') + bytes([1]) + string(b'ssh-ed25519') + string(key)
bind = bytes([27]) + string(b'session-bind@openssh.com') + string(key) + string(session) + \
    string(string(b'ssh-ed25519') + string(b'\0' * 64)) + bytes([0])
answers = [
    ask(sign(b'any text')), ask(sign(session)), ask(sign(login)), ask(bind), ask(bind, sign(login)),
    ask(sign(b'SSHSIG' + string(b'file') + string(b'') + string(b'sha512') + string(b'x' * 64))),
    ask(bytes([17]) + string(b'ssh-ed25519')), ask(bytes([18]) + string(key)), ask(bytes([19])),
    ask(bytes([22]) + string(b'password')), ask(bytes([23]) + string(b'password')),
    ask(bytes([25])), ask(bytes([20])), ask(bytes([27]) + string(b'query')), ask(bytes([200])),
]
print(sorted(set(answer[0] for answer in answers)), len(listed))
"#;

fn other_requests_are_refused_and_recorded(world: &World) {
    if !has_programs("ssh_agent::other_requests_are_refused_and_recorded") {
        return;
    }
    let keys = Keys::new(world);
    keys.permissions(world, "git");
    world.write("attack.py", ATTACK);
    let (outcome, json) = keys.run(world, &[], "python3 attack.py");
    assert!(json["stdout"].as_str().unwrap().starts_with("[5, 28] "), "{outcome}");
    assert!(with_decision(&json, "signed").is_empty(), "{json}");
    let refused = with_decision(&json, "refused");
    let count: u64 = refused.iter().map(|request| request["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 16, "{json}");
    for request in ["lock", "unlock", "add a key", "remove all keys", "use an extension", "sign"] {
        assert!(refused.iter().any(|refused| refused["request"] == request), "{request}: {json}");
    }
    // The caller's agent is as before.
    let listed = world.on_host(Path::new("ssh-add"), &["-l"]);
    let listed = listed.env("SSH_AUTH_SOCK", keys.directory.join("agent")).finish();
    assert_eq!(listed.stdout.lines().count(), 2, "{listed}");
    // A run without the flag has no agent.
    let call = world.stockade(&[
        "run",
        "--discard",
        "--",
        "sh",
        "-c",
        "echo agent=$SSH_AUTH_SOCK; ls /run/stockade",
    ]);
    let outcome = call.env("SSH_AUTH_SOCK", keys.directory.join("agent")).finish();
    assert!(outcome.stdout.starts_with("agent=\n"), "{outcome}");
    assert!(!outcome.stdout.contains("ssh-agent"), "{outcome}");
}

fn an_agent_that_cannot_be_is_refused(world: &World) {
    if !has_programs("ssh_agent::an_agent_that_cannot_be_is_refused") {
        return;
    }
    let keys = Keys::new(world);
    let path = keys.permissions(world, "git");
    let file = path.to_str().unwrap().to_owned();
    let run = |file: &str, socket: Option<PathBuf>| {
        let call = world.stockade(&["run", "--discard", "--ssh-agent", file, "--", "true"]);
        match socket {
            Some(socket) => call.env("SSH_AUTH_SOCK", socket).finish(),
            None => call.finish(),
        }
    };
    let agent = || Some(keys.directory.join("agent"));
    run(&file, agent()).succeeds();
    let none = run(&file, None);
    none.is_refused().ends_with(125);
    assert!(none.stderr.contains("SSH_AUTH_SOCK is not set"), "{none}");
    run(&file, Some(keys.directory.join("none"))).is_refused().ends_with(125);
    for (text, said) in [
        ("[[allow]]\nkey = \"SHA256:x\"\nnamespaces = [\"git\"]\n", "is no fingerprint"),
        (&format!("[[allow]]\nkey = \"{}\"\n", keys.fingerprint("own")), "permission 0"),
        (
            &format!("[[allow]]\nkey = \"{}\"\nnamespaces = [\"git\"]\n", keys.fingerprint("host")),
            "there is no key",
        ),
        ("[[allow]]\nkeys = []\n", "unknown field"),
    ] {
        world.plant(&path, text);
        let outcome = run(&file, agent());
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains(said), "{said}: {outcome}");
    }
}

as_root_and_as_user![
    a_login_is_signed_outside_for_the_named_host_and_user,
    a_commit_is_signed_outside,
    a_key_in_a_file_signs_too,
    other_requests_are_refused_and_recorded,
    an_agent_that_cannot_be_is_refused,
];
