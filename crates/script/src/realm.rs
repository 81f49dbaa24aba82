//! A realm: one engine with the modules of one program, its limits, and nothing of the host but what
//! is here. Nothing is ever evaluated from text that the program makes. The engine is written in C:
//! what is not trusted runs in a realm in a process of its own, behind walls.

mod failure;
mod services;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt as _, Context, Ctx, Function, Object, Persistent, Promise, Runtime, Value,
};

use crate::compile::Module;
use crate::library::{LibraryModule, LibrarySet};
pub use failure::Failure;

/// What a program may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the engine's heap.
    pub heap_bytes: usize,
    /// Stack of the thread that the engine may use: deeper recursion is a `RangeError`.
    pub stack_bytes: usize,
    /// All that it may write to its console.
    pub output_bytes: usize,
    /// From the start to the end of a run, waiting included.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            heap_bytes: 32 << 20,
            stack_bytes: 512 << 10,
            output_bytes: 256 << 10,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Modules and what their imports mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// Every module that can be reached, by name.
    pub modules: BTreeMap<String, Module>,
    /// The module that an import means, by the importing module and the text of the import. What is
    /// not here cannot be imported.
    pub links: BTreeMap<(String, String), String>,
}

impl Program {
    /// The modules of a library set alone.
    pub fn of(library: &LibrarySet) -> Self {
        let mut program = Self::default();
        for LibraryModule { specifier, source, imports, .. } in &library.modules {
            let module = Module::plain(specifier, source.clone());
            program.modules.insert(specifier.clone(), module);
            let link = |(text, meant): (&String, &String)| {
                ((specifier.clone(), text.clone()), meant.clone())
            };
            program.links.extend(imports.iter().map(link));
        }
        program
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The entry has run to its end.
    Settled,
    /// The entry, or something that it imports, threw.
    Threw(Failure),
    /// The time was over.
    TimedOut,
    /// The entry waits for something that nothing can bring about any more.
    NeverSettles,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// Rejections that nobody has looked at, except that of the entry itself.
    pub unhandled: Vec<Failure>,
    /// Whether output was thrown away because there was too much.
    pub output_cut: bool,
}

/// Why a realm could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine could not be started: {0}")]
pub struct Error(String);

/// Takes each line of the console: its level (`log`, `warn`, `error`) and its text.
pub type Sink = Box<dyn FnMut(&str, &str)>;

/// An engine that holds a program. See the [module](self).
pub struct Realm {
    timers: Option<Timers>,
    // After what refers to it, so that it is freed last.
    context: Context,
    runtime: Runtime,
    state: Rc<State>,
}

impl std::fmt::Debug for Realm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Realm").finish_non_exhaustive()
    }
}

/// The two functions by which the realm's timers are driven.
struct Timers {
    due: Persistent<Function<'static>>,
    fire: Persistent<Function<'static>>,
}

/// What the engine's callbacks share.
struct State {
    program: Program,
    timeout: Duration,
    started: Instant,
    deadline: Cell<Instant>,
    expired: Cell<bool>,
    output_left: Cell<usize>,
    output_cut: Cell<bool>,
    sink: RefCell<Sink>,
    /// Unhandled rejections, by the hash of their promise.
    rejections: RefCell<Vec<(u64, Failure)>>,
}

impl State {
    /// Whether the time is over; remembers it.
    fn is_over(&self) -> bool {
        if Instant::now() >= self.deadline.get() {
            self.expired.set(true);
        }
        self.expired.get()
    }
}

