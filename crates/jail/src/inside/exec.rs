//! The last phase of the inner half: the supervisor receives its file descriptors, all others are
//! closed, and the command starts, or init starts to serve.

use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use rustix::io::Errno;

use super::filesystem::Files;
use super::privileges::{CallListening, Restrictions};
use super::{Init, InnerStreams};
use crate::address_space::AddressSpace;
use crate::channel::{Channel, FromInit};
use crate::command::{self, Prepared, Program};
use crate::identity::Identity;
use crate::init::calls::Calls;
use crate::init::renames::Rights;
use crate::landlock::Ruleset;
use crate::mounts::{At as _, Failure};
use crate::network::{Listeners, StubListeners};
use crate::rlimits::ResourceLimits;
use crate::spec::ZygoteTask;
use crate::spec::{self, JailSpec, Streams, Task};
use crate::vm_helper::VmHelper;
use crate::walls::Wall;
use crate::zygote_messages::Confinement;
use crate::{init, init_allocator, pty, sys};

/// The streams of the one command.
pub(super) struct OpenStreams {
    inner: Option<command::Streams>,
    /// The outer end of its terminal.
    terminal: Option<OwnedFd>,
}

/// Opens the inner streams of the one command; with a terminal, its outer end too.
pub(super) fn open_streams(task: &Task, streams: InnerStreams) -> Result<OpenStreams, Failure> {
    let (inner, terminal) = match (streams, task) {
        (InnerStreams::None, _) => (None, None),
        (InnerStreams::Pipes(pipes), _) => (Some(command::Streams::Pipes(pipes)), None),
        (InnerStreams::Terminal, Task::Once { streams: Streams::Terminal(size), command }) => {
            let (user, group) = (command.user, command.group);
            let (master, slave) =
                pty::open(*size, user, group).at(Wall::Devices, || "open a terminal".to_owned())?;
            (Some(command::Streams::Terminal(slave)), Some(master))
        }
        (InnerStreams::Terminal, _) => {
            return Err(Errno::INVAL).at(Wall::Devices, || "choose the streams".to_owned());
        }
    };
    Ok(OpenStreams { inner, terminal })
}

