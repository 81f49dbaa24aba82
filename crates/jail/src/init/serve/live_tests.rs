//! Real persistent jails: commands in them, and how those end.

use std::io::{BufRead as _, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::control::{self, Cause, Control, Execute, Progress, Report, Request, Target};
use crate::network::Listeners;
use crate::spec::{JailSpec, Mount, Network, Scratch, Source, Task, WindowSize};
use crate::testing::{ChildExit, in_child, note, skipped};
use crate::{Identity, PersistentJail, launch_persistent, system};

/// The time limit of every single step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A persistent jail and a connection to its init, with the reports that were not consumed yet.
struct Fixture {
    jail: PersistentJail,
    directory: tempfile::TempDir,
    control: Control,
    reports: Vec<(Report, Vec<std::os::fd::OwnedFd>)>,
    user: u32,
    group: u32,
    next: u64,
}

/// Runs `body` with a jail, in a process with a single thread.
fn with_fixture(lease: Duration, body: impl FnOnce(&mut Fixture)) {
    let ended = in_child(|| {
        body(&mut Fixture::launch(lease));
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

impl Fixture {
    fn launch(lease: Duration) -> Self {
        Self::launch_with(lease, Network::Off)
    }

    fn launch_with(lease: Duration, network: Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = rustix::fs::open(
            directory.path(),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        let listener = control::listen(open.as_fd(), "init").unwrap();
        let identity = Identity::for_caller().unwrap();
        let (user, group) = match &identity {
            Identity::Own { user, group } => (*user, *group),
            Identity::Range(_) => (1000, 1000),
        };
        let lock = identity.range().and_then(|range| range.lock().unwrap());
        let mut scratch = Scratch { mode: 0o1777, size_bytes: 64 << 20, user: 0, group: 0 };
        if let Identity::Own { user, group } = &identity {
            (scratch.user, scratch.group) = (*user, *group);
        }
        let mut mounts = system::programs().unwrap();
        mounts.push((PathBuf::from("/tmp"), Mount::Scratch(scratch)));
        let spec = JailSpec {
            identity,
            root: Source::Empty,
            root_writable: false,
            root_is_own: true,
            mounts,
            hostname: "test".to_owned(),
            network,
            task: Task::Serve { listener, lease, processors: None, bubblewrap: None },
            rlimits: crate::rlimits::ResourceLimits { processes: Some(500), ..Default::default() },
            cgroup: None,
            locks: lock.into_iter().collect(),
            access_mounts: None,
            landlock_optional: true,
            reports_refused_calls: false,
        };
        let mut launching = launch_persistent(spec).unwrap();
        let jail = loop {
            poll(&mut [PollFd::new(&launching, PollFlags::IN)], None).unwrap();
            if let Some(held) = launching.advance().unwrap() {
                break held;
            }
        };
        let control = Control::connect(open.as_fd(), "init").unwrap();
        Self { jail, directory, control, reports: Vec::new(), user, group, next: 1 }
    }

    fn reconnect(&mut self) {
        let open = std::fs::File::open(self.directory.path()).unwrap();
        self.control = Control::connect(open.as_fd(), "init").unwrap();
        self.reports.clear();
    }

    /// The listeners as init sends them to a client.
    fn listeners(&mut self) -> Listeners {
        self.control.send(&Request::Listeners, &[]).unwrap();
        Listeners::from_descriptors(self.recv(|report| *report == Report::Listeners).1).unwrap()
    }

    fn command(&mut self, script: &str) -> Execute {
        let number = self.next;
        self.next += 1;
        Execute {
            number,
            key: format!("command-{number}").into_bytes(),
            arguments: ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec(),
            environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
            working_directory: b"/tmp".to_vec(),
            user: self.user,
            group: self.group,
            groups: Vec::new(),
            may_become_root: false,
            terminal: None,
            timeout: None,
        }
    }

    /// Sends a command and returns the outer ends of its streams.
    fn start(&mut self, execute: &Execute) -> [std::fs::File; 3] {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).unwrap();
        let ((a, input), (output, b), (error, c)) = (pipe(), pipe(), pipe());
        if let Some(start) = self.jail.host_start {
            use rustix::fs::{Gid, Uid};
            let user = Uid::from_raw(start + execute.user);
            let group = Gid::from_raw(start + execute.group);
            for inner in [&a, &b, &c] {
                rustix::fs::fchown(inner, Some(user), Some(group)).unwrap();
            }
        }
        let descriptors = [&a, &b, &c, &input, &output, &error].map(|fd| fd.as_fd());
        self.control.send(&Request::Execute(Box::new(execute.clone())), &descriptors).unwrap();
        [input, output, error].map(std::fs::File::from)
    }

    /// Waits for a matching report.
    fn recv(&mut self, fits: impl Fn(&Report) -> bool) -> (Report, Vec<std::os::fd::OwnedFd>) {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(at) = self.reports.iter().position(|(report, _)| fits(report)) {
                return self.reports.remove(at);
            }
            assert!(Instant::now() < until, "heard only {:?}", self.reports);
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&second)).unwrap();
            match self.control.receive() {
                Ok(message) => match message.expect("init is there") {
                    // This report counts as both.
                    (Report::Finished { number, status }, _) => {
                        let exited = Report::Exited { number, status, cause: None };
                        let both = [exited, Report::Gone { number }];
                        self.reports.extend(both.map(|report| (report, Vec::new())));
                    }
                    other => self.reports.push(other),
                },
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    }

    fn exited(&mut self, number: u64) -> (i32, Option<Cause>) {
        match self.recv(|r| matches!(r, Report::Exited { number: n, .. } if *n == number)).0 {
            Report::Exited { status, cause, .. } => (status, cause),
            _ => unreachable!(),
        }
    }

    fn gone(&mut self, number: u64) {
        self.recv(|report| *report == Report::Gone { number });
    }

    /// Runs a script to its end and returns its output and exit code.
    fn run(&mut self, script: &str) -> (String, i32) {
        let execute = self.command(script);
        let [input, mut output, _error] = self.start(&execute);
        drop(input);
        self.control.send(&Request::CloseInput { number: execute.number }, &[]).unwrap();
        let (status, cause) = self.exited(execute.number);
        assert_eq!(cause, None);
        self.gone(execute.number);
        self.control.send(&Request::Forget { number: execute.number }, &[]).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        (text, libc::WEXITSTATUS(status))
    }
}

#[test]
fn commands_run_one_after_the_other_and_side_by_side() {
    with_fixture(TIMEOUT, |jail| {
        assert_eq!(jail.run("echo hello; exit 3"), ("hello\n".to_owned(), 3));
        let (ids, code) = jail.run("id -u; id -g; cat /proc/self/status");
        assert_eq!(code, 0);
        assert!(ids.starts_with(&format!("{}\n{}\n", jail.user, jail.group)), "{ids}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(ids.contains(&format!("{set}:\t0000000000000000")), "{ids}");
        }
        assert!(ids.contains("NoNewPrivs:\t1") && ids.contains("Seccomp:\t2"), "{ids}");
        let waiting: Vec<_> = (0..20)
            .map(|i| {
                let execute = jail.command(&format!("read x; echo $x {i}; exit {i}"));
                (execute.number, jail.start(&execute))
            })
            .collect();
        for (i, (number, [mut input, mut output, error])) in waiting.into_iter().enumerate() {
            std::io::Write::write_all(&mut input, b"word\n").unwrap();
            assert_eq!(jail.exited(number), (i32::try_from(i).unwrap() << 8, None));
            jail.gone(number);
            jail.control.send(&Request::Forget { number }, &[]).unwrap();
            drop((input, error));
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("word {i}\n"));
        }
    });
}

#[test]
fn a_program_that_cannot_run_and_a_user_that_may_not_be_are_told() {
    with_fixture(TIMEOUT, |jail| {
        let mut execute = jail.command("");
        execute.arguments = vec![b"no-such-program".to_vec()];
        jail.start(&execute);
        let number = execute.number;
        let not_started =
            move |r: &Report| matches!(r, Report::NotStarted { number: n, .. } if *n == number);
        let (report, _) = jail.recv(not_started);
        assert!(matches!(report, Report::NotStarted { wall: None, errno: libc::ENOENT, .. }));
        jail.gone(number);

        let mut execute = jail.command("true");
        execute.working_directory = b"/nowhere".to_vec();
        jail.start(&execute);
        let number = execute.number;
        let (report, _) =
            jail.recv(move |r| matches!(r, Report::NotStarted { number: n, .. } if *n == number));
        assert!(matches!(report, Report::NotStarted { errno: libc::ENOENT, .. }), "{report:?}");

        let mut execute = jail.command("true");
        execute.user = 65_535;
        jail.start(&execute);
        let number = execute.number;
        let (report, _) =
            jail.recv(move |r| matches!(r, Report::NotStarted { number: n, .. } if *n == number));
        assert!(matches!(report, Report::NotStarted { errno: libc::EPERM, .. }), "{report:?}");
    });
}

/// Processes that leave their session and their parents, stop themselves or fork endlessly are
/// found nevertheless.
#[test]
fn a_kill_and_a_time_out_leave_nothing() {
    with_fixture(TIMEOUT, |jail| {
        let hiding = "trap '' TERM HUP INT
            (setsid sh -c 'trap \"\" TERM; while :; do echo x >>/tmp/alive; sleep 0.01; done' &)
            (setsid sh -c 'sh -c \"kill -STOP \\$\\$\" &' &)
            (setsid sh -c 'hop() { sh -c \"sleep 0.02\"; hop & }; hop' &)
            while :; do sleep 1; done";
        for timeout in [None, Some(Duration::from_millis(300))] {
            let mut execute = jail.command(hiding);
            execute.timeout = timeout;
            let streams = jail.start(&execute);
            let number = execute.number;
            jail.recv(move |report| *report == Report::Started { number });
            while jail.run("test -s /tmp/alive").1 != 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            let cause = match timeout {
                None => {
                    jail.control.send(&Request::Kill { number }, &[]).unwrap();
                    Cause::Killed
                }
                Some(_) => Cause::TimedOut,
            };
            assert_eq!(jail.exited(number), (libc::SIGKILL, Some(cause)));
            jail.gone(number);
            drop(streams);
            let (alive, _) = jail.run("rm -f /tmp/alive; sleep 0.1; ls /tmp; ls -d /proc/[0-9]*");
            assert!(!alive.contains("alive"), "{alive}");
            // Init, and this command with its subreaper and `ls`.
            assert!(alive.lines().filter(|line| line.starts_with("/proc")).count() <= 4, "{alive}");
        }
    });
}

#[test]
fn background_children_live_on_until_they_are_killed() {
    with_fixture(TIMEOUT, |jail| {
        let execute = jail.command("(while :; do echo x >>/tmp/alive; sleep 0.01; done) & exit 7");
        let _streams = jail.start(&execute);
        let number = execute.number;
        assert_eq!(jail.exited(number), (7 << 8, None));
        assert_eq!(jail.run("rm /tmp/alive; sleep 0.2; test -s /tmp/alive").1, 0);
        jail.control.send(&Request::Kill { number }, &[]).unwrap();
        jail.gone(number);
        assert_eq!(jail.run("rm -f /tmp/alive; sleep 0.1; test -e /tmp/alive").1, 1);
    });
}

/// As users do who end a program that they started earlier.
#[test]
fn commands_of_one_user_may_signal_each_other() {
    with_fixture(TIMEOUT, |jail| {
        let execute = jail.command("while :; do sleep 0.01; done");
        let _streams = jail.start(&execute);
        let number = execute.number;
        jail.recv(move |report| *report == Report::Started { number });
        let kill_others = "for p in $(ls /proc | grep -x '[0-9]*'); do
                test $p = $$ || grep -qs stockade-init /proc/$p/comm || kill $p 2>/dev/null
            done; exit 0";
        let (_, code) = jail.run(kill_others);
        assert_eq!(code, 0);
        let (status, _) = jail.exited(number);
        assert!(libc::WIFSIGNALED(status), "{status}");
        assert_eq!(jail.run("echo alive"), ("alive\n".to_owned(), 0));
    });
}

#[test]
fn a_successor_finds_commands_and_their_streams() {
    with_fixture(TIMEOUT, |jail| {
        let execute = jail.command("echo before; read x; echo after $x; exit 4");
        let [input, output, error] = jail.start(&execute);
        let number = execute.number;
        jail.recv(move |report| *report == Report::Started { number });
        drop((input, output, error));
        jail.reconnect();
        jail.control.send(&Request::List, &[]).unwrap();
        let (report, streams) = jail.recv(|report| matches!(report, Report::Record(_)));
        let Report::Record(record) = report else { unreachable!() };
        assert_eq!((record.number, record.progress), (number, Progress::Running));
        assert_eq!(record.key, execute.key);
        assert!(record.input && !record.terminal);
        jail.recv(|report| *report == Report::Listed);
        let [mut input, mut output, _error]: [std::fs::File; 3] =
            streams.into_iter().map(std::fs::File::from).collect::<Vec<_>>().try_into().unwrap();
        // The same key denotes the same command.
        jail.start(&Execute { number: 99, ..execute });
        jail.recv(move |r| matches!(r, Report::Record(record) if record.number == number));
        std::io::Write::write_all(&mut input, b"word\n").unwrap();
        assert_eq!(jail.exited(number), (4 << 8, None));
        jail.control.send(&Request::Forget { number }, &[]).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before\nafter word\n");
    });
}

#[test]
fn a_terminal_has_its_size_and_its_user() {
    with_fixture(TIMEOUT, |jail| {
        let mut execute = jail.command("test -t 0 && stty size; stat -c %u $(tty); read x");
        execute.terminal = Some(WindowSize { rows: 33, columns: 99 });
        jail.control.send(&Request::Execute(Box::new(execute.clone())), &[]).unwrap();
        let number = execute.number;
        let (_, terminal) = jail.recv(move |report| *report == Report::Started { number });
        let mut terminal: Vec<_> = terminal.into_iter().map(std::fs::File::from).collect();
        let terminal = &mut terminal[0];
        std::io::Write::write_all(terminal, b"word\n").unwrap();
        let mut text = String::new();
        // Reading a terminal whose other side is closed fails with EIO.
        let _ = terminal.read_to_string(&mut text);
        assert!(text.contains("33 99"), "{text}");
        assert!(text.contains(&format!("{}\r\n", jail.user)), "{text}");
        assert_eq!(jail.exited(number), (0, None));
    });
}

#[test]
fn connections_are_handed_out() {
    with_fixture(TIMEOUT, |jail| {
        let connect = |number, target, jail: &Fixture| Request::Connect {
            number,
            target,
            user: jail.user,
            group: jail.group,
        };
        let request = connect(1, Target::Tcp(1), jail);
        jail.control.send(&request, &[]).unwrap();
        let (refused, _) = jail.recv(|report| matches!(report, Report::Refused { .. }));
        assert_eq!(refused, Report::Refused { number: 1, errno: libc::ECONNREFUSED });
        if !Path::new("/usr/bin/perl").exists() {
            crate::testing::skipped("there is no perl to listen with");
            return;
        }
        let server = "use IO::Socket::UNIX; use IO::Socket::INET; umask 077;
            my $u = IO::Socket::UNIX->new(Local => '/tmp/socket', Listen => 1) or die;
            my $t = IO::Socket::INET->new(LocalAddr => '127.0.0.1:8080', Listen => 1) or die;
            $| = 1; print \"ready\\n\";
            for my $l ($u, $t) { my $c = $l->accept; print $c \"hello\\n\"; close $c; }";
        let mut execute = jail.command("");
        execute.arguments = ["perl", "-e", server].map(|word| word.as_bytes().to_vec()).to_vec();
        let [_input, mut output, _error] = jail.start(&execute);
        output.read_exact(&mut [0; 6]).unwrap();
        for (number, target) in [(2, Target::Unix(b"/tmp/socket".to_vec())), (3, Target::Tcp(8080))]
        {
            let request = connect(number, target, jail);
            jail.control.send(&request, &[]).unwrap();
            let (_, sockets) = jail.recv(move |report| *report == Report::Connected { number });
            rustix::io::ioctl_fionbio(&sockets[0], false).unwrap();
            let mut text = [0; 6];
            rustix::io::read(&sockets[0], &mut text).unwrap();
            assert_eq!(&text, b"hello\n");
        }
    });
}

#[test]
fn everything_ends_with_the_lease_also_while_it_is_stopped() {
    with_fixture(TIMEOUT, |jail| {
        let execute = jail.command("while :; do sleep 0.01; done");
        let _streams = jail.start(&execute);
        let number = execute.number;
        jail.recv(move |report| *report == Report::Started { number });
        jail.control.send(&Request::Stop { by_signal: true }, &[]).unwrap();
        jail.control.send(&Request::Lease(Duration::from_millis(50)), &[]).unwrap();
        let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&jail.jail.init, PollFlags::IN)], Some(&timeout));
        assert_eq!(ended, Ok(1));
    });
}

