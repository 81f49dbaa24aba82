//! Helper processes for work that takes longer than a system call: removing discarded files, and
//! measuring the disk and memory use of a sandbox. They run the keeper's own program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Key;
use super::reactor::{Interest, Reactor, Source, Watched};
use crate::subordinate;

pub(crate) mod disk;
mod memory;
pub(super) mod prove;
mod store;
mod sweep;

/// The first argument of a helper's program.
pub const ARGUMENT: &str = "__keeper-helper";
const SWEEP: &str = "sweep";
const STORE: &str = "store";
const MEASURE: &str = "measure";
/// The same for layers in which subordinate ids own files.
const MEASURE_SUBORDINATE: &str = "measure-subordinate";
const WATCH: &str = "watch";
const PROVE: &str = "prove";
/// A helper's exit code when the limit is exceeded.
const TOO_MUCH: u8 = 3;
/// The nice value of a helper whose result no client waits for (`nice(2)`).
const NOT_URGENT: i32 = 10;
/// How many bytes of a helper's output are read.
const OUTPUT_BYTES: u64 = 4096;
/// How many helpers measure disks at the same time.
const MAX_MEASURING: usize = 2;

/// A helper's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// Removes the contents of the trash.
    Sweep,
    /// Stores new sandboxes on the disk.
    Store,
    /// Measures whether a sandbox exceeds its disk limit.
    Measure(Key),
    /// Measures whether a sandbox holds so much of a full disk that its commands have to end.
    Share(Key),
    /// Polls whether a sandbox exceeds its memory limit, until it does.
    Watch(Key),
    /// Tries whether a network with a policy can be created, and prints the reason if not.
    Prove,
}

/// The directory of a sandbox whose layers are measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layers<'a> {
    /// The directory.
    pub(super) dir: &'a Path,
    /// Whether subordinate ids own files in it.
    pub(super) subordinate: bool,
}

impl Layers<'_> {
    fn arguments<'a>(&'a self, limit: &'a str) -> [&'a OsStr; 3] {
        let job = if self.subordinate { MEASURE_SUBORDINATE } else { MEASURE };
        [job.as_ref(), self.dir.as_os_str(), limit.as_ref()]
    }
}

/// The running helpers.
#[derive(Debug)]
pub(super) struct Helpers {
    program: PathBuf,
    running: BTreeMap<u64, Running>,
    next: u64,
}

#[derive(Debug)]
struct Running {
    job: Job,
    child: Child,
    _life: Watched<OwnedFd>,
}

impl Helpers {
    pub(super) const fn new(program: PathBuf) -> Self {
        Self { program, running: BTreeMap::new(), next: 0 }
    }

    /// Whether one of them empties the trash.
    pub(super) fn sweeps(&self) -> bool {
        self.running.values().any(|running| running.job == Job::Sweep)
    }

    /// Starts to remove the contents of a directory.
    pub(super) fn sweep(&mut self, reactor: &Reactor, trash: &Path) -> io::Result<()> {
        self.start(reactor, Job::Sweep, &[SWEEP.as_ref(), trash.as_os_str()])
    }

    /// Whether one of them stores new sandboxes.
    pub(super) fn stores(&self) -> bool {
        self.running.values().any(|running| running.job == Job::Store)
    }

    /// Starts to store the sandboxes of these names on the disk.
    pub(super) fn store(
        &mut self,
        reactor: &Reactor,
        sandboxes: &Path,
        names: &[String],
    ) -> io::Result<()> {
        let names = names.iter().map(OsStr::new);
        let arguments: Vec<_> =
            [OsStr::new(STORE), sandboxes.as_os_str()].into_iter().chain(names).collect();
        self.start(reactor, Job::Store, &arguments)
    }

    /// Starts to measure what layers take on disk; false when too many helpers are running.
    pub(super) fn measure(
        &mut self,
        reactor: &Reactor,
        key: Key,
        layers: Layers<'_>,
        limit_bytes: u64,
    ) -> io::Result<bool> {
        if !self.may_measure() {
            return Ok(false);
        }
        let limit = limit_bytes.to_string();
        self.start(reactor, Job::Measure(key), &layers.arguments(&limit)).map(|()| true)
    }

    /// Starts to measure whether a sandbox holds more than its share of a full disk, unless that is
    /// measured already or too many helpers are running.
    pub(super) fn measure_share(
        &mut self,
        reactor: &Reactor,
        key: Key,
        layers: Layers<'_>,
        share_bytes: u64,
    ) -> io::Result<()> {
        let is_measured = self.running.values().any(|running| running.job == Job::Share(key));
        if is_measured || !self.may_measure() {
            return Ok(());
        }
        let share = share_bytes.to_string();
        self.start(reactor, Job::Share(key), &layers.arguments(&share))
    }

