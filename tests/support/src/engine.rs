//! A Docker Engine for tests: one for all tests of a run, with its own data, socket and processes.
//! A script of its own ends it when no test uses it any more, also if a test was killed.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::programs::program;

/// The script that runs the engine.
const SCRIPT: &str = include_str!("engine.sh");
/// How long an engine may take to start.
const START: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// An engine that runs as long as this value exists, and a moment longer.
#[derive(Debug)]
pub struct Engine {
    directory: PathBuf,
    _users: File,
}

impl Engine {
    /// The engine of this run of the tests. The first test starts it.
    ///
    /// # Errors
    /// Why none can be started here.
    pub fn start() -> Result<Self, String> {
        Self::start_for("")
    }

    /// Another engine, for tests that kill it.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_for(purpose: &str) -> Result<Self, String> {
        if !Path::new("/usr/sbin/dockerd").exists() {
            return Err(
                "there is no dockerd: apt-get install --no-install-recommends docker.io".into()
            );
        }
        if !Path::new("/bin/busybox").exists() {
            return Err("there is no busybox: apt-get install busybox-static".into());
        }
        let echo = program("echo");
        // One for each directory of built programs.
        let name: u32 = echo
            .to_string_lossy()
            .bytes()
            .fold(5381, |hash: u32, byte| hash.wrapping_mul(33) ^ u32::from(byte));
        let directory = std::env::temp_dir().join(format!("stockade-engine-{name:x}{purpose}"));
        let text = |error: std::io::Error| error.to_string();
        let users = File::create(directory.with_extension("users")).map_err(text)?;
        users.lock_shared().map_err(text)?;
        let engine = Self { directory, _users: users };
        let end = Instant::now() + START;
        let failed = engine.directory.with_extension("failed");
        let _ = std::fs::remove_file(&failed);
        let mut started = None;
        while !engine.is_ready() {
            if let Ok(reason) = std::fs::read_to_string(&failed) {
                return Err(format!("dockerd does not start here: {}", reason.trim()));
            }
            if Instant::now() > end {
                return Err("dockerd did not start in time".to_owned());
            }
            if started.is_none_or(|at: Instant| at.elapsed() > Duration::from_secs(2)) {
                engine.run(&echo).map_err(text)?;
                started = Some(Instant::now());
            }
            std::thread::sleep(POLL);
        }
        Ok(engine)
    }

    /// Runs the script, which does nothing if another one runs.
    fn run(&self, echo: &Path) -> std::io::Result<()> {
        let mut script = Command::new("setsid");
        script.args(["--fork", "sh", "-c", SCRIPT, "engine"]).arg(&self.directory).arg(echo);
        script.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        script.current_dir("/").process_group(0);
        script.status().map(drop)
    }

    fn is_ready(&self) -> bool {
        self.directory.join("ready").exists()
            && std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("s.sock")
    }

    /// The process id of the engine.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn process(&self) -> i32 {
        let text = std::fs::read_to_string(self.directory.join("pid")).unwrap_or_default();
        text.trim().parse().unwrap_or_else(|_| panic!("the engine has no process id: {text:?}"))
    }

    /// The output of a command of the client, such as `ps -aq`.
    ///
    /// # Panics
    /// If the command fails.
    pub fn docker(&self, arguments: &[&str]) -> String {
        let mut docker = Command::new("docker");
        docker.arg("-H").arg(format!("unix://{}", self.socket().display())).args(arguments);
        let output = docker.output().unwrap_or_else(|error| panic!("docker: {error}"));
        let reply = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {arguments:?}: {reply}{error}");
        reply
    }
}
