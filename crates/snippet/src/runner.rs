//! Runs snippets in workers: waits for a permit, forks a worker, and builds a transcript from the
//! worker's messages. Every byte of them is untrusted: it is parsed as the expected type, or
//! discarded.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_core::address::hosts::Hosts;
use stockade_script::fetch::Fetcher;
use stockade_script::worker::{self, Call, Confinement, Program, WorkerEnd, WorkerOutput, Zygote};
use stockade_script::{Fault, LibrarySet, SourceFile, TOO_DEEP, is_stack_overflow};
use tokio::sync::Mutex;

use crate::imports::Imports;
use crate::library::built_in;
use crate::payload::{Input, Payload};
use crate::queue::Queue;
use crate::transcript::{ErrorCode, Phase, Transcript};
use crate::worker::{Reply, Setup, WorkerRequest};

/// Time for a worker beyond that of its snippet: to start, and to read the facts.
const ALLOWANCE: Duration = Duration::from_millis(700);
/// How long checking may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest size of its lines here. A realm's limit is lower.
const LINE_BYTES: usize = 10 << 20;

const ABORTED: &str = "sandbox: aborted by caller signal";
const NO_NAMESPACES_WARNING: &str = "the worker had no namespaces of its own, because none can be created here: only its seccomp filter and Landlock isolated it";

/// The options of a runner.
#[derive(Debug, Clone)]
pub struct Options {
    /// The zygote program, from which workers are forked: it must call [`crate::worker::process`]
    /// and nothing else.
    pub program: Program,
    /// The allowed imports.
    pub imports: Imports,
    /// The available packages.
    pub library: LibrarySet,
    /// The fetcher for packages.
    pub fetcher: Fetcher,
    /// How many snippets may run concurrently.
    pub max_concurrent: usize,
}

impl Options {
    /// The built-in library set, public hosts, and one concurrent snippet per processor.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            imports: Imports::default(),
            library: built_in(),
            fetcher: Fetcher::new(Hosts::Public),
            max_concurrent: std::thread::available_parallelism().map_or(4, NonZero::get),
        }
    }
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller cancelled the snippet before its turn.
    #[error("{ABORTED}")]
    Aborted,
    /// There is no worker.
    #[error(transparent)]
    Worker(#[from] worker::Error),
}

/// Runs snippets with one library set.
#[derive(Debug)]
pub struct Runner {
    setup: Arc<[u8]>,
    program: Program,
    fetcher: Fetcher,
    queue: Queue,
    packages: Vec<String>,
    has_installed_packages: bool,
    /// Started at first use, and again after it has ended.
    zygote: Mutex<Option<Arc<Zygote>>>,
}

impl Runner {
    /// A runner; does not start a process yet.
    pub fn new(options: Options) -> Self {
        let Options { program, imports, library, fetcher, max_concurrent } = options;
        let packages = imports.packages.clone();
        let has_installed_packages =
            library.packages.iter().any(|package| package.version.is_some());
        // Serializing texts and lists cannot fail.
        let setup = serde_json::to_vec(&Setup { imports, library }).unwrap_or_default();
        let queue = Queue::new(max_concurrent);
        let setup = setup.into();
        let zygote = Mutex::default();
        Self { setup, program, fetcher, queue, packages, has_installed_packages, zygote }
    }

    /// The packages that snippets may import besides those of Directive.
    pub fn packages(&self) -> &[String] {
        &self.packages
    }

    /// Whether there are packages that are not built in: they may send requests.
    pub const fn has_installed_packages(&self) -> bool {
        self.has_installed_packages
    }

    /// Starts the zygote, so that the first snippet need not wait for it.
    ///
    /// # Errors
    /// Why it could not be started.
    pub async fn warm(&self) -> Result<Confinement, Error> {
        Ok(self.zygote().await?.confinement())
    }

    /// Changes how many snippets may run concurrently, at least one; returns the old number.
    /// Running snippets continue.
    pub fn set_max_concurrent(&self, cap: usize) -> usize {
        self.queue.set(cap)
    }

