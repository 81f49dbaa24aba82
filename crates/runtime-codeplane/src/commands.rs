//! Commands: started once under an id, followed, ended and forgotten.

use stockade_core::ending::{Ending, Step};
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Capability, Command, Error, Events, Exec, Offsets, Result, StandardInput};
use stockade_runtime_remote::{Repeat, now_ms};

use crate::client::Codeplane;
use crate::creation::millis;
use crate::follow::Follower;
use crate::record::{ExecRecord, Record};
use crate::script::{
    self, EXITED, INPUT, LOST, NO_DIRECTORY, NO_PROGRAM, READ_BYTES, RUNS, SCRIPT,
};
use crate::shell::ShellFailure;

/// The longest argument and variable that Linux passes on (`MAX_ARG_STRLEN`).
const WORD_BYTES: usize = 128 << 10;
/// The signal that no program can catch, and the last one.
const KILL: i32 = 9;
const LAST_SIGNAL: i32 = 64;

/// What is known of a command at one time.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) ending: Option<Ending>,
    /// The next bytes of each stream.
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
    /// How much it has written.
    pub(crate) written: Offsets,
}

impl Codeplane {
    pub(crate) async fn start(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        command: &Command,
    ) -> Result<Exec> {
        check(command)?;
        let _lock = self.records()?.lock(id).await?;
        let mut record = self.current(id)?;
        let known = record.execs.contains_key(exec);
        if !known {
            record.require_running("start a command")?;
            self.require_awake(&record, "start a command").await?;
            let new = ExecRecord {
                timeout_at_ms: command.timeout.map(|it| now_ms().saturating_add(millis(it))),
                output_limit: command.output_limit_bytes,
                is_fed: command.input == StandardInput::Streamed,
                ..ExecRecord::default()
            };
            // Recorded first: after a crash the script is found, or started again, and runs once.
            record.execs.insert(exec.clone(), new);
            self.records()?.store(&record)?;
        }
        if !record.exec(exec)?.is_started && record.ended.is_none() {
            let started = self.start_script(&record, exec, command).await;
            if let Err(error) = started {
                if !known && !matches!(error, Error::OutcomeUnknown(_)) {
                    record.execs.remove(exec);
                    self.records()?.store(&record)?;
                }
                return Err(error);
            }
            if let Some(found) = record.execs.get_mut(exec) {
                found.is_started = true;
            }
            self.records()?.store(&record)?;
        }
        let is_fed = record.exec(exec)?.is_fed;
        Ok(self.follow(id, exec, Offsets::default(), is_fed))
    }

    /// Sends the script of a command, and starts it. Both may happen twice: it runs once.
    async fn start_script(&self, record: &Record, exec: &ExecId, command: &Command) -> Result<()> {
        let (id, top) = (&record.id, record.directory());
        let own = script::directory(&top, exec);
        let failed = |failure: ShellFailure| failure.of_sandbox(id, "the start of a command");
        let sent = |ran: crate::shell::Ran| match ran.code {
            0 => Ok(()),
            _ => Err(Error::OutcomeUnknown(format!("the start of {exec} ({})", ran.errors))),
        };
        if let StandardInput::Whole(bytes) = &command.input {
            let path = format!("{own}/{INPUT}");
            let text = format!(
                "{}[ -e {own}/started ] || {{ {}; }}",
                script::make(&own),
                script::store(&path, bytes.len())
            );
            let ran = self.run(record, text.as_bytes(), bytes.clone(), Repeat::Always).await;
            sent(ran.map_err(failed)?)?;
        }
        let text = script::script(&top, &own, command, record.working_directory.as_deref());
        let path = format!("{own}/{SCRIPT}");
        let line = format!(
            "{}{}{}",
            script::make(&own),
            script::store(&path, text.len()),
            script::start(&own)
        );
        let ran = self.run(record, line.as_bytes(), text, Repeat::Always).await;
        sent(ran.map_err(failed)?)
    }

    /// Follows a command from these offsets on.
    pub(crate) fn follow(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        from: Offsets,
        is_fed: bool,
    ) -> Exec {
        let follower = Follower::new(self.clone(), id.clone(), exec.clone(), from);
        let input = is_fed.then(|| self.feed(id, exec));
        Exec { events: Events::new(follower), input }
    }

