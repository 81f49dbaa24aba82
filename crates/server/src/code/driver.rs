//! The driver of one sandbox: a command whose input and output are lines of JSON.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::{
    Caller, CommandLine, Ending, Execute, Items, OpenSession, Problem, Sandbox, Sandboxes, Session,
    SessionEvent, SessionInput,
};
use stockade_core::Code;
use tokio::sync::{mpsc, oneshot};

use super::event::Line;
use super::events::{Control, Events, Queue, input_of};
use super::{Context, Run, new_context};

/// The program.
const PROGRAM: &str = concat!(
    include_str!("forms.py"),
    "\n",
    include_str!("cells.py"),
    "\n",
    include_str!("magics.py"),
    "\n",
    include_str!("driver.py")
);
/// How long it may take to start, and to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest line that it may write, in bytes.
const LINE_BYTES: usize = 64 << 20;
/// How many contexts a sandbox may have.
const CONTEXTS: usize = 64;

#[derive(Debug)]
pub(super) struct Driver {
    input: mpsc::Sender<SessionInput>,
    shared: Arc<Shared>,
    control: Control,
    /// Makes one default context of a language.
    defaults: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Shared {
    has_ended: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    contexts: Vec<Context>,
    creations: BTreeMap<String, oneshot::Sender<Result<(), String>>>,
    runs: BTreeMap<String, Queue>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Problem {
    Problem::new(Code::Unreachable, "the program that runs code in the sandbox has ended")
        .remedied_by("run the code again: it starts without its earlier state")
}

fn command() -> CommandLine {
    CommandLine::Program(["python3", "-u", "-c", PROGRAM].map(str::to_owned).into())
}

/// Whether a command is the driver of a sandbox, which no client has started.
pub(crate) fn is_driver(line: &CommandLine) -> bool {
    *line == command()
}

impl Driver {
    /// Starts the program in a sandbox.
    pub(super) async fn start(
        sandboxes: &Arc<dyn Sandboxes>,
        caller: &Caller,
        sandbox: &Sandbox,
    ) -> Result<Self, Problem> {
        let execute = Execute::new(sandbox.id.clone(), command());
        let open = OpenSession { execute, terminal: None, input: true, survives: false };
        let mut caller = caller.clone();
        caller.idempotency_key = None;
        let Session { mut events, input, .. } = sandboxes.open_session(&caller, open).await?;
        let mut lines = Lines::default();
        let ready = tokio::time::timeout(TIMEOUT, wait_until_ready(&mut events, &mut lines));
        ready.await.map_err(|_| {
            Problem::new(Code::TimedOut, "python3 did not start in the sandbox in time")
        })??;
        let shared = Arc::new(Shared::default());
        let of_task = Arc::clone(&shared);
        let control = Control::start(input.clone());
        tokio::spawn(async move {
            receive(&of_task, events, lines).await;
            of_task.has_ended.store(true, Ordering::Release);
            // Those who wait see the end of their channel.
            *of_task.lock() = State::default();
        });
        Ok(Self { input, shared, control, defaults: tokio::sync::Mutex::default() })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.shared.has_ended.load(Ordering::Acquire)
    }

    async fn send(&self, request: &Value) -> Result<(), Problem> {
        let sent = tokio::time::timeout(TIMEOUT, self.input.send(input_of(request))).await;
        match sent {
            Ok(Ok(())) if self.is_alive() => Ok(()),
            _ => Err(ended()),
        }
    }

    /// The contexts, in the order in which they were created.
    pub(super) fn contexts(&self) -> Vec<Context> {
        self.shared.lock().contexts.clone()
    }

    /// The default context of a language.
    pub(super) async fn default_context(&self, language: &str) -> Result<Context, Problem> {
        let _one = self.defaults.lock().await;
        let is_it = |context: &Context| context.is_default && context.language == language;
        if let Some(found) = self.contexts().into_iter().find(is_it) {
            return Ok(found);
        }
        self.create(new_context(language, None, true)).await
    }

    /// Creates a context.
    pub(super) async fn create(&self, context: Context) -> Result<Context, Problem> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.contexts.len() >= CONTEXTS {
                let message = format!("the sandbox already has {CONTEXTS} contexts, the maximum");
                return Err(Problem::new(Code::QuotaExceeded, message));
            }
            state.creations.insert(context.id.clone(), sender);
        }
        let Context { id, language, cwd, .. } = &context;
        self.send(&json!({ "op": "create", "id": id, "language": language, "cwd": cwd })).await?;
        match tokio::time::timeout(TIMEOUT, receiver).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(reason))) => {
                let message = format!("a context for {language} cannot be created");
                return Err(Problem::new(Code::Unsupported, message).because(reason));
            }
            Ok(Err(_)) => return Err(ended()),
            Err(_) => {
                let message = format!("a context for {language} was not created in time");
                return Err(Problem::new(Code::TimedOut, message));
            }
        }
        self.shared.lock().contexts.push(context.clone());
        Ok(context)
    }

    pub(super) async fn remove(&self, id: &str) -> Result<(), Problem> {
        self.shared.lock().contexts.retain(|context| context.id != id);
        self.send(&json!({ "op": "delete", "id": id })).await
    }

    pub(super) async fn interrupt(&self, id: &str) -> Result<(), Problem> {
        self.send(&json!({ "op": "interrupt", "id": id })).await
    }

    /// Runs code in a context.
    pub(super) async fn run(&self, context: &Context, run: &Run) -> Result<Events, Problem> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (queue, events) = Queue::new(&context.id, self.control.clone());
        self.shared.lock().runs.insert(id.clone(), queue);
        let request = json!({
            "op": "run", "id": context.id, "run": id, "code": run.code, "env": run.variables,
        });
        self.send(&request).await.inspect_err(|_| drop(self.shared.lock().runs.remove(&id)))?;
        Ok(events)
    }
}

