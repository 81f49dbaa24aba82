//! The ssh agent of a persistent sandbox: it signs as long as the sandbox runs, also after a restart of the
//! server, and ends when the sandbox is paused or killed. Keys come from the caller's agent, from files and
//! from the vault, and never enter.

use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{call, sh, show};
use crate::call::Outcome;
use crate::daemons::{kill_server, wait_until};
use crate::harness::World;
use crate::ssh_agent::{ATTACK, Keys, Server, has_programs, own_name};

/// `stockade create` with these options, in the environment of a user with an agent.
fn create(world: &World, keys: &Keys, options: &[&str]) -> Outcome {
    let call = world.stockade(&[&["create"], options].concat());
    call.env("SSH_AUTH_SOCK", keys.directory.join("agent")).finish()
}

fn created(world: &World, keys: &Keys, options: &[&str]) -> String {
    let outcome = create(world, keys, options);
    outcome.succeeds();
    outcome.stdout.trim_end().to_owned()
}

/// A script that signs a commit with a key, and prints whether the signature is good.
fn commit(key: &str) -> String {
    format!(
        "mkdir -p /tmp/r && cd /tmp/r && git init -q 2>/dev/null; echo 'a@b {key}' > /tmp/signers; \
         git -c user.name=A -c user.email=a@b -c gpg.format=ssh -c user.signingkey='key::{key}' \
         commit -q -S --allow-empty -m signed 2>&1 && \
         git -c gpg.ssh.allowedSignersFile=/tmp/signers log -1 --format='signature %G?'"
    )
}

/// The sockets of agents in the data directory.
fn sockets(world: &World) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![world.data()]);
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_socket() && entry.path().ends_with("ssh/agent") {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Whether something accepts at a socket, whose path may be too long for a socket.
fn answers(socket: &Path) -> bool {
    let directory = std::fs::File::open(socket.parent().unwrap()).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&directory);
    UnixStream::connect(format!("/proc/self/fd/{fd}/agent")).is_ok()
}

fn uses(world: &World, id: &str) -> Vec<Value> {
    let outcome = call(world, &["events", id, "--json"]);
    outcome.succeeds();
    let events = outcome.stdout.lines().filter_map(|line| serde_json::from_str(line).ok());
    events.filter(|event: &Value| event["type"] == "SSH_AGENT_USED").collect()
}

fn an_agent_signs_as_long_as_the_sandbox_runs(world: &World) {
    if !has_programs("persistent::ssh_agent::an_agent_signs_as_long_as_the_sandbox_runs") {
        return;
    }
    let (keys, user) = (Keys::new(world), own_name());
    let file = keys.permissions(world, &user);
    let server = Server::start(&keys, "host");
    let options = ["--ssh-agent", file.to_str().unwrap(), "--allow", &server.allow()];
    let id = created(world, &keys, &options);
    let (own, other) = (keys.public("own"), keys.public("other"));
    let signed = |when: &str| {
        let outcome = sh(world, &id, &commit(&own));
        assert!(outcome.stdout.contains("signature G"), "{when}: {outcome}");
    };
    signed("at first");
    let login = sh(world, &id, &server.login(&user));
    assert!(login.stdout.contains("logged-in"), "{login}");
    assert!(!sh(world, &id, &commit(&other)).stdout.contains("signature G"));
    assert_eq!(show(world, &id)["sshAgent"]["keys"], serde_json::json!([keys.fingerprint("own")]));
    assert!(show(world, &id)["sshAgent"]["problem"].is_null(), "{}", show(world, &id));

    // Programs inside can neither replace the socket nor ask for anything else.
    let attacked = sh(
        world,
        &id,
        &format!("cat > /tmp/attack.py <<'EOF'\n{ATTACK}\nEOF\npython3 /tmp/attack.py"),
    );
    assert!(attacked.stdout.starts_with("[5, 28] "), "{attacked}");
    let replaced = sh(
        world,
        &id,
        "rm -f $SSH_AUTH_SOCK; mv $SSH_AUTH_SOCK /tmp/x; touch $SSH_AUTH_SOCK.new; \
         chmod 0 $SSH_AUTH_SOCK; test -S $SSH_AUTH_SOCK && ls -A $(dirname $SSH_AUTH_SOCK)",
    );
    assert_eq!(replaced.stdout, "agent\n", "{replaced}");
    signed("after the attacks");

    kill_server(&world.data());
    signed("after the end of the server");

    let [socket] = <[PathBuf; 1]>::try_from(sockets(world)).unwrap();
    assert!(answers(&socket));
    call(world, &["pause", &id]).succeeds();
    assert!(!answers(&socket), "the agent of a paused sandbox answers");
    call(world, &["resume", &id]).succeeds();
    signed("after a pause");
    call(world, &["stop", &id]).succeeds();
    assert!(sockets(world).iter().all(|socket| !answers(socket)));
    call(world, &["start", &id]).succeeds();
    signed("after a stop");

    let used = uses(world, &id);
    let is = |used: &Value, request: &str, decision: &str| {
        let data = &used["data"];
        data["decision"] == decision && data["request"].as_str().unwrap().contains(request)
    };
    for (request, decision) in [
        ("sign a message of the namespace git", "signed"),
        ("log in as", "signed"),
        ("remove all keys", "refused"),
        ("lock", "refused"),
    ] {
        assert!(used.iter().any(|used| is(used, request, decision)), "{request}: {used:?}");
    }
    call(world, &["kill", &id]).succeeds();
    wait_until("the socket is gone", || sockets(world).is_empty());
}

