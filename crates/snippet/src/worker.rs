//! Runs a snippet in a jailed worker of its own. What comes back is the worker's word: it is read
//! as what it should be, or thrown away.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::Value;
use stockade_script::worker::{Answer, Error, Request, call};

use crate::imports::Imports;
use crate::library::built_in;
use crate::payload::{Input, Payload};
use crate::run::execute;
use crate::transcript::{ErrorCode, Phase, Transcript};

/// What a worker may take beyond the time of its snippet: to start, and to read the facts.
const ALLOWANCE: Duration = Duration::from_secs(2);

/// The most that a worker may answer: its lines twice, its facts, and what JSON adds.
const ANSWER_BYTES: usize = 8 << 20;

/// The stack on which files are read: deep nesting takes its share of it.
const STACK_BYTES: usize = 64 << 20;

/// One line of what a worker answers.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum Message {
    /// The console was written to.
    Line(String),
    /// The end.
    Transcript(Box<Transcript>),
}

/// Runs a snippet with the built-in library set in a worker. The calling process must have a single
/// thread, and nothing in memory that a snippet may not know.
///
/// # Errors
/// When no worker can be jailed. What goes wrong in the worker is told by the transcript.
pub fn run(input: &Input) -> Result<Transcript, Error> {
    let payload = match Payload::new(input.clone()) {
        Ok(payload) => payload,
        Err(error) => {
            let errors = vec![error.to_string()];
            return Ok(Transcript::refused(Phase::Input, ErrorCode::InputInvalid, errors));
        }
    };
    // Texts and numbers are always written.
    let request = serde_json::to_vec(input).unwrap_or_default();
    let answer = call(&Request {
        serve,
        input: &request,
        timeout: payload.timeout() + ALLOWANCE,
        answer_bytes: ANSWER_BYTES,
    })?;
    Ok(read(&answer))
}

/// Reads the lines and the transcript; without a transcript, the worker has failed.
fn read(answer: &Answer) -> Transcript {
    let mut logs = Vec::new();
    for line in answer.output.bytes.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Message::Line(line)) => logs.push(line),
            Ok(Message::Transcript(transcript)) => return *transcript,
            Err(_) => {}
        }
    }
    let error = format!("the worker ended before it answered: {:?}", answer.ending);
    let refused = Transcript::refused(Phase::Run, ErrorCode::WorkerError, vec![error]);
    Transcript { logs, ..refused }
}

/// Serves one request, in the worker.
fn serve() -> u8 {
    let mut request = Vec::new();
    if std::io::stdin().read_to_end(&mut request).is_err() {
        return 1;
    }
    let Ok(input) = serde_json::from_slice::<Input>(&request) else { return 2 };
    let run = move || {
        let lines = Box::new(|line: &str| send(&serde_json::json!({ "line": line })));
        let transcript = execute(input, &Imports::default(), &built_in(), lines);
        if let Ok(transcript) = serde_json::to_value(Message::Transcript(Box::new(transcript))) {
            send(&transcript);
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => 0,
        _ => 3,
    }
}

/// Nobody is there to be told that nobody reads.
fn send(message: &Value) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{message}");
    let _ = output.flush();
}

#[cfg(test)]
mod tests {
    use stockade_script::worker::{Captured, Ending};

    use super::*;

    fn answer(text: &str) -> Answer {
        let output = Captured { bytes: text.as_bytes().to_vec(), truncated: false };
        Answer { output, error: Captured::default(), ending: Ending::Signaled(11) }
    }

    #[test]
    fn what_a_worker_says_is_read_or_thrown_away() {
        let cut = read(&answer("{\"line\":\"[log] a\"}\nrubbish\n{\"line\":\"[log] b\"}\n{\"tran"));
        assert_eq!(cut.logs, ["[log] a", "[log] b"]);
        assert_eq!(cut.error_code, Some(ErrorCode::WorkerError));
        assert_eq!(read(&answer("")).errors, ["the worker ended before it answered: Signaled(11)"]);
        let whole = Message::Transcript(Box::new(cut.clone()));
        assert_eq!(read(&answer(&serde_json::to_string(&whole).unwrap())), cut);
    }
}
