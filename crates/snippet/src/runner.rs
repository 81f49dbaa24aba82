//! Runs snippets in workers: waits for a permit, forks a worker, and builds a transcript from the
//! worker's messages. Every byte of them is untrusted: it is parsed as the expected type, or
//! discarded.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_core::address::hosts::Hosts;
use stockade_script::fetch::Fetcher;
use stockade_script::worker::{self, Call, Ended, Program, Raised, Told, Zygote};
use stockade_script::{Fault, LibrarySet, SourceFile, TOO_DEEP, is_beyond_stack};
use tokio::sync::Mutex;

use crate::imports::Imports;
use crate::library::built_in;
use crate::payload::{Input, Payload};
use crate::queue::Queue;
use crate::transcript::{ErrorCode, Phase, Transcript};
use crate::worker::{Question, Reply, Setup};

/// Time for a worker beyond that of its snippet: to start, and to read the facts.
const ALLOWANCE: Duration = Duration::from_secs(2);
/// How long checking may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest size of its lines here. A realm's limit is lower.
const LINE_BYTES: usize = 10 << 20;

const ABORTED: &str = "sandbox: aborted by caller signal";
const BARE: &str = "the worker had no namespaces of its own, because none can be created here: only its seccomp filter and Landlock isolated it";

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
    /// Started at first use, and again after it has ended.
    zygote: Mutex<Option<Arc<Zygote>>>,
}

impl Runner {
    /// A runner; does not start a process yet.
    pub fn new(options: Options) -> Self {
        let Options { program, imports, library, fetcher, max_concurrent } = options;
        // Serializing texts and lists cannot fail.
        let setup = serde_json::to_vec(&Setup { imports, library }).unwrap_or_default();
        let queue = Queue::new(max_concurrent);
        Self { setup: setup.into(), program, fetcher, queue, zygote: Mutex::default() }
    }

