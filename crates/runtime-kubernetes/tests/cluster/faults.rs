//! Faults of the API server and of connections: typed, tried again where that is safe, and nothing is left.

use std::time::Duration;

use axum::http::Method;
use stockade_core::sandbox::Root;
use stockade_core::{ExecId, SandboxSpec};
use stockade_runtime::{Command, Ending, Error, Event, Runtime as _, SandboxPath, State};

use crate::double::{Agents, Fault, Then};
use crate::doubled::{Fixture, id, sh, with_double};

fn fault(method: Method, part: &'static str, times: usize, then: Then) -> Fault {
    Fault { method, part, times, then }
}

#[test]
fn what_passes_is_tried_again() {
    with_double(Agents::None, 0, async |fixture| {
        for (code, part) in [(429, "/pods"), (500, "/namespaces"), (503, "/networkpolicies")] {
            fixture.double.fail(fault(Method::POST, part, 1, Then::Answer(code)));
        }
        fixture.double.fail(fault(Method::GET, "/exec", 2, Then::Answer(500)));
        // It was created, and the answer was lost.
        fixture.double.fail(fault(Method::POST, "/pods", 1, Then::DoneThenAnswer(504)));
        let (runtime, one) = (fixture.client(), id("one"));
        let status = runtime.create(&one, &Fixture::spec()).await.unwrap();
        assert_eq!(status.state, State::Running);
        assert_eq!(fixture.names("pods").len(), 1);
        runtime.cleanup(&one).await.unwrap();
        assert_eq!(fixture.names("pods"), Vec::<String>::new());
    });
}

#[test]
fn what_stays_is_told_and_leaves_nothing() {
    with_double(Agents::None, 0, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        let refused = async |part, code| {
            fixture.double.fail(fault(Method::POST, part, 9, Then::Answer(code)));
            let error = runtime.create(&one, &Fixture::spec()).await.unwrap_err();
            fixture.double.store.faults.lock().unwrap().clear();
            assert_eq!(fixture.names("pods"), Vec::<String>::new());
            error
        };
        assert!(matches!(refused("/pods", 403).await, Error::Unavailable { .. }));
        assert!(matches!(refused("/pods", 422).await, Error::Invalid(_)));
        assert!(matches!(refused("/namespaces", 429).await, Error::Exhausted(_)));
        assert!(matches!(refused("/pods", 500).await, Error::Unreachable { .. }));
        let spec =
            SandboxSpec { root: Root::Image("no-such-image:1".to_owned()), ..Fixture::spec() };
        let error = runtime.create(&one, &spec).await.unwrap_err();
        assert!(matches!(error, Error::Image(_)), "{error:?}");
        assert_eq!(fixture.names("pods"), Vec::<String>::new());
    });
}

#[test]
fn a_request_without_an_answer_is_made_again() {
    with_double(Agents::None, 0, async |fixture| {
        fixture.double.fail(fault(Method::POST, "/pods", 1, Then::Hang));
        let (runtime, one) = (fixture.client(), id("one"));
        let status = runtime.create(&one, &Fixture::spec()).await.unwrap();
        assert_eq!(status.state, State::Running);
        runtime.cleanup(&one).await.unwrap();
    });
}

#[test]
fn a_dropped_exec_loses_no_output_and_runs_nothing_twice() {
    with_double(Agents::None, 0, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        for (times, bytes) in [(1, 0), (1, 50_000), (1, 300_000), (1, 7)] {
            fixture.double.fail(fault(Method::GET, "/exec", times, Then::CutAfter(bytes)));
        }
        let script = "echo once >> ~/runs; seq 1 200000";
        let arguments = ["sh", "-c", script].map(Into::into).into();
        let command = Command { arguments, ..Command::default() };
        let exec = ExecId::new("e").unwrap();
        let mut running = runtime.execute(&one, &exec, &command).await.unwrap();
        let mut output = Vec::new();
        let ending = loop {
            match running.events.next().await.unwrap() {
                Event::Output { offset, bytes, .. } => {
                    assert_eq!(offset, output.len() as u64);
                    output.extend(bytes);
                }
                Event::Ended(ending) => break ending,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ending, Ending::Exited(0));
        let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
        assert!(output == expected.as_bytes(), "{} bytes", output.len());
        assert_eq!(sh(&runtime, &one, "f", "cat ~/runs").await, "once\n");
        runtime.cleanup(&one).await.unwrap();
    });
}

