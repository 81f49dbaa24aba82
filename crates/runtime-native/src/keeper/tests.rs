//! Sandboxes whose init is the test: how the keeper handles every report of init.

mod kills;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command as Process};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with,
    recv, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_core::network::Policy;
use stockade_core::sandbox::{Root, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_jail::cgroup::Group;
use stockade_jail::control;

use super::boot_time::BootTime;
use super::command::Stage;
use super::context::{Context, Reply};
use super::jail::{Jail, SOCKET};
use super::reactor::{Interest, Source};
use super::record::{self, Record};
use super::sandbox::PendingCommand;
use super::sandbox::PendingListeners;
use super::sandbox::{Lifecycle, Sandbox};
use super::{ClientId, Key};
use crate::bubblewrap::Launcher;
use crate::directory::Directory;
use crate::input_file::{self, InputFile, MAX_INPUT_BYTES};
use crate::wire::{Action, Answer, CommandHead, CommandStrings, Failure, TargetHead};
use stockade_plan::Users;
use stockade_runtime::{Ending, Offsets, State, Stream};

const CLIENT: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);
const STATUS: stockade_plan::JailStatus = stockade_plan::JailStatus {
    landlock: 7,
    proc_missing: false,
    has_network: false,
    has_access_rules: false,
};
const OWN: User = User { user: 4242, group: 4242 };

/// A sandbox in the state `Held`, with this test as its init.
struct Fixture {
    _place: tempfile::TempDir,
    desk: Context,
    sandbox: Sandbox,
    init: OwnedFd,
    life: Child,
}

impl Fixture {
    /// A sandbox whose command 7, `old`, was started by an earlier keeper; with the write ends of
    /// its streams: its output, then its error.
    fn with_command() -> (Self, OwnedFd, OwnedFd) {
        let mut fixture = Self::new();
        fixture.join();
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let ((output, to_output), (error, to_error)) = (pipe(), pipe());
        rustix::io::ioctl_fionbio(&output, true).unwrap();
        let record: [&[u8]; 4] = [&7_u64.to_le_bytes(), &[3, 0, 0, 0], b"old", &[0, 0, 0]];
        fixture.report(b'd', &record, &[output.as_fd(), error.as_fd()]);
        (fixture, to_output, to_error)
    }

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        rustix::fs::chmod(&data, Mode::RWXU).unwrap();
        let directory = Directory::open(&data, Launcher::Own).unwrap();
        let context =
            Context::new(&super::Options::for_tests(data), directory, Users::Own(OWN), 1024)
                .unwrap();
        rustix::fs::mkdirat(&context.sandboxes, "box", Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = rustix::fs::openat(&context.sandboxes, "box", flags, Mode::empty()).unwrap();
        let listener = control::listen(own.as_fd(), SOCKET).unwrap();
        // This process replaces init; its end is the sandbox's end.
        let life = Process::new("sleep").arg("1000").spawn().unwrap();
        let process = i32::try_from(life.id()).unwrap();
        let jail_record = record::JailRecord {
            serving: None,
            init: process,
            init_started: 0,
            host_start: None,
            isolation: stockade_plan::isolation(STATUS, Vec::new()),
            paused: false,
            takes_limits: true,
            follows_renames: false,
            skeleton: None,
            network: None,
        };
        let record = Record {
            id: Some(SandboxId::new("box").unwrap()),
            spec: SandboxSpec::default(),
            has_environment: false,
            root: Root::Host,
            begun: None,
            whole: None,
            is_container: false,
            subordinate: false,
            created_at_ms: 0,
            lease: None,
            user: OWN,
            home_owner: None,
            host_start: context.host_start.clone(),
            groups: Vec::new(),
            stage: record::Stage::Starting,
        };
        let key = Key(1);
        let pidfd = pidfd_open(Pid::from_raw(process).unwrap(), PidfdFlags::empty()).unwrap();
        let watched = context.reactor.watch(pidfd, Source::Exit(key), Interest::IN).unwrap();
        let mut jail = Jail::new(watched, None, Group::default(), jail_record);
        jail.connect(&context.reactor, key, own.as_fd()).unwrap();
        let init = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
        let mut sandbox = Sandbox::new(key, "box".to_owned(), own, record);
        sandbox.life = Lifecycle::Running(Box::new(jail));
        Self { _place: dir, desk: context, sandbox, init, life }
    }

