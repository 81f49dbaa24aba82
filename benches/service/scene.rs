//! What is measured: a service in this process, a server beside it, and a database of nothing but
//! commits, all on the same disk.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use stockade_api::{Caller, CreateSandbox, KillSandbox, Sandboxes as _};
use stockade_client::{Client, Server};
use stockade_core::{OwnerId, SandboxId, SandboxSpec};
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_runtime::Runtime as _;
use stockade_runtime_native::{Native, Options};
use stockade_service::{MIGRATIONS, Service};

use crate::{Failure, failed};

/// How many never-used sandboxes wait, in this process as in the server.
const POOL: usize = 64;
/// How long a pool may take to be filled.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured.
pub(crate) struct Scene {
    place: PathBuf,
    raw: Mutex<Connection>,
    /// The runtime by itself, and a sandbox in it.
    pub(crate) native: Native,
    pub(crate) bare: SandboxId,
    /// The service in this process, and a sandbox of it.
    pub(crate) service: Service,
    pub(crate) own: SandboxId,
    /// A server behind its socket, and a sandbox of it.
    pub(crate) server: Server,
    pub(crate) remote: SandboxId,
    pub(crate) caller: Caller,
    client: Client,
    server_pid: u32,
    /// The runtime of the server.
    beside: Native,
}

impl Scene {
    pub(crate) async fn set(program: &Path) -> Result<Self, Failure> {
        let place = std::env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
        std::fs::create_dir(&place)?;
        let keeper: Vec<OsString> = vec![program.into(), "__keeper".into()];
        let open = |data| Native::open(Options { data, keeper: keeper.clone(), pool: POOL });
        let native = open(place.join("own"))?;
        let bare = SandboxId::new("bare")?;
        native.create(&bare, &SandboxSpec::default()).await?;
        let path = place.join("own/stockade.db");
        let store =
            sqlite::Options { path, synchronous: Synchronous::Full, migrations: MIGRATIONS };
        let store = Arc::new(Sqlite::open(store).await?);
        let options = stockade_service::Options::default();
        let service = Service::launch(store, vec![Arc::new(native.clone())], options);
        let service = service.await.map_err(failed)?;
        let caller = Caller::new(OwnerId::new("bench")?);
        let own = service.create(&caller, CreateSandbox::default()).await.map_err(failed)?.id;

        let data = place.join("server");
        let mut start = std::process::Command::new(program);
        start.arg("ls").env("STOCKADE_DATA_DIR", &data).env("STOCKADE_POOL", POOL.to_string());
        start.stdout(Stdio::null());
        if !start.status()?.success() {
            return Err("the server does not start".into());
        }
        let client = Client::new(data.join("server/socket"));
        let beside = open(data)?;
        // Before it has done anything.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let server_pid = client.health().await.map_err(failed)?.pid;
        let server: Server = stockade_api::Remote(client.clone());
        let raw = Mutex::new(raw(&place.join("raw.db"))?);
        let remote = bare.clone();
        Ok(Self {
            place,
            raw,
            native,
            bare,
            service,
            own,
            server,
            remote,
            caller,
            client,
            server_pid,
            beside,
        })
    }

    /// Waits until what was measured last has left nothing to do: neither the floor nor who comes
    /// next pays for it.
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        for native in [&self.native, &self.beside] {
            loop {
                let metrics = native.metrics().await?;
                if metrics.pool_ready >= POOL as u64 && metrics.pool_filling == 0 {
                    break;
                }
                if Instant::now() > until {
                    return Err("a pool is not filled".into());
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    /// Makes the sandbox of the server.
    pub(crate) async fn furnish(&mut self) -> Result<(), Failure> {
        let made = self.server.create(&self.caller, CreateSandbox::default()).await;
        self.remote = made.map_err(failed)?.id;
        Ok(())
    }

    /// The floor of what is recorded: one insert, and its way to the disk.
    pub(crate) fn commit(&self, round: usize) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let mut insert = raw.prepare_cached("INSERT INTO rows VALUES (?1, 'x', 'y')")?;
        insert.execute([i64::try_from(round)?])?;
        Ok(begun.elapsed())
    }

    /// Ends a sandbox of the server.
    pub(crate) async fn kill(&self, id: SandboxId) -> Result<(), Failure> {
        self.server.kill(&self.caller, KillSandbox::new(id)).await.map_err(failed)?;
        Ok(())
    }

    /// The memory that the server has to itself or shares, in KiB (`proc(5)`, `VmRSS`).
    pub(crate) fn server_memory(&self) -> Result<u64, Failure> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.server_pid))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let line = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(line.ok_or("the server has no memory")?.trim().parse()?)
    }

    /// Ends everything.
    pub(crate) async fn leave(self) -> Result<(), Failure> {
        self.kill(self.remote.clone()).await?;
        let own = KillSandbox::new(self.own.clone());
        self.service.kill(&self.caller, own).await.map_err(failed)?;
        self.native.cleanup(&self.bare).await?;
        self.service.shutdown(Duration::from_secs(5)).await;
        let pid = self.client.health().await.map_err(failed)?.pid;
        std::process::Command::new("kill").arg(pid.to_string()).status()?;
        // Left in the temporary directory, it harms nobody.
        let _ = std::fs::remove_dir_all(&self.place);
        Ok(())
    }
}

fn raw(path: &Path) -> Result<Connection, Failure> {
    let raw = Connection::open(path)?;
    raw.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         CREATE TABLE rows (number INTEGER PRIMARY KEY, name TEXT, value TEXT) STRICT;",
    )?;
    Ok(raw)
}