    /// Runs a snippet when its turn comes. `abort` cancels it; dropping the future does so, too.
    ///
    /// # Errors
    /// If no worker can be jailed, or the snippet was cancelled before its turn. All other failures
    /// are part of the transcript.
    pub async fn run(
        &self,
        input: Input,
        abort: impl Future<Output = ()>,
    ) -> Result<Transcript, Error> {
        let timeout = match Payload::new(input.clone()) {
            Ok(payload) => payload.timeout(),
            Err(error) => {
                let errors = vec![error.to_string()];
                return Ok(Transcript::refused(Phase::Input, ErrorCode::InputInvalid, errors));
            }
        };
        let mut abort = std::pin::pin!(abort);
        let _permit = tokio::select! {
            biased;
            () = &mut abort => return Err(Error::Aborted),
            permit = self.queue.enter() => permit,
        };
        let request = WorkerRequest::Run(input);
        let started = Instant::now();
        let mut logs = Vec::new();
        let mut lines = |line| logs.push(line);
        let output = tokio::select! {
            biased;
            () = &mut abort => None,
            output = self.call_worker(&request, timeout + ALLOWANCE, &mut lines) => Some(output?),
        };
        let mut transcript = match output {
            Some((output, confinement)) => transcript(&output, timeout, confinement),
            None => {
                let errors = vec![ABORTED.to_owned()];
                Transcript::refused(Phase::Run, ErrorCode::Aborted, errors)
            }
        };
        if transcript.error_code == Some(ErrorCode::Aborted) || transcript.timed_out {
            let elapsed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            transcript.duration_ms = transcript.duration_ms.max(elapsed);
        }
        Ok(Transcript { logs, ..transcript })
    }

    /// Checks files without running them, and returns their problems.
    ///
    /// # Errors
    /// If no worker can be jailed.
    pub async fn check(&self, files: Vec<SourceFile>) -> Result<Vec<Fault>, Error> {
        let _permit = self.queue.enter().await;
        let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
        let request = WorkerRequest::Check(files);
        let (output, _) = self.call_worker(&request, CHECK_TIMEOUT, &mut |_| {}).await?;
        Ok(match reply(&output) {
            Ok(Reply::Checked(faults)) => faults,
            Ok(Reply::Ran(_)) => {
                vec![fault_at_start(path, missing_reply(&output, WorkerEnd::ProtocolError))]
            }
            Err(ended) => vec![fault_at_start(path, missing_reply(&output, ended))],
        })
    }