    /// Makes the sandbox one whose init has not reported yet.
    fn join(&mut self) {
        let life = std::mem::replace(&mut self.sandbox.life, Lifecycle::Ended);
        let Lifecycle::Running(jail) = life else { panic!("{life:?}") };
        self.sandbox.life = Lifecycle::Connecting(jail);
    }

    /// Sends a report as init, and lets the keeper receive it.
    fn report(&mut self, tag: u8, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) {
        let bytes = [&[tag], &parts.concat()[..]].concat();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let bytes = [std::io::IoSlice::new(&bytes)];
        sendmsg(&self.init, &bytes, &mut ancillary, SendFlags::empty()).unwrap();
        self.sandbox.receive_reports(&mut self.desk);
    }

    /// The keeper's requests to init, by their first byte.
    fn requests(&self) -> Vec<u8> {
        let mut received = Vec::new();
        let mut buffer = [0; 8192];
        while let Ok((_, length @ 1..)) = recv(&self.init, &mut buffer, RecvFlags::DONTWAIT) {
            assert!(length <= buffer.len());
            received.push(buffer[0]);
        }
        received
    }

    /// Requests a command, and returns the number that init receives.
    fn execute(&mut self, exec: &str, change: impl FnOnce(&mut CommandHead)) -> u64 {
        self.execute_with(exec, None, change)
    }

    fn execute_with(
        &mut self,
        exec: &str,
        input: Option<InputFile>,
        change: impl FnOnce(&mut CommandHead),
    ) -> u64 {
        let mut head = CommandHead {
            working_directory: None,
            user: None,
            terminal: None,
            takes_input: false,
            input_is_given: false,
            timeout: None,
            output_limit_bytes: None,
        };
        change(&mut head);
        let words = CommandStrings { arguments: vec![b"true".to_vec()], environment: Vec::new() };
        let exec = ExecId::new(exec).unwrap();
        let pending = PendingCommand { client: CLIENT, exec, head, words, input };
        self.sandbox.execute(&mut self.desk, pending);
        self.sandbox.commands.keys().last().copied().unwrap_or(0)
    }

    fn answers(&mut self) -> Vec<(ClientId, Reply)> {
        self.desk.replies.drain(..).collect()
    }

    fn refusals(&mut self) -> Vec<Failure> {
        let failure = |reply| match reply {
            (_, Reply::Answer(answer, _)) => match *answer {
                Answer::Failed(failure) => Some(failure),
                _ => None,
            },
            _ => None,
        };
        self.answers().into_iter().filter_map(failure).collect()
    }

    fn is_distrusted(&self) -> bool {
        self.desk.metrics.distrusted == 1 && matches!(self.sandbox.life, Lifecycle::Dying(_))
    }

    /// A sandbox with a network, whose egress listeners `clients` request.
    fn asked_for_listeners(clients: &[ClientId]) -> Self {
        let mut fixture = Self::new();
        fixture.sandbox.record.spec.network = Some(Policy::default());
        fixture.sandbox.jail().unwrap().record.network = Some(1);
        for client in clients {
            fixture.sandbox.hand_out_listeners(&mut fixture.desk, *client).unwrap();
        }
        assert_eq!(fixture.requests(), [b'N']);
        assert!(fixture.answers().is_empty());
        fixture
    }