    /// Looks at a command: how it ended, if it has, and what is new.
    pub(crate) async fn look(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Look> {
        let record = self.current(id)?;
        let found = record.exec(exec)?.clone();
        if record.ended.is_some() {
            let ending = found.ending.or(found.cause).unwrap_or(Ending::SandboxEnded);
            return Ok(Look { ending: Some(ending), written: found.written, ..Look::default() });
        }
        let is_late = found.timeout_at_ms.is_some_and(|at| at <= now_ms());
        if is_late && found.cause.is_none() && found.ending.is_none() {
            self.end_command(id, exec, Ending::TimedOut).await?;
            return Box::pin(self.look(id, exec, from)).await;
        }
        let own = script::directory(&record.directory(), exec);
        let text = script::look(&own, from);
        let ran = self.run(&record, text.as_bytes(), Vec::new(), Repeat::Always).await;
        let ran = ran.map_err(|failure| failure.of_reading(id))?;
        let (result, look) = parse(&ran.output, from).ok_or_else(|| Error::Unreachable {
            what: format!("the workspace of {id}"),
            source: std::io::Error::other("it answers something else than expected"),
        })?;
        if found.ending.is_some() {
            return Ok(Look { ending: found.ending, ..look });
        }
        let ending = match (result.as_str(), &found.cause) {
            (RUNS, _) if found.is_started => None,
            // It was never started, as far as is known here.
            (RUNS, _) => None,
            (_, Some(cause)) => Some(cause.clone()),
            (LOST, None) if !found.is_started => None,
            (LOST, None) => Some(Ending::Unknown),
            (result, None) => Some(meaning(result, &found.signals)),
        };
        if let Some(ending) = &ending {
            let (ending, written) = (ending.clone(), look.written);
            let finish = |record: &mut Record| {
                if let Some(found) = record.execs.get_mut(exec) {
                    found.ending.get_or_insert(ending);
                    found.written = written;
                }
            };
            self.records()?.change(id, finish).await?;
        }
        Ok(Look { ending, ..look })
    }

    /// Ends a command, for this reason.
    pub(crate) async fn end_command(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        cause: Ending,
    ) -> Result<()> {
        let note = |record: &mut Record| {
            if let Some(found) = record.execs.get_mut(exec)
                && found.ending.is_none()
            {
                found.cause.get_or_insert(cause);
            }
        };
        let record = self.records()?.change(id, note).await?;
        if record.exec(exec)?.ending.is_some() || record.ended.is_some() {
            return Ok(());
        }
        self.kill_command(&record, exec).await?;
        // What it has written until now is its whole output.
        let own = script::directory(&record.directory(), exec);
        let text = script::look(&own, Offsets { output: u64::MAX >> 2, error: u64::MAX >> 2 });
        let ran = self.run(&record, text.as_bytes(), Vec::new(), Repeat::Always).await;
        let ran = ran.map_err(|failure| failure.of_reading(id))?;
        let written = parse(&ran.output, Offsets::default()).map(|(_, look)| look.written);
        let finish = |record: &mut Record| {
            if let Some(found) = record.execs.get_mut(exec) {
                found.ending = found.ending.clone().or_else(|| found.cause.clone());
                found.written = written.unwrap_or(found.written);
            }
        };
        self.records()?.change(id, finish).await.map(drop)
    }

    async fn kill_command(&self, record: &Record, exec: &ExecId) -> Result<()> {
        let id = &record.id;
        let text = script::kill(&script::directory(&record.directory(), exec));
        let ran = self.run(record, text.as_bytes(), Vec::new(), Repeat::Always).await;
        match ran.map_err(|failure| failure.of_sandbox(id, "the end of a command"))?.code {
            0 => Ok(()),
            _ => Err(Error::OutcomeUnknown(format!("the end of the command {exec} of {id}"))),
        }
    }

    /// Ends all commands of a sandbox.
    pub(crate) async fn kill_all(&self, record: &Record) -> Result<()> {
        for (exec, _) in record.execs.iter().filter(|(_, found)| found.ending.is_none()) {
            self.kill_command(record, exec).await?;
        }
        Ok(())
    }

    /// Sends a signal to the process group of a command.
    pub(crate) async fn send_signal(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        signal: i32,
    ) -> Result<()> {
        if !(1..=LAST_SIGNAL).contains(&signal) {
            return Err(Error::Invalid(format!("there is no signal {signal}")));
        }
        if self.look(id, exec, Offsets::default()).await?.ending.is_some() {
            return Ok(());
        }
        let note = |record: &mut Record| {
            if let Some(found) = record.execs.get_mut(exec) {
                found.signals.push(signal);
            }
        };
        let record = self.records()?.change(id, note).await?;
        if signal == KILL {
            return self.end_command(id, exec, Ending::Signaled(KILL)).await;
        }
        let text = script::send_signal(&script::directory(&record.directory(), exec), signal);
        let ran = self.run(&record, text.as_bytes(), Vec::new(), Repeat::IfUnseen).await;
        let ran = ran.map_err(|failure| failure.of_sandbox(id, "the signal"))?;
        // Of a command that has ended meanwhile there is no process.
        if ran.code == 0 || self.look(id, exec, Offsets::default()).await?.ending.is_some() {
            return Ok(());
        }
        Err(Error::Invalid(format!("the signal was not sent: {}", ran.errors)))
    }

    pub(crate) async fn forget(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        if self.look(id, exec, Offsets::default()).await?.ending.is_none() {
            return Err(Error::Invalid(format!("the command {exec} runs")));
        }
        let record = self.current(id)?;
        if record.ended.is_none() {
            let text = format!("rm -rf {}", script::directory(&record.directory(), exec));
            let ran = self.run(&record, text.as_bytes(), Vec::new(), Repeat::Always).await;
            ran.map_err(|failure| failure.of_sandbox(id, "the removal of a command"))?;
        }
        let forget = |record: &mut Record| drop(record.execs.remove(exec));
        self.records()?.change(id, forget).await.map(drop)
    }
}

/// Refuses what a workspace cannot do.
fn check(command: &Command) -> Result<()> {
    command.check_input()?;
    if command.terminal.is_some() {
        return Err(Codeplane::refused(Capability::Terminal));
    }
    if command.user.is_some() {
        return Err(Codeplane::refused(Capability::Users));
    }
    if command.arguments.is_empty() {
        return Err(Error::Invalid("a command needs a program".to_owned()));
    }
    let is_long = |text: &std::ffi::OsString| text.len() >= WORD_BYTES;
    if command.arguments.iter().chain(command.environment.values()).any(is_long) {
        let text = format!("an argument or a variable has more than {WORD_BYTES} bytes");
        return Err(Error::Invalid(text));
    }
    let has_nul = |text: &std::ffi::OsString| text.as_encoded_bytes().contains(&0);
    let names = command
        .environment
        .keys()
        .any(|name| name.is_empty() || name.as_encoded_bytes().contains(&b'=') || has_nul(name));
    if names || command.arguments.iter().chain(command.environment.values()).any(has_nul) {
        return Err(Error::Invalid("a command contains a NUL byte, or an invalid name".to_owned()));
    }
    Ok(())
}

/// The answer to a look: the result, and the new bytes.
fn parse(answer: &[u8], from: Offsets) -> Option<(String, Look)> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let [result, output, error] = words[..] else { return None };
    let written = Offsets { output: output.parse().ok()?, error: error.parse().ok()? };
    let new =
        |now: u64, before: u64| usize::try_from(now.saturating_sub(before).min(READ_BYTES)).ok();
    let content = &answer[end + 1..];
    let length = new(written.output, from.output)?;
    let all = length.checked_add(new(written.error, from.error)?)?;
    if content.len() != all {
        return None;
    }
    let (output, errors) = content.split_at(length);
    let look = Look { ending: None, output: output.to_vec(), errors: errors.to_vec(), written };
    Some((result.to_owned(), look))
}

