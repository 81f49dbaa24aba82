//! The life cycle of one sandbox, through commands. A command that is interrupted may have done its
//! work or not.

use std::process::Output;

use serde_json::Value;

use crate::Failure;
use crate::ledger::Token;
use crate::random::Random;
use crate::turn::{LINES, Turn};
use crate::world::World;

/// Creates a sandbox and works with it.
pub(crate) async fn work(
    world: &World,
    turn: &mut Turn<'_>,
    random: &mut Random,
) -> Result<(), Failure> {
    let id = turn.id.to_string();
    let made = typed(world, &["create", "--id", &id, "--json"])?;
    if !made.status.success() {
        return broken_off(&made);
    }
    world.note(|ledger| ledger.sandboxes += 1);
    for _ in 0..2 + random.below(3) {
        let text = world.name("token");
        let line = format!("echo {text} >>{LINES}; echo {text}; exit 7");
        let answered = match random.below(4) {
            0 => {
                let renewed = typed(world, &["renew", &id, "2h"])?;
                if !renewed.status.success() {
                    broken_off(&renewed)?;
                }
                continue;
            }
            1 => attached(world, &id, &line, &text)?,
            2 => detached(world, &id, &line, &text)?,
            _ => captured(world, &id, &line, &text)?,
        };
        world.note(|ledger| ledger.commands += u64::from(answered));
        turn.tokens.push(Token { text, answered });
    }
    if turn.tokens.iter().any(|token| token.answered) { turn.check().await } else { Ok(()) }
}

/// Whether the end of the command was reported.
fn captured(world: &World, id: &str, line: &str, token: &str) -> Result<bool, Failure> {
    let ended = typed(world, &["exec", "--json", id, "--", "sh", "-c", line])?;
    if ended.status.code() != Some(7) {
        return broken_off(&ended).map(|()| false);
    }
    let answer: Value = serde_json::from_slice(&ended.stdout)?;
    if answer["stdout"] == format!("{token}\n") {
        Ok(true)
    } else {
        Err(format!("{token} wrote {answer}").into())
    }
}

fn attached(world: &World, id: &str, line: &str, token: &str) -> Result<bool, Failure> {
    let ended = typed(world, &["exec", id, "--", "sh", "-c", line])?;
    if ended.status.code() != Some(7) {
        return broken_off(&ended).map(|()| false);
    }
    if ended.stdout == format!("{token}\n").as_bytes() {
        Ok(true)
    } else {
        Err(format!("{token} wrote {ended:?}").into())
    }
}

fn detached(world: &World, id: &str, line: &str, token: &str) -> Result<bool, Failure> {
    let begun = typed(world, &["exec", "--detach", "--json", id, "--", "sh", "-c", line])?;
    if !begun.status.success() {
        return broken_off(&begun).map(|()| false);
    }
    let answer: Value = serde_json::from_slice(&begun.stdout)?;
    let operation = answer["workflowId"].as_str().ok_or("it was started and has no id")?;
    for _ in 0..100 {
        let read = typed(world, &["logs", operation, "--follow"])?;
        if read.status.code() == Some(7) && read.stdout == format!("{token}\n").as_bytes() {
            return Ok(true);
        }
        broken_off(&read)?;
    }
    Err(format!("the output of {token} could not be read").into())
}

fn typed(world: &World, words: &[&str]) -> Result<Output, Failure> {
    world.note(|ledger| ledger.operations += 1);
    Ok(world.stockade(words)?)
}

/// Fails unless a command was interrupted because its server was killed.
fn broken_off(ended: &Output) -> Result<(), Failure> {
    let said = [ended.stdout.as_slice(), &ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let broken = ["the server does not answer", "failed to start", "interrupted", "exited before"];
    if broken.iter().any(|words| said.contains(words)) {
        Ok(())
    } else {
        Err(format!("it ended with {}: {said}", ended.status).into())
    }
}