impl Realm {
    /// Makes a realm for a program. Nothing of the program runs yet.
    ///
    /// # Errors
    /// When the engine has not enough memory for its own objects.
    pub fn new(program: Program, limits: &Limits, sink: Sink) -> Result<Self, Error> {
        let started = Instant::now();
        let state = Rc::new(State {
            program,
            timeout: limits.timeout,
            started,
            deadline: Cell::new(started + limits.timeout),
            expired: Cell::new(false),
            output_left: Cell::new(limits.output_bytes),
            output_cut: Cell::new(false),
            sink: RefCell::new(sink),
            rejections: RefCell::new(Vec::new()),
        });
        let failed = |error: rquickjs::Error| Error(error.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(limits.heap_bytes);
        runtime.set_max_stack_size(limits.stack_bytes);
        runtime.set_loader(Modules(Rc::clone(&state)), Modules(Rc::clone(&state)));
        let over = Rc::clone(&state);
        runtime.set_interrupt_handler(Some(Box::new(move || over.is_over())));
        let tracked = Rc::clone(&state);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, handled| {
                track(&tracked, &ctx, &promise, &reason, handled);
            },
        )));
        let context = Context::full(&runtime).map_err(failed)?;
        let timers = context.with(|ctx| furnish(&ctx, &state).map_err(failed))?;
        Ok(Self { timers: Some(timers), context, runtime, state })
    }

    /// Runs a module to its end, with all that it waits for.
    pub fn run(&self, entry: &str) -> Outcome {
        self.state.deadline.set(Instant::now() + self.state.timeout);
        let (ended, entry) = self.evaluate(entry);
        let rejections = self.state.rejections.take();
        let unhandled = rejections.into_iter().filter(|(promise, _)| Some(*promise) != entry);
        Outcome {
            ended,
            unhandled: unhandled.map(|(_, failure)| failure).collect(),
            output_cut: self.state.output_cut.get(),
        }
    }

    /// Calls a function that a module exports and that answers with a text, whatever has become of
    /// the run, with time of its own.
    ///
    /// # Errors
    /// What it throws, or that its time was over.
    pub fn ask(&self, module: &str, function: &str, grace: Duration) -> Result<String, Failure> {
        self.state.expired.set(false);
        self.state.deadline.set(Instant::now() + grace);
        self.context.with(|ctx| {
            let answer = rquickjs::Module::import(&ctx, module)
                .and_then(|promise| promise.finish::<Object<'_>>())
                .and_then(|exports| exports.get::<_, Function<'_>>(function))
                .and_then(|function| function.call::<_, String>(()))
                .catch(&ctx);
            answer.map_err(|error| self.failure(&ctx, error))
        })
    }

    /// Evaluates and drives a module; answers with the hash of its promise, too.
    fn evaluate(&self, entry: &str) -> (Ended, Option<u64>) {
        let started = self.context.with(|ctx| {
            let promise = rquickjs::Module::import(&ctx, entry).catch(&ctx);
            match promise {
                Ok(promise) => Ok(Persistent::save(&ctx, promise)),
                Err(error) => Err(self.failure(&ctx, error)),
            }
        });
        let promise = match started {
            Ok(promise) => promise,
            Err(_) if self.state.is_over() => return (Ended::TimedOut, None),
            Err(failure) => return (Ended::Threw(failure), None),
        };
        loop {
            while !self.state.is_over() && self.runtime.is_job_pending() {
                // A job that fails has told its promise, or was cut off.
                drop(self.runtime.execute_pending_job());
            }
            let step = self.context.with(|ctx| self.step(&ctx, &promise));
            match step {
                Step::Ended(ended, hash) => return (ended, hash),
                Step::Wait(wait) => std::thread::sleep(wait.min(self.time_left())),
            }
            if let Some(Err(failure)) = self.fire() {
                return (Ended::Threw(failure), None);
            }
        }
    }

    /// Looks at where the entry stands when there is no job left.
    fn step<'js>(&self, ctx: &Ctx<'js>, promise: &Persistent<Promise<'static>>) -> Step {
        if self.state.is_over() {
            return Step::Ended(Ended::TimedOut, None);
        }
        let Ok(promise) = promise.clone().restore(ctx) else {
            return Step::Ended(Ended::NeverSettles, None);
        };
        let hash = hash(promise.as_value());
        let ended = match promise.state() {
            PromiseState::Resolved => Ended::Settled,
            PromiseState::Rejected => match promise.finish::<Value<'js>>().catch(ctx) {
                Ok(_) => Ended::Settled,
                Err(error) => Ended::Threw(self.failure(ctx, error)),
            },
            PromiseState::Pending => match self.due(ctx) {
                Some(wait) => return Step::Wait(wait),
                None => Ended::NeverSettles,
            },
        };
        let ended = if self.state.is_over() { Ended::TimedOut } else { ended };
        Step::Ended(ended, Some(hash))
    }

    /// How long until the next timer, if there is one.
    fn due(&self, ctx: &Ctx<'_>) -> Option<Duration> {
        let due = self.timers.as_ref()?.due.clone().restore(ctx).ok()?;
        let milliseconds = due.call::<_, f64>(()).ok()?;
        Duration::try_from_secs_f64(milliseconds / 1_000.0).ok()
    }

    /// Calls the next timer when it is due; what it throws ends the run.
    fn fire(&self) -> Option<Result<(), Failure>> {
        let timers = self.timers.as_ref()?;
        self.context.with(|ctx| {
            let fire = timers.fire.clone().restore(&ctx).ok()?;
            let fired = fire.call::<_, ()>(()).catch(&ctx);
            let over = self.state.is_over();
            (!over).then(|| fired.map_err(|error| self.failure(&ctx, error)))
        })
    }

    fn time_left(&self) -> Duration {
        self.state.deadline.get().saturating_duration_since(Instant::now())
    }

    fn failure<'js>(&self, ctx: &Ctx<'js>, error: rquickjs::CaughtError<'js>) -> Failure {
        Failure::of(ctx, error, &self.state.program)
    }
}