/// What a result means. The shell inside reports a signal as an exit code of 128 and more.
fn meaning(text: &str, signals: &[i32]) -> Ending {
    let not_run = |errno: &str, step| match errno.parse() {
        Ok(errno) => Ending::NotRun { errno, step },
        Err(_) => Ending::Unknown,
    };
    match text.split_once('_') {
        Some((EXITED, code)) => match code.parse::<u8>() {
            Ok(code) => match i32::from(code).checked_sub(128) {
                Some(signal) if signals.contains(&signal) => Ending::Signaled(signal),
                _ => Ending::Exited(code),
            },
            Err(_) => Ending::Unknown,
        },
        Some((NO_DIRECTORY, errno)) => not_run(errno, Step::EnterDirectory),
        Some((NO_PROGRAM, errno)) => not_run(errno, Step::RunProgram),
        _ => Ending::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_inside_is_taken_apart_or_refused() {
        let from = Offsets { output: 2, error: 0 };
        let (result, look) = parse(b"exited_0 5 1\nabcE", from).unwrap();
        assert_eq!((result.as_str(), look.output.as_slice()), ("exited_0", &b"abc"[..]));
        assert_eq!(look.errors, b"E");
        for odd in [&b""[..], b"no end", b"- 5\nabc", b"- 5 1\nab", b"- -5 1\n", b"- 1 1 1\n"] {
            assert!(parse(odd, from).is_none(), "{odd:?}");
        }
    }

    #[test]
    fn a_signal_that_was_sent_is_told_from_an_exit_code() {
        assert_eq!(meaning("exited_143", &[15]), Ending::Signaled(15));
        assert_eq!(meaning("exited_143", &[]), Ending::Exited(143));
        assert_eq!(meaning("exited_7", &[15]), Ending::Exited(7));
        for odd in ["", "exited_", "exited_300", "x_1", "program_x"] {
            assert_eq!(meaning(odd, &[]), Ending::Unknown, "{odd}");
        }
    }
}