    /// Closes the connection as init, and accepts the next.
    fn reconnect(&mut self) {
        let own = self.sandbox.dir.try_clone().unwrap();
        let _ = rustix::fs::unlinkat(&own, SOCKET, rustix::fs::AtFlags::empty());
        let listener = control::listen(own.as_fd(), SOCKET).unwrap();
        let (unused, _) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        drop(std::mem::replace(&mut self.init, unused));
        self.sandbox.receive_reports(&mut self.desk);
        if let Ok(next) = accept_with(&listener, SocketFlags::CLOEXEC) {
            self.init = next;
        }
    }

    /// Waits until the keeper can see the sandbox's end.
    fn wait_for_death(&mut self) {
        while !matches!(self.sandbox.life, Lifecycle::Ended) {
            self.desk.reactor.wait(std::time::Duration::from_secs(10)).unwrap();
            self.sandbox.check_init(&mut self.desk);
        }
    }

    fn stage(&self, number: u64) -> &Stage {
        &self.sandbox.commands[&number].stage
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.life.kill();
        let _ = self.life.wait();
    }
}

#[test]
fn a_command_is_told_from_its_start_to_its_end() {
    let mut fixture = Fixture::new();
    let number = fixture.execute("one", |_| {});
    assert_eq!(fixture.requests(), [b'X']);
    assert!(fixture.answers().is_empty());
    // Another client with the same request waits with the first.
    fixture.execute("one", |_| {});
    assert!(fixture.requests().is_empty());
    fixture.report(b's', &[&number.to_le_bytes()], &[]);
    let attached = fixture.answers();
    assert_eq!(attached.len(), 2);
    assert!(attached.iter().all(|(_, reply)| matches!(reply, Reply::Attached { .. })));
    fixture.report(b'x', &[&number.to_le_bytes(), &0x300_i32.to_le_bytes(), &[0]], &[]);
    assert_eq!(*fixture.stage(number), Stage::Ended(Ending::Exited(3)));
    assert!(fixture.sandbox.commands[&number].is_alive());
    fixture.report(b'g', &[&number.to_le_bytes()], &[]);
    assert!(!fixture.sandbox.commands[&number].is_alive());
    let exec = ExecId::new("one").unwrap();
    fixture.sandbox.act(&mut fixture.desk, CLIENT, &exec, Action::Acknowledge).unwrap();
    assert!(fixture.sandbox.commands.is_empty());
    assert_eq!(fixture.requests(), [b'F']);
}

#[test]
fn an_init_that_says_nonsense_is_ended_alone() {
    for (tag, parts) in [
        (b'?', &[][..]),
        (b's', &[&[1, 2][..]]),
        (b'd', &[&[0; 8][..], &[3, 0, 0, 0], b"A/B", &[0, 0, 0]]),
        (b'o', &[]),
    ] {
        let mut fixture = Fixture::new();
        fixture.execute("one", |_| {});
        fixture.report(tag, parts, &[]);
        assert!(fixture.is_distrusted(), "{}", tag.escape_ascii());
        assert_eq!(fixture.sandbox.state(), State::Ended);
        fixture.wait_for_death();
        // No client waits for ever.
        assert_eq!(fixture.refusals(), [Failure::WrongState(State::Ended)]);
        let status = fixture.sandbox.status().unwrap();
        assert!(status.reason.is_some(), "{status:?}");
        let record = Record::read(fixture.sandbox.directory()).unwrap();
        assert!(matches!(record.stage, record::Stage::Ended(_)));
    }
}