/// Reports that the walls are enabled, and starts the task.
pub(super) fn start(
    spec: JailSpec,
    channel: &Channel,
    helper: VmHelper,
    files: Files,
    streams: OpenStreams,
    restrictions: Restrictions,
    addresses: AddressSpace,
) -> Result<Init, Failure> {
    let Restrictions { landlock, ruleset, calls } = restrictions;
    let (refused_calls, kept_calls) = match calls {
        Some(CallListening::Supervisor(listener)) => (Some(listener), None),
        Some(CallListening::Init(listener)) => (None, Some(listener)),
        None => (None, None),
    };
    let OpenStreams { inner, terminal } = streams;
    let mut handed_out = SentDescriptors {
        terminal,
        upper: files.upper,
        root: files.root,
        mounts: files.mounts,
        refused_calls,
        listeners: helper.listeners(),
        stub: helper.stub_listeners(),
    };
    let ready = handed_out.ready(kept_calls.is_some(), files.proc_missing, landlock);
    let report_ready = |handed_out: &SentDescriptors| {
        channel
            .send(&ready.encode(), &handed_out.each().collect::<Vec<_>>())
            .at(Wall::Inheritance, || "report to the supervisor".to_owned())
    };
    // Reporting wakes the supervisor on this processor, which delays the exec. So a program is
    // executed before the report; a function may need the supervisor, so it runs after the report.
    let starts_before_report =
        matches!(&spec.task, Task::Once { command, .. } if command.payload.is_program());
    if starts_before_report {
        // Its open file descriptors are closed with everything else.
        helper.leak();
    } else {
        report_ready(&handed_out)?;
        handed_out.close(&spec.task);
        drop(helper);
    }
    let serving = match &spec.task {
        Task::Serve { .. } | Task::Fork(_) => {
            let opened = init::serve::Descriptors::open();
            Some(opened.at(Wall::Inheritance, || "open init's descriptors".to_owned())?)
        }
        Task::Once { .. } => None,
    };
    // Nothing inside runs yet that could take the name.
    let inside = match (&spec.task, spec.identity.range()) {
        (Task::Serve { .. }, Some(_)) => {
            let listening = init::serve::Inside::listen();
            Some(listening.at(Wall::Inheritance, || "listen inside".to_owned())?)
        }
        _ => None,
    };
    let own = [channel.as_fd()].into_iter().chain(ruleset.as_ref().map(|rules| rules.as_fd()));
    let own = own.chain(inner.iter().flat_map(command::Streams::each));
    let own = own.chain(serving.iter().flat_map(init::serve::Descriptors::each));
    let own = own.chain(kept_calls.iter().map(|listener| listener.as_fd()));
    let own = own.chain(handed_out.each()).chain(inside.iter().map(init::serve::Inside::listener));
    close_others(&spec, own.collect())?;
    let JailSpec { identity, rlimits, task, locks: kept, .. } = spec;
    // The locks live as long as init, and nothing here drops them.
    std::mem::forget(kept);
    let init = match (task, inner, serving, handed_out.root.take()) {
        (Task::Fork(work), ..) => start_zygote(work, rlimits, landlock, ruleset)?,
        (Task::Once { command, .. }, Some(streams), _, _) => {
            let report = || if starts_before_report { report_ready(&handed_out) } else { Ok(()) };
            let rules = ruleset.as_ref();
            let started = start_command(channel, &command, rlimits, &streams, rules, report)?;
            let ruleset = ruleset.map(Rc::new);
            let calls = kept_calls.map(|listener| Calls::new(listener, Rights::OfInit, ruleset));
            Init::Once(started, calls)
        }
        (Task::Serve { listener, lease, processors, .. }, _, Some(descriptors), Some(root)) => {
            sys::prctl(libc::PR_SET_PDEATHSIG, 0)
                .at(Wall::Pid, || "clear the parent-death signal".to_owned())?;
            let users = match &identity {
                Identity::Own { user, group } => init::serve::Users::Own(*user, *group),
                Identity::Range(range) => init::serve::Users::Below(range.init()),
            };
            // SAFETY: this process has had a single thread since it was made.
            unsafe { init_allocator::switch_to_fresh_memory() }
                .at(Wall::Inheritance, || "switch to fresh memory".to_owned())?;
            let resources = (root, handed_out.listeners);
            let parts = (users, rlimits, ruleset);
            let init = init::serve::Init::new(listener, descriptors, resources, lease, parts);
            let init = init.starting_on(processors).serving_inside(inside).answering(kept_calls);
            Init::Serve(Box::new(init), addresses)
        }
        _ => {
            return Err(Errno::INVAL).at(Wall::Inheritance, || "select the task".to_owned());
        }
    };
    // The lock of the range is the supervisor's, or among the kept file descriptors.
    std::mem::forget(identity);
    Ok(init)
}

/// Restricts this process to what its workers are restricted to.
fn start_zygote(
    work: ZygoteTask,
    rlimits: ResourceLimits,
    landlock: i32,
    ruleset: Option<Ruleset>,
) -> Result<Init, Failure> {
    let ruleset = ruleset
        .ok_or(Errno::INVAL)
        .at(Wall::Landlock, || "create the Landlock rules".to_owned())?;
    rlimits.apply().at(Wall::ResourceLimits, || "set the limits".to_owned())?;
    ruleset.restrict().at(Wall::Landlock, || "restrict by Landlock".to_owned())?;
    let raised = Confinement { namespaces: true, landlock: landlock.unsigned_abs() };
    Ok(Init::Fork(Box::new(init::fork::Zygote::new(work, ruleset, raised))))
}

