//! Starting commands, missing programs, signals, and the ways in which commands end.

use super::super::harness::{Harness, path, within};
use super::super::sandbox::{command, content, script};
use crate::error::Error;
use crate::exec::{Command, Ending, Offsets};
use crate::files::WriteOptions;

pub(crate) async fn exit_codes_are_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
    assert_eq!(sandbox.run(&["false"]).await.ending, Ending::Exited(1));
}

/// Including the codes that shells use for other purposes.
pub(crate) async fn every_exit_code_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    for code in [0, 1, 2, 64, 126, 127, 128, 137, 143, 255] {
        let finished = sandbox.sh(&format!("exit {code}")).await;
        assert_eq!(finished.ending, Ending::Exited(code));
    }
}

pub(crate) async fn signals_are_told_from_codes(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    for (name, number) in [("TERM", 15), ("KILL", 9), ("HUP", 1), ("ABRT", 6)] {
        let finished = sandbox.sh(&format!("kill -{name} $$; sleep 1000")).await;
        assert_eq!(finished.ending, Ending::Signaled(number), "{name}");
    }
}

pub(crate) async fn a_signal_can_be_sent(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    sandbox.signal(&running.exec, 15).await;
    let exec = running.exec.clone();
    assert_eq!(running.finish().await.ending, Ending::Signaled(15));
    // The command has ended: the signal has no effect on any process.
    sandbox.signal(&exec, 15).await;
    sandbox.signal(&exec, 9).await;
}

pub(crate) async fn a_signal_can_be_caught(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done";
    let mut running = sandbox.start(&script(text)).await;
    running.wait_for_output("ready").await;
    sandbox.signal(&running.exec, 10).await;
    let finished = running.finish().await;
    assert_eq!(finished.output(), "ready\ncaught\n");
    assert_eq!(finished.ending, Ending::Exited(9));
}

/// A shell does not forward signals, but its process group gets them.
pub(crate) async fn a_signal_goes_to_the_whole_group(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "sh -c 'trap \"echo child >> /data/heard; exit\" TERM; : > /data/ready;
                      while :; do sleep 0.05; done' & wait";
    let running = sandbox.start(&script(text)).await;
    sandbox.appears("/data/ready").await;
    sandbox.signal(&running.exec, 15).await;
    assert_eq!(running.finish().await.ending, Ending::Signaled(15));
    sandbox.grows_beyond("/data/heard", 0).await;
}

pub(crate) async fn what_is_no_signal_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    for signal in [-1, 65, i32::MAX] {
        let runtime = sandbox.runtime();
        let sent = within("a signal", runtime.signal(sandbox.id(), &running.exec, signal)).await;
        assert!(matches!(sent, Err(Error::Invalid(_))), "{signal}: {sent:?}");
    }
    sandbox.kill(&running.exec).await;
    assert_eq!(running.finish().await.ending, Ending::Killed);
}

pub(crate) async fn what_cannot_be_run_is_told_as_the_end(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/text", "no program\n").await;
    for (program, errno) in
        [("no-such-program", 2), ("/data/none", 2), ("/data/text", 13), ("/data", 13), ("", 2)]
    {
        let finished = sandbox.run(&[program, "argument"]).await;
        match finished.ending {
            Ending::NotRun { errno: told, .. } => assert_eq!(told, errno, "{program}"),
            ending => panic!("{program}: {ending:?}"),
        }
        assert_eq!(finished.length(), 0, "{program}: {}", finished.error());
    }
}

pub(crate) async fn a_program_can_be_written_and_run(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, file) = (sandbox.runtime(), path("/data/program"));
    let program = content("#!/bin/sh\necho ran \"$@\"\n");
    let options = WriteOptions { mode: 0o755, ..WriteOptions::default() };
    let written = within("writing", runtime.write_file(sandbox.id(), &file, program, options));
    written.await.unwrap();
    assert_eq!(sandbox.run(&["/data/program", "well"]).await.output(), "ran well\n");

    let lost = "#!/no/such/interpreter\n";
    let written = runtime.write_file(sandbox.id(), &file, content(lost), options);
    within("writing", written).await.unwrap();
    let ending = sandbox.run(&["/data/program"]).await.ending;
    assert!(matches!(ending, Ending::NotRun { errno: 2, .. }), "{ending:?}");
}

