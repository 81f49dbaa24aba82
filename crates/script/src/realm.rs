//! A realm: one engine with the modules of one program, its limits, and only the host functions
//! that are defined here. Text that the program makes is never evaluated. The engine is written in
//! C: untrusted code runs in a realm in its own jailed process.

mod call;
mod failure;
mod services;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod web_tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::context::EvalOptions;
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt as _, Context, Ctx, Exception, Function, Object, Persistent, Promise, Runtime,
    Value,
};

use crate::compile::Module;
use crate::library::{LibraryModule, LibrarySet};
use crate::realm_host::RealmHost;
pub use call::Call;
pub use failure::Failure;

/// The resources that a program may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the engine's heap.
    pub heap_bytes: usize,
    /// Stack of the thread that the engine may use: deeper recursion throws a `RangeError`.
    pub stack_bytes: usize,
    /// Source of all modules together, including the library set.
    pub code_bytes: usize,
    /// Total console output.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            heap_bytes: 32 << 20,
            stack_bytes: 512 << 10,
            code_bytes: 16 << 20,
            output_bytes: 256 << 10,
        }
    }
}

/// Modules and the targets of their imports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// Every reachable module, by name.
    pub modules: BTreeMap<String, Module>,
    /// The imported module, by the importing module and the text of the import. An import that is
    /// not listed fails.
    pub links: BTreeMap<(String, String), String>,
    /// Why a dynamic import is not available, by the same key; for messages.
    pub missing: BTreeMap<(String, String), String>,
}

impl Program {
    /// Only the modules of a library set.
    fn of(library: &LibrarySet) -> Self {
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

    fn code_bytes(&self) -> usize {
        self.modules.values().map(|module| module.code.len()).sum()
    }
}

/// The memory for what is read of a program after its end.
const SPARE_HEAP_BYTES: usize = 8 << 20;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The entry has completed.
    Settled,
    /// The entry, or one of its imports, threw.
    Threw(Failure),
    /// It timed out.
    TimedOut,
    /// The entry waits for a promise that can never settle.
    NeverSettles,
    /// It was not run because there is more code than the limit.
    TooMuchCode(CodeTooLarge),
}

/// There is more code than a realm accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the code is {bytes} bytes (max {limit_bytes})")]
pub struct CodeTooLarge {
    /// The size of all modules together.
    pub bytes: usize,
    /// The limit.
    pub limit_bytes: usize,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: RunEnd,
    /// Unhandled rejections, except that of the entry itself.
    pub unhandled: Vec<Failure>,
    /// Whether output was discarded because there was too much.
    pub output_truncated: bool,
}

/// Why a realm could not be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine does not have enough memory for its own objects.
    #[error("the engine could not be started: {0}")]
    Engine(String),
    /// A module of the library set cannot be compiled.
    #[error("the module \"{specifier}\" cannot be compiled: {why}")]
    Library {
        /// The module.
        specifier: String,
        /// The error of the engine.
        why: String,
    },
    /// The library set alone is too large.
    #[error("the library set cannot be used: {0}")]
    Code(CodeTooLarge),
}

/// An engine, which runs one program. See the [module](self).
pub struct Realm {
    drivers: Option<DriverFunctions>,
    // After the fields that refer to it, so that it is dropped last.
    context: Context,
    runtime: Runtime,
    state: Rc<State>,
}

impl std::fmt::Debug for Realm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Realm").finish_non_exhaustive()
    }
}

/// The script functions that drive the realm's timers and fetches.
struct DriverFunctions {
    due: Persistent<Function<'static>>,
    fire: Persistent<Function<'static>>,
    settle: Persistent<Function<'static>>,
}

/// The state that the engine's callbacks share.
struct State {
    code_limit_bytes: usize,
    heap_limit_bytes: usize,
    program: RefCell<Program>,
    started: Instant,
    deadline: Cell<Option<Instant>>,
    expired: Cell<bool>,
    output_left: Cell<usize>,
    output_truncated: Cell<bool>,
    host: RefCell<Option<Box<dyn RealmHost>>>,
    /// Fetches without a response.
    fetches: RefCell<BTreeSet<u32>>,
    last_fetch: Cell<u32>,
    /// Random bytes that are still unused.
    random: RefCell<Vec<u8>>,
    /// Unhandled rejections, by the hash of their promise.
    rejections: RefCell<Vec<(u64, Failure)>>,
}

