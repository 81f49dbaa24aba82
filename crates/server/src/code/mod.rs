//! Runs code in contexts that keep their state. One program of ours, `driver.py` after its parts, runs in the sandbox on its own
//! `python3`, as a command of the sandbox's user; a context of Python is a fork of it, one of another language is
//! the interpreter that the sandbox has. The dialects translate requests and events.
//!
//! What comes from the driver is untrusted, for the code runs as the same user: it is parsed strictly, concerns
//! only this one sandbox, and within it only the context that the driver says it comes from. The code cannot
//! open the driver's descriptors or memory, and what it writes on the channel of its own context is about its
//! own runs.

mod driver;
mod event;
mod events;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_api::{Caller, Problem, Sandbox, Sandboxes};
use stockade_core::Code;

use driver::Driver;
pub(crate) use driver::is_driver;
pub(crate) use event::{Event, Forms};
use events::Events;

/// The languages of contexts.
pub(crate) const LANGUAGES: [&str; 4] = ["python", "javascript", "typescript", "bash"];
/// Other names of them.
const ALIASES: [(&str, &str); 6] = [
    ("py", "python"),
    ("python3", "python"),
    ("js", "javascript"),
    ("ts", "typescript"),
    ("sh", "bash"),
    ("shell", "bash"),
];
/// Languages that other servers of these protocols have.
const OTHERS: [&str; 3] = ["r", "java", "go"];
/// Where a context starts that names no directory.
const HOME: &str = "/home/user";

/// A context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) id: String,
    pub(crate) language: String,
    pub(crate) cwd: String,
    /// Whether it is the one of its language for code that names none.
    is_default: bool,
}

/// The language of a request.
pub(crate) fn language(name: &str) -> Result<&'static str, Problem> {
    let name = name.to_ascii_lowercase();
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name.as_str(), |it| it.1);
    if let Some(known) = LANGUAGES.iter().find(|language| **language == name) {
        return Ok(known);
    }
    let known = LANGUAGES.join(", ");
    if OTHERS.contains(&name) {
        return Err(Problem::new(Code::Unsupported, format!("code in {name} is not supported"))
            .because(format!("the languages are {known}")));
    }
    Err(Problem::new(Code::InvalidInput, format!("there is no language {name:?}"))
        .because(format!("the languages are {known}")))
}

/// A sandbox: a later one may have the same id.
type Place = (String, i64);

/// The driver of a sandbox, once it was started. Starting it holds the lock.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Driver>>>>;

/// The drivers of all sandboxes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Engine {
    drivers: Arc<Mutex<BTreeMap<Place, Slot>>>,
}

/// Code to run, and where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) code: String,
    /// A context; without one, the default context of the language.
    pub(crate) context: Option<String>,
    pub(crate) language: Option<String>,
    /// Variables for this code only.
    pub(crate) variables: BTreeMap<String, String>,
}

/// Code that runs.
pub(crate) struct Running {
    pub(crate) context: Context,
    pub(crate) events: Events,
    driver: Arc<Driver>,
}

impl Running {
    /// Whether the code ends by itself: what runs it has not ended before, as with its sandbox.
    pub(crate) fn is_complete(&self) -> bool {
        self.driver.is_alive()
    }

    /// Interrupts the code. The context can be used further.
    pub(crate) async fn interrupt(&self) {
        // A driver that has ended runs nothing.
        let _ = self.driver.interrupt(&self.context.id).await;
    }
}

impl Engine {
    /// The driver of a sandbox, which is started if it does not run.
    async fn driver(
        &self,
        sandboxes: &Arc<dyn Sandboxes>,
        caller: &Caller,
        sandbox: &Sandbox,
    ) -> Result<Arc<Driver>, Problem> {
        let slot = self.slot(sandbox);
        let mut slot = slot.lock().await;
        if let Some(driver) = slot.as_ref().filter(|driver| driver.is_alive()) {
            return Ok(Arc::clone(driver));
        }
        let driver = Arc::new(Driver::start(sandboxes, caller, sandbox).await?);
        *slot = Some(Arc::clone(&driver));
        Ok(driver)
    }