    /// Sends a request to a worker, with a new zygote if the old one has ended.
    async fn call_worker(
        &self,
        request: &WorkerRequest,
        timeout: Duration,
        lines: &mut (dyn FnMut(String) + Send),
    ) -> Result<(WorkerOutput, Confinement), Error> {
        let request = serde_json::to_vec(request).unwrap_or_default();
        let mut again = true;
        loop {
            let zygote = self.zygote().await?;
            let call = Call {
                request: request.clone(),
                timeout,
                line_bytes: LINE_BYTES,
                lines,
                fetcher: &self.fetcher,
            };
            match zygote.call(call).await {
                Ok(output) => {
                    if output.answer == Err(WorkerEnd::Lost) {
                        self.forget(&zygote).await;
                    }
                    return Ok((output, zygote.confinement()));
                }
                // No worker has received the request yet.
                Err(worker::Error::Fork(_)) if again => {
                    again = false;
                    self.forget(&zygote).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn zygote(&self) -> Result<Arc<Zygote>, Error> {
        let mut zygote = self.zygote.lock().await;
        if let Some(zygote) = &*zygote {
            return Ok(Arc::clone(zygote));
        }
        let (program, setup) = (self.program.clone(), Arc::clone(&self.setup));
        let started = tokio::task::spawn_blocking(move || Zygote::start(&program, &setup)).await;
        let started = started.map_err(|error| worker::Error::Start(error.into()))??;
        Ok(Arc::clone(zygote.insert(Arc::new(started))))
    }

    /// Stops using a zygote, if it is still the current one.
    async fn forget(&self, stale: &Arc<Zygote>) {
        let mut zygote = self.zygote.lock().await;
        if zygote.as_ref().is_some_and(|zygote| Arc::ptr_eq(zygote, stale)) {
            *zygote = None;
        }
    }
}

/// The transcript from the output of a worker; without a response, the worker has failed.
fn transcript(output: &WorkerOutput, timeout: Duration, confinement: Confinement) -> Transcript {
    let mut transcript = match reply(output) {
        Ok(Reply::Ran(transcript)) => *transcript,
        Ok(Reply::Checked(_)) => {
            Transcript::failed(missing_reply(output, WorkerEnd::ProtocolError))
        }
        Err(WorkerEnd::TimedOut) => {
            let error = format!("wall-clock budget of {}ms elapsed", timeout.as_millis());
            let phase = if output.reading { Phase::Validate } else { Phase::Run };
            let refused = Transcript::refused(phase, ErrorCode::Timeout, vec![error]);
            Transcript { timed_out: true, ..refused }
        }
        Err(ended) if is_too_deep(output, ended) => {
            let errors = vec![TOO_DEEP.to_owned()];
            Transcript::refused(Phase::Validate, ErrorCode::ValidationFailed, errors)
        }
        Err(ended) => Transcript::failed(missing_reply(output, ended)),
    };
    if !confinement.namespaces {
        transcript.warnings.push(NO_NAMESPACES_WARNING.to_owned());
    }
    transcript
}

/// The response of a worker, or how it ended without a valid one.
fn reply(output: &WorkerOutput) -> Result<Reply, WorkerEnd> {
    let answer = output.answer.as_deref().map_err(|ended| *ended)?;
    serde_json::from_slice(answer).map_err(|_| WorkerEnd::ProtocolError)
}

fn fault_at_start(path: String, message: String) -> Fault {
    Fault { path, line: 1, column: 1, message }
}

fn is_too_deep(output: &WorkerOutput, ended: WorkerEnd) -> bool {
    output.reading
        && matches!(ended, WorkerEnd::Signaled(signal) if is_stack_overflow(signal.into()))
}

fn missing_reply(output: &WorkerOutput, ended: WorkerEnd) -> String {
    if is_too_deep(output, ended) {
        return TOO_DEEP.to_owned();
    }
    format!("the worker exited before it answered: {ended}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACES: Confinement = Confinement { namespaces: true, landlock: 7 };

    fn worker_output(answer: Result<&[u8], WorkerEnd>) -> WorkerOutput {
        WorkerOutput { answer: answer.map(<[u8]>::to_vec), reading: false }
    }

    fn transcript_of(output: &WorkerOutput) -> Transcript {
        transcript(output, Duration::from_millis(150), NAMESPACES)
    }

    #[test]
    fn what_a_worker_says_is_read_or_thrown_away() {
        let lost = transcript_of(&worker_output(Err(WorkerEnd::Signaled(11))));
        assert_eq!(
            lost.errors,
            ["the worker exited before it answered: it was killed by signal 11"]
        );
        assert_eq!(lost.error_code, Some(ErrorCode::WorkerError));
        let whole = serde_json::to_vec(&Reply::Ran(Box::new(lost.clone()))).unwrap();
        assert_eq!(transcript_of(&worker_output(Ok(&whole))), lost);
        for malformed in [&b""[..], b"{}", b"{\"Ran\":{}}", b"{\"Checked\":[]}", &whole[1..]] {
            let error = &transcript_of(&worker_output(Ok(malformed))).errors[0];
            assert!(error.contains("invalid message"), "{error}");
        }
        let late = transcript_of(&worker_output(Err(WorkerEnd::TimedOut)));
        assert_eq!(late.errors, ["wall-clock budget of 150ms elapsed"]);
        assert!(late.timed_out);
    }

    #[test]
    fn what_is_too_deep_to_be_read_is_the_files_fault() {
        let deep = WorkerOutput { reading: true, ..worker_output(Err(WorkerEnd::Signaled(11))) };
        let refused = transcript_of(&deep);
        assert_eq!((refused.phase, refused.errors), (Phase::Validate, vec![TOO_DEEP.to_owned()]));
        assert_eq!(missing_reply(&deep, WorkerEnd::Signaled(11)), TOO_DEEP);
    }

    #[test]
    fn a_worker_without_namespaces_says_so() {
        let bare = Confinement { namespaces: false, landlock: 7 };
        let transcript = transcript(&worker_output(Err(WorkerEnd::Lost)), Duration::ZERO, bare);
        assert_eq!(transcript.warnings, [NO_NAMESPACES_WARNING]);
    }
}