impl State {
    /// Whether the deadline has passed; the answer stays true.
    fn is_expired(&self) -> bool {
        if self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline) {
            self.expired.set(true);
        }
        self.expired.get()
    }

    fn check_code(&self) -> Result<(), CodeTooLarge> {
        let (bytes, limit_bytes) = (self.program.borrow().code_bytes(), self.code_limit_bytes);
        if bytes > limit_bytes { Err(CodeTooLarge { bytes, limit_bytes }) } else { Ok(()) }
    }
}

impl Realm {
    /// Creates a realm with a library set, whose modules are compiled from source, but not run
    /// before a program imports them.
    ///
    /// # Errors
    /// If the set cannot be used, or the engine cannot be started.
    pub fn new(library: &LibrarySet, limits: &Limits) -> Result<Self, Error> {
        let state = Rc::new(State {
            code_limit_bytes: limits.code_bytes,
            heap_limit_bytes: limits.heap_bytes,
            program: RefCell::new(Program::of(library)),
            started: Instant::now(),
            deadline: Cell::new(None),
            expired: Cell::new(false),
            output_left: Cell::new(limits.output_bytes),
            output_truncated: Cell::new(false),
            host: RefCell::new(None),
            fetches: RefCell::new(BTreeSet::new()),
            last_fetch: Cell::new(0),
            random: RefCell::new(Vec::new()),
            rejections: RefCell::new(Vec::new()),
        });
        state.check_code().map_err(Error::Code)?;
        let failed = |error: rquickjs::Error| Error::Engine(error.to_string());
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(limits.heap_bytes);
        runtime.set_max_stack_size(limits.stack_bytes);
        runtime.set_loader(Modules(Rc::clone(&state)), Modules(Rc::clone(&state)));
        let over = Rc::clone(&state);
        runtime.set_interrupt_handler(Some(Box::new(move || over.is_expired())));
        let tracked = Rc::clone(&state);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, handled| {
                track(&tracked, &ctx, &promise, &reason, handled);
            },
        )));
        let context = Context::full(&runtime).map_err(failed)?;
        let drivers = context.with(|ctx| {
            let drivers = populate(&ctx, &state).catch(&ctx);
            drivers.map_err(|error| Error::Engine(error.to_string()))
        })?;
        let realm = Self { drivers: Some(drivers), context, runtime, state };
        for module in &library.modules {
            realm.declare(module)?;
        }
        // Every forked process would copy the current garbage.
        realm.runtime.run_gc();
        Ok(realm)
    }

    /// Compiles a module of the library set.
    fn declare(&self, module: &LibraryModule) -> Result<(), Error> {
        let LibraryModule { specifier, source, .. } = module;
        self.context.with(|ctx| {
            let declared =
                rquickjs::Module::declare(ctx.clone(), specifier.as_str(), source.as_str());
            declared.catch(&ctx).map(drop).map_err(|error| Error::Library {
                specifier: specifier.clone(),
                why: self.failure(&ctx, error).to_string(),
            })
        })
    }

    /// Runs a program with the library set, until its entry and everything that it waits for has
    /// ended.
    pub fn run(
        &self,
        program: Program,
        entry: &str,
        timeout: Duration,
        outside: Box<dyn RealmHost>,
    ) -> Outcome {
        let mut all = self.state.program.borrow_mut();
        all.modules.extend(program.modules);
        all.links.extend(program.links);
        all.missing.extend(program.missing);
        drop(all);
        // All forked processes would use the same random bytes if they were drawn before the fork.
        self.state.random.borrow_mut().clear();
        self.state.host.replace(Some(outside));
        self.state.deadline.set(Some(Instant::now() + timeout));
        let (ended, entry) = match self.state.check_code() {
            Ok(()) => self.evaluate(entry),
            Err(too_large) => (RunEnd::TooMuchCode(too_large), None),
        };
        let rejections = self.state.rejections.take();
        let unhandled = rejections.into_iter().filter(|(promise, _)| Some(*promise) != entry);
        Outcome {
            end: ended,
            unhandled: unhandled.map(|(_, failure)| failure).collect(),
            output_truncated: self.state.output_truncated.get(),
        }
    }

    /// Calls an exported function without arguments that returns a text, whatever the result of the
    /// run, with a separate time limit.
    ///
    /// # Errors
    /// The exception, or that it timed out.
    pub fn call_sync(
        &self,
        module: &str,
        function: &str,
        grace: Duration,
    ) -> Result<String, Failure> {
        self.state.expired.set(false);
        self.state.deadline.set(Some(Instant::now() + grace));
        // The program may have used all of its memory.
        self.runtime.run_gc();
        self.runtime.set_memory_limit(self.state.heap_limit_bytes + SPARE_HEAP_BYTES);
        self.context.with(|ctx| {
            let answer = rquickjs::Module::import(&ctx, module)
                .and_then(|promise| promise.finish::<Object<'_>>())
                .and_then(|exports| exports.get::<_, Function<'_>>(function))
                .and_then(|function| function.call::<_, String>(()))
                .catch(&ctx);
            answer.map_err(|error| self.failure(&ctx, error))
        })
    }

    /// Evaluates and drives a module; also returns the hash of its promise.
    fn evaluate(&self, entry: &str) -> (RunEnd, Option<u64>) {
        let started = self.context.with(|ctx| {
            let promise = rquickjs::Module::import(&ctx, entry).catch(&ctx);
            match promise {
                Ok(promise) => Ok(Persistent::save(&ctx, promise)),
                Err(error) => Err(self.failure(&ctx, error)),
            }
        });
        let promise = match started {
            Ok(promise) => promise,
            Err(_) if self.state.is_expired() => return (RunEnd::TimedOut, None),
            Err(failure) => return (RunEnd::Threw(failure), None),
        };
        loop {
            while !self.state.is_expired() && self.runtime.is_job_pending() {
                // A failed job has rejected its promise, or was interrupted.
                drop(self.runtime.execute_pending_job());
            }
            let step = self.context.with(|ctx| self.step(&ctx, &promise));
            match step {
                // Where memory is lacking, the engine loses the end of a function too.
                Step::End(RunEnd::NeverSettles, hash) if self.is_full() => {
                    return (RunEnd::Threw(Failure::exhausted()), hash);
                }
                Step::End(ended, hash) => return (ended, hash),
                Step::Wait(wait) => self.wait(wait.min(self.time_left())),
            }
            if let Some(Err(failure)) = self.fire() {
                return (RunEnd::Threw(failure), None);
            }
        }
    }

    /// Checks the state of the entry when there is no job left.
    fn step<'js>(&self, ctx: &Ctx<'js>, promise: &Persistent<Promise<'static>>) -> Step {
        if self.state.is_expired() {
            return Step::End(RunEnd::TimedOut, None);
        }
        let Ok(promise) = promise.clone().restore(ctx) else {
            return Step::End(RunEnd::NeverSettles, None);
        };
        let hash = hash(promise.as_value());
        let ended = match promise.state() {
            PromiseState::Resolved => RunEnd::Settled,
            PromiseState::Rejected => match promise.finish::<Value<'js>>().catch(ctx) {
                Ok(_) => RunEnd::Settled,
                Err(error) => RunEnd::Threw(self.failure(ctx, error)),
            },
            PromiseState::Pending => match self.due(ctx) {
                Some(wait) => return Step::Wait(wait),
                None if !self.state.fetches.borrow().is_empty() => {
                    return Step::Wait(Duration::MAX);
                }
                None => RunEnd::NeverSettles,
            },
        };
        let ended = if self.state.is_expired() { RunEnd::TimedOut } else { ended };
        Step::End(ended, Some(hash))
    }

    /// Whether the program has used nearly all of its heap.
    fn is_full(&self) -> bool {
        let used = usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0);
        used >= self.state.heap_limit_bytes - self.state.heap_limit_bytes / 16
    }

    /// Waits for the outside, and passes results to the program.
    fn wait(&self, timeout: Duration) {
        let mut host = self.state.host.borrow_mut();
        let Some(answer) = host.as_mut().and_then(|host| host.wait(timeout)) else {
            return;
        };
        drop(host);
        if !self.state.fetches.borrow_mut().remove(&answer.id) {
            return;
        }
        self.context.with(|ctx| {
            let settle = self.drivers.as_ref().map(|drivers| drivers.settle.clone().restore(&ctx));
            if let Some(Ok(settle)) = settle {
                // This fails only if the engine is out of memory; the program then waits until its
                // timeout.
                drop(services::settle(&ctx, &settle, answer).catch(&ctx));
            }
        });
    }

    /// The time until the next timer, if there is one.
    fn due(&self, ctx: &Ctx<'_>) -> Option<Duration> {
        let due = self.drivers.as_ref()?.due.clone().restore(ctx).ok()?;
        let milliseconds = due.call::<_, f64>(()).ok()?;
        Duration::try_from_secs_f64(milliseconds / 1_000.0).ok()
    }

    /// Calls the next timer when it is due; an exception in it ends the run.
    fn fire(&self) -> Option<Result<(), Failure>> {
        let drivers = self.drivers.as_ref()?;
        self.context.with(|ctx| {
            let fire = drivers.fire.clone().restore(&ctx).ok()?;
            let fired = fire.call::<_, ()>(()).catch(&ctx);
            let over = self.state.is_expired();
            (!over).then(|| fired.map_err(|error| self.failure(&ctx, error)))
        })
    }

    fn time_left(&self) -> Duration {
        let deadline = self.state.deadline.get();
        deadline.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }

    fn failure<'js>(&self, ctx: &Ctx<'js>, error: rquickjs::CaughtError<'js>) -> Failure {
        Failure::of(ctx, error, &self.state.program.borrow())
    }
}