/// Splits the output of the program into lines.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// The complete lines, each with its length; `None` if one is too long.
    fn push(&mut self, data: &[u8]) -> Option<Vec<(Line, usize)>> {
        self.rest.extend(data);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return (self.rest.len() <= LINE_BYTES).then(Vec::new);
        };
        let after = self.rest.split_off(end + 1);
        let complete = std::mem::replace(&mut self.rest, after);
        let lines = complete.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // What is no line of the driver is of the code, which has no right to write here.
        let parsed = |line: &[u8]| Some((serde_json::from_slice(line).ok()?, line.len()));
        Some(lines.filter_map(parsed).collect())
    }
}

/// Waits until the program takes requests.
async fn wait_until_ready(
    events: &mut Items<SessionEvent>,
    lines: &mut Lines,
) -> Result<(), Problem> {
    let mut errors = Vec::new();
    loop {
        match events.next().await {
            Some(Ok(SessionEvent::Stdout { data })) => {
                let found = lines.push(&data.0).ok_or_else(ended)?;
                if found.iter().any(|(line, _)| line.ready) {
                    return Ok(());
                }
            }
            Some(Ok(SessionEvent::Stderr { data })) => errors.extend(data.0),
            Some(Ok(SessionEvent::Lost { .. })) => {}
            Some(Ok(SessionEvent::Ended(end))) => {
                if end.ending == Ending::NotRun {
                    let message = "the sandbox has no python3, which runs code in it";
                    return Err(Problem::new(Code::Unsupported, message)
                        .because(end.reason.unwrap_or_default()));
                }
                let text = String::from_utf8_lossy(&errors).into_owned();
                return Err(ended().because(text));
            }
            Some(Err(problem)) => return Err(problem),
            None => return Err(ended()),
        }
    }
}

/// Passes on the events of the program until it has ended.
async fn receive(shared: &Shared, mut events: Items<SessionEvent>, mut lines: Lines) {
    while let Some(Ok(event)) = events.next().await {
        let data = match event {
            SessionEvent::Stdout { data } => data,
            SessionEvent::Ended(_) => return,
            SessionEvent::Stderr { .. } | SessionEvent::Lost { .. } => continue,
        };
        let Some(found) = lines.push(&data.0) else { return };
        for (line, length) in found {
            pass_on(shared, line, length);
        }
    }
}

/// Passes on a line. It never waits for a client: the events of other contexts come after it.
fn pass_on(shared: &Shared, line: Line, length: usize) {
    let Some(context) = line.context.clone() else { return };
    let mut state = shared.lock();
    if let Some(run) = &line.run {
        let is_own = state.runs.get(run).is_some_and(|queue| queue.is_of(&context));
        if is_own && line.is_end() {
            state.runs.remove(run);
        } else if let (true, Some(event), Some(queue)) =
            (is_own, line.event(), state.runs.get_mut(run))
            && !queue.push(event, length)
        {
            state.runs.remove(run);
        }
        return;
    }
    if line.lost {
        state.contexts.retain(|known| known.id != context);
    }
    let end = match line.failed {
        Some(reason) => Err(reason),
        None if line.created => Ok(()),
        None => return,
    };
    if let Some(waiting) = state.creations.remove(&context) {
        let _ = waiting.send(end);
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Event;
    use super::*;

    #[test]
    fn the_output_of_the_driver_is_lines() {
        let mut lines = Lines::default();
        assert!(lines.push(b"{\"ready\":").unwrap().is_empty());
        let found = lines.push(b"true}\nnoise\n{\"context\":\"c\",\"lost\":true}\n{").unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].0.ready && found[1].0.lost);
        assert_eq!(lines.rest, b"{");
    }

    #[tokio::test]
    async fn an_event_is_about_the_context_that_it_comes_from() {
        let (input, _requests) = mpsc::channel(4);
        let shared = Shared::default();
        let (queue, mut events) = Queue::new("mine", Control::start(input));
        shared.lock().runs.insert("r".to_owned(), queue);
        let line = |value: Value| serde_json::from_value::<Line>(value).unwrap();
        let output = |context: Option<&str>, text: &str| {
            line(json!({ "context": context, "run": "r", "type": "stdout", "text": text }))
        };
        pass_on(&shared, output(Some("other"), "forged"), 10);
        pass_on(&shared, output(None, "forged"), 10);
        pass_on(&shared, line(json!({ "context": "other", "run": "r", "type": "end" })), 10);
        pass_on(&shared, output(Some("mine"), "own"), 10);
        pass_on(&shared, line(json!({ "context": "mine", "run": "r", "type": "end" })), 10);
        pass_on(&shared, output(Some("mine"), "after its end"), 10);
        assert_eq!(events.recv().await, Some(Event::Stdout { text: "own".to_owned() }));
        assert_eq!(events.recv().await, None);
    }
}
