//! The inner half of a launch: what the first process of the jail does, from
//! its first instruction to its turning into init, of one command or of many.
//!
//! Runs in a copy of the caller with a single thread; it never returns.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::address_space::AddressSpace;
use crate::channel::{Channel, FromInit, ToInit};
use crate::command::{self, Prepared, Program};
use crate::content::Plan;
use crate::fixtures::{self, Fixtures};
use crate::helper::Helper;
use crate::identity::Identity;
use crate::init;
use crate::landlock::{Place, Ruleset, Scope};
use crate::mounts::{self, At as _, Failure};
use crate::network::Listeners;
use crate::pty;
use crate::seccomp::SetIdBits;
use crate::spec::{self, Access, JailSpec, Mount, Owners, Reach, Source, Streams, Task};
use crate::walls::Wall;
use crate::{areas, capabilities, confined, init_allocator, landlock, seccomp, sys, zygote};

/// The inner ends of the command's streams.
#[derive(Debug)]
pub(crate) enum InnerStreams {
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
    /// To be opened inside.
    Terminal,
    /// Each command will have its own.
    None,
}

/// Raises every wall, and stays as init: of one command, which is started, or of those that are
/// asked for.
pub(crate) fn run(
    spec: JailSpec,
    channel: Channel,
    streams: InnerStreams,
    plan: Option<Plan>,
) -> ! {
    let code = match start(spec, &channel, streams, plan) {
        Ok(init) => init.run(channel),
        Err(failure) => {
            report(&channel, failure);
            1
        }
    };
    sys::exit_now(code)
}

/// What this process has become.
enum Init {
    Once(libc::pid_t),
    Serve(Box<init::serve::Init>, AddressSpace),
    Fork(Box<init::fork::Zygote>),
}

impl Init {
    fn run(self, channel: Channel) -> i32 {
        match self {
            Self::Once(command) => init::once::run(&channel, command),
            Self::Serve(init, addresses) => {
                // The launcher knows that the walls stand, and connects from now on.
                drop(channel);
                // SAFETY: init was made after the switch to fresh memory, and all else was dropped.
                unsafe { init_allocator::release_inherited_heap(addresses.heap_start) };
                init.run()
            }
            Self::Fork(zygote) => {
                drop(channel);
                zygote.run()
            }
        }
    }
}

fn report(channel: &Channel, failure: Failure) {
    let Failure { wall, step, errno } = failure;
    // The supervisor sees the end of the socket when this cannot be sent.
    let _ = channel.send(&FromInit::Failed { wall, errno, step }.encode(), &[]);
}