#[test]
fn a_write_whose_connection_is_lost_is_not_repeated() {
    with_double(Agents::None, 0, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        fixture.double.fail(fault(Method::GET, "/exec", 1, Then::CutAfter(0)));
        let path = SandboxPath::new("/home/user/file").unwrap();
        let content = Box::pin(std::io::Cursor::new(b"text".to_vec()));
        let error = runtime.write_file(&one, &path, content, Default::default()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        runtime.cleanup(&one).await.unwrap();
    });
}

#[test]
fn a_lost_watch_is_taken_up_again() {
    with_double(Agents::None, 0, async |fixture| {
        fixture.double.fail(fault(Method::GET, "watch=true", 1, Then::Gone));
        fixture.double.fail(fault(Method::GET, "watch=true", 1, Then::CutAfter(1)));
        fixture.double.fail(fault(Method::GET, "watch=true", 2, Then::Answer(500)));
        let (runtime, one) = (fixture.client(), id("one"));
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        let arguments = ["sleep", "1000"].map(Into::into).into();
        let command = Command { arguments, ..Command::default() };
        let exec = ExecId::new("e").unwrap();
        let mut running = runtime.execute(&one, &exec, &command).await.unwrap();
        // The node ends the container: nobody asked for it.
        fixture.double.store.end_all();
        let ended = tokio::time::timeout(Duration::from_secs(20), running.events.next()).await;
        assert_eq!(ended.unwrap(), Some(Event::Ended(Ending::SandboxEnded)));
        let status = runtime.inspect(&one).await.unwrap();
        assert_eq!(status.state, State::Ended);
        assert!(status.reason.is_some());
        let watches = || {
            let requests = fixture.double.store.requests.lock().unwrap();
            requests.iter().filter(|request| request.contains("watch=true")).count()
        };
        let end = tokio::time::Instant::now() + Duration::from_secs(20);
        while watches() < 5 {
            assert!(tokio::time::Instant::now() < end, "{} watches", watches());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        runtime.cleanup(&one).await.unwrap();
        assert!(matches!(runtime.inspect(&one).await, Err(Error::NoSandbox(_))));
    });
}

#[test]
fn objects_of_others_are_left_alone() {
    with_double(Agents::None, 0, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        let other = fixture.double.place().join("other-data");
        let other = stockade_runtime_kubernetes::Options { data: other, ..fixture.options() };
        let other = stockade_runtime_kubernetes::Kubernetes::new(other);
        other.create(&id("two"), &Fixture::spec()).await.unwrap();
        assert_eq!(other.list(&Default::default()).await.unwrap().len(), 1);
        other.cleanup(&one).await.unwrap();
        assert_eq!(sh(&runtime, &one, "e", "echo alive").await, "alive\n");
        other.cleanup(&id("two")).await.unwrap();
        runtime.cleanup(&one).await.unwrap();
    });
}

#[test]
fn the_cluster_ends_a_pod_whose_server_is_gone() {
    with_double(Agents::None, 0, async |fixture| {
        let options = stockade_runtime_kubernetes::Options {
            lifetime: Duration::from_secs(3),
            ..fixture.options()
        };
        let runtime = stockade_runtime_kubernetes::Kubernetes::new(options);
        let one = id("one");
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        let end = tokio::time::Instant::now() + Duration::from_secs(20);
        while runtime.inspect(&one).await.unwrap().state != State::Ended {
            assert!(tokio::time::Instant::now() < end, "it lives on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let status = runtime.inspect(&one).await.unwrap();
        assert_eq!(status.end_cause, Some(stockade_runtime::EndCause::LeaseExpired));
        runtime.cleanup(&one).await.unwrap();
    });
}