#[test]
fn a_long_request_travels_in_a_file_and_nonsense_ends_the_connection_only() {
    with_fixture(TIMEOUT, |jail| {
        let mut execute = jail.command("test ${#LONG} = 100000");
        execute.environment.push([&b"LONG="[..], &[b'x'; 100_000]].concat());
        let _streams = jail.start(&execute);
        assert_eq!(jail.exited(execute.number), (0, None));
        // Otherwise the next client would receive the report.
        jail.gone(execute.number);
        let open = std::fs::File::open(jail.directory.path()).unwrap();
        let channel = crate::channel::Channel::connect(open.as_fd(), "init").unwrap();
        channel.send(b"nonsense", &[]).unwrap();
        let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
        poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&timeout)).unwrap();
        assert!(channel.receive().unwrap().is_none());
        jail.reconnect();
        assert_eq!(jail.run("echo fine"), ("fine\n".to_owned(), 0));
    });
}

#[test]
fn stopped_processes_go_on() {
    with_fixture(TIMEOUT, |jail| {
        let execute = jail.command("while :; do echo x; sleep 0.01; done");
        let [_input, output, _error] = jail.start(&execute);
        rustix::io::ioctl_fionbio(&output, true).unwrap();
        let count = |seconds: f64| {
            let mut count = 0;
            let until = Instant::now() + Duration::from_secs_f64(seconds);
            while Instant::now() < until {
                count += rustix::io::read(&output, &mut [0; 4096]).unwrap_or(0);
                std::thread::sleep(Duration::from_millis(5));
            }
            count
        };
        assert!(count(0.3) > 0);
        jail.control.send(&Request::Stop { by_signal: true }, &[]).unwrap();
        jail.control.send(&Request::List, &[]).unwrap();
        jail.recv(|report| *report == Report::Listed);
        count(0.02);
        assert_eq!(count(0.2), 0);
        jail.control.send(&Request::Continue, &[]).unwrap();
        assert!(count(0.3) > 0);
        note("stopped and continued");
    });
}