fn start(
    mut spec: JailSpec,
    channel: &Channel,
    streams: InnerStreams,
    plan: Option<Plan>,
) -> Result<Init, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    mounts::separate()?;
    let kind = match (spec.root_writable, &plan) {
        (true, _) => fixtures::Root::Writable,
        (false, None) => fixtures::Root::ReadOnly,
        (false, Some(_)) => fixtures::Root::Furnished,
    };
    let (content, places) = plan.map(|plan| (plan.content, plan.places)).unzip();
    let addresses = AddressSpace::read().at(Wall::Inheritance, words("find the arguments"))?;
    // Before the helper shares this memory: a first write to a page then interrupts both processes.
    // SAFETY: this process has had a single thread since it was made, and reads neither arguments nor
    // environment.
    unsafe { addresses.erase_arguments() };
    sys::set_process_name(c"stockade-init");
    let helper = Helper::start(spec.network, kind, content)
        .at(Wall::Network, words("start making the network"))?;
    // Needs no ids, which the supervisor maps meanwhile.
    helper.gather()?;
    let handed = assume_identity(&spec, channel)?;
    let by_range = spec.identity.range().is_some();
    helper.say_mapped(by_range);
    bind_to_supervisor()?;
    // Mount points are for everybody inside, whatever the caller's files are.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let writable = writable_places(&spec).at(Wall::Landlock, words("name the writable places"))?;
    let areas = spec.areas.take();
    let set_id_bits = set_id_bits(&spec);
    let root = std::mem::replace(&mut spec.root, Source::Empty);
    let mounts = std::mem::take(&mut spec.mounts);
    let root = places.is_none().then_some(root);
    let places = places.unwrap_or_default();
    let mut assembly = mounts::gather(root, spec.root_writable, mounts, places, handed)?;
    let own_mounts = match spec.task {
        Task::Once { .. } => Some(open_mounts().at(Wall::Root, words("open the own mounts"))?),
        Task::Serve { .. } | Task::Fork(_) => None,
    };
    let upper = assembly.upper.take();
    assembly.make_overlays()?;
    if let Some(root) = helper.gathered()? {
        assembly.take_root(root);
    }
    assembly.leave_host_root()?;
    helper.let_go();
    if !spec.root_is_own {
        helper.wait_until_alone()?;
    }
    let proc_missing = !helper.furnish()?;
    assembly.attach(|target| !Fixtures::hold(target))?;
    sys::set_host_name(&spec.hostname).at(Wall::HostName, words("set the host name"))?;
    helper.enter_network()?;
    if areas.is_some() || !assembly.is_attached() {
        helper.finish()?;
    }
    assembly.attach(|_| true)?;
    helper.wait_for_terminals()?;
    assembly.close()?;
    let places = match &areas {
        None => writable,
        Some(areas) => {
            places_of(&areas::raise(areas)?).at(Wall::Landlock, words("name the areas"))?
        }
    };
    let landlock = match landlock::abi() {
        Ok(version) => version.cast_signed(),
        Err(_) if spec.landlock_optional => 0,
        Err(e) => {
            return Err(io::Error::from(e)).at(Wall::Landlock, words("ask for Landlock's version"));
        }
    };
    // Commands of one jail may signal each other, as users expect, and share abstract sockets.
    let scope = match spec.task {
        Task::Once { .. } | Task::Fork(_) => Scope::Own,
        Task::Serve { .. } => Scope::Namespaces,
    };
    let ruleset = match spec.task {
        Task::Fork(_) => Some(confined::nothing()?.0),
        _ if landlock > 0 => Some(rules(&places, scope)?),
        _ => None,
    };

    let (streams, terminal) = open_streams(&spec.task, streams)?;
    let root = match spec.task {
        Task::Once { .. } | Task::Fork(_) => None,
        Task::Serve { .. } => Some(open_root().at(Wall::Root, words("open the root"))?),
    };
    if !by_range {
        wait_for_go(channel, 0)?;
    }
    // The supervisor has put this process into its groups before the word to go.
    sys::hide_outer_groups().at(Wall::Cgroup, words("hide the outer control groups"))?;
    give_up(&spec, set_id_bits)?;
    helper.finish()?;
    let listeners = helper.listeners();
    mounts::check_root()?;
    let mut carried = Carried { terminal, upper, root, mounts: own_mounts, listeners };
    let ready = carried.ready(proc_missing, landlock);
    let announce = |carried: &Carried| {
        channel
            .send(&ready.encode(), &carried.each().collect::<Vec<_>>())
            .at(Wall::Inheritance, words("report to the supervisor"))
    };
    // Who hears it begins to work where this process does, and keeps it from its own work: so a program
    // begins first. A function may need whoever hears it.
    let begins_first =
        matches!(&spec.task, Task::Once { command, .. } if command.payload.is_program());
    if begins_first {
        // What is left open is closed with everything else.
        helper.leave();
    } else {
        announce(&carried)?;
        carried.let_go(&spec.task);
        drop(helper);
    }

    let serving = match &spec.task {
        Task::Serve { .. } | Task::Fork(_) => {
            Some(init::serve::Descriptors::open().at(Wall::Inheritance, words("open init's own"))?)
        }
        Task::Once { .. } => None,
    };
    let own = [channel.as_fd()].into_iter().chain(ruleset.as_ref().map(|rules| rules.as_fd()));
    let own = own.chain(streams.iter().flat_map(command::Streams::each));
    let own = own.chain(serving.iter().flat_map(init::serve::Descriptors::each));
    let own = own.chain(carried.each());
    close_others(&spec, own.collect())?;
    let JailSpec { identity, rlimits, task, kept, .. } = spec;
    // The locks live as long as init, and nothing here drops them.
    std::mem::forget(kept);
    let init = match (task, streams, serving, carried.root.take()) {
        (Task::Fork(work), ..) => {
            let ruleset = ruleset.ok_or(Errno::INVAL);
            let ruleset = ruleset.at(Wall::Landlock, words("make the rules of Landlock"))?;
            rlimits.apply().at(Wall::ResourceLimits, words("set the limits"))?;
            ruleset.restrict().at(Wall::Landlock, words("restrict by Landlock"))?;
            let landlock = landlock.unsigned_abs();
            let raised = zygote::Raised { namespaces: true, landlock };
            Init::Fork(Box::new(init::fork::Zygote::new(work, ruleset, raised)))
        }
        (Task::Once { command, .. }, Some(streams), _, _) => {
            let announce = || if begins_first { announce(&carried) } else { Ok(()) };
            Init::Once(start_once(
                channel,
                &command,
                rlimits,
                &streams,
                ruleset.as_ref(),
                announce,
            )?)
        }
        (Task::Serve { listener, lease }, _, Some(descriptors), Some(root)) => {
            sys::prctl(libc::PR_SET_PDEATHSIG, 0).at(Wall::Pid, words("outlive the supervisor"))?;
            let users = match &identity {
                Identity::Own { user, group } => init::serve::Users::Own(*user, *group),
                Identity::Range(range) => init::serve::Users::Below(range.init()),
            };
            let parts = (users, rlimits, ruleset);
            // SAFETY: this process has had a single thread since it was made.
            unsafe { init_allocator::switch_to_fresh_memory() }
                .at(Wall::Inheritance, words("begin with own memory"))?;
            let kept = (root, carried.listeners);
            let init = init::serve::Init::new(listener, descriptors, kept, lease, parts);
            Init::Serve(Box::new(init), addresses)
        }
        _ => return Err(Errno::INVAL).at(Wall::Inheritance, words("choose what to do")),
    };
    // The lock of the range is the supervisor's or among what is kept.
    std::mem::forget(identity);
    Ok(init)
}