impl Drop for Realm {
    /// Values of the engine must be dropped before the engine.
    fn drop(&mut self) {
        self.drivers = None;
    }
}

enum Step {
    End(RunEnd, Option<u64>),
    Wait(Duration),
}

/// Adds host functions to a realm, and removes the functions that create code from text.
fn populate<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> rquickjs::Result<DriverFunctions> {
    let host = services::host(ctx, state)?;
    let drivers: Object<'_> =
        eval_script(ctx, "prelude", include_str!("realm/prelude.js"))?.call((host.clone(),))?;
    eval_script(ctx, "url", include_str!("realm/url.js"))?.call::<_, ()>((host.clone(),))?;
    eval_script(ctx, "events", include_str!("realm/events.js"))?.call::<_, ()>((host.clone(),))?;
    eval_script(ctx, "clone", include_str!("realm/clone.js"))?.call::<_, ()>(())?;
    eval_script(ctx, "locale", include_str!("realm/locale.js"))?.call::<_, ()>(())?;
    let fetches: Object<'_> =
        eval_script(ctx, "fetch", include_str!("realm/fetch.js"))?.call((host,))?;
    eval_script(ctx, "lock", include_str!("realm/lock.js"))?.call::<_, ()>(())?;
    let save = |from: &Object<'js>, name: &str| {
        from.get::<_, Function<'js>>(name).map(|function| Persistent::save(ctx, function))
    };
    Ok(DriverFunctions {
        due: save(&drivers, "due")?,
        fire: save(&drivers, "fire")?,
        settle: save(&fetches, "settle")?,
    })
}

