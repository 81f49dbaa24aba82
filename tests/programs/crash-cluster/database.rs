//! A PostgreSQL server of its own, which can be killed and started again without losing a commit.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// How long the server may take to start.
const START: Duration = Duration::from_secs(60);
/// The user without rights as which root starts the server, which refuses to run as root.
const NOBODY: u32 = 65534;
/// The schema of the workers.
pub(crate) const SCHEMA: &str = "cluster";

/// The server. It ends with this value.
pub(crate) struct Database {
    data: PathBuf,
    programs: PathBuf,
    pub(crate) port: u16,
    running: Option<Child>,
}

impl Database {
    /// A new server; `None` if none is installed.
    pub(crate) fn create(data: &Path) -> Result<Option<Self>, Failure> {
        let Some(programs) = programs() else { return Ok(None) };
        std::fs::create_dir(data)?;
        if let Some(parent) = data.parent() {
            std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o755))?;
        }
        if rustix::process::geteuid().is_root() {
            chown(data, Some(NOBODY), Some(NOBODY))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut database = Self { data: data.to_owned(), programs, port, running: None };
        let mut initdb = database.command("initdb");
        initdb.args(["-A", "trust", "-U", "stockade", "-E", "UTF8", "--no-locale", "-N", "-D"]);
        let status = initdb.arg(data).status()?;
        if !status.success() {
            return Err("initdb failed".into());
        }
        database.start()?;
        Ok(Some(database))
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).args(["-p", &self.port.to_string()]);
        for setting in
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200"]
        {
            command.args(["-c", setting]);
        }
        self.running = Some(command.spawn()?);
        let until = Instant::now() + START;
        while self.sql("SELECT 1").is_err() {
            if Instant::now() > until {
                return Err("the database did not start".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Kills it with all of its processes.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        running.kill()?;
        running.wait()?;
        // Its processes notice that, and free the port before the next one needs it.
        let until = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The URL through a relay on another port.
    pub(crate) fn url(&self, port: u16) -> String {
        format!("postgres://stockade@127.0.0.1:{port}/postgres")
    }

    /// The rows of a query, as psql prints them.
    pub(crate) fn sql(&self, sql: &str) -> Result<Vec<Vec<String>>, Failure> {
        let mut client = Command::new(self.programs.join("psql"));
        client.args(["-X", "-A", "-t", "-q", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        client.arg(self.url(self.port)).env("PGOPTIONS", format!("-c search_path={SCHEMA}"));
        let output = client.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The directory of the newest installed server.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> =
        versions.filter_map(|version| Some(version.ok()?.path().join("bin"))).collect();
    found.retain(|programs| programs.join("postgres").exists());
    found.sort();
    found.pop()
}