    fn may_measure(&self) -> bool {
        let is_measuring =
            |running: &&Running| matches!(running.job, Job::Measure(_) | Job::Share(_));
        self.running.values().filter(is_measuring).count() < MAX_MEASURING
    }

    /// Starts to poll the memory use of the processes below `init`.
    pub(super) fn watch(
        &mut self,
        reactor: &Reactor,
        key: Key,
        init: i32,
        limit_bytes: u64,
    ) -> io::Result<()> {
        let (init, limit) = (init.to_string(), limit_bytes.to_string());
        self.start(reactor, Job::Watch(key), &[WATCH.as_ref(), init.as_ref(), limit.as_ref()])
    }

    /// Starts to try whether a network with a policy can be created.
    pub(super) fn prove(&mut self, reactor: &Reactor) -> io::Result<()> {
        self.start(reactor, Job::Prove, &[PROVE.as_ref()])
    }

    fn start(&mut self, reactor: &Reactor, job: Job, arguments: &[&OsStr]) -> io::Result<()> {
        let mut child = Command::new(&self.program)
            .arg(ARGUMENT)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(match job {
                Job::Prove | Job::Measure(_) | Job::Share(_) => Stdio::piped(),
                Job::Sweep | Job::Store | Job::Watch(_) => Stdio::null(),
            })
            .spawn()?;
        let number = self.next;
        self.next += 1;
        let watched = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .and_then(|process| Ok(pidfd_open(process, PidfdFlags::empty())?))
            .and_then(|life| reactor.watch(life, Source::Helper(number), Interest::IN));
        match watched {
            Ok(life) => {
                self.running.insert(number, Running { job, child, _life: life });
                Ok(())
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Removes a helper that has ended. Returns its job, its outcome, and its output.
    pub(super) fn ended(&mut self, number: u64) -> Option<(Job, Outcome, String)> {
        let mut running = self.running.remove(&number)?;
        let outcome = match running.child.wait() {
            Ok(status) if status.success() => Outcome::Done,
            Ok(status) if status.code() == Some(TOO_MUCH.into()) => Outcome::TooMuch,
            Ok(status) if status.code().is_none() => Outcome::Killed,
            Ok(_) | Err(_) => Outcome::Failed,
        };
        let mut text = String::new();
        if let Some(output) = running.child.stdout.take() {
            // Output that is not text is ignored.
            let _ = output.take(OUTPUT_BYTES).read_to_string(&mut text);
        }
        Some((running.job, outcome, text))
    }

    /// Ends all helpers when the keeper exits.
    pub(super) fn end(&mut self) {
        for (_, mut running) in std::mem::take(&mut self.running) {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

/// The outcome of a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has finished.
    Done,
    /// The limit is exceeded.
    TooMuch,
    /// It failed.
    Failed,
    /// It was killed before it had finished.
    Killed,
}

/// Runs the job that the arguments after [`ARGUMENT`] name: the whole of a helper process.
pub fn run(arguments: &[std::ffi::OsString]) -> u8 {
    let words: Vec<_> = arguments.iter().map(|word| word.as_os_str()).collect();
    let is = |word: &OsStr, name: &str| word == OsStr::new(name);
    let number = |word: &OsStr| {
        let number = word.to_str().and_then(|text| text.parse::<u64>().ok());
        number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    };
    let too_much = match words[..] {
        [job, trash] if is(job, SWEEP) => {
            // No client waits for it; if this fails, it runs at normal priority.
            let _ = rustix::process::nice(NOT_URGENT);
            sweep::sweep(Path::new(trash)).map(|()| false)
        }
        [job, sandboxes, ref names @ ..] if is(job, STORE) => {
            store::store(Path::new(sandboxes), names).map(|()| false)
        }
        [job, place, limit] if is(job, MEASURE) || is(job, MEASURE_SUBORDINATE) => {
            let dir = Path::new(place);
            let entered = if is(job, MEASURE_SUBORDINATE) { subordinate::enter() } else { Ok(()) };
            entered
                .and_then(|()| number(limit))
                .and_then(|limit| disk::takes_more_than(dir, limit, io::stdout()))
        }
        [job] if is(job, subordinate::JOB) => subordinate::run().map(|()| false),
        [job, init, limit] if is(job, WATCH) => number(init)
            .and_then(|init| Ok((i32::try_from(init).map_err(io::Error::other)?, number(limit)?)))
            .and_then(|(init, limit)| memory::uses_more_than(init, limit)),
        [job] if is(job, PROVE) => prove::prove().map(|()| false),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    match too_much {
        Ok(false) => 0,
        Ok(true) => TOO_MUCH,
        Err(_) => 1,
    }
}