/// This process's namespace of mounts, for the supervisor to hold beyond the end of the jail.
fn open_mounts() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn open_root() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/", flags, Mode::empty())
}

/// What the supervisor is given when the walls stand, in the order in which it is carried.
struct Carried {
    terminal: Option<OwnedFd>,
    upper: Option<OwnedFd>,
    root: Option<OwnedFd>,
    mounts: Option<OwnedFd>,
    listeners: Option<Listeners>,
}

impl Carried {
    fn ready(&self, proc_missing: bool, landlock: i32) -> FromInit {
        FromInit::Ready {
            terminal: self.terminal.is_some(),
            upper: self.upper.is_some(),
            root: self.root.is_some(),
            mounts: self.mounts.is_some(),
            listeners: self.listeners.is_some(),
            proc_missing,
            landlock,
        }
    }

    fn each(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let Self { terminal, upper, root, mounts, listeners } = self;
        let descriptors = terminal.iter().chain(upper).chain(root).chain(mounts);
        descriptors.map(|fd| fd.as_fd()).chain(listeners.iter().flat_map(Listeners::each))
    }

    /// Closes what was given away. A jail that is held keeps its root and its listeners, for whoever
    /// comes after the one who has just been given them.
    fn let_go(&mut self, task: &Task) {
        (self.terminal, self.upper, self.mounts) = (None, None, None);
        if !matches!(task, Task::Serve { .. }) {
            self.listeners = None;
        }
    }
}

/// Opens the inner streams of the one command; with a terminal, its outer end too.
fn open_streams(
    task: &Task,
    streams: InnerStreams,
) -> Result<(Option<command::Streams>, Option<OwnedFd>), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    match (streams, task) {
        (InnerStreams::None, _) => Ok((None, None)),
        (InnerStreams::Pipes(pipes), _) => Ok((Some(command::Streams::Pipes(pipes)), None)),
        (InnerStreams::Terminal, Task::Once { streams: Streams::Terminal(size), command }) => {
            let (user, group) = (command.user, command.group);
            let (master, slave) =
                pty::open(*size, user, group).at(Wall::Devices, words("open a terminal"))?;
            Ok((Some(command::Streams::Terminal(slave)), Some(master)))
        }
        (InnerStreams::Terminal, _) => {
            Err(Errno::INVAL).at(Wall::Devices, words("choose the streams"))
        }
    }
}

