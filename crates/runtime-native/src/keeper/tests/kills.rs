//! Clients that wait until a command that they have killed has ended with all its processes.

use super::*;

/// The cause in a report that a command was killed.
const KILLED: &[u8] = &[2];

/// A fixture with a running command that a client has killed, and the number of the command.
fn killed() -> (Fixture, u64) {
    let mut fixture = Fixture::new();
    let number = fixture.execute("one", |_| {});
    fixture.report(b's', &[&number.to_le_bytes()], &[]);
    fixture.answers();
    act(&mut fixture, OTHER, Action::Kill);
    assert!(fixture.answers().is_empty());
    fixture.requests();
    (fixture, number)
}

fn act(fixture: &mut Fixture, client: ClientId, action: Action) {
    let exec = ExecId::new("one").unwrap();
    fixture.sandbox.act(&mut fixture.desk, client, &exec, action).unwrap();
}

fn exited(fixture: &mut Fixture, number: u64) {
    fixture.report(b'x', &[&number.to_le_bytes(), &9_i32.to_le_bytes(), KILLED], &[]);
    assert!(matches!(fixture.stage(number), Stage::Ended(Ending::Killed)));
}

/// The clients that have received that it is done.
fn done(fixture: &mut Fixture) -> Vec<ClientId> {
    let is_done =
        |reply: &Reply| matches!(reply, Reply::Answer(answer, _) if **answer == Answer::Done);
    fixture.answers().into_iter().filter(|(_, reply)| is_done(reply)).map(|(id, _)| id).collect()
}

/// Init reports the end first, and that no process is left afterwards. Another client may acknowledge the end between the two.
#[test]
fn a_command_may_be_acknowledged_before_its_processes_are_gone() {
    let (mut fixture, number) = killed();
    exited(&mut fixture, number);
    act(&mut fixture, CLIENT, Action::Acknowledge);
    assert_eq!(done(&mut fixture), [CLIENT]);
    fixture.report(b'g', &[&number.to_le_bytes()], &[]);
    assert_eq!(done(&mut fixture), [OTHER]);
}

#[test]
fn the_end_of_the_sandbox_is_the_end_of_an_acknowledged_command() {
    let (mut fixture, number) = killed();
    exited(&mut fixture, number);
    act(&mut fixture, CLIENT, Action::Acknowledge);
    done(&mut fixture);
    fixture.life.kill().unwrap();
    fixture.wait_for_death();
    assert_eq!(done(&mut fixture), [OTHER]);
}

/// Init may not have received the request, or its report is lost.
#[test]
fn a_kill_is_requested_again_when_the_connection_was_lost() {
    let (mut fixture, number) = killed();
    fixture.reconnect();
    assert_eq!(fixture.requests(), [b'L']);
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let ((output, _a), (error, _b)) = (pipe(), pipe());
    let record: [&[u8]; 4] = [&number.to_le_bytes(), &[3, 0, 0, 0], b"one", &[0, 0, 0]];
    fixture.report(b'd', &record, &[output.as_fd(), error.as_fd()]);
    fixture.report(b'l', &[], &[]);
    assert_eq!(fixture.requests(), [b'K']);
    fixture.report(b'g', &[&number.to_le_bytes()], &[]);
    assert_eq!(done(&mut fixture), [OTHER]);
}
