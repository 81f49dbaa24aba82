//! The servers themselves.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::host::Identity;
use super::{Column, Seen, cases, check, columns, key, passes, send_directly, send_through};
use crate::process::{self, Server};

/// How long a server may take to write what it has seen.
const LOG: Duration = Duration::from_secs(1);

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/heads").join(name)
}

/// Writes the certificate and the key to the directory of a server.
fn plant(identity: &Identity, directory: &Path) -> [PathBuf; 2] {
    let files = ["host.pem", "key.pem"].map(|name| directory.join(name));
    for (file, content) in files.iter().zip([&identity.certificate, &identity.key]) {
        std::fs::write(file, content).unwrap();
    }
    files
}

/// Compares a server with the egress process and with its table.
fn compare(identity: &Identity, server: &Server, name: &str) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(send_directly(identity, server.address, "d"));
    std::thread::sleep(LOG);
    let before = server.log();
    runtime.block_on(send_through(identity, server.address, "p"));
    std::thread::sleep(LOG);
    let all = server.log();
    let read = |text: &str| -> Vec<Seen> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let direct = read(&before);
    let served = check(&read(all.strip_prefix(&before).unwrap()), "p");
    let passing = cases::all().iter().filter(|(_, verdict)| passes(*verdict)).count();
    assert!(served.len() * 2 > passing, "{name} has served {served:?}");
    let request = |at: usize| {
        let number = format!("d{at}");
        direct.iter().find(|one| one.number == number).map(Seen::request)
    };
    let all = cases::all();
    let now: Column =
        all.iter().enumerate().map(|(at, (head, _))| (key(head), request(at))).collect();
    if std::env::var_os("STOCKADE_WRITE_HEADS").is_some() {
        let text = serde_json::to_string_pretty(&now).unwrap();
        return std::fs::write(file(&format!("seen/{name}.json")), text + "\n").unwrap();
    }
    let columns = columns();
    let (_, table) = columns.iter().find(|(own, _)| *own == name).unwrap();
    for (head, request) in now {
        // Another version may refuse more, and must not read a head as yet another request.
        let is_known = request.is_none() || table.get(&head) == Some(&request);
        assert!(
            is_known,
            "{head}: {request:?}, unlike the table: STOCKADE_WRITE_HEADS=1 writes it"
        );
    }
}

#[test]
fn nginx_reads_what_was_checked() {
    let Some(nginx) = process::program("nginx", "nginx-light") else { return };
    let identity = Identity::new();
    let server = Server::start("heads-nginx", |directory, port| {
        plant(&identity, directory);
        process::nginx(&nginx, (&file("nginx.conf"), directory), port)
    });
    compare(&identity, &server, "nginx");
}

#[test]
fn node_reads_what_was_checked() {
    let Some(node) = process::program("node", "nodejs") else { return };
    let identity = Identity::new();
    let server = Server::start("heads-node", |directory, port| {
        let [certificate, key] = plant(&identity, directory);
        let mut command = Command::new(node);
        command.arg(file("node.js")).arg(port.to_string()).arg(key).arg(certificate);
        command
    });
    compare(&identity, &server, "node");
}

#[test]
fn go_reads_what_was_checked() {
    let Some(program) = process::built_by_go(&file("server.go"), "servers-heads") else { return };
    let identity = Identity::new();
    let server = Server::start("heads-go", |directory, port| {
        let [certificate, key] = plant(&identity, directory);
        let mut command = Command::new(program);
        command.arg(port.to_string()).arg(certificate).arg(key);
        command
    });
    compare(&identity, &server, "go");
}

#[test]
fn hypercorn_reads_what_was_checked() {
    let Some(python) = process::python_with("hypercorn", "hypercorn") else { return };
    let identity = Identity::new();
    let server = Server::start("heads-hypercorn", |directory, port| {
        let [certificate, key] = plant(&identity, directory);
        let mut command = Command::new(python);
        command.arg(file("python.py")).arg(port.to_string()).arg(key).arg(certificate);
        command
    });
    compare(&identity, &server, "hypercorn");
}
