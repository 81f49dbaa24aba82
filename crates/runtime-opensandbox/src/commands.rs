//! Commands: started once under an id, followed, ended and forgotten.

use std::io::Cursor;

use stockade_core::ending::{Ending, Step};
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Capability, Command, Error, Events, Exec, Offsets, Result, StandardInput};
use stockade_runtime_remote::{Failure, now_ms};
use tokio::io::AsyncReadExt as _;

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::execd::{Execd, NewFile};
use crate::follow::Follower;
use crate::record::{ExecRecord, Record};
use crate::script::{
    self, ERRORS, EXITED, INPUT, NO_DIRECTORY, NO_PROGRAM, OUTPUT, RESULT, SCRIPT,
};

/// The longest argument and variable that Linux passes on (`MAX_ARG_STRLEN`).
const WORD_BYTES: usize = 128 << 10;
/// The signal that no program can catch, and the last one.
const KILL: i32 = 9;
const LAST_SIGNAL: i32 = 64;
/// The largest result file.
const RESULT_BYTES: u64 = 64;

impl OpenSandbox {
    pub(crate) async fn start(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        command: &Command,
    ) -> Result<Exec> {
        check(command)?;
        let _lock = self.records()?.lock(id).await?;
        let mut record = self.current(id).await?;
        let known = record.execs.contains_key(exec);
        if !known {
            record.require_running("start a command")?;
            let timeout = command
                .timeout
                .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            let new = ExecRecord {
                timeout_at_ms: timeout.map(|timeout| now_ms().saturating_add(timeout)),
                output_limit: command.output_limit_bytes,
                is_fed: command.input == StandardInput::Streamed,
                ..ExecRecord::default()
            };
            // Recorded first: after a crash the script is found, or started again, and runs once.
            record.execs.insert(exec.clone(), new);
            self.records()?.store(&record)?;
        }
        let found = record.exec(exec)?;
        // A command that was to end before it had started does not start any more.
        if found.remote.is_none() && found.cause.is_none() && record.ended.is_none() {
            let started = self.start_script(&record, exec, command, known).await;
            let remote = match started {
                Ok(remote) => remote,
                Err(error) => {
                    if !known && !matches!(error, Error::OutcomeUnknown(_)) {
                        record.execs.remove(exec);
                        self.records()?.store(&record)?;
                    }
                    return Err(error);
                }
            };
            if let Some(found) = record.execs.get_mut(exec) {
                found.remote = Some(remote);
                found.is_repeated = known;
            }
            self.records()?.store(&record)?;
        }
        let is_fed = record.execs.get(exec).is_some_and(|found| found.is_fed);
        Ok(self.follow(id, exec, Offsets::default(), is_fed))
    }

    /// Starts the script of a command. `again` says that it may run already: then its files are replaced
    /// rather than written, and the script waits for the one that runs.
    async fn start_script(
        &self,
        record: &Record,
        exec: &ExecId,
        command: &Command,
        again: bool,
    ) -> Result<String> {
        let id = &record.id;
        let execd = self.execd(record).await?;
        let directory = script::directory(exec);
        let text = script::script(exec, command, record.working_directory.as_deref());
        let mut files = vec![(SCRIPT, text)];
        match &command.input {
            StandardInput::Whole(bytes) => files.push((INPUT, bytes.clone())),
            StandardInput::Empty => files.push((INPUT, Vec::new())),
            // The script makes it.
            StandardInput::Streamed => {}
        }
        let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the start of a command");
        execd.make_directory(script::DIRECTORY, 0o777, None).await.map_err(failed)?;
        execd.make_directory(&directory, 0o700, None).await.map_err(failed)?;
        for (name, content) in files {
            let path = format!("{directory}/{name}");
            if again {
                execd.replace(&path, content).await.map_err(failed)?;
                continue;
            }
            let file = NewFile { path, mode: Some(0o600), owner: None };
            execd.upload(&file, Box::pin(Cursor::new(content))).await.map_err(failed)?;
        }
        execd.start(&script::start(exec)).await.map_err(failed)
    }