pub(crate) async fn a_command_without_sense_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let word = |text: &str| std::ffi::OsString::from(text);
    let refused = [
        Command::default(),
        command(&["echo", "a\0b"]),
        Command { environment: [(word("A"), word("a\0b"))].into(), ..command(&["true"]) },
        Command { environment: [(word("A=B"), word("c"))].into(), ..command(&["true"]) },
        Command { environment: [(word(""), word("c"))].into(), ..command(&["true"]) },
    ];
    for (number, command) in refused.iter().enumerate() {
        let exec = stockade_core::ExecId::new(format!("refused-{number}")).unwrap();
        let started = sandbox.try_start(&exec, command).await;
        assert!(matches!(started, Err(Error::Invalid(_))), "{command:?}: {started:?}");
        // No command was started under the id.
        let attached = sandbox.runtime();
        let attached = attached.attach(sandbox.id(), &exec, Offsets::default());
        let attached = within("attaching", attached).await;
        assert!(matches!(attached, Err(Error::NoExec { .. })), "{attached:?}");
    }
}

pub(crate) async fn arguments_come_as_they_are(harness: &Harness) {
    use std::os::unix::ffi::OsStringExt as _;
    let sandbox = harness.sandbox().await;
    let odd: [&[u8]; 7] = [b"", b" ", b"a b", b"new\nline", b"\xff\xfe", b"-n", b"$HOME*\"'\\"];
    let mut words = command(&["sh", "-c", r#"for word; do printf '%s\0' "$word"; done"#, "sh"]);
    words.arguments.extend(odd.iter().map(|word| std::ffi::OsString::from_vec(word.to_vec())));
    let finished = sandbox.start(&words).await.finish().await;
    let expected: Vec<u8> = odd.iter().flat_map(|word| [word, &b"\0"[..]].concat()).collect();
    assert_eq!(finished.output, expected);
}

/// Longer than a message of any protocol in between; the kernel accepts 128 KiB for one argument.
pub(crate) async fn arguments_may_be_long(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let long = "x".repeat(100_000);
    let finished = sandbox.run(&["echo", &long, &long, &long]).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert!(finished.output() == format!("{long} {long} {long}\n"));
}

pub(crate) async fn arguments_that_are_too_long_are_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let exec = harness.exec_id();
    let long = "x".repeat(200_000);
    match sandbox.try_start(&exec, &command(&["echo", &long])).await {
        Err(Error::Invalid(_)) => {}
        Ok(_) => {
            let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
            let ending = finished.ending;
            assert!(matches!(ending, Ending::NotRun { errno: 7, .. }), "{ending:?}");
        }
        Err(error) => panic!("{error:?}"),
    }
    assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
}

/// A command may send signals to every process that it can reach. Whether these include the other
/// commands is the backend's choice; afterwards the sandbox still works, or has ended properly.
pub(crate) async fn a_command_that_kills_everything_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let other = sandbox.start(&command(&["sleep", "1000"])).await;
    sandbox.start(&script("kill -9 -1; exit 3")).await.finish().await;
    if !sandbox.has_ended().await {
        assert_eq!(sandbox.run(&["echo", "alive"]).await.output(), "alive\n");
        sandbox.kill(&other.exec).await;
    }
    other.finish().await;
}

pub(crate) async fn its_status_is_known(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    let ended = sandbox.start(&command(&["echo", "four"])).await;
    let (running_id, ended_id) = (running.exec.clone(), ended.exec.clone());
    ended.finish().await;
    let mut execs = sandbox.inspect().await.unwrap().execs;
    execs.sort_by(|a, b| a.id.cmp(&b.id));
    let [first, second] = execs.as_slice() else { panic!("two commands: {execs:?}") };
    assert_eq!((&first.id, &first.ending), (&running_id, &None));
    assert_eq!((&second.id, &second.ending), (&ended_id, &Some(Ending::Exited(0))));
    assert_eq!(second.written, Offsets { output: 5, error: 0 });
}
