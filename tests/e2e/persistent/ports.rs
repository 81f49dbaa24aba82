//! Ports of the host that lead into a sandbox: `forward` until it is interrupted, and `--publish` as
//! long as the sandbox lives.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;

use super::{call, create, refused, sh, show};
use crate::daemons::{kill_server, wait_until};
use crate::harness::{World, skip, tests_run_as_root};

/// A server that answers `all of it: TEXT` when the request has ended, to many clients at once.
const SERVER: &str = r#"
import socket, threading
s = socket.create_server(("127.0.0.1", 8000), backlog=64)
def serve(c):
    data = b""
    while piece := c.recv(65536): data += piece
    c.sendall(b"all of it: " + data)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;

/// Starts the server in a sandbox.
fn serve(world: &World, id: &str) {
    call(world, &["exec", "--detach", id, "--", "python3", "-c", SERVER]).succeeds();
    // Port 8000 in hexadecimal, listening.
    wait_until("the server listens", || {
        sh(world, id, "grep -q ':1F40 00000000:0000 0A' /proc/net/tcp").code() == 0
    });
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks through this address as a user of this id; tests that run as root can be any user.
fn ask(world: &World, address: &str, text: &str) -> Option<String> {
    let mut script = Command::new("python3");
    script.args([
        "-c",
        "
import socket, sys
host, port, text = sys.argv[1:]
c = socket.create_connection((host, int(port)), 20)
c.sendall(text.encode())
c.shutdown(socket.SHUT_WR)
answer = b''
while piece := c.recv(65536): answer += piece
sys.stdout.write(answer.decode())
",
    ]);
    let (host, port) = address.rsplit_once(':').unwrap();
    world.identity.assume(script.args([host, port, text]));
    let output = script.output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn a_port_is_forwarded_until_interrupted(world: &World) {
    let id = create(world, &["--id", "web"]);
    serve(world, &id);
    let mut forward = world.stockade(&["forward", &id, "0:8000"]).start();
    forward.wait_for_output(":8000\n");
    let address = forward.stdout().split_once(' ').unwrap().0.to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // Several at once, one of which is idle, and each with an end of its request.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let address = &address;
            scope.spawn(move || {
                let text = format!("{number}").repeat(100_000);
                let answer = ask(world, address, &text).unwrap();
                assert_eq!(answer, format!("all of it: {text}"));
            });
        }
    });
    if world.identity.uid() == rustix::process::geteuid().as_raw() {
        // A connection stays open while others come and go.
        let mut open = TcpStream::connect(&address).unwrap();
        open.write_all(b"one").unwrap();
        assert!(ask(world, &address, "two").is_some());
        open.write_all(b"three").unwrap();
        open.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        open.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "all of it: onethree");
    }
    // The next server continues it.
    kill_server(&world.data());
    wait_until("the next server forwards", || ask(world, &address, "x").is_some());
    refused(
        &call(world, &["forward", "web", &format!("{}:80", port_of(&address))]),
        1,
        "PORT_IN_USE",
    );
    call(world, &["forward", "web", "80:0"]).ends_with(2);
    refused(&call(world, &["forward", "nobody", "0:80"]), 1, "NOT_FOUND");
    forward.signal(Signal::INT);
    forward.finish().ends_with(0);
    assert_eq!(ask(world, &address, "x"), None);
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

fn another_user_is_refused(world: &World) {
    if !tests_run_as_root() {
        return skip("another_user_is_refused", "only root can become another user");
    }
    let port = free_port();
    let id = create(world, &["--publish", &format!("{port}:8000")]);
    serve(world, &id);
    let mut forward = world.stockade(&["forward", &id, "0:8000"]).start();
    forward.wait_for_output(":8000\n");
    let forwarded = forward.stdout().split_once(' ').unwrap().0.to_owned();
    for address in [forwarded, format!("127.0.0.1:{port}")] {
        assert!(ask(world, &address, "x").is_some(), "{address}");
        for uid in [0, 12_345].into_iter().filter(|uid| *uid != world.identity.uid()) {
            let script = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20); \
                c.sendall(b'x'); c.shutdown(1); sys.exit(c.recv(1) == b'')";
            let mut client = Command::new("python3");
            client.args(["-c", script, port_of(&address)]).uid(uid).gid(uid);
            let output = client.output().unwrap();
            assert!(!output.status.success(), "the user {uid} reached {address}");
        }
    }
    forward.signal(Signal::TERM);
    let ended = forward.finish();
    assert!(ended.stderr.contains("was refused"), "{ended}");
}

fn a_published_port_lives_as_long_as_its_sandbox(world: &World) {
    let port = free_port();
    let publish = format!("{port}:8000");
    let id = create(world, &["--id", "box", "-p", &publish]);
    serve(world, &id);
    let address = format!("127.0.0.1:{port}");
    assert_eq!(ask(world, &address, "one").unwrap(), "all of it: one");
    let shown = show(world, &id);
    assert_eq!(shown["published"][0]["host"], port, "{shown}");
    assert_eq!(shown["published"][0]["problem"], serde_json::Value::Null, "{shown}");
    assert!(call(world, &["show", &id]).stdout.contains(&address));
    // A port in use is an error before anything is created.
    for taken in [publish.clone(), format!("0.0.0.0:{port}:80")] {
        let second = call(world, &["create", "--id", "second", "-p", &taken]);
        refused(&second, 1, "PORT_IN_USE");
        assert!(second.stderr.contains(&port.to_string()), "{second}");
    }
    let all = call(world, &["ls", "--all", "--quiet"]);
    assert_eq!(all.stdout, "box\n", "{all}");
    // It comes back with the next server.
    kill_server(&world.data());
    assert_eq!(show(world, &id)["state"], "running");
    wait_until("the next server serves it", || ask(world, &address, "two").is_some());
    // It is free while the sandbox is stopped, and back when it is started.
    call(world, &["stop", &id]).succeeds();
    let problem = show(world, &id)["published"][0]["problem"].clone();
    assert!(problem.as_str().unwrap().contains("stopped"), "{problem}");
    drop(TcpListener::bind(&address).expect("the port is free"));
    call(world, &["start", &id]).succeeds();
    wait_until("the port is taken", || TcpListener::bind(&address).is_err());
    serve(world, &id);
    assert_eq!(ask(world, &address, "three").unwrap(), "all of it: three");
    call(world, &["kill", &id]).succeeds();
    let next = create(world, &["-p", &publish]);
    call(world, &["kill", &next]).succeeds();
    for bad in ["80", "0:80", "80:0", "localhost:80:80", "80:80/udp"] {
        call(world, &["create", "--publish", bad]).ends_with(2);
    }
    let twice = call(world, &["create", "-p", &publish, "-p", &format!("{port}:9")]);
    refused(&twice, 2, "INVALID_INPUT");
}

as_root_and_as_user![
    a_port_is_forwarded_until_interrupted,
    another_user_is_refused,
    a_published_port_lives_as_long_as_its_sandbox,
];
