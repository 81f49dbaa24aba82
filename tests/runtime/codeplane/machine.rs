//! The machine of one workspace: a server of OpenSSH, an ordinary user's in namespaces of its own, with
//! directories that a snapshot copies.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// The password of the user, and what is stored of it.
pub(crate) const TOKEN: &str = "codeplane-token";
const HASH: &str = "$6$stockade$2u9Y/hyF2mfk8DNWHA5EHdp8U5Edk1TpkkPpVpuA34p0RKEtbfCe/8awZ7.QzSLU0x.BhW1HxbyTIiVr70kdq.";
/// The directories of a machine that can be written.
const WRITABLE: [(&str, &str); 3] =
    [("data", "/data"), ("home", "/home/developer"), ("tmp", "/tmp")];

/// The user whose processes those of a machine are outside, where the tests run as root: nothing of Stockade runs
/// inside as id 0 of the host.
const USER: u32 = 1000;

/// Which programs are missing here.
pub(crate) fn missing_programs() -> Result<(), String> {
    for (program, package) in [
        ("/usr/sbin/sshd", "openssh-server"),
        ("/usr/bin/ssh-keygen", "openssh-client"),
        ("/usr/bin/bwrap", "bubblewrap"),
    ] {
        if !Path::new(program).exists() {
            return Err(format!("{program} is missing: apt-get install {package}"));
        }
    }
    Ok(())
}

/// A machine, which ends with this value.
pub(crate) struct Machine {
    directory: PathBuf,
    process: Child,
    pub(crate) port: u16,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Machine {
    /// Starts a machine, with the files of a snapshot if one is named.
    pub(crate) fn start(directory: &Path, snapshot: Option<&Path>) -> Self {
        for name in WRITABLE.map(|(name, _)| name).into_iter().chain(["etc"]) {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        if let Some(snapshot) = snapshot {
            for (name, _) in WRITABLE {
                copy(&snapshot.join(name), &directory.join(name));
            }
        }
        let etc = directory.join("etc");
        let users = format!(
            "root:x:0:0::/root:/bin/sh\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n\
             developer:{HASH}:1000:1000::/home/developer:/bin/sh\n"
        );
        fs::write(etc.join("passwd"), users).unwrap();
        fs::write(etc.join("group"), "root:x:0:\ndeveloper:x:1000:\n").unwrap();
        // The port is free again when the server starts.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey /etc/stockade/host_key\nPidFile none\n\
             UsePAM no\nPasswordAuthentication yes\nKbdInteractiveAuthentication no\n\
             PubkeyAuthentication no\nStrictModes no\nMaxStartups 200\n"
        );
        fs::write(etc.join("sshd_config"), settings).unwrap();
        make_key(&etc.join("host_key"));
        let mut bwrap = Command::new("bwrap");
        if give_to_user(directory) {
            bwrap.uid(USER).gid(USER);
        }
        bwrap.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
        bwrap.args(["--uid", "1000", "--gid", "1000", "--die-with-parent", "--as-pid-1"]);
        bwrap.args(["--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"]);
        bwrap.args(["--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--proc", "/proc"]);
        for name in ["bin", "lib", "lib64", "sbin"] {
            bwrap.args(["--symlink", &format!("usr/{name}"), &format!("/{name}")]);
        }
        bwrap.args(["--dev", "/dev", "--dir", "/run/sshd"]);
        for (name, inside) in WRITABLE {
            bwrap.arg("--bind").arg(directory.join(name)).arg(inside);
        }
        for name in ["passwd", "group"] {
            bwrap.arg("--ro-bind").arg(etc.join(name)).arg(format!("/etc/{name}"));
        }
        bwrap.arg("--ro-bind").arg(&etc).arg("/etc/stockade");
        let server = "while :; do /usr/sbin/sshd -D -f /etc/stockade/sshd_config; sleep 0.05; done";
        bwrap.args(["--", "sh", "-c", server]);
        bwrap.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = spawn(bwrap);
        let machine = Self { directory: directory.to_owned(), process, port };
        machine.wait();
        machine
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "a server of OpenSSH that does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The public key of the host.
    pub(crate) fn host_key(&self) -> String {
        let text = fs::read_to_string(self.directory.join("etc/host_key.pub")).unwrap();
        text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// The line of a file of known hosts.
    pub(crate) fn known_host(&self) -> String {
        format!("[127.0.0.1]:{} {}\n", self.port, self.host_key())
    }

    /// Gives the host another key.
    pub(crate) fn change_host_key(&mut self) {
        let key = self.directory.join("etc/host_key");
        fs::remove_file(&key).unwrap();
        fs::remove_file(key.with_extension("pub")).unwrap();
        make_key(&key);
        give_to_user(&self.directory);
        self.drop_connections();
        std::thread::sleep(Duration::from_millis(200));
        self.wait();
    }

    /// Ends the server and its connections; it starts again.
    pub(crate) fn drop_connections(&self) {
        let servers = self.processes().into_iter().filter(|process| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            name.trim() == "sshd"
        });
        signal("-KILL", servers.collect());
    }

    /// Stops all processes, or lets them go on.
    pub(crate) fn suspend(&mut self, is_suspended: bool) {
        signal(if is_suspended { "-STOP" } else { "-CONT" }, self.processes());
    }

    /// The processes in the machine.
    fn processes(&self) -> Vec<u32> {
        let outside = self.process.id();
        let first = fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"));
        let first = first.unwrap_or_default();
        let Some(first) = first.split_whitespace().next() else { return Vec::new() };
        let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
        let Some(own) = space(first) else { return Vec::new() };
        let all = fs::read_dir("/proc").unwrap().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        let inside = names.filter(|name| {
            name.bytes().all(|byte| byte.is_ascii_digit()) && space(name).as_ref() == Some(&own)
        });
        inside.filter_map(|name| name.parse().ok()).collect()
    }

    /// Copies all files.
    pub(crate) fn copy_to(&self, to: &Path) {
        for (name, _) in WRITABLE {
            fs::create_dir_all(to.join(name)).unwrap();
            copy(&self.directory.join(name), &to.join(name));
        }
    }
}

/// Spawns a process from a thread that lives as long as this process: one that dies with its parent dies
/// with the thread that has spawned it.
fn spawn(command: Command) -> Child {
    type Request = (Command, mpsc::Sender<Child>);
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Request>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                answer.send(command.spawn().unwrap()).unwrap();
            }
        });
        Mutex::new(sender)
    });
    let (sender, answer) = mpsc::channel();
    spawner.lock().unwrap().send((command, sender)).unwrap();
    answer.recv().unwrap()
}

/// Gives the files of a machine to the user whose processes it has; does nothing where that is the user of the
/// tests.
fn give_to_user(directory: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let parent = directory.parent().unwrap();
    fs::set_permissions(parent, fs::Permissions::from_mode(0o711)).unwrap();
    let owner = format!("{USER}:{USER}");
    let status = Command::new("chown").arg("-R").arg(owner).arg(directory).status().unwrap();
    assert!(status.success());
    true
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success());
}

fn make_key(path: &Path) {
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path);
    let output = keygen.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn signal(name: &str, processes: Vec<u32>) {
    if processes.is_empty() {
        return;
    }
    let processes = processes.iter().map(ToString::to_string);
    // Some may have ended meanwhile.
    let sent = Command::new("kill").arg(name).args(processes).stderr(Stdio::null()).status();
    sent.unwrap();
}