    /// Starts the zygote, so that the first snippet need not wait for it.
    ///
    /// # Errors
    /// Why it could not be started.
    pub async fn warm(&self) -> Result<Raised, Error> {
        Ok(self.zygote().await?.raised())
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
        let _place = tokio::select! {
            biased;
            () = &mut abort => return Err(Error::Aborted),
            place = self.queue.enter() => place,
        };
        let question = Question::Run(input);
        let started = Instant::now();
        let mut logs = Vec::new();
        let mut lines = |line| logs.push(line);
        let told = tokio::select! {
            biased;
            () = &mut abort => None,
            told = self.ask(&question, timeout + ALLOWANCE, &mut lines) => Some(told?),
        };
        let mut transcript = match told {
            Some((told, raised)) => transcript(&told, timeout, raised),
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
        let _place = self.queue.enter().await;
        let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
        let question = Question::Check(files);
        let (told, _) = self.ask(&question, CHECK_TIMEOUT, &mut |_| {}).await?;
        Ok(match reply(&told) {
            Ok(Reply::Checked(faults)) => faults,
            Ok(Reply::Ran(_)) => vec![at_start(path, without_answer(&told, Ended::Misspoke))],
            Err(ended) => vec![at_start(path, without_answer(&told, ended))],
        })
    }

    /// Sends a request to a worker, with a new zygote if the old one has ended.
    async fn ask(
        &self,
        question: &Question,
        timeout: Duration,
        lines: &mut (dyn FnMut(String) + Send),
    ) -> Result<(Told, Raised), Error> {
        let question = serde_json::to_vec(question).unwrap_or_default();
        let mut again = true;
        loop {
            let zygote = self.zygote().await?;
            let call = Call {
                question: question.clone(),
                timeout,
                line_bytes: LINE_BYTES,
                lines,
                fetcher: &self.fetcher,
            };
            match zygote.call(call).await {
                Ok(told) => {
                    if told.answer == Err(Ended::Lost) {
                        self.forget(&zygote).await;
                    }
                    return Ok((told, zygote.raised()));
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
    async fn forget(&self, gone: &Arc<Zygote>) {
        let mut zygote = self.zygote.lock().await;
        if zygote.as_ref().is_some_and(|zygote| Arc::ptr_eq(zygote, gone)) {
            *zygote = None;
        }
    }
}

/// The transcript from the output of a worker; without a response, the worker has failed.
fn transcript(told: &Told, timeout: Duration, raised: Raised) -> Transcript {
    let mut transcript = match reply(told) {
        Ok(Reply::Ran(transcript)) => *transcript,
        Ok(Reply::Checked(_)) => Transcript::failed(without_answer(told, Ended::Misspoke)),
        Err(Ended::TimedOut) => {
            let error = format!("wall-clock budget of {}ms elapsed", timeout.as_millis());
            let phase = if told.reading { Phase::Validate } else { Phase::Run };
            let refused = Transcript::refused(phase, ErrorCode::Timeout, vec![error]);
            Transcript { timed_out: true, ..refused }
        }
        Err(ended) if is_too_deep(told, ended) => {
            let errors = vec![TOO_DEEP.to_owned()];
            Transcript::refused(Phase::Validate, ErrorCode::ValidationFailed, errors)
        }
        Err(ended) => Transcript::failed(without_answer(told, ended)),
    };
    if !raised.namespaces {
        transcript.warnings.push(BARE.to_owned());
    }
    transcript
}

/// The response of a worker, or how it ended without a valid one.
fn reply(told: &Told) -> Result<Reply, Ended> {
    let answer = told.answer.as_deref().map_err(|ended| *ended)?;
    serde_json::from_slice(answer).map_err(|_| Ended::Misspoke)
}

fn at_start(path: String, message: String) -> Fault {
    Fault { path, line: 1, column: 1, message }
}

fn is_too_deep(told: &Told, ended: Ended) -> bool {
    told.reading && matches!(ended, Ended::Signaled(signal) if is_beyond_stack(signal.into()))
}

fn without_answer(told: &Told, ended: Ended) -> String {
    if is_too_deep(told, ended) {
        return TOO_DEEP.to_owned();
    }
    format!("the worker exited before it answered: {ended}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACES: Raised = Raised { namespaces: true, landlock: 7 };

    fn told(answer: Result<&[u8], Ended>) -> Told {
        Told { answer: answer.map(<[u8]>::to_vec), reading: false }
    }

    fn of(told: &Told) -> Transcript {
        transcript(told, Duration::from_millis(150), NAMESPACES)
    }

    #[test]
    fn what_a_worker_says_is_read_or_thrown_away() {
        let lost = of(&told(Err(Ended::Signaled(11))));
        assert_eq!(
            lost.errors,
            ["the worker exited before it answered: it was killed by signal 11"]
        );
        assert_eq!(lost.error_code, Some(ErrorCode::WorkerError));
        let whole = serde_json::to_vec(&Reply::Ran(Box::new(lost.clone()))).unwrap();
        assert_eq!(of(&told(Ok(&whole))), lost);
        for rubbish in [&b""[..], b"{}", b"{\"Ran\":{}}", b"{\"Checked\":[]}", &whole[1..]] {
            let error = &of(&told(Ok(rubbish))).errors[0];
            assert!(error.contains("invalid message"), "{error}");
        }
        let late = of(&told(Err(Ended::TimedOut)));
        assert_eq!(late.errors, ["wall-clock budget of 150ms elapsed"]);
        assert!(late.timed_out);
    }

    #[test]
    fn what_is_too_deep_to_be_read_is_the_files_fault() {
        let deep = Told { reading: true, ..told(Err(Ended::Signaled(11))) };
        let refused = of(&deep);
        assert_eq!((refused.phase, refused.errors), (Phase::Validate, vec![TOO_DEEP.to_owned()]));
        assert_eq!(without_answer(&deep, Ended::Signaled(11)), TOO_DEEP);
    }

    #[test]
    fn a_worker_without_namespaces_says_so() {
        let bare = Raised { namespaces: false, landlock: 7 };
        let transcript = transcript(&told(Err(Ended::Lost)), Duration::ZERO, bare);
        assert_eq!(transcript.warnings, [BARE]);
    }
}
