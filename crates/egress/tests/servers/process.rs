//! Servers that the tests start: each in a directory of its own, with a log of what it prints.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long to wait for a server that starts, or that leaves a connection open.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A server in a directory of its own.
pub(super) struct Server {
    process: Child,
    directory: PathBuf,
    pub(super) address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Server {
    /// Starts the command for a directory and a port, and waits until it listens.
    pub(super) fn start(name: &str, command: impl FnOnce(&Path, u16) -> Command) -> Self {
        let directory = std::env::temp_dir().join(format!("servers-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = File::create(directory.join("log")).unwrap();
        let errors = File::create(directory.join("errors")).unwrap();
        let mut command = command(&directory, address.port());
        let process = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap();
        let server = Self { process, directory, address };
        let tries = PATIENCE.as_millis() / 20;
        for _ in 0..tries {
            if TcpStream::connect(address).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{name}: {}", std::fs::read_to_string(server.directory.join("errors")).unwrap());
    }

    /// What it has printed so far.
    pub(super) fn log(&self) -> String {
        let log = std::fs::read(self.directory.join("log")).unwrap();
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// A program, from `PATH` or from where Debian installs servers; if there is none, records a skip.
pub(super) fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = directories.map(|directory| directory.join(name)).find(|path| path.is_file());
    if found.is_none() {
        let reason = format!("{name} is not installed: apt-get install {package}");
        stockade_test_support::skipped(&reason);
    }
    found
}

/// An interpreter of Python 3 with this package, from an environment that `cargo xtask ci` installs or
/// from `PATH`; if there is none, records a skip.
pub(super) fn python_with(package: &str, environment: &str) -> Option<PathBuf> {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let own = packages.join(environment).join("bin/python");
    let has_package = |python: &PathBuf| {
        let import = format!("import {package}");
        let imported = Command::new(python).args(["-c", &import]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    let found = [own, PathBuf::from("python3")].into_iter().find(has_package);
    if found.is_none() {
        let reason = format!("{package} is not installed: cargo xtask ci installs it");
        stockade_test_support::skipped(&reason);
    }
    found
}

/// The program that Go makes of a source, if Go is installed.
pub(super) fn built_by_go(source: &Path, name: &str) -> Option<PathBuf> {
    let go = program("go", "golang-go")?;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let binary = directory.join(name);
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&binary).arg(source);
    build.env("GOCACHE", directory.join("go-cache"));
    let built = build.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(binary)
}

/// nginx with a configuration in which its directory and its port are to be filled in.
pub(super) fn nginx(
    nginx: &Path,
    (configuration, directory): (&Path, &Path),
    port: u16,
) -> Command {
    let text = std::fs::read_to_string(configuration).unwrap();
    let text = text.replace("DIRECTORY", directory.to_str().unwrap());
    let own = directory.join("nginx.conf");
    std::fs::write(&own, text.replace("PORT", &port.to_string())).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-e").arg(directory.join("error.log")).arg("-c").arg(own);
    command
}
