//! What clients of E2B expect of a machine, tried from inside: `sudo`, which gives what the sandbox's root has and nothing
//! else, `pip install`, and a boot id for each start of a sandbox.

use serde_json::json;

use super::{Server, key};
use crate::call::Outcome;
use crate::harness::{Identity, World};

/// The program `sudo` of these sandboxes.
const SUDO: &str = include_str!("../../../crates/plan/src/expected_programs/sudo.py");
/// Runs a login shell, as the clients do.
const SHELL: [&str; 3] = ["bash", "-l", "-c"];
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A sandbox of a client of E2B.
struct Machine<'w> {
    world: &'w World,
    _server: Server,
    id: String,
}

impl<'w> Machine<'w> {
    fn new(world: &'w World) -> Self {
        let server = Server::start(world, &[]);
        let (key, _) = key(world, &[]);
        let request =
            json!({ "templateID": "base", "timeout": 600, "allow_internet_access": false });
        let created = server.json("POST /v2/sandboxes", &[&format!("X-API-KEY: {key}")], &request);
        assert_eq!(created.status, 201, "{}", created.text());
        let id = created.value()["sandboxID"].as_str().unwrap().to_owned();
        Self { world, _server: server, id }
    }

    fn run(&self, options: &[&str], script: &str) -> Outcome {
        let words = [&["exec"], options, &[&self.id, "--"], &SHELL, &[script]].concat();
        self.world.stockade(&words).finish()
    }

    /// The output of a script that must succeed.
    fn output(&self, script: &str) -> String {
        let outcome = self.run(&[], script);
        outcome.succeeds();
        outcome.stdout.trim().to_owned()
    }
}

