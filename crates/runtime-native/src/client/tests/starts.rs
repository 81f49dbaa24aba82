//! Finding or starting a keeper: once, also with concurrent starters, and again when it died.

use std::error::Error as _;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::keeper::Keeper;
use super::{Fixture, native, sandbox};
use crate::bubblewrap::Launcher;
use crate::directory::Directory;
use crate::socket::Listener;
use crate::wire::{Answer, Metrics, PROTOCOL, Request};
use stockade_runtime::{Error, Runtime as _};

/// The name that runs the test below.
const AS_KEEPER: &str = "client::tests::starts::as_keeper";

/// A program that is a keeper: this one, with arguments that run the test of that name.
fn program() -> [String; 3] {
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    [program, AS_KEEPER.to_owned(), "--exact".to_owned()]
}

fn fixture() -> Fixture {
    Fixture::with(&program().each_ref().map(String::as_str))
}

/// Not a test, but a keeper when this program is started as one: it writes a line about itself to
/// `started` and runs until its data directory is removed or its parent exits.
#[test]
fn as_keeper() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, _, data, pool] = &arguments[..] else { return };
    if name != AS_KEEPER {
        return;
    }
    let parent = rustix::process::getppid();
    let Ok(whole) = std::fs::File::open(data) else { return };
    let Ok(directory) = Directory::open(Path::new(data), Launcher::Own) else { return };
    if whole.metadata().unwrap().nlink() == 0 {
        // The test is over, and the directory that was just created again is not needed.
        std::fs::remove_dir_all(Path::new(data).parent().unwrap()).unwrap();
        return;
    }
    let Some(_lock) = directory.lock().unwrap() else { return };
    rustix::process::setsid().unwrap();
    let started = Path::new(data).join("started");
    let mut log = std::fs::File::options().create(true).append(true).open(&started).unwrap();
    let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    let current = std::env::current_dir().unwrap();
    let line = (std::process::id(), pool, variables, current);
    log.write_all((serde_json::to_string(&line).unwrap() + "\n").as_bytes()).unwrap();
    let _keeper = Keeper::start(&directory, |peer, message| {
        assert_eq!(message.head, Request::Metrics);
        peer.answer(&Answer::Metrics(Metrics::default()))
    });
    let is_there = || whole.metadata().unwrap().nlink() > 0 && started.exists();
    while is_there() && rustix::process::getppid() == parent {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The lines that the keepers of a data directory have written about themselves.
fn started(fixture: &Fixture) -> Vec<(i32, String, Vec<String>, String)> {
    let text = std::fs::read_to_string(fixture.scratch.path().join("data/started")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_starters_at_once_make_one_keeper() {
    let fixture = fixture();
    let program = program();
    let arguments = program.each_ref().map(String::as_str);
    let clients: Vec<_> =
        (0..8).map(|_| native(fixture.scratch.path().into(), &arguments)).collect();
    let requests = clients.into_iter().map(|client| {
        tokio::spawn(async move { tokio::join!(client.metrics(), client.metrics()) })
    });
    for request in requests.collect::<Vec<_>>() {
        let (one, other) = request.await.unwrap();
        one.unwrap();
        other.unwrap();
    }
    let [(_, pool, variables, current)] = &started(&fixture)[..] else { panic!("not one keeper") };
    assert_eq!((pool.as_str(), current.as_str()), ("3", "/"));
    assert!(variables.iter().all(|name| name == "PATH" || name == "RUST_BACKTRACE"));
}

#[tokio::test]
async fn a_killed_keeper_is_replaced() {
    let fixture = fixture();
    fixture.native.metrics().await.unwrap();
    let process = rustix::process::Pid::from_raw(started(&fixture)[0].0).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    fixture.native.metrics().await.unwrap();
    // It may have answered once more before it died.
    while started(&fixture).len() < 2 {
        fixture.native.metrics().await.unwrap();
    }
    // The client reaps it, since no other process can.
    while rustix::process::test_kill_process(process).is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn why_no_keeper_could_be_started_is_told() {
    let fixture = Fixture::with(&["/bin/sh", "-c", "echo one >&2; echo two >&2; exit 3"]);
    for _ in 0..2 {
        let error = fixture.native.inspect(&sandbox()).await.unwrap_err();
        let source = error.source().unwrap().to_string();
        assert!(error.to_string().starts_with("cannot reach the keeper of /"), "{error}");
        assert_eq!(source, "it exited: exit status: 3; its last output: one; two");
    }
    let fixture = Fixture::with(&["/nothing/here"]);
    let error = fixture.native.inspect(&sandbox()).await.unwrap_err();
    assert!(matches!(error, Error::Host { ref path, .. } if path == "/nothing/here"), "{error}");
    let error = Fixture::with(&[]).native.inspect(&sandbox()).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_never_answers_is_not_waited_for_any_longer() {
    // It always finds the lock taken.
    let fixture = Fixture::with(&["/bin/true"]);
    let error = fixture.native.inspect(&sandbox()).await.unwrap_err();
    let source = error.source().unwrap().to_string();
    assert_eq!(source, "it did not answer within 10 seconds");
}

#[tokio::test]
async fn a_keeper_of_another_version_is_no_keeper() {
    let fixture = Fixture::new();
    let listener = fixture.directory().listen().unwrap();
    let _keeper = Keeper::on(listener, PROTOCOL + 1, |_, _| panic!("it was asked"));
    let error = fixture.native.inspect(&sandbox()).await.unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), format!("it speaks version {}", PROTOCOL + 1));
}

#[tokio::test]
async fn keepers_of_older_versions_make_way_and_newer_ones_stay() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, _| peer.answer(&Answer::Metrics(Metrics::default())));
    let (sender, drained) = mpsc::channel();
    let bind = |version: u32| {
        let path = fixture.scratch.path().join("data/runtime").join(version.to_string());
        std::fs::create_dir_all(&path).unwrap();
        Listener::bind(std::os::fd::AsFd::as_fd(&std::fs::File::open(&path).unwrap()), "socket")
    };
    let _newer = Keeper::on(bind(PROTOCOL + 1).unwrap(), PROTOCOL + 1, |_, _| {
        panic!("it was told something")
    });
    let _older = Keeper::on(bind(PROTOCOL - 1).unwrap(), PROTOCOL - 1, move |peer, message| {
        sender.send(message.head).unwrap();
        peer.answer(&Answer::Done)
    });
    fixture.native.metrics().await.unwrap();
    let drained = tokio::task::spawn_blocking(move || drained.recv().unwrap()).await.unwrap();
    assert_eq!(drained, Request::Drain);
}