impl Drop for Realm {
    /// What refers to the engine's values goes before the engine.
    fn drop(&mut self) {
        self.timers = None;
    }
}

enum Step {
    Ended(Ended, Option<u64>),
    Wait(Duration),
}

/// Gives a realm what it has besides the language, and takes away what makes code of text.
fn furnish<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> rquickjs::Result<Timers> {
    let host = services::host(ctx, state)?;
    let drives: Object<'_> =
        part(ctx, "prelude", include_str!("realm/prelude.js"))?.call((host.clone(),))?;
    part(ctx, "web", include_str!("realm/web.js"))?.call::<_, ()>((host,))?;
    part(ctx, "lock", include_str!("realm/lock.js"))?.call::<_, ()>(())?;
    let due: Function<'_> = drives.get("due")?;
    let fire: Function<'_> = drives.get("fire")?;
    Ok(Timers { due: Persistent::save(ctx, due), fire: Persistent::save(ctx, fire) })
}

/// One of our own scripts: an expression that is a function.
fn part<'js>(ctx: &Ctx<'js>, name: &str, source: &str) -> rquickjs::Result<Function<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some(format!("{}{name}", failure::OWN));
    ctx.eval_with_options(source, options)
}

fn track<'js>(
    state: &State,
    ctx: &Ctx<'js>,
    promise: &Value<'js>,
    reason: &Value<'js>,
    handled: bool,
) {
    let promise = hash(promise);
    if handled {
        state.rejections.borrow_mut().retain(|(rejected, _)| *rejected != promise);
        return;
    }
    let failure = Failure::of_value(ctx, reason, &state.program);
    let mut rejections = state.rejections.borrow_mut();
    // A program that rejects without end is told of once.
    if rejections.len() < MAX_REJECTIONS {
        rejections.push((promise, failure));
    }
}

/// The most unhandled rejections that are told of.
const MAX_REJECTIONS: usize = 100;

fn hash(value: &Value<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Finds and loads the modules of the program, and no others.
struct Modules(Rc<State>);

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        _: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        let Program { modules, links } = &self.0.program;
        if let Some(found) = links.get(&(base.to_owned(), name.to_owned())) {
            return Ok(found.clone());
        }
        // Asked for from outside of every module: the entry, and what is asked after the run.
        if !modules.contains_key(base) && modules.contains_key(name) {
            return Ok(name.to_owned());
        }
        Err(rquickjs::Error::new_resolving(base, name))
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<rquickjs::Module<'js, Declared>> {
        let module = self.0.program.modules.get(name);
        let module = module.ok_or_else(|| rquickjs::Error::new_loading(name))?;
        rquickjs::Module::declare(ctx.clone(), name, module.code.as_str())
    }
}