    fn slot(&self, sandbox: &Sandbox) -> Slot {
        let place = (sandbox.id.to_string(), sandbox.created_at.as_ms());
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|_, slot| {
            // One that a request holds is about to start.
            let is_held = Arc::strong_count(slot) > 1;
            let is_alive =
                |slot: &Option<Arc<Driver>>| slot.as_ref().is_some_and(|it| it.is_alive());
            is_held || slot.try_lock().map_or(true, |slot| is_alive(&slot))
        });
        Arc::clone(drivers.entry(place).or_default())
    }

    /// Creates a context.
    pub(crate) async fn create(
        &self,
        sandboxes: &Arc<dyn Sandboxes>,
        caller: &Caller,
        sandbox: &Sandbox,
        (name, cwd): (&str, Option<&str>),
    ) -> Result<Context, Problem> {
        let language = language(name)?;
        let driver = self.driver(sandboxes, caller, sandbox).await?;
        driver.create(new_context(language, cwd, false)).await
    }

    /// The contexts of a sandbox, the newest last, with the default contexts, as far as it has what runs them.
    pub(crate) async fn all_contexts(
        &self,
        sandboxes: &Arc<dyn Sandboxes>,
        caller: &Caller,
        sandbox: &Sandbox,
    ) -> Result<Vec<Context>, Problem> {
        let driver = self.driver(sandboxes, caller, sandbox).await?;
        for language in ["python", "javascript"] {
            match driver.default_context(language).await {
                Err(problem) if problem.code != Code::Unsupported => return Err(problem),
                _ => {}
            }
        }
        let mut all = driver.contexts();
        // The default ones are as old as the sandbox for its clients.
        all.sort_by_key(|context| !context.is_default);
        Ok(all)
    }

    /// The contexts of a sandbox.
    pub(crate) async fn contexts(&self, sandbox: &Sandbox) -> Vec<Context> {
        match self.find(sandbox).await {
            Some(driver) => driver.contexts(),
            None => Vec::new(),
        }
    }

    /// The driver of a sandbox, if it runs.
    async fn find(&self, sandbox: &Sandbox) -> Option<Arc<Driver>> {
        let slot = self.slot(sandbox);
        let slot = slot.lock().await;
        slot.as_ref().filter(|driver| driver.is_alive()).cloned()
    }

    async fn find_context(
        &self,
        sandbox: &Sandbox,
        id: &str,
    ) -> Result<(Arc<Driver>, Context), Problem> {
        let driver = self.find(sandbox).await;
        let found = driver.and_then(|driver| {
            let context = driver.contexts().into_iter().find(|context| context.id == id)?;
            Some((driver, context))
        });
        found.ok_or_else(|| Problem::new(Code::NotFound, format!("Context {id} not found")))
    }

    /// Removes a context, and ends what runs in it.
    pub(crate) async fn remove(&self, sandbox: &Sandbox, id: &str) -> Result<(), Problem> {
        let (driver, context) = self.find_context(sandbox, id).await?;
        driver.remove(&context.id).await
    }

    /// Ends a context, and begins it again without its state.
    pub(crate) async fn restart(&self, sandbox: &Sandbox, id: &str) -> Result<(), Problem> {
        let (driver, context) = self.find_context(sandbox, id).await?;
        driver.remove(&context.id).await?;
        driver.create(context).await.map(drop)
    }

    /// Interrupts what runs in a context.
    pub(crate) async fn interrupt(&self, sandbox: &Sandbox, id: &str) -> Result<(), Problem> {
        let (driver, context) = self.find_context(sandbox, id).await?;
        driver.interrupt(&context.id).await
    }

    /// Runs code.
    pub(crate) async fn run(
        &self,
        sandboxes: &Arc<dyn Sandboxes>,
        caller: &Caller,
        sandbox: &Sandbox,
        run: Run,
    ) -> Result<Running, Problem> {
        let (driver, context) = match &run.context {
            Some(id) => self.find_context(sandbox, id).await?,
            None => {
                let language = language(run.language.as_deref().unwrap_or("python"))?;
                let driver = self.driver(sandboxes, caller, sandbox).await?;
                let context = driver.default_context(language).await?;
                (driver, context)
            }
        };
        let events = driver.run(&context, &run).await?;
        Ok(Running { context, events, driver })
    }
}

fn new_context(language: &str, cwd: Option<&str>, is_default: bool) -> Context {
    Context {
        id: uuid::Uuid::new_v4().to_string(),
        language: language.to_owned(),
        cwd: cwd.filter(|cwd| !cwd.is_empty()).unwrap_or(HOME).to_owned(),
        is_default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_names() {
        assert_eq!(language("python").unwrap(), "python");
        assert_eq!(language("JS").unwrap(), "javascript");
        assert_eq!(language("ts").unwrap(), "typescript");
        for (name, code) in
            [("r", Code::Unsupported), ("java", Code::Unsupported), ("x", Code::InvalidInput)]
        {
            assert_eq!(language(name).unwrap_err().code, code, "{name}");
        }
    }
}
