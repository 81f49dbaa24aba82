//! With a terminal: a separate terminal inside, and the caller's stays untouched.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::call::{Outcome, Running};
use crate::harness::World;

/// A pseudo-terminal of the test, whose other end is the controlling terminal of `stockade`.
pub(crate) struct Terminal {
    master: File,
    path: String,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn open(world: &World) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let path = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
        world.chown(path.as_ref());
        let near = File::from(near);
        let mut reader = near.try_clone().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            // The end is an error here: the other end was closed for good.
            loop {
                match reader.read(&mut block) {
                    Ok(length) => sink.lock().unwrap().extend_from_slice(&block[..length]),
                    Err(_) if Arc::strong_count(&sink) == 1 => return,
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        let terminal = Self { master: near, path, output: seen };
        terminal.resize(24, 80);
        terminal
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master.as_fd(), size).unwrap();
    }

    pub(crate) fn start(&self, world: &World, arguments: &[&str]) -> Running {
        world.stockade_by(&["on-terminal", &self.path], arguments).start()
    }

    /// The path of the end that a program uses.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn run(&self, world: &World, arguments: &[&str]) -> Outcome {
        self.start(world, arguments).finish()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    pub(crate) fn wait_for(&self, wanted: &str) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.text().contains(wanted) {
            assert!(Instant::now() < patience, "{wanted:?} never came: {:?}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn type_in(&self, bytes: &[u8]) {
        (&self.master).write_all(bytes).unwrap();
    }

    /// The settings of the terminal that programs change.
    fn settings(&self) -> String {
        let settings = tcgetattr(self.master.as_fd()).unwrap();
        format!(
            "{:?} {:?} {:?} {:?}",
            settings.input_modes,
            settings.output_modes,
            settings.control_modes,
            settings.local_modes
        )
    }
}

fn is_a_terminal_inside(world: &World) {
    let terminal = Terminal::open(world);
    let script = "test -t 0 && test -t 1 && test -t 2 && echo yes; stty size; tty";
    terminal.run(world, &["run", "--discard", "--tty", "--", "sh", "-c", script]).succeeds();
    terminal.wait_for("/dev/");
    let text = terminal.text();
    assert!(text.contains("yes") && text.contains("24 80"), "{text:?}");
    assert!(text.contains("/dev/pts/") && !text.contains("not a tty"), "{text:?}");
}

fn without_the_option_there_is_none(world: &World) {
    let terminal = Terminal::open(world);
    // No process inside has the caller's terminal, even if all streams are connected to it.
    let run = ["run", "--discard", "--", "./probe", "open-terminal"];
    terminal.run(world, &run).succeeds();
    terminal.wait_for("held: ");
    let bare = Terminal::open(world);
    let probe = world.probe().display().to_string();
    let words = ["on-terminal", &bare.path, &probe, "open-terminal"];
    world.on_host(&world.probe(), &words).finish().ends_with(42);
    bare.wait_for("ESCAPED: ");
}

/// With or without a separate terminal, no process inside can push input into the caller's.
fn input_cannot_be_pushed(world: &World) {
    for option in ["--tty", "--discard"] {
        let terminal = Terminal::open(world);
        let run = ["run", "--discard", option, "--", "./probe", "terminal-ioctl"];
        let run =
            if option == "--discard" { [&run[..2], &run[3..]].concat() } else { run.to_vec() };
        terminal.run(world, &run).succeeds();
        terminal.wait_for("held: ");
    }
}

fn window_size_follows(world: &World) {
    let terminal = Terminal::open(world);
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let running = terminal.start(world, &["run", "--discard", "--tty", "--", "sh", "-c", script]);
    terminal.wait_for("ready");
    terminal.resize(33, 99);
    terminal.wait_for("33 99");
    drop(running);
}

fn keys_arrive_and_interrupt(world: &World) {
    let terminal = Terminal::open(world);
    let script = "trap 'echo caught; exit 5' INT; echo ready; read x; echo got $x; read y";
    let running = terminal.start(world, &["run", "--discard", "--tty", "--", "sh", "-c", script]);
    terminal.wait_for("ready");
    terminal.type_in(b"hello\r");
    terminal.wait_for("got hello");
    terminal.type_in(&[3]);
    running.finish().ends_with(5);
    terminal.wait_for("caught");
}

/// Ctrl-C without a terminal inside signals the whole foreground process group.
fn interrupt_without_a_terminal_inside(world: &World) {
    let terminal = Terminal::open(world);
    let script = "echo kept > kept; echo ready; sleep 100";
    let running = terminal.start(world, &["run", "--review", "--", "sh", "-c", script]);
    terminal.wait_for("ready");
    terminal.type_in(&[3]);
    running.finish().ends_with(130);
    assert_eq!(world.bundles().len(), 1, "{:?}", terminal.text());
}

fn settings_are_put_back(world: &World) {
    let terminal = Terminal::open(world);
    let before = terminal.settings();
    for script in ["stty raw -echo; exit 3", "kill -9 $$", "exit 0"] {
        terminal.run(world, &["run", "--discard", "--tty", "--", "sh", "-c", script]);
        assert_eq!(terminal.settings(), before, "after `{script}`");
    }
    let running = terminal
        .start(world, &["run", "--discard", "--tty", "--", "sh", "-c", "echo ready; sleep 100"]);
    terminal.wait_for("ready");
    running.signal(rustix::process::Signal::TERM);
    running.finish();
    assert_eq!(terminal.settings(), before, "after a signal");
    terminal
        .run(world, &["run", "--discard", "--tty", "--timeout", "300ms", "--", "sleep", "100"])
        .ends_with(124);
    assert_eq!(terminal.settings(), before, "after a time-out");
}

/// Without a terminal outside, there is none inside.
fn terminal_asked_for_and_not_there(world: &World) {
    let outcome = world.run(&["--discard", "--tty"], &["sh", "-c", "test -t 0 && echo yes"]);
    assert!(outcome.code() == 0 || outcome.code() == 125, "{outcome}");
    if outcome.code() == 0 {
        assert!(outcome.stdout.contains("yes"), "{outcome}");
    }
}

/// The diff of files that the command wrote is shown on the reviewer's terminal: it must not be
/// able to send escape sequences to that terminal, nor to hide text behind a carriage return.
fn a_diff_cannot_write_to_the_terminal(world: &World) {
    world.write("plain", "before\n");
    world.review(
        "printf 'x\\033]52;c;b3duZWQ=\\007\\033[2J\\033[8mhidden\\n' > plain; \
        printf 'evil command\\rharmless    \\n' > returns; printf 'a\\302\\2332Jb\\n' > single; \
        printf 'new\\n' > \"$(printf 'na\\033]0;owned\\007me')\"; ln -s \"$(printf 't\\033[2J')\" link",
    );
    for arguments in [
        &["diff", "latest"][..],
        &["diff", "latest", "--stat"],
        &["bundles"],
        &["apply", "latest", "--allow-executed"],
    ] {
        let terminal = Terminal::open(world);
        let words = ["on-terminal", &terminal.path];
        world.stockade_by(&words, arguments).env("PAGER", "cat").finish();
        std::thread::sleep(Duration::from_millis(100));
        let text = terminal.text();
        // Colours come from Stockade itself.
        let mut rest = text.as_str();
        while let Some(at) = rest.find('\u{1b}') {
            rest = &rest[at + 1..];
            let end = rest.find(|c: char| !matches!(c, '[' | ';' | '0'..='9'));
            let is_colour =
                rest.starts_with('[') && end.is_some_and(|end| rest[end..].starts_with('m'));
            let is_erase_to_end = rest.starts_with("[K");
            assert!(is_colour || is_erase_to_end, "{arguments:?}: {text:?}");
        }
        assert!(!text.contains("\u{1b}[8m"), "{arguments:?} hides text: {text:?}");
        assert!(!text.contains(['\u{7}', '\u{9b}']), "{arguments:?}: {text:?}");
        assert!(!text.replace("\r\n", "\n").contains('\r'), "{arguments:?}: {text:?}");
    }
}

/// Another terminal of the host is not visible inside.
fn terminals_of_the_host_are_not_seen(world: &World) {
    let other = Terminal::open(world);
    let outcome = world.shell(&format!("ls /dev/pts; test -e {} && echo seen", other.path));
    assert!(!outcome.stdout.contains("seen"), "{outcome}");
}

/// Ctrl-C is for the pager: it ends neither the pager's input nor the command that waits for it.
fn interrupt_in_the_pager(world: &World) {
    world.review("echo new > new");
    let terminal = Terminal::open(world);
    let pager = "trap 'echo caught' INT; cat; echo shown; \
        until read key < /dev/tty; do :; done; echo left with $key";
    let running = world
        .stockade_by(&["on-terminal", &terminal.path], &["diff", "latest"])
        .env("PAGER", pager)
        .start();
    terminal.wait_for("shown");
    terminal.type_in(b"\x03");
    terminal.wait_for("caught");
    terminal.type_in(b"q\n");
    running.finish().succeeds();
    terminal.wait_for("left with q");
}

as_root_and_as_user![
    is_a_terminal_inside,
    without_the_option_there_is_none,
    input_cannot_be_pushed,
    window_size_follows,
    keys_arrive_and_interrupt,
    interrupt_without_a_terminal_inside,
    interrupt_in_the_pager,
    settings_are_put_back,
    terminal_asked_for_and_not_there,
    a_diff_cannot_write_to_the_terminal,
    terminals_of_the_host_are_not_seen,
];