    /// Finishes the start of a command that another process has begun and not finished: its script is started
    /// again if it is complete, and waits there for the one that runs.
    ///
    /// # Errors
    /// [`Error::NoExec`] for a command that never ran, which is forgotten.
    pub(crate) async fn finish_start(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        // A start that is in progress has this lock.
        let _lock = self.records()?.lock(id).await?;
        let mut record = self.current(id).await?;
        let found = record.exec(exec)?;
        if !found.is_unstarted() || record.ended.is_some() || found.is_fed {
            return Ok(());
        }
        let execd = self.execd(&record).await?;
        // It is written after the script.
        let input = execd.file(&format!("{}/{INPUT}", script::directory(exec))).await;
        match input {
            Ok(_) => {
                let failed =
                    |failure: Failure| failure.of_sandbox(SERVICE, id, "the start of a command");
                let remote = execd.start(&script::start(exec)).await.map_err(failed)?;
                if let Some(found) = record.execs.get_mut(exec) {
                    (found.remote, found.is_repeated) = (Some(remote), true);
                }
                self.records()?.store(&record)
            }
            Err(failure) if failure.status() == Some(404) => {
                record.execs.remove(exec);
                self.records()?.store(&record)?;
                Err(Error::NoExec { sandbox: id.clone(), exec: exec.clone() })
            }
            Err(failure) => Err(failure.of_reading(SERVICE, id)),
        }
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

    /// How a command ended, if it has: as it is recorded, or as the server and the files inside say.
    pub(crate) async fn ending(&self, id: &SandboxId, exec: &ExecId) -> Result<Option<Ending>> {
        let record = self.current(id).await?;
        let found = record.exec(exec)?;
        if let Some(ending) = &found.ending {
            return Ok(Some(ending.clone()));
        }
        if record.ended.is_some() {
            return Ok(Some(found.cause.clone().unwrap_or(Ending::SandboxEnded)));
        }
        if found.timeout_at_ms.is_some_and(|at| at <= now_ms()) && found.cause.is_none() {
            self.end_command(id, exec, Ending::TimedOut).await?;
            return Box::pin(self.ending(id, exec)).await;
        }
        // It never started if it was to end before.
        let Some(remote) = &found.remote else { return Ok(found.cause.clone()) };
        let execd = self.execd(&record).await?;
        let result = self.result(&execd, id, exec).await?;
        if result.is_none() {
            let status =
                execd.status(remote).await.map_err(|failure| failure.of_reading(SERVICE, id))?;
            if status.running {
                return Ok(None);
            }
        }
        // It may have been written between the two answers.
        let result = match result {
            Some(result) => Some(result),
            None => self.result(&execd, id, exec).await?,
        };
        let of_signal = |code: u8| i32::from(code).checked_sub(128);
        let ending = match (result, &found.cause) {
            (_, Some(cause)) => cause.clone(),
            // A shell reports the signals that we have sent as exit codes.
            (Some(Ending::Exited(code)), None)
                if of_signal(code).is_some_and(|signal| found.signals.contains(&signal)) =>
            {
                Ending::Signaled(of_signal(code).unwrap_or_default())
            }
            (Some(ending), None) => ending,
            (None, None) => Ending::Unknown,
        };
        let (stored, written) = (ending.clone(), self.written(&execd, id, exec).await?);
        self.records()?
            .change(id, |record| {
                if let Some(found) = record.execs.get_mut(exec) {
                    found.ending.get_or_insert(stored);
                    found.written = written;
                }
            })
            .await?;
        Ok(Some(ending))
    }

    /// How much a command has written.
    async fn written(&self, execd: &Execd, id: &SandboxId, exec: &ExecId) -> Result<Offsets> {
        let mut lengths = [0, 0];
        for (length, name) in lengths.iter_mut().zip([OUTPUT, ERRORS]) {
            let path = format!("{}/{name}", script::directory(exec));
            *length = match execd.file(&path).await {
                Ok(found) => found.size,
                // It was never run, or has removed its files.
                Err(failure) if matches!(failure.status(), Some(400 | 404)) => 0,
                Err(failure) => return Err(failure.of_reading(SERVICE, id)),
            };
        }
        let [output, error] = lengths;
        Ok(Offsets { output, error })
    }

    /// What the script of a command has written at its end.
    async fn result(&self, execd: &Execd, id: &SandboxId, exec: &ExecId) -> Result<Option<Ending>> {
        let path = format!("{}/{RESULT}", script::directory(exec));
        let read = match execd.download(&path, 0, None).await {
            Ok(read) => read,
            Err(failure) if matches!(failure.status(), Some(400 | 404)) => return Ok(None),
            Err(failure) => return Err(failure.of_reading(SERVICE, id)),
        };
        let Some(read) = read else { return Ok(None) };
        let mut text = String::new();
        // What a program inside has written there instead is no result.
        if read.take(RESULT_BYTES).read_to_string(&mut text).await.is_err() {
            return Ok(Some(Ending::Unknown));
        }
        Ok(Some(meaning(text.trim())))
    }

    /// Ends a command, for this reason.
    pub(crate) async fn end_command(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        cause: Ending,
    ) -> Result<()> {
        let record = self
            .records()?
            .change(id, |record| {
                if let Some(found) = record.execs.get_mut(exec)
                    && found.ending.is_none()
                {
                    found.cause.get_or_insert(cause);
                }
            })
            .await?;
        let found = record.exec(exec)?;
        if record.ended.is_some() {
            return Ok(());
        }
        let execd = self.execd(&record).await?;
        let ended = interrupt(&execd, exec, found).await;
        ended.map_err(|failure| failure.of_sandbox(SERVICE, id, "the end of a command"))
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
        if self.ending(id, exec).await?.is_some() {
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
        let execd = self.execd(&record).await?;
        let printed = execd.print(&script::send_signal(exec, signal)).await;
        let printed = printed.map_err(|failure| failure.of_sandbox(SERVICE, id, "the signal"))?;
        // Of a command that has ended meanwhile there is no process.
        if printed.code == 0 || self.ending(id, exec).await?.is_some() {
            return Ok(());
        }
        Err(Error::Invalid(format!("the signal was not sent: {}", printed.errors.join("; "))))
    }

    pub(crate) async fn forget(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        if self.ending(id, exec).await?.is_none() {
            return Err(Error::Invalid(format!("the command {exec} runs")));
        }
        let record = self.current(id).await?;
        if record.ended.is_none() {
            let execd = self.execd(&record).await?;
            match execd.remove(&script::directory(exec), true).await {
                Err(failure) if failure.status() != Some(404) => {
                    return Err(failure.of_sandbox(SERVICE, id, "the removal of a command"));
                }
                _ => {}
            }
        }
        let forget = |record: &mut Record| {
            record.execs.remove(exec);
        };
        self.records()?.change(id, forget).await.map(drop)
    }
}

/// Kills a command with everything that it has started.
pub(crate) async fn interrupt(
    execd: &Execd,
    exec: &ExecId,
    found: &ExecRecord,
) -> std::result::Result<(), Failure> {
    if let Some(remote) = &found.remote {
        execd.interrupt(remote).await?;
    }
    // What the server knows is then the second script, which waits for the first one, or nothing.
    if found.is_repeated || found.remote.is_none() {
        execd.print(&script::kill(exec)).await?;
    }
    Ok(())
}

/// Refuses what the interface cannot do.
fn check(command: &Command) -> Result<()> {
    command.check_input()?;
    if command.terminal.is_some() {
        return Err(OpenSandbox::refused(Capability::Terminal));
    }
    if command.user.is_some() {
        return Err(OpenSandbox::refused(Capability::Users));
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

/// What a result means. The shell inside reports a signal as an exit code of 128 and more.
fn meaning(text: &str) -> Ending {
    let not_run = |errno: &str, step| match errno.parse() {
        Ok(errno) => Ending::NotRun { errno, step },
        Err(_) => Ending::Unknown,
    };
    match text.split_once(' ') {
        Some((EXITED, code)) => code.parse().map_or(Ending::Unknown, Ending::Exited),
        Some((NO_DIRECTORY, errno)) => not_run(errno, Step::EnterDirectory),
        Some((NO_PROGRAM, errno)) => not_run(errno, Step::RunProgram),
        _ => Ending::Unknown,
    }
}