fn a_key_of_the_vault_signs(world: &World) {
    if !has_programs("persistent::ssh_agent::a_key_of_the_vault_signs") {
        return;
    }
    let keys = Keys::new(world);
    let key = keys.directory.join("deploy");
    let options = ["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", key.to_str().unwrap()];
    world.on_host(Path::new("ssh-keygen"), &options).finish().succeeds();
    let private = std::fs::read_to_string(&key).unwrap();
    let line = private.lines().nth(5).unwrap();
    let set = world.stockade(&["secrets", "set", "deploy", "--type", "ssh"]);
    set.input(private.clone()).finish().succeeds();
    std::fs::remove_file(&key).unwrap();
    let file = keys.directory.join("permissions.toml");
    let fingerprint = keys.fingerprint("deploy");
    let permit = |secret: &str| {
        let text = format!(
            "secrets = [\"{secret}\"]\n[[allow]]\nkey = \"{fingerprint}\"\nnamespaces = [\"git\"]\n"
        );
        world.plant(&file, &text);
    };
    permit("deploy");
    let file_name = file.to_str().unwrap();
    let id = created(world, &keys, &["--ssh-agent", file_name]);
    let public = keys.public("deploy");
    let outcome = sh(world, &id, &commit(&public));
    assert!(outcome.stdout.contains("signature G"), "{outcome}");
    kill_server(&world.data());
    let outcome = sh(world, &id, &commit(&public));
    assert!(outcome.stdout.contains("signature G"), "{outcome}");
    let found = world.files_with(&world.data(), line);
    assert!(found.is_empty(), "the key is in {found:?}");

    // A run has no vault, and a file that is missing or holds no key is reported before anything is made.
    let run = call(world, &["run", "--ssh-agent", file_name, "--", "true"]);
    run.is_refused();
    assert!(run.stderr.contains("stockade create --ssh-agent"), "{run}");
    permit("missing");
    let refused = create(world, &keys, &["--ssh-agent", file_name]);
    assert!(refused.stderr.contains("there is no secret missing"), "{refused}");
    world.stockade(&["secrets", "set", "text"]).input("pl4nted-text").finish().succeeds();
    permit("text");
    let refused = create(world, &keys, &["--ssh-agent", file_name]);
    assert!(refused.stderr.contains("not in the format of OpenSSH"), "{refused}");
    assert!(!refused.stderr.contains("pl4nted"), "{refused}");
    let twice = ["--ssh-agent", file_name, "--env", "SSH_AUTH_SOCK=/tmp/x"];
    permit("deploy");
    create(world, &keys, &twice).is_refused();
    let listed = call(world, &["ls", "--json"]).json();
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1, "{listed}");
}

as_root_and_as_user![an_agent_signs_as_long_as_the_sandbox_runs, a_key_of_the_vault_signs];