/// Starts the one command. It runs alone in this memory until it has become another program.
fn start_once(
    channel: &Channel,
    command: &spec::Command,
    rlimits: crate::rlimits::ResourceLimits,
    streams: &command::Streams,
    ruleset: Option<&Ruleset>,
    announce: impl FnOnce() -> Result<(), Failure>,
) -> Result<libc::pid_t, Failure> {
    let prepared = Prepared {
        program: Program::new(&command.payload, &command.environment),
        become_ids: None,
        working_directory: command.working_directory.clone(),
        rlimits,
        not_before: command.not_before,
        failure: command::Failure::default(),
    };
    let descriptors = streams.each().map(|stream| stream.as_raw_fd());
    let child = || command::run(&prepared, descriptors, ruleset);
    // SAFETY: this process has had a single thread since it was made, and the command's process
    // only borrows what is here.
    let pid = unsafe { sys::spawn_sharing_memory(&child) };
    let pid = pid.at(Wall::Pid, || "start the command".to_owned())?;
    announce()?;
    if let Some((step, errno)) = prepared.failure.get() {
        let told = match step.wall() {
            Some(wall) => FromInit::Failed { wall, errno, step: step.words().to_owned() },
            None if step == command::Step::Directory => FromInit::EnterFailed { errno },
            None => FromInit::ExecFailed { errno },
        };
        // Init sees the exit code when this cannot be sent.
        let _ = channel.send(&told.encode(), &[]);
    }
    Ok(pid)
}

/// The rules of files for every command: these places, and `/dev`.
fn rules(places: &[(CString, landlock::Access)], scope: Scope) -> Result<Ruleset, Failure> {
    let rules: Vec<_> = [(Place::Path(c"/dev"), landlock::Access::Devices)]
        .into_iter()
        .chain(places.iter().map(|(path, access)| (Place::Path(path.as_c_str()), *access)))
        .collect();
    Ruleset::new(&rules, scope)
        .map_err(io::Error::from)
        .at(Wall::Landlock, || "make the rules of Landlock".to_owned())
}

/// Gives up what neither init nor a command needs, once for all: the caller's session, the ids that
/// built the jail, every capability, system calls. An init of many commands keeps what it needs to
/// start them as several users.
fn give_up(spec: &JailSpec, set_id_bits: SetIdBits) -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    rustix::process::setsid().at(Wall::Inheritance, words("leave the caller's session"))?;
    capabilities::drop_bounding().at(Wall::Capabilities, words("empty the bounding set"))?;
    let dropped = match (&spec.task, spec.identity.range()) {
        (Task::Once { command, .. }, Some(_)) => {
            // The command's own ids are enough for init to end it.
            sys::become_ids(command.user, command.group, false)
                .at(Wall::User, words("take on the command's ids"))?;
            capabilities::drop_all()
        }
        (Task::Fork(_), Some(range)) => {
            sys::become_ids(range.init(), range.init(), false)
                .at(Wall::User, words("take on the zygote's ids"))?;
            capabilities::drop_all()
        }
        (Task::Serve { .. }, Some(range)) => {
            sys::become_ids(range.init(), range.init(), false)
                .at(Wall::User, words("take on init's ids"))?;
            capabilities::keep_those_of_init()
        }
        (_, None) => capabilities::drop_all(),
    };
    dropped.at(Wall::Capabilities, words("drop all capabilities"))?;
    // A change of ids undoes both (`prctl(2)`).
    bind_to_supervisor()?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .at(Wall::NoNewPrivileges, words("set no_new_privs"))?;
    seccomp::install(seccomp::program(set_id_bits))
        .at(Wall::Seccomp, words("install the filter"))?;
    // Commands inherit this; what the caller ignores is not ignored inside.
    sys::reset_signals();
    Ok(())
}

/// Closes every descriptor but those that init and its commands go on with.
fn close_others(spec: &JailSpec, own: Vec<BorrowedFd<'_>>) -> Result<(), Failure> {
    let kept: Vec<RawFd> = spec.kept.iter().map(AsRawFd::as_raw_fd).collect();
    let asked = match &spec.task {
        Task::Serve { listener, .. } => Some(listener.as_raw_fd()),
        Task::Fork(work) => Some(work.requests.as_raw_fd()),
        Task::Once { .. } => None,
    };
    let own = own.iter().map(AsRawFd::as_raw_fd).chain(kept).chain(asked);
    sys::close_all_but(own.collect()).at(Wall::Inheritance, || "close the descriptors".to_owned())
}