/// Starts the one command. It runs alone in this memory until it has executed its program.
fn start_command(
    channel: &Channel,
    command: &spec::Command,
    rlimits: ResourceLimits,
    streams: &command::Streams,
    ruleset: Option<&Ruleset>,
    report: impl FnOnce() -> Result<(), Failure>,
) -> Result<libc::pid_t, Failure> {
    let prepared = Prepared {
        program: Program::new(&command.payload, &command.environment),
        become_ids: None,
        groups: Vec::new(),
        working_directory: command.working_directory.clone(),
        rlimits,
        umask: command.umask,
        processors: command.processors.and_then(command::processors),
        not_before: command.not_before,
        failure: command::Failure::default(),
    };
    let descriptors = streams.each().map(|stream| stream.as_raw_fd());
    let child = || command::run(&prepared, descriptors, ruleset);
    // SAFETY: this process has had a single thread since it was made, and the command's process
    // only borrows values of this function.
    let pid = unsafe { sys::spawn_sharing_memory(&child) };
    let pid = pid.at(Wall::Pid, || "start the command".to_owned())?;
    report()?;
    if let Some((step, errno)) = prepared.failure.get() {
        let failure = match step.wall() {
            Some(wall) => FromInit::Failed { wall, errno, step: step.as_str().to_owned() },
            None if step == command::Step::Directory => FromInit::EnterFailed { errno },
            None => FromInit::ExecFailed { errno },
        };
        // If this fails, init sees the exit code.
        let _ = channel.send(&failure.encode(), &[]);
    }
    Ok(pid)
}

/// The file descriptors that the supervisor gets when the walls are enabled, in the order of the
/// message.
struct SentDescriptors {
    terminal: Option<OwnedFd>,
    upper: Option<OwnedFd>,
    root: Option<OwnedFd>,
    mounts: Option<OwnedFd>,
    refused_calls: Option<OwnedFd>,
    listeners: Option<Listeners>,
    stub: Option<StubListeners>,
}

impl SentDescriptors {
    fn ready(&self, follows_renames: bool, proc_missing: bool, landlock: i32) -> FromInit {
        FromInit::Ready {
            terminal: self.terminal.is_some(),
            upper: self.upper.is_some(),
            root: self.root.is_some(),
            mounts: self.mounts.is_some(),
            refused_calls: self.refused_calls.is_some(),
            follows_renames,
            listeners: self.listeners.is_some() || self.stub.is_some(),
            proc_missing,
            landlock,
        }
    }

    fn each(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let Self { terminal, upper, root, mounts, refused_calls, listeners, stub } = self;
        let descriptors = terminal.iter().chain(upper).chain(root).chain(mounts);
        let descriptors = descriptors.chain(refused_calls);
        let listeners = listeners.iter().flat_map(Listeners::each);
        let listeners = listeners.chain(stub.iter().flat_map(StubListeners::each));
        descriptors.map(|fd| fd.as_fd()).chain(listeners)
    }

    /// Closes what was sent. A persistent jail keeps its root and its listeners for a later keeper,
    /// but not the listener for refused calls that the keeper has: who holds that could let them continue.
    fn close(&mut self, task: &Task) {
        self.refused_calls = None;
        (self.terminal, self.upper, self.mounts, self.stub) = (None, None, None, None);
        if !matches!(task, Task::Serve { .. }) {
            self.listeners = None;
        }
    }
}

/// Closes every file descriptor except those that init and its commands still need.
fn close_others(spec: &JailSpec, own: Vec<BorrowedFd<'_>>) -> Result<(), Failure> {
    let locks: Vec<RawFd> = spec.locks.iter().map(AsRawFd::as_raw_fd).collect();
    let requests = match &spec.task {
        Task::Serve { listener, .. } => Some(listener.as_raw_fd()),
        Task::Fork(work) => Some(work.requests.as_raw_fd()),
        Task::Once { .. } => None,
    };
    let own = own.iter().map(AsRawFd::as_raw_fd).chain(locks).chain(requests);
    sys::close_all_but(own.collect()).at(Wall::Inheritance, || "close the descriptors".to_owned())
}