fn sudo_starts_a_command_as_another_user(world: &World) {
    let machine = Machine::new(world);
    if world.identity != Identity::Root {
        let refused = machine.run(&[], "sudo id -u");
        assert_eq!(refused.code(), 1, "{refused}");
        assert!(refused.stderr.contains("one user only"), "{refused}");
        return;
    }
    for (script, expected) in [
        ("id -u; sudo id -u; sudo -n -u user id -un", "1000\n0\nuser"),
        ("sudo -u '#4242' id -u", "4242"),
        ("sudo sh -c 'exit 7'; echo $?", "7"),
        ("sudo sh -c 'kill -TERM $$'; echo $?", "143"),
        ("sudo no-such-program 2>&1; echo $?", "sudo: No such file or directory\n1"),
        ("echo input | sudo cat", "input"),
        ("sudo A=b printenv A SUDO_USER HOME; C=d sudo -E printenv C", "b\nuser\n/root\nd"),
        ("cd /tmp && sudo pwd; sudo -i pwd; sudo -s echo 'a  b'", "/tmp\n/root\na  b"),
        ("sudo sh -c 'echo x > /etc/of-root' && stat -c %U /etc/of-root", "root"),
        ("sudo printf '%s' $(seq 1 20000) | wc -c", "88894"),
        ("sudo sudo id -u", "0"),
        // What it leaves in the background stays, as with every command.
        ("sudo sh -c 'sleep 4711 & exit 3'; echo $?; pgrep -c -x sleep", "3\n1"),
        ("sudo pkill -x sleep; (sudo sleep 60 & echo $! > /tmp/pid); sleep 0.3; kill $(cat /tmp/pid)
          for n in $(seq 50); do pgrep -x sleep >/dev/null || break; sleep 0.1; done
          pgrep -c -x sleep", "0"),
    ] {
        let outcome = machine.run(&[], script);
        assert_eq!(outcome.stdout.trim(), expected, "{script}: {outcome}");
    }
    let of_root = machine.run(&["--user", "0"], "python -c 'print(6 * 7)'; sudo -u user id -un");
    assert_eq!(of_root.stdout.trim(), "42\nuser", "{of_root}");
    // A command that takes too long ends with everything, also with what it has started by sudo.
    let late = machine.run(&["--timeout", "1s"], "sudo sh -c 'setsid sleep 4712 & sleep 4713'");
    assert_ne!(late.code(), 0, "{late}");
    let gone = "for n in $(seq 50); do pgrep -x sleep >/dev/null || break; sleep 0.1; done; pgrep -c -x sleep";
    let left = machine.run(&[], gone);
    assert_eq!(left.stdout.trim(), "0", "{left}");
}

fn sudo_gives_only_what_root_inside_has(world: &World) {
    if world.identity != Identity::Root {
        return;
    }
    let machine = Machine::new(world);
    let walls = "grep -E '^(Cap|NoNewPrivs|Seccomp|Groups|[UG]id)' /proc/self/status";
    let of_root = machine.run(&["--user", "0"], walls);
    of_root.succeeds();
    assert_eq!(machine.output(&format!("sudo {walls}")), of_root.stdout.trim());
    assert!(of_root.stdout.contains("CapEff:\t0000000000000000"), "{of_root}");
    // Root executes the programs of a directory that the ordinary user cannot change.
    let change = "exec 2>/dev/null; rm -rf /opt/stockade; mv /opt/stockade /opt/other; cp /bin/true /opt/stockade/bin/su
        echo 'exit 9' >> /opt/stockade/bin/sudo; ls -A /opt/stockade/bin/su; sudo sh -c 'command -v sudo; id -u'";
    assert_eq!(machine.run(&[], change).stdout.trim(), "/opt/stockade/bin/sudo\n0");
    for attack in [
        // The ids of init, and those that do not exist.
        "sudo -u '#65535' true",
        "sudo -u '#4294967295' true",
        "sudo kill -9 1",
        "sudo unshare -Ur true",
        "sudo touch /usr/by-sudo",
        "sudo chown 1000 /etc/passwd",
        "sudo mount -t tmpfs none /mnt",
        "sudo chroot / true",
        "sudo cat /proc/1/mem",
        "sudo sh -c 'echo 1 > /proc/sys/kernel/hostname'",
    ] {
        let outcome = machine.run(&[], attack);
        assert_ne!(outcome.code(), 0, "{attack}: {outcome}");
        assert_eq!(machine.output("echo alive"), "alive", "{attack}");
    }
    let hostile = r#"
import os, random, socket, time
def connected():
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect("\0stockade-root")
    return one
random.seed(7)
for _ in range(300):
    try:
        one = connected()
        tag = random.choice([b"X", b"Y", b"Z", b"M", b"S", b"K", b"E", b"T", b"R", b"N", b"L", b"P", b"C", b"Q"])
        files = [os.open("/dev/zero", os.O_RDONLY) for _ in range(random.randrange(9))]
        socket.send_fds(one, [tag + random.randbytes(random.randrange(200))], files)
        for file in files:
            os.close(file)
        one.settimeout(0.05)
        try:
            one.recv(9000)
        except TimeoutError:
            pass
    except OSError:
        pass
waiting = []
for _ in range(200):
    try:
        waiting.append(connected())
    except OSError:
        pass
try:
    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind("\0stockade-root")
    print("taken")
except OSError:
    print("not taken")
time.sleep(0.5)
"#;
    let outcome = machine.run(&[], &format!("python3 -c '{}'", hostile.replace('\'', "\"")));
    assert_eq!(outcome.stdout.trim(), "not taken", "{outcome}");
    assert_eq!(machine.output("sudo id -u"), "0");
    // Commands by sudo have a limit of their own, so that the owner's always start.
    let many = "for n in $(seq 70); do sudo sleep 4714 2>>/tmp/refused & done
        for n in $(seq 100); do test -s /tmp/refused && break; sleep 0.1; done
        grep -c 'too many commands' /tmp/refused";
    let refused: u32 = machine.output(many).parse().unwrap();
    assert!(refused >= 1, "{refused}");
    assert_eq!(machine.output("echo alive"), "alive");
}

fn sudo_is_for_sandboxes_that_ask_for_it(world: &World) {
    if world.identity != Identity::Root {
        return;
    }
    world.stockade(&["create", "--id", "plain"]).finish().succeeds();
    let words = ["exec", "plain", "--", "python3", "-c", SUDO, "id", "-u"];
    let refused = world.stockade(&words).finish();
    assert_eq!(refused.code(), 1, "{refused}");
    assert!(refused.stderr.contains("may not start commands as other users"), "{refused}");
}

/// Makes a wheel with a module and a program.
pub(super) const WHEEL: &str = r#"
import zipfile
about = "greeter-1.0.dist-info/"
with zipfile.ZipFile("greeter-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("greeter.py", "def main():\n    print('greeted')\n")
    wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(about + "entry_points.txt", "[console_scripts]\ngreet = greeter:main\n")
    wheel.writestr(about + "RECORD", "")
"#;

/// Also where a distribution manages the packages of the machine's Python: pip changes nothing of them here.
fn pip_installs_below_the_home(world: &World) {
    let machine = Machine::new(world);
    if machine.run(&[], "python3 -m pip --version").code() != 0 {
        stockade_test_support::skip(
            "served::machine::pip_installs_below_the_home",
            "the machine's Python has no pip: apt-get install python3-pip",
        );
        return;
    }
    machine.output(&format!("cat > wheel.py << 'EOF'\n{WHEEL}EOF\npython3 wheel.py"));
    let installed = machine.output("pip install --no-index ./greeter-1.0-py3-none-any.whl");
    assert!(installed.contains("Successfully installed greeter-1.0"), "{installed}");
    assert_eq!(machine.output("greet; command -v greet"), "greeted\n/home/user/.local/bin/greet");
}

fn each_start_has_a_boot_id(world: &World) {
    let id = |sandbox: &str| {
        let outcome = world.stockade(&["exec", sandbox, "--", "cat", BOOT_ID]).finish();
        outcome.succeeds();
        outcome.stdout.trim().to_owned()
    };
    let call = |words: &[&str]| {
        world.stockade(words).finish().succeeds();
    };
    call(&["create", "--id", "one"]);
    call(&["create", "--id", "two"]);
    let first = id("one");
    let host = std::fs::read_to_string(BOOT_ID).unwrap();
    assert_eq!(first.len(), host.trim().len());
    assert_ne!(first, host.trim());
    assert_ne!(first, id("two"));
    assert_eq!(first, id("one"));
    call(&["pause", "one"]);
    call(&["resume", "one"]);
    assert_eq!(first, id("one"));
    call(&["stop", "one"]);
    call(&["start", "one"]);
    assert_ne!(first, id("one"));
    let write = ["exec", "one", "--", "sh", "-c", "echo x > /proc/sys/kernel/random/boot_id"];
    assert_ne!(world.stockade(&write).finish().code(), 0);
    let run = world.stockade(&["run", "--", "cat", BOOT_ID]).finish();
    run.succeeds();
    assert_ne!(run.stdout.trim(), host.trim());
}

as_root_and_as_user!(
    pip_installs_below_the_home,
    sudo_starts_a_command_as_another_user,
    sudo_gives_only_what_root_inside_has,
    sudo_is_for_sandboxes_that_ask_for_it,
    each_start_has_a_boot_id
);