#[test]
fn what_an_init_hands_out_is_looked_at() {
    let file = tempfile::tempfile().unwrap();
    let terminal = |head: &mut CommandHead| {
        head.terminal = Some(stockade_runtime::WindowSize { rows: 1, columns: 1 });
    };
    // A file instead of a terminal, of a connection, and of the root directory.
    let mut fixture = Fixture::new();
    let number = fixture.execute("one", terminal);
    fixture.report(b's', &[&number.to_le_bytes()], &[file.as_fd()]);
    assert!(fixture.is_distrusted());
    let mut fixture = Fixture::new();
    fixture.sandbox.connect(&mut fixture.desk, CLIENT, TargetHead::Tcp(80), Vec::new()).unwrap();
    let number = *fixture.sandbox.connections.keys().next().unwrap();
    fixture.report(b'c', &[&number.to_le_bytes()], &[file.as_fd()]);
    assert!(fixture.is_distrusted());
    let mut fixture = Fixture::new();
    fixture.report(b'o', &[], &[file.as_fd()]);
    assert!(fixture.is_distrusted());
    // And instead of an adopted command's streams.
    let mut fixture = Fixture::new();
    fixture.join();
    let record: [&[u8]; 4] = [&7_u64.to_le_bytes(), &[1, 0, 0, 0], b"a", &[0, 0, 0]];
    fixture.report(b'd', &record, &[file.as_fd(), file.as_fd()]);
    assert!(fixture.is_distrusted());
}

#[test]
fn what_concerns_nobody_is_passed_over() {
    let mut fixture = Fixture::new();
    let number = 99_u64.to_le_bytes();
    let file = tempfile::tempfile().unwrap();
    for tag in [b's', b'g', b'c'] {
        fixture.report(tag, &[&number], &[file.as_fd()]);
    }
    fixture.report(b'x', &[&number, &[0; 4], &[0]], &[]);
    fixture.report(b'r', &[&number, &[0; 4]], &[]);
    fixture.report(b'l', &[], &[]);
    assert_eq!(fixture.desk.metrics.distrusted, 0);
    assert!(fixture.answers().is_empty() && fixture.sandbox.commands.is_empty());
}

/// It would send descriptors until there is no room for those of others.
#[test]
fn an_init_makes_up_no_commands() {
    let mut fixture = Fixture::new();
    let (output, error) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    for number in 1..100_u64 {
        let key = format!("made-up-{number}");
        let length = u32::try_from(key.len()).unwrap().to_le_bytes();
        let record: [&[u8]; 4] = [&number.to_le_bytes(), &length, key.as_bytes(), &[0, 0, 0]];
        fixture.report(b'd', &record, &[output.as_fd(), error.as_fd()]);
        assert_eq!(fixture.requests(), [b'F']);
    }
    assert!(fixture.sandbox.commands.is_empty());
    assert_eq!(fixture.desk.metrics.distrusted, 0);
}

/// A detached descendant of a command may hold the command's input as long as it runs.
#[test]
fn what_runs_holds_no_more_input_than_a_sandbox_may() {
    let mut fixture = Fixture::new();
    let mut start = |exec: &str, length_bytes| {
        let given = InputFile { file: input_file::file(b"").unwrap(), length_bytes };
        let number = fixture.execute_with(exec, Some(given), |head| {
            (head.takes_input, head.input_is_given) = (true, true);
        });
        (number, fixture.refusals())
    };
    let (first, none) = start("first", MAX_INPUT_BYTES - 1);
    assert!(none.is_empty() && start("second", 1).1.is_empty());
    let refused = start("third", 1).1;
    assert!(matches!(&refused[..], [Failure::Exhausted(_)]), "{refused:?}");
    fixture.sandbox.commands.get_mut(&first).unwrap().gone = true;
    let given = InputFile { file: input_file::file(b"").unwrap(), length_bytes: 1 };
    fixture.execute_with("third", Some(given), |_| {});
    assert!(fixture.refusals().is_empty());
    // No client can write to any of them.
    assert!(fixture.sandbox.commands.values().all(|command| command.input_for_client().is_none()));
}

/// An init that sends reports all the time, or closes every connection, keeps other inits waiting.
#[test]
fn an_init_that_takes_all_the_time_is_ended() {
    let mut fixture = Fixture::new();
    let number = 99_u64.to_le_bytes();
    let mut count = 0;
    while !fixture.is_distrusted() {
        assert!(count < 1_000_000, "it may talk for ever");
        fixture.report(b'g', &[&number], &[]);
        count += 1;
    }
    let mut fixture = Fixture::new();
    let mut lost = 0;
    while !fixture.is_distrusted() {
        assert!(lost < 1000, "it may go for ever");
        fixture.reconnect();
        lost += 1;
    }
    assert!(lost > 1);
}

