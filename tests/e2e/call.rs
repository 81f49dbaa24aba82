//! One run of a program with a deadline: no program that a test starts may hang the test.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How long a call may take unless its test sets another deadline. Generous: the machine may be
/// busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// A program that is about to be started.
#[derive(Debug)]
pub(crate) struct Call {
    command: Command,
    input: Vec<u8>,
    deadline: Duration,
    piped_output: bool,
}

impl Call {
    pub(crate) fn new(command: Command) -> Self {
        Self { command, input: Vec::new(), deadline: DEADLINE, piped_output: true }
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn current_dir(mut self, path: &Path) -> Self {
        self.command.current_dir(path);
        self
    }

    /// The program's standard input; empty unless this is called.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Connects standard output to a file descriptor of the test.
    pub(crate) fn output_to(mut self, output: impl Into<Stdio>) -> Self {
        self.command.stdout(output);
        self.piped_output = false;
        self
    }

    pub(crate) fn deadline(mut self, seconds: u64) -> Self {
        self.deadline = Duration::from_secs(seconds);
        self
    }

    /// Starts the program and leaves it running.
    pub(crate) fn start(mut self) -> Running {
        self.command.stdin(Stdio::piped()).stderr(Stdio::piped());
        if self.piped_output {
            self.command.stdout(Stdio::piped());
        }
        let text = format!("{:?}", self.command);
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("{text}: {e}"));
        let stdin = child.stdin.take();
        let stdout = CapturedStream::from(child.stdout.take());
        let stderr = CapturedStream::from(child.stderr.take());
        let started = Instant::now();
        let mut running =
            Running { child, stdin, stdout, stderr, text, started, deadline: self.deadline };
        if !self.input.is_empty() {
            let mut stdin = running.stdin.take().unwrap();
            std::thread::spawn(move || stdin.write_all(&self.input));
        }
        running
    }

    /// Runs the program until it ends.
    pub(crate) fn finish(self) -> Outcome {
        self.start().finish()
    }
}

/// The output of a program on one stream so far, read by a separate thread.
#[derive(Debug)]
struct CapturedStream {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl CapturedStream {
    fn from(source: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (sender, end) = channel();
        if let Some(mut source) = source {
            let bytes = Arc::clone(&bytes);
            std::thread::spawn(move || {
                let mut block = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = source.read(&mut block) {
                    bytes.lock().unwrap().extend_from_slice(&block[..length]);
                }
                let _ = sender.send(());
            });
        }
        Self { bytes, end }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Waits for the end of the output: only a surviving process can keep it open for long.
    fn wait(&self, patience: Duration) -> bool {
        self.end.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

/// A program that was started and not yet waited for; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdin: Option<std::process::ChildStdin>,
    stdout: CapturedStream,
    stderr: CapturedStream,
    text: String,
    started: Instant,
    deadline: Duration,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The standard output so far.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// The standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard error contains a line with a text.
    pub(crate) fn wait_for_message(&mut self, wanted: &str) {
        let has = |text: &str| {
            text.split_inclusive('\n').any(|line| line.contains(wanted) && line.ends_with('\n'))
        };
        while !has(&self.stderr()) {
            let ended = !self.is_running();
            assert!(!ended || has(&self.stderr()), "{} ended: {}", self.text, self.stderr());
            assert!(self.started.elapsed() < self.deadline, "{}: {}", self.text, self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes to standard input and leaves it open.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Waits until standard output contains a text.
    pub(crate) fn wait_for_output(&mut self, wanted: &str) {
        while !self.stdout().contains(wanted) {
            let ended = !self.is_running();
            assert!(
                !ended || self.stdout().contains(wanted),
                "{} ended without printing {wanted:?}: {:?} {:?}",
                self.text,
                self.stdout(),
                self.stderr.text(),
            );
            assert!(
                self.started.elapsed() < self.deadline,
                "{} never printed {wanted:?}",
                self.text
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; after the deadline the program is killed and the test fails.
    pub(crate) fn finish(mut self) -> Outcome {
        drop(self.stdin.take());
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() > self.deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!(
                    "{} did not end within {:?}\nstdout: {}\nstderr: {}",
                    self.text,
                    self.deadline,
                    self.stdout(),
                    self.stderr.text()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        let patience = Duration::from_secs(5);
        let outputs_closed = self.stdout.wait(patience) & self.stderr.wait(patience);
        Outcome {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            took,
            outputs_closed,
            text: self.text.clone(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
    /// Whether both outputs ended soon after the program: otherwise a process that it started still
    /// has them open.
    pub(crate) outputs_closed: bool,
    text: String,
}

impl Outcome {
    /// The exit code, or 128 plus the signal for a program that was itself killed.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        self.ends_with(0)
    }

    #[track_caller]
    pub(crate) fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code(), code, "{self}");
        self
    }

    /// Stockade itself refused and printed the reason.
    #[track_caller]
    pub(crate) fn is_refused(&self) -> &Self {
        assert!(matches!(self.code(), 1 | 2 | 125), "expected a refusal: {self}");
        assert!(!self.stderr.trim().is_empty(), "a refusal gives a reason: {self}");
        self
    }

    /// The probe's attack failed.
    #[track_caller]
    pub(crate) fn is_blocked(&self) -> &Self {
        assert!(self.stdout.contains("held: "), "the attack was not held: {self}");
        self.ends_with(0)
    }

    /// The probe's attack succeeded.
    #[track_caller]
    pub(crate) fn escaped(&self) -> &Self {
        assert!(self.stdout.contains("ESCAPED: "), "the attack proves nothing: {self}");
        self.ends_with(42)
    }

    /// The one JSON object on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("no JSON ({e}): {self}"))
    }

    /// The last line on standard error.
    pub(crate) fn last_line(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n  exit {} after {:?}\n  stdout: {}\n  stderr: {}",
            self.text,
            self.code(),
            self.took,
            self.stdout,
            self.stderr
        )
    }
}
