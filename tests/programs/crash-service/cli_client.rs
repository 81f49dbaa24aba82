//! The life cycle of one sandbox, through commands. A command that is interrupted may have done its
//! work or not.

use std::process::Output;

use serde_json::Value;

use crate::Failure;
use crate::ledger::Token;
use crate::random::Random;
use crate::socket_client::{LINES, SocketClient};
use crate::world::World;

/// Creates a sandbox and works with it.
pub(crate) async fn work(
    world: &World,
    turn: &mut SocketClient<'_>,
    random: &mut Random,
) -> Result<(), Failure> {
    let id = turn.id.to_string();
    let made = run_cli(world, &["create", "--id", &id, "--json"])?;
    if !made.status.success() {
        return check_interrupted(&made);
    }
    world.update_ledger(|ledger| ledger.sandboxes += 1);
    for _ in 0..2 + random.below(3) {
        let text = world.unique_name("token");
        let line = format!("echo {text} >>{LINES}; echo {text}; exit 7");
        let answered = match random.below(4) {
            0 => {
                let renewed = run_cli(world, &["renew", &id, "2h"])?;
                if !renewed.status.success() {
                    check_interrupted(&renewed)?;
                }
                continue;
            }
            1 => attached(world, &id, &line, &text)?,
            2 => detached(world, &id, &line, &text)?,
            _ => captured(world, &id, &line, &text)?,
        };
        world.update_ledger(|ledger| ledger.commands += u64::from(answered));
        turn.tokens.push(Token { text, answered });
    }
    if turn.tokens.iter().any(|token| token.answered) { turn.check().await } else { Ok(()) }
}

/// Whether the end of the command was reported.
fn captured(world: &World, id: &str, line: &str, token: &str) -> Result<bool, Failure> {
    let ended = run_cli(world, &["exec", "--json", id, "--", "sh", "-c", line])?;
    if ended.status.code() != Some(7) {
        return check_interrupted(&ended).map(|()| false);
    }
    let answer: Value = serde_json::from_slice(&ended.stdout)?;
    if answer["stdout"] == format!("{token}\n") {
        Ok(true)
    } else {
        Err(format!("{token} wrote {answer}").into())
    }
}

fn attached(world: &World, id: &str, line: &str, token: &str) -> Result<bool, Failure> {
    let ended = run_cli(world, &["exec", id, "--", "sh", "-c", line])?;
    if ended.status.code() != Some(7) {
        return check_interrupted(&ended).map(|()| false);
    }
    if ended.stdout == format!("{token}\n").as_bytes() {
        Ok(true)
    } else {
        Err(format!("{token} wrote {ended:?}").into())
    }
}

fn detached(world: &World, id: &str, line: &str, token: &str) -> Result<bool, Failure> {
    let start_time = run_cli(world, &["exec", "--detach", "--json", id, "--", "sh", "-c", line])?;
    if !start_time.status.success() {
        return check_interrupted(&start_time).map(|()| false);
    }
    let answer: Value = serde_json::from_slice(&start_time.stdout)?;
    let operation = answer["workflowId"].as_str().ok_or("it was started and has no id")?;
    for _ in 0..100 {
        let read = run_cli(world, &["logs", operation, "--follow"])?;
        if read.status.code() == Some(7) && read.stdout == format!("{token}\n").as_bytes() {
            return Ok(true);
        }
        check_interrupted(&read)?;
    }
    Err(format!("the output of {token} could not be read").into())
}

fn run_cli(world: &World, words: &[&str]) -> Result<Output, Failure> {
    world.update_ledger(|ledger| ledger.operations += 1);
    Ok(world.stockade(words)?)
}

/// Fails unless a command was interrupted because its server was killed.
fn check_interrupted(ended: &Output) -> Result<(), Failure> {
    let output = [ended.stdout.as_slice(), &ended.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    let broken = ["the server does not answer", "failed to start", "interrupted", "exited before"];
    if broken.iter().any(|words| output.contains(words)) {
        Ok(())
    } else {
        Err(format!("it ended with {}: {output}", ended.status).into())
    }
}