#[test]
fn a_command_of_another_keeper_is_taken_over_with_what_it_wrote() {
    let mut fixture = Fixture::new();
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let ((output, to_output), (error, _to_error)) = (pipe(), pipe());
    rustix::fs::mkdirat(fixture.sandbox.directory(), "spool", Mode::RWXU).unwrap();
    let spool = fixture.desk.data.join("runtime/1/sandboxes/box/spool");
    fixture.join();
    std::fs::write(spool.join("old.output"), "before ").unwrap();
    std::fs::write(spool.join("old.json"), r#"{"limit_bytes":9,"ending":null}"#).unwrap();
    let record: [&[u8]; 4] = [&7_u64.to_le_bytes(), &[3, 0, 0, 0], b"old", &[0, 0, 0]];
    rustix::io::write(&to_output, b"now").unwrap();
    fixture.report(b'd', &record, &[output.as_fd(), error.as_fd()]);
    assert_eq!(fixture.desk.metrics.distrusted, 0);
    assert_eq!(*fixture.stage(7), Stage::Running);
    let command = fixture.sandbox.commands.get_mut(&7).unwrap();
    let dir = fixture.sandbox.dir.as_fd();
    command.read_stream(dir, Stream::Output, &mut fixture.desk.spool_context);
    assert_eq!(command.written(), Offsets { output: 9, error: 0 });
    let mut buffer = [0; 32];
    let read = command.read(dir, Stream::Output, 0, &mut buffer);
    assert_eq!(read, super::spool::Read::Bytes(9));
    assert_eq!(&buffer[..9], b"before no");
    // The limit that the earlier keeper received still holds.
    let outcome = command.read_stream(dir, Stream::Output, &mut fixture.desk.spool_context);
    assert_eq!(outcome, super::command::ReadOutcome::TooMuch);
    command.force_ending(dir, Ending::OutputExceeded);
    fixture.report(b'x', &[&7_u64.to_le_bytes(), &9_i32.to_le_bytes(), &[2]], &[]);
    assert_eq!(*fixture.stage(7), Stage::Ended(Ending::OutputExceeded));
}

#[test]
fn nothing_is_started_while_everything_is_stopped() {
    let mut fixture = Fixture::new();
    let number = fixture.execute("first", |_| {});
    assert_eq!(fixture.requests(), [b'X']);
    // The keeper waits for a command that is being started.
    fixture.sandbox.hold_paused(&mut fixture.desk, OTHER).unwrap();
    assert!(fixture.requests().is_empty() && fixture.answers().is_empty());
    fixture.report(b's', &[&number.to_le_bytes()], &[]);
    assert_eq!(fixture.requests(), [b'P']);
    let is_paused = |reply: &(ClientId, Reply)| matches!(reply, (OTHER, Reply::Paused { .. }));
    assert!(fixture.answers().iter().any(is_paused));
    // Later requests wait meanwhile, unless a client has paused the sandbox.
    fixture.execute("second", |_| {});
    assert!(fixture.requests().is_empty() && fixture.answers().is_empty());
    fixture.sandbox.release(&mut fixture.desk, OTHER);
    assert_eq!(fixture.requests(), [b'Q', b'X']);
    let number = *fixture.sandbox.commands.keys().last().unwrap();
    fixture.report(b's', &[&number.to_le_bytes()], &[]);
    fixture.answers();
    fixture.sandbox.pause(&mut fixture.desk, OTHER).unwrap();
    assert_eq!(fixture.sandbox.state(), State::Paused);
    fixture.execute("third", |_| {});
    assert_eq!(fixture.refusals(), [Failure::WrongState(State::Paused)]);
    assert!(matches!(
        Record::read(fixture.sandbox.directory()).unwrap().stage,
        record::Stage::Held(record::JailRecord { paused: true, .. })
    ));
}

#[test]
fn a_connection_that_is_lost_is_made_again_and_nothing_is_forgotten() {
    let mut fixture = Fixture::new();
    let lost = fixture.execute("lost", |_| {});
    let stored = fixture.execute("kept", |_| {});
    fixture.sandbox.connect(&mut fixture.desk, OTHER, TargetHead::Tcp(80), Vec::new()).unwrap();
    // Init has closed the connection, and listens again. It has received only one of the commands.
    fixture.reconnect();
    assert_eq!(fixture.requests(), [b'L']);
    assert!(matches!(fixture.refusals()[..], [Failure::Connect { .. }]));
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let ((output, _a), (error, _b)) = (pipe(), pipe());
    let record: [&[u8]; 4] = [&stored.to_le_bytes(), &[4, 0, 0, 0], b"kept", &[0, 0, 0]];
    fixture.report(b'd', &record, &[output.as_fd(), error.as_fd()]);
    fixture.report(b'l', &[], &[]);
    assert!(matches!(fixture.stage(lost), Stage::Ended(Ending::NotRun { .. })));
    assert!(matches!(fixture.stage(stored), Stage::Starting(_)));
    fixture.report(b's', &[&stored.to_le_bytes()], &[]);
    assert_eq!(*fixture.stage(stored), Stage::Running);
}

#[test]
fn the_end_of_its_init_is_the_end_of_everything_in_it() {
    let mut fixture = Fixture::new();
    let number = fixture.execute("one", |_| {});
    fixture.report(b's', &[&number.to_le_bytes()], &[]);
    let exec = ExecId::new("one").unwrap();
    fixture.answers();
    fixture.sandbox.act(&mut fixture.desk, CLIENT, &exec, Action::Kill).unwrap();
    assert!(fixture.answers().is_empty());
    fixture.life.kill().unwrap();
    fixture.wait_for_death();
    assert_eq!(*fixture.stage(number), Stage::Ended(Ending::SandboxEnded));
    // The client that waited for its kill receives the response.
    assert!(matches!(&fixture.answers()[..], [(CLIENT, Reply::Answer(answer, _))]
        if **answer == Answer::Done));
    // It is found again by the next keeper, with its end.
    let Sandbox { name, key, .. } = &fixture.sandbox;
    let adopted = Sandbox::adopt(&mut fixture.desk, *key, name.clone()).unwrap();
    let status = adopted.status().unwrap();
    assert_eq!((status.state, status.execs.len()), (State::Ended, 1));
    assert_eq!(status.execs[0].ending, Some(Ending::SandboxEnded));
    // Destroying it frees its id, and its directory is removed.
    fixture.sandbox.destroy(&mut fixture.desk, Some(CLIENT));
    assert!(
        rustix::fs::statat(&fixture.desk.sandboxes, "box", rustix::fs::AtFlags::empty()).is_err()
    );
}

/// A compromised init may send any descriptors. No client receives them, and only its own jail
/// ends.
#[test]
fn ways_out_that_are_none_are_handed_to_nobody() {
    let file = || -> OwnedFd { tempfile::tempfile().unwrap().into() };
    let listener = || -> OwnedFd { std::net::TcpListener::bind("127.0.0.1:0").unwrap().into() };
    let datagrams = || -> OwnedFd { std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into() };
    let of_host = || vec![listener(), listener(), datagrams(), listener()];
    let local = || -> OwnedFd {
        let scratch = tempfile::tempdir().unwrap();
        std::os::unix::net::UnixListener::bind(scratch.path().join("socket")).unwrap().into()
    };
    for descriptors in [
        vec![file()],
        vec![file(), file(), file(), file()],
        vec![local(), local(), local(), local()],
        vec![datagrams(), datagrams(), datagrams(), datagrams()],
        // Listeners of the right kinds, but in other network namespaces or at other addresses.
        of_host(),
        of_host().into_iter().chain([file()]).collect(),
    ] {
        let mut fixture = Fixture::asked_for_listeners(&[CLIENT]);
        let descriptors: Vec<_> = descriptors.iter().map(|open| open.as_fd()).collect();
        fixture.report(b'w', &[], &descriptors);
        assert!(fixture.is_distrusted(), "{descriptors:?}");
        fixture.wait_for_death();
        assert_eq!(fixture.refusals(), [Failure::WrongState(State::Ended)]);
    }
    // Listeners that no client has requested, also from an init that has a network.
    for network in [None, Some(Policy::default())] {
        for descriptors in [&[][..], &[file().as_fd()]] {
            let mut fixture = Fixture::new();
            fixture.sandbox.record.spec.network.clone_from(&network);
            fixture.report(b'w', &[], descriptors);
            assert!(fixture.is_distrusted());
        }
    }
}

#[test]
fn ways_out_are_asked_for_once_for_all_who_wait_and_again_when_there_were_none() {
    let mut fixture = Fixture::asked_for_listeners(&[CLIENT, OTHER]);
    // It has closed the connection before it answered.
    fixture.reconnect();
    assert_eq!(fixture.requests(), [b'L', b'N']);
    // It has too few descriptors.
    fixture.report(b'w', &[], &[]);
    assert_eq!(fixture.desk.metrics.distrusted, 0);
    assert!(matches!(fixture.refusals()[..], [Failure::Exhausted(_), Failure::Exhausted(_)]));
    fixture.sandbox.hand_out_listeners(&mut fixture.desk, OTHER).unwrap();
    assert_eq!(fixture.requests(), [b'N']);
    // An init that never answers is ended.
    fixture.sandbox.check_listeners(&mut fixture.desk);
    assert_eq!(fixture.desk.metrics.distrusted, 0);
    let since = BootTime::from_host_start(std::time::Duration::ZERO);
    fixture.sandbox.listeners = Some(PendingListeners { since, clients: vec![OTHER] });
    fixture.sandbox.check_listeners(&mut fixture.desk);
    assert!(fixture.is_distrusted());
    fixture.wait_for_death();
    assert_eq!(fixture.refusals(), [Failure::WrongState(State::Ended)]);
    let refused = fixture.sandbox.hand_out_listeners(&mut fixture.desk, OTHER);
    assert_eq!(refused, Err(Failure::WrongState(State::Ended)));
}

#[test]
fn what_has_no_network_has_no_way_out() {
    let mut fixture = Fixture::new();
    let refused = fixture.sandbox.hand_out_listeners(&mut fixture.desk, CLIENT);
    assert!(matches!(refused, Err(Failure::Invalid(_))), "{refused:?}");
    assert!(fixture.requests().is_empty());
}

/// No subscriber loses a byte, and one whose command is deleted receives the loss.
#[test]
fn a_command_waits_for_who_listens_and_who_loses_is_told() {
    let (mut faked, to_output, _to_error) = Fixture::with_command();
    rustix::io::ioctl_fionbio(&to_output, true).unwrap();
    // Writes as much as the keeper reads, and returns that length.
    let flood = |fixture: &mut Fixture| {
        let command = fixture.sandbox.commands.get_mut(&7).unwrap();
        let (dir, spool_context) = (fixture.sandbox.dir.as_fd(), &mut fixture.desk.spool_context);
        let before = command.written().output;
        while command.written().output - before < 64 << 20 {
            let _ = rustix::io::write(&to_output, &[1; 65_536]);
            if command.read_stream(dir, Stream::Output, spool_context)
                != super::command::ReadOutcome::More
            {
                break;
            }
        }
        command.written().output - before
    };
    let command = |fixture: &mut Fixture, change: &dyn Fn(&mut super::command::Command)| {
        change(fixture.sandbox.commands.get_mut(&7).unwrap());
    };
    // A subscriber of the earlier keeper may still return.
    let first = flood(&mut faked);
    assert!((1..8 << 20).contains(&first), "{first}");
    assert_eq!(flood(&mut faked), 0);
    // A client that only needs the input does not wait for output, and does not count as returned.
    let end = Offsets { output: u64::MAX, error: u64::MAX };
    command(&mut faked, &|command| command.subscribe(OTHER, end));
    assert_eq!(flood(&mut faked), 0);
    command(&mut faked, &|command| command.subscribe(CLIENT, Offsets::default()));
    assert_eq!(flood(&mut faked), 0);
    let position = Offsets { output: first, error: 0 };
    command(&mut faked, &|command| command.set_position(CLIENT, position));
    let second = flood(&mut faked);
    assert!((1..8 << 20).contains(&second), "{second}");
    // It ends, and is deleted before all of its output was received.
    faked.report(b'x', &[&7_u64.to_le_bytes(), &0_i32.to_le_bytes(), &[0]], &[]);
    let exec = ExecId::new("old").unwrap();
    let written = faked.sandbox.commands[&7].written().output;
    faked.answers();
    faked.sandbox.act(&mut faked.desk, OTHER, &exec, Action::Acknowledge).unwrap();
    let reply = faked.answers().into_iter().find_map(|reply| match reply {
        (CLIENT, Reply::Gone(unheard, ending)) => Some((unheard, ending)),
        _ => None,
    });
    let length = written - first;
    let lost = Answer::Lost { stream: Stream::Output, offset: first, length };
    assert_eq!(reply, Some((vec![lost], Ending::Exited(0))));
}

#[test]
fn who_goes_is_not_waited_for() {
    let (mut faked, to_output, _to_error) = Fixture::with_command();
    let Fixture { sandbox, desk, .. } = &mut faked;
    let command = sandbox.commands.get_mut(&7).unwrap();
    command.subscribe(CLIENT, Offsets::default());
    let mut take = |command: &mut super::command::Command| {
        rustix::io::write(&to_output, &[1; 4096]).unwrap();
        command.read_stream(sandbox.dir.as_fd(), Stream::Output, &mut desk.spool_context)
    };
    while take(command) == super::command::ReadOutcome::More {
        assert!(command.written().output < 64 << 20, "nobody is waited for");
    }
    let written = command.written().output;
    command.unsubscribe(CLIENT);
    assert_eq!(
        command.read_stream(sandbox.dir.as_fd(), Stream::Output, &mut desk.spool_context),
        super::command::ReadOutcome::More
    );
    assert!(command.written().output > written);
}

/// The end of a pipe that is not read is reported once, not all the time.
#[test]
fn an_end_that_waits_keeps_nobody_busy() {
    let (mut faked, to_output, _to_error) = Fixture::with_command();
    let Fixture { sandbox, desk, .. } = &mut faked;
    let command = sandbox.commands.get_mut(&7).unwrap();
    command.subscribe(CLIENT, Offsets::default());
    loop {
        rustix::io::write(&to_output, &[1; 4096]).unwrap();
        let outcome =
            command.read_stream(sandbox.dir.as_fd(), Stream::Output, &mut desk.spool_context);
        if outcome != super::command::ReadOutcome::More {
            break;
        }
    }
    drop(to_output);
    let stream = Source::Stream(sandbox.key, 7, Stream::Output);
    let mut count = 0;
    for _ in 0..5 {
        let events = desk.reactor.wait(std::time::Duration::ZERO).unwrap();
        count += events.iter().filter(|(source, _)| *source == stream).count();
    }
    assert!(count <= 1, "it was told {count} times");
    command.unsubscribe(CLIENT);
    let events = desk.reactor.wait(std::time::Duration::ZERO).unwrap();
    assert!(events.iter().any(|(source, _)| *source == stream));
}