/// Evaluates one of our own scripts: an expression that is a function.
fn eval_script<'js>(ctx: &Ctx<'js>, name: &str, source: &str) -> rquickjs::Result<Function<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some(format!("{}{name}", failure::OWN_PREFIX));
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
    let failure = Failure::of_value(ctx, reason, &state.program.borrow());
    let mut rejections = state.rejections.borrow_mut();
    // Bounds the memory for a program that rejects without end.
    if rejections.len() < MAX_REJECTIONS {
        rejections.push((promise, failure));
    }
}

/// The most unhandled rejections that are reported.
const MAX_REJECTIONS: usize = 100;

fn hash(value: &Value<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Resolves and loads the modules of the program, and no others.
struct Modules(Rc<State>);

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        let program = self.0.program.borrow();
        let Program { modules, links, missing } = &*program;
        let import = (base.to_owned(), name.to_owned());
        if let Some(found) = links.get(&import) {
            return Ok(found.clone());
        }
        if let Some(why) = missing.get(&import) {
            return Err(Exception::throw_reference(ctx, why));
        }
        // Imported from outside all modules: the entry, and the module that is called after the
        // run.
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
        // The engine may request the next module while it uses this one.
        let code = self.0.program.borrow().modules.get(name).map(|module| module.code.clone());
        let code = code.ok_or_else(|| rquickjs::Error::new_loading(name))?;
        rquickjs::Module::declare(ctx.clone(), name, code)
    }
}
