//! Configures and launches an engine: its workflows, its queues, its identity.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Engine, Function, INTERNAL_QUEUE, Inner, Settings, supervisor};
use crate::{Context, Error, Executor, Failure, Queue, Result, Store};

/// An engine that is not launched yet.
#[must_use]
pub struct Builder {
    store: Arc<dyn Store>,
    executor_id: String,
    application_version: String,
    place: Option<String>,
    works_on: Option<Vec<String>>,
    workflows: HashMap<&'static str, Function>,
    queues: Vec<Queue>,
    settings: Settings,
    problem: Option<Error>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.workflows.keys().collect();
        f.debug_struct("Builder").field("workflows", &names).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let settings = Settings {
            heartbeat: Duration::from_secs(5),
            max_recovery_attempts: 100,
            grace: Duration::from_secs(5),
        };
        Self {
            store,
            executor_id: "local".to_owned(),
            application_version: "1".to_owned(),
            place: None,
            works_on: None,
            workflows: HashMap::new(),
            queues: Vec::new(),
            settings,
            problem: None,
        }
    }

    /// The name of this process among those that share the store. It must stay the same after a
    /// restart: the process then immediately takes over the workflows that it ran before.
    pub fn executor_id(mut self, id: String) -> Self {
        self.executor_id = id;
        self
    }

    /// The place that the workflows of this engine belong to: no executor of another place runs them.
    /// For workflows that act on what only this place has.
    pub fn place(mut self, place: String) -> Self {
        self.place = Some(place);
        self
    }

    /// Takes workflows from these of the declared queues only. By default it takes from all.
    pub fn works_on(mut self, queues: Vec<String>) -> Self {
        self.works_on = Some(queues);
        self
    }

    /// The version of the workflows; only workflows that the same version started are taken over.
    pub fn application_version(mut self, version: String) -> Self {
        self.application_version = version;
        self
    }

    /// How often the lease is renewed; an executor that has not renewed it for three times as long
    /// is dead. Default 5 s.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.settings.heartbeat = interval;
        self
    }

    /// How often a workflow may be taken over without recording a step in between, before it is
    /// given up. Default 100.
    pub fn max_recovery_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_recovery_attempts = attempts;
        self
    }

    /// How long a cancelled workflow may keep running before it is dropped. Default 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Registers a workflow. The function must be deterministic, except inside its steps.
    pub fn workflow<I, O, F, Fut>(mut self, name: &'static str, function: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let function = Arc::new(function);
        let erased: Function = Arc::new(move |context, input| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let input = serde_json::from_str(&input)
                    .map_err(|error| Failure::new("invalid_input", error.to_string()))?;
                let output = function(context, input).await?;
                Ok(serde_json::to_string(&output)?)
            })
        });
        if self.workflows.insert(name, erased).is_some() {
            self.problem = Some(Error::invalid(format!("two workflows are named {name:?}")));
        }
        self
    }

    /// Declares a queue.
    pub fn queue(mut self, queue: Queue) -> Self {
        if self.queues.iter().any(|known| known.name == queue.name) {
            self.problem = Some(Error::invalid(format!("two queues are named {:?}", queue.name)));
        }
        self.queues.push(queue);
        self
    }

    /// Takes over the workflows of this executor and of dead ones, and starts to work.
    pub async fn launch(self) -> Result<Engine> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let incarnation = self.store.register(&self.executor_id, &self.application_version).await?;
        let mut names: Vec<String> = self.workflows.keys().map(|name| (*name).to_owned()).collect();
        names.sort();
        let mut queues = vec![INTERNAL_QUEUE.to_owned()];
        for queue in self.queues {
            queues.push(queue.name.to_owned());
            self.store.declare_queue(queue).await?;
        }
        let is_taken = |queue: &String| {
            let chosen = self.works_on.as_ref();
            queue == INTERNAL_QUEUE || chosen.is_none_or(|chosen| chosen.contains(queue))
        };
        let taken = queues.iter().filter(|queue| is_taken(queue)).cloned().collect();
        let engine = Engine {
            inner: Arc::new(Inner {
                store: self.store,
                executor: Executor {
                    id: self.executor_id,
                    incarnation,
                    application_version: self.application_version,
                    names,
                    place: self.place,
                },
                workflows: self.workflows,
                queues,
                taken,
                settings: self.settings,
                running: Mutex::default(),
                count: watch::Sender::new(0),
                stopped: Mutex::default(),
                closing: CancellationToken::new(),
                ended: CancellationToken::new(),
            }),
        };
        engine.recover(Vec::new()).await?;
        supervisor::start(&engine);
        Ok(engine)
    }
}
