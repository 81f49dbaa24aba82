//! A PostgreSQL server for tests: one for all tests of a run, on the loopback, as an ordinary user,
//! with a database for each test. A script of its own ends it when no test uses it any more, also if
//! a test was killed.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::programs::DIRECTORY;

/// The script that runs the server.
const SCRIPT: &str = include_str!("postgres.sh");
/// How long a server may take to start.
const START: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

/// A server that runs as long as this value exists, and a moment longer.
#[derive(Debug)]
pub struct Postgres {
    directory: PathBuf,
    programs: PathBuf,
    port: u16,
    _users: File,
}

impl Postgres {
    /// The server of this run of the tests. The first test starts it.
    ///
    /// # Errors
    /// Why none can be started here.
    pub fn start() -> Result<Self, String> {
        let programs = programs().ok_or(
            "there is no PostgreSQL server: apt-get install --no-install-recommends postgresql",
        )?;
        let built = std::env::var(DIRECTORY).unwrap_or_default();
        let user = std::fs::metadata("/proc/self").map(|own| own.uid()).unwrap_or_default();
        // One for each directory of built programs, and each user.
        let name = format!("{built}{user}")
            .bytes()
            .fold(5381, |hash: u32, byte| hash.wrapping_mul(33) ^ u32::from(byte));
        let directory = std::env::temp_dir().join(format!("stockade-postgres-{name:x}"));
        let text = |error: std::io::Error| error.to_string();
        let users = File::create(directory.with_extension("users")).map_err(text)?;
        users.lock_shared().map_err(text)?;
        let mut server = Self { directory, programs, port: 0, _users: users };
        let failed = server.directory.with_extension("failed");
        let _ = std::fs::remove_file(&failed);
        let end = Instant::now() + START;
        let mut started: Option<Instant> = None;
        loop {
            if let Some(port) = server.ready_port() {
                server.port = port;
                return Ok(server);
            }
            if let Ok(reason) = std::fs::read_to_string(&failed) {
                return Err(format!("PostgreSQL does not start here: {}", reason.trim()));
            }
            if Instant::now() > end {
                return Err("PostgreSQL did not start in time".to_owned());
            }
            if started.is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
                server.run().map_err(text)?;
                started = Some(Instant::now());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Runs the script, which does nothing if another one runs.
    fn run(&self) -> std::io::Result<()> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut script = Command::new("setsid");
        script.args(["--fork", "sh", "-c", SCRIPT, "postgres"]);
        script.arg(&self.directory).arg(&self.programs).arg(port.to_string());
        script.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        script.current_dir("/").process_group(0);
        script.status().map(drop)
    }

    fn ready_port(&self) -> Option<u16> {
        let port = std::fs::read_to_string(self.directory.join("ready")).ok()?;
        let port = port.trim().parse().ok()?;
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(port)
    }

    /// The URL of a new, empty database.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn database(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("t{}_{}", std::process::id(), since.as_nanos());
        self.run_sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        self.url(&name)
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://stockade@127.0.0.1:{}/{database}", self.port)
    }

    /// What a statement prints in a database, without headers.
    ///
    /// # Panics
    /// If it fails.
    pub fn run_sql(&self, database: &str, sql: &str) -> String {
        let mut client = Command::new(self.programs.join("psql"));
        client.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        client.arg(self.url(database));
        let output = client.output().unwrap_or_else(|error| panic!("psql: {error}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {error}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Ends the connections of all clients to a database, as a restart of the server does.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn cut_off(&self, database: &str) {
        let sql = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
        );
        self.run_sql("postgres", &sql);
    }

    /// Lets the server also speak TLS, with a certificate and its key as PEM.
    ///
    /// # Panics
    /// If it does not take them.
    pub fn speak_tls(&self, certificate: &str, key: &str) {
        let data = self.directory.join("data");
        let owner = std::fs::metadata(&data).unwrap_or_else(|error| panic!("{error}"));
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = data.join(name);
            let written = std::fs::write(&path, text)
                .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o600)))
                .and_then(|()| chown(&path, Some(owner.uid()), Some(owner.gid())));
            written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        self.run_sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.run_sql("postgres", "SELECT pg_reload_conf()");
    }
}

/// The variable with which the suites of the product run on this kind of database.
const KIND: &str = "STOCKADE_TEST_DATABASE";

/// The URL of the database that stands for a SQLite file of this name, if the tests run on
/// PostgreSQL (`STOCKADE_TEST_DATABASE=postgres`). The same name is the same database.
///
/// # Panics
/// If the variable has another value, or no server can be started: the tests would pass without it.
#[must_use]
pub fn postgres_instead_of(file: &Path) -> Option<String> {
    let kind = std::env::var(KIND).ok()?;
    assert_eq!(kind, "postgres", "{KIND} can only be `postgres`");
    // One for this process: it ends with the process.
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    let server = SERVER
        .get_or_init(|| Postgres::start().unwrap_or_else(|reason| panic!("{KIND}: {reason}")));
    let name = file.to_string_lossy().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let name = format!("f{name:x}");
    static CREATING: Mutex<()> = Mutex::new(());
    let _one = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let exists = format!("SELECT 1 FROM pg_database WHERE datname = '{name}'");
    if server.run_sql("postgres", &exists).is_empty() {
        server.run_sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
    }
    Some(server.url(&name))
}

/// The directory of the newest installed server.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|programs: &PathBuf| Path::new(programs).join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}
