//! What all clients share: the connection to the server, which is started if there is none, and the
//! ledger.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stockade_api::{Caller, Problem};
use stockade_client::{Client, Server};
use stockade_core::{Code, OwnerId, SandboxId};

use crate::Failure;
use crate::ledger::Ledger;

/// How long an operation may take to be answered, including restarts of servers.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What all clients share.
pub(crate) struct World {
    pub(crate) program: PathBuf,
    pub(crate) data: PathBuf,
    /// The directory of the projects.
    pub(crate) projects: PathBuf,
    pub(crate) server: Server,
    pub(crate) stop: AtomicBool,
    owner: OwnerId,
    /// A server on this machine's loopback that accepts every connection.
    pub(crate) echo_server: SocketAddr,
    starting: Mutex<()>,
    ledger: Mutex<Ledger>,
    names: AtomicU64,
}

impl World {
    pub(crate) fn new(program: PathBuf, data: PathBuf) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let outside = listener.local_addr()?;
        std::thread::spawn(move || listener.incoming().for_each(drop));
        Ok(Self {
            echo_server: outside,
            server: stockade_api::Remote(Client::new(data.join("server/socket"))),
            program,
            projects: data.with_file_name("projects"),
            data,
            stop: AtomicBool::new(false),
            // A server identifies the owner by the peer of its socket.
            owner: OwnerId::new("client")?,
            starting: Mutex::default(),
            ledger: Mutex::default(),
            names: AtomicU64::new(0),
        })
    }

    /// Records what a client has observed.
    pub(crate) fn update_ledger<T>(&self, note: impl FnOnce(&mut Ledger) -> T) -> T {
        note(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A name that was not used before.
    pub(crate) fn unique_name(&self, of: &str) -> String {
        format!("{of}-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the init of a sandbox was killed.
    pub(crate) fn is_lost(&self, id: &SandboxId) -> bool {
        self.update_ledger(|ledger| ledger.lost.contains(id.as_str()))
    }

    /// The caller, without an idempotency key.
    pub(crate) fn caller(&self) -> Caller {
        Caller::new(self.owner.clone())
    }

    /// Requests an operation under one idempotency key, again and again, until there is a response.
    pub(crate) async fn call<T>(
        &self,
        act: impl AsyncFn(&Caller) -> Result<T, Problem>,
    ) -> Result<T, ProblemError> {
        let me = self.caller().with_key(self.unique_name("operation"));
        self.update_ledger(|ledger| ledger.operations += 1);
        let until = Instant::now() + TIMEOUT;
        loop {
            let answer = act(&me).await;
            match &answer {
                Err(problem) if is_unanswered(problem) && Instant::now() < until => {
                    self.update_ledger(|ledger| ledger.repeated += 1);
                    self.start_server().map_err(|error| ProblemError(unanswered(error)))?;
                }
                _ => return answer.map_err(ProblemError),
            }
        }
    }

    /// Starts a server as users do, with a command, unless there is one.
    pub(crate) fn start_server(&self) -> std::io::Result<()> {
        let _alone = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if UnixStream::connect(self.data.join("server/socket")).is_ok() {
            return Ok(());
        }
        // If it is killed meanwhile, the next request starts another.
        self.stockade(&["ls"]).map(drop)
    }

    /// Runs a command of the program.
    pub(crate) fn stockade(&self, words: &[&str]) -> std::io::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(words).env("STOCKADE_DATA_DIR", &self.data).env("STOCKADE_POOL", "4");
        command.stdin(Stdio::null()).output()
    }
}

/// The response to an operation that was not executed.
#[derive(Debug)]
pub(crate) struct ProblemError(pub(crate) Problem);

impl std::error::Error for ProblemError {}

impl std::fmt::Display for ProblemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Problem { code, message, cause, .. } = &self.0;
        write!(f, "{code}: {message} ({})", cause.as_deref().unwrap_or("no cause"))
    }
}

/// Whether there was no response: the operation may have been executed or not.
pub(crate) fn is_unanswered(problem: &Problem) -> bool {
    problem.code == Code::Unreachable && problem.message == "the server does not answer"
}

/// A problem for which [`is_unanswered`] is true.
pub(crate) fn unanswered(error: impl ToString) -> Problem {
    Problem::new(Code::Unreachable, "the server does not answer").because(error.to_string())
}