/// Ends this process with its supervisor, and keeps its memory from everybody else.
fn bind_to_supervisor() -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
        .at(Wall::Pid, words("bind this life to the supervisor's"))?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))
}

/// Maps the ids, or waits until the supervisor has, and takes them on.
fn assume_identity(spec: &JailSpec, channel: &Channel) -> Result<Option<Vec<OwnedFd>>, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    match &spec.identity {
        Identity::Own { .. } => {
            let (users, groups) = spec.identity.maps();
            for (file, text) in
                [("setgroups", "deny"), ("uid_map", users.as_str()), ("gid_map", groups.as_str())]
            {
                fs::write(format!("/proc/self/{file}"), text)
                    .at(Wall::User, || format!("write {file}"))?;
            }
            Ok(None)
        }
        Identity::Range(_) => {
            let count = mounts::handed_in(&spec.root, &spec.mounts).count();
            let trees = wait_for_go(channel, count)?;
            sys::become_ids(0, 0, true).at(Wall::User, words("take on the inside ids"))?;
            Ok(Some(trees))
        }
    }
}

/// Waits for the supervisor's word and for this many trees, which may come in several messages.
fn wait_for_go(channel: &Channel, trees: usize) -> Result<Vec<OwnedFd>, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    let mut received = Vec::with_capacity(trees);
    loop {
        match channel.receive().at(Wall::User, words("wait for the supervisor"))? {
            Some((bytes, descriptors)) if ToInit::decode(&bytes) == Some(ToInit::Go) => {
                received.extend(descriptors);
            }
            Some(_) => {}
            None => {
                let gone = io::Error::from(Errno::PIPE);
                return Err(gone).at(Wall::User, words("wait for the supervisor"));
            }
        }
        if received.len() >= trees {
            return Ok(received);
        }
    }
}

/// What the command may do where, for Landlock: the root can be read, and some places be written.
fn writable_places(spec: &JailSpec) -> io::Result<Vec<(CString, landlock::Access)>> {
    use landlock::Access::{ReadExecute, Write};
    let writable = |mount: &Mount| match mount {
        Mount::Scratch(_) | Mount::Tree(Source::Overlay(_)) => true,
        Mount::Tree(Source::Host { access, .. }) => *access == Access::Write,
        Mount::Tree(Source::Empty) | Mount::File(_) | Mount::Link(_) | Mount::Directory => false,
    };
    let root = if spec.root_writable { Write } else { ReadExecute };
    let mounts = spec.mounts.iter().filter(|(_, mount)| writable(mount));
    let mounts = mounts.map(|(target, _)| Ok((mounts::c_path(target)?, Write)));
    let fixed =
        [(c"/", root), (c"/dev/shm", Write)].map(|(path, access)| Ok((path.to_owned(), access)));
    fixed.into_iter().chain(mounts).collect()
}

/// The same of areas. A place has what any place above it has, so this alone would not hold them.
fn places_of(areas: &[(PathBuf, Reach)]) -> io::Result<Vec<(CString, landlock::Access)>> {
    use landlock::Access::{Change, Read, ReadExecute, Write};
    let place = |(path, reach): &(PathBuf, Reach)| {
        let access = match reach {
            Reach::Closed => return None,
            Reach::AsIs | Reach::Open { write: false, execute: true } => ReadExecute,
            Reach::Open { write: false, execute: false } => Read,
            Reach::Open { write: true, execute: false } => Change,
            Reach::Open { write: true, execute: true } => Write,
        };
        Some(mounts::c_path(path).map(|path| (path, access)))
    };
    areas.iter().filter_map(place).collect()
}

/// Whether files may become set-id programs: not where they would be the host's.
fn set_id_bits(spec: &JailSpec) -> SetIdBits {
    let of_host = |source: &Source| matches!(source, Source::Host { access: Access::Write, owners, .. } if *owners != Owners::Range);
    let mounted = spec.mounts.iter().any(|(_, mount)| match mount {
        Mount::Tree(source) => of_host(source),
        _ => false,
    });
    if mounted || of_host(&spec.root) { SetIdBits::Refused } else { SetIdBits::Allowed }
}