/// Whichever method stopped everything, and whatever then ends one of two commands, the other
/// remains stopped.
#[test]
fn what_is_stopped_can_be_ended_alone() {
    for by_signal in [true, false] {
        for timeout in [Some(Duration::from_millis(200)), None] {
            with_fixture(TIMEOUT, |jail| end_alone(jail, by_signal, timeout));
        }
    }
}

fn end_alone(jail: &mut Fixture, by_signal: bool, timeout: Option<Duration>) {
    let endless = "(setsid sh -c 'while :; do sleep 0.01; done' &); while :; do sleep 0.01; done";
    let other = jail.command(endless);
    let ended = Execute { timeout, ..jail.command(endless) };
    let _streams = [jail.start(&other), jail.start(&ended)];
    let number = ended.number;
    jail.recv(move |report| *report == Report::Started { number });
    jail.control.send(&Request::Stop { by_signal }, &[]).unwrap();
    if timeout.is_none() {
        jail.control.send(&Request::Kill { number }, &[]).unwrap();
    }
    if !by_signal {
        jail.recv(|report| *report == Report::Thaw);
    }
    let (report, _) = jail.recv(
        move |report| matches!(report, Report::Exited { number: exited, .. } if *exited == number),
    );
    let cause = if timeout.is_some() { Cause::TimedOut } else { Cause::Killed };
    let is_reported = matches!(report, Report::Exited { cause: Some(told), .. } if told == cause);
    assert!(is_reported, "{report:?}");
    jail.gone(number);
    let until = Instant::now() + TIMEOUT;
    while !crate::watch::have_stopped(jail.jail.init_process).unwrap() {
        assert!(Instant::now() < until, "not everything is stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
    jail.control.send(&Request::Continue, &[]).unwrap();
    assert_eq!(jail.run("echo on"), ("on\n".to_owned(), 0));
    jail.control.send(&Request::Kill { number: other.number }, &[]).unwrap();
    jail.gone(other.number);
}

/// Where commands have no ids of their own, one of them can kill a subreaper.
#[test]
fn a_command_whose_subreaper_is_killed_ends_whole() {
    with_fixture(TIMEOUT, |jail| {
        let looping = "(setsid sh -c 'while :; do echo x >>/tmp/alive; sleep 0.01; done' &)
            while :; do sleep 0.01; done";
        let execute = jail.command(looping);
        let _streams = jail.start(&execute);
        let number = execute.number;
        jail.recv(move |report| *report == Report::Started { number });
        while jail.run("test -s /tmp/alive").1 != 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let init = jail.jail.init_process;
        let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children"));
        let children = children.unwrap();
        let subreaper: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
        crate::raw::kill(subreaper, libc::SIGKILL).unwrap();
        assert_eq!(jail.exited(number), (libc::SIGKILL, Some(Cause::SubreaperLost)));
        jail.gone(number);
        assert_eq!(jail.run("rm -f /tmp/alive; sleep 0.1; test -e /tmp/alive").1, 1);
    });
}

/// A later client gets the listeners again.
#[test]
fn the_ways_out_are_kept_for_whoever_comes_next() {
    if !has_networks() {
        return;
    }
    let ended = in_child(|| {
        let mut jail = Fixture::launch_with(TIMEOUT, Network::Egress);
        let network = jail.jail.listeners.take().unwrap().network().unwrap();
        jail.reconnect();
        let listeners = jail.listeners();
        assert_eq!(listeners.network().unwrap(), network);
        let (user, group) = (jail.user, jail.group);
        let target = Target::Tcp(crate::network::PROXY_PORT);
        let connect = Request::Connect { number: 1, target, user, group };
        jail.control.send(&connect, &[]).unwrap();
        jail.recv(|report| *report == Report::Connected { number: 1 });
        let proxy = std::net::TcpListener::from(listeners.proxy);
        proxy.set_nonblocking(true).unwrap();
        proxy.accept().unwrap();
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

#[test]
fn without_ways_out_none_are_handed_out() {
    with_fixture(TIMEOUT, |jail| {
        assert!(jail.jail.listeners.is_none());
        jail.control.send(&Request::Listeners, &[]).unwrap();
        let (_, descriptors) = jail.recv(|report| *report == Report::Listeners);
        assert!(descriptors.is_empty());
    });
}

/// Whether this host supports networks with a policy; if not, the test is reported as skipped.
fn has_networks() -> bool {
    let proven = in_child(|| i32::from(crate::network::probe().is_err())) == ChildExit::Exited(0);
    if !proven {
        skipped("there can be no network by policy here");
    }
    proven
}

/// The listeners can be distinguished from descriptors that were opened after something ran inside.
#[test]
fn what_is_handed_out_can_be_looked_at() {
    if !has_networks() {
        return;
    }
    let ended = in_child(|| {
        let mut jails = [(); 2].map(|()| Fixture::launch_with(TIMEOUT, Network::Egress));
        let kind = |checked: std::io::Result<Listeners>| checked.unwrap_err().kind();
        let [one, other] = &mut jails;
        let taken = |jail: &mut Fixture| Vec::from(jail.listeners().into_descriptors());
        for (first, second) in [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)] {
            let mut mixed = taken(one);
            mixed.swap(first, second);
            let kind = kind(Listeners::from_descriptors(mixed));
            assert_eq!(kind, std::io::ErrorKind::InvalidData, "{first} and {second}");
        }
        let few = taken(one).into_iter().skip(1).collect();
        assert_eq!(kind(Listeners::from_descriptors(few)), std::io::ErrorKind::InvalidData);
        let many = taken(one).into_iter().chain(taken(one)).collect();
        assert_eq!(kind(Listeners::from_descriptors(many)), std::io::ErrorKind::InvalidData);
        // Each of the right kind in its own position, but not all in one network.
        assert_ne!(one.listeners().network().unwrap(), other.listeners().network().unwrap());
        let mixed = taken(one).into_iter().take(3).chain(taken(other).into_iter().skip(3));
        let mixed = Listeners::from_descriptors(mixed.collect()).unwrap();
        assert_eq!(mixed.network().unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

/// The children of a jail's init, with their process numbers on the host.
fn children(jail: &Fixture) -> Vec<i32> {
    let init = jail.jail.init_process;
    let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap();
    children.split_whitespace().map(|process| process.parse().unwrap()).collect()
}

#[test]
fn a_subreaper_serves_the_next_command_and_leaves_when_there_is_none() {
    with_fixture(TIMEOUT, |jail| {
        // A command that starts quickly may find the previous subreaper not idle yet.
        let own: std::collections::BTreeSet<_> =
            (0..20).map(|_| jail.run("echo $PPID").0).collect();
        assert!(own.len() <= 10, "{own:?}");
        // A busy subreaper does not get a second command, and of two idle ones one exits
        // immediately.
        let other = jail.command("echo $PPID; read line");
        let [input, output, _error] = jail.start(&other);
        let mut line = String::new();
        let mut output = std::io::BufReader::new(output);
        output.read_line(&mut line).unwrap();
        assert_ne!(jail.run("echo $PPID").0, line);
        drop(input);
        jail.control.send(&Request::CloseInput { number: other.number }, &[]).unwrap();
        jail.exited(other.number);
        jail.gone(other.number);
        // Renews the lease, as a keeper does periodically.
        jail.control.send(&Request::Lease(TIMEOUT), &[]).unwrap();
        let until = Instant::now() + TIMEOUT;
        while !children(jail).is_empty() {
            assert!(Instant::now() < until, "{:?} stay", children(jail));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(jail.run("echo on"), ("on\n".to_owned(), 0));
    });
}

/// After a jail in which nothing runs was stopped, init is alone much sooner than an idle subreaper
/// exits by itself: many rounds fit into the time of a few idle periods.
#[test]
fn no_subreaper_waits_where_everything_is_stopped() {
    with_fixture(TIMEOUT, |jail| {
        let until = Instant::now() + TIMEOUT;
        for _ in 0..40 {
            jail.run("true");
            // The end of the previous command is sometimes reported before its subreaper has
            // recorded it.
            while !children(jail).is_empty() {
                jail.control.send(&Request::Stop { by_signal: false }, &[]).unwrap();
                assert!(Instant::now() < until, "{:?} stay", children(jail));
                std::thread::sleep(Duration::from_millis(1));
            }
            jail.control.send(&Request::Continue, &[]).unwrap();
        }
    });
}

#[test]
fn a_subreaper_that_is_killed_while_it_waits_is_not_missed() {
    with_fixture(TIMEOUT, |jail| {
        for _ in 0..20 {
            jail.run("true");
            for process in children(jail) {
                // A subreaper that was exiting may no longer exist.
                let _ = crate::raw::kill(process, libc::SIGKILL);
            }
            // If init has not noticed it yet, the command ends with it, and is reported as unseen.
            let command = jail.command("echo on");
            let [_input, mut output, _error] = jail.start(&command);
            let (status, cause) = jail.exited(command.number);
            jail.gone(command.number);
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            match cause {
                None => assert_eq!((status, text.as_str()), (0, "on\n")),
                Some(cause) => assert_eq!((cause, text.as_str()), (Cause::SubreaperLost, "")),
            }
        }
        assert_eq!(jail.run("echo on"), ("on\n".to_owned(), 0));
    });
}
