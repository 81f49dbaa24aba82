//! One try of a provider: it works within its time, says that it lives, and cleans up however that
//! ended, also when nobody waits for it any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;

use super::outside::Outside;
use crate::authoring::{ChildRequest, Error};
use crate::engine::trouble::Trouble;
use crate::engine::user_code::UserCode;
use crate::engine::user_code::{ChildResult, ProviderHost};
use crate::journal::WorkflowRef;
use crate::sync::lock;

/// How long a provider may work, and be silent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// In all.
    pub(crate) whole: Option<Duration>,
    /// Without a heartbeat. While a child run of its own is under way it need not say that it lives.
    pub(crate) silent: Option<Duration>,
}

/// A try of a provider. Dropped without [`Provision::clean_up`], it cleans up behind its caller's
/// back.
pub(crate) struct Provision {
    user_code: Arc<UserCode>,
    run: String,
    sandbox: String,
    request: Value,
    /// The program that it is, where it is none in the realm.
    outside: Option<Arc<Outside>>,
    is_begun: bool,
}

impl Provision {
    /// A try of the provider of a `<Sandbox>` of a run, with the plain part of its request. The same
    /// request names the same try: after a crash it can be cleaned up without having worked here.
    pub(crate) fn new(user_code: &Arc<UserCode>, run: &str, sandbox: &str, request: Value) -> Self {
        let (user_code, run, sandbox) = (Arc::clone(user_code), run.to_owned(), sandbox.to_owned());
        Self { user_code, run, sandbox, request, outside: None, is_begun: false }
    }

    /// The same, by a program of the user's.
    pub(crate) fn outside(mut self, outside: Outside) -> Self {
        self.outside = Some(Arc::new(outside));
        self
    }

    /// Has it work; what it gave, to be [read](super::provider::read).
    ///
    /// # Errors
    /// What it threw, `TASK_TIMEOUT`, `TASK_HEARTBEAT_TIMEOUT`, or that its process was lost.
    pub(crate) async fn work(
        &mut self,
        times: Times,
        host: &dyn ProviderHost,
    ) -> Result<Value, Trouble> {
        self.is_begun = true;
        let watched = Watched { host, busy: AtomicUsize::new(0), last: Mutex::new(Instant::now()) };
        let end = times.whole.map(|whole| Instant::now() + whole);
        let work = async {
            match &self.outside {
                Some(outside) => outside.provide(&self.request, &watched).await,
                None => {
                    let work =
                        self.user_code.provide(&self.run, &self.sandbox, &self.request, &watched);
                    work.await.map_err(trouble)
                }
            }
        };
        let mut work = std::pin::pin!(work);
        let (code, limit) = loop {
            let silent = times.silent.map(|silent| watched.last() + silent);
            let next = [end, silent].into_iter().flatten().min();
            let outcome = match next {
                None => work.as_mut().await,
                Some(next) => match tokio::time::timeout_at(next, work.as_mut()).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let now = Instant::now();
                        if let Some(whole) = times.whole.filter(|_| end.is_some_and(|at| at <= now))
                        {
                            break ("TASK_TIMEOUT", whole);
                        }
                        match times.silent {
                            Some(silent) if watched.last() + silent <= now => {
                                break ("TASK_HEARTBEAT_TIMEOUT", silent);
                            }
                            _ => continue,
                        }
                    }
                },
            };
            return outcome;
        };
        // One that goes on for ever does not hear that it is over.
        if self.outside.is_none() {
            self.user_code.kill_if_stuck().await;
        }
        let what = if code == "TASK_TIMEOUT" { "took longer than" } else { "was silent for" };
        let id = &self.sandbox;
        let message = format!("the provider of sandbox \"{id}\" {what} {} ms", limit.as_millis());
        Err(Trouble::new(code, message).retryable())
    }

    /// Lets it clean up what the same try left before a crash. Nothing depends on it.
    pub(crate) async fn clean_up_before(&self) {
        if let Err(trouble) = self.cleaned().await {
            warn(&self.run, &self.sandbox, &trouble);
        }
    }

    /// Lets it clean up. What it gave must be in safety: it may be removed now.
    ///
    /// # Errors
    /// Why it did not; nothing depends on it.
    pub(crate) async fn clean_up(mut self) -> Result<(), Trouble> {
        self.is_begun = false;
        self.cleaned().await
    }

    async fn cleaned(&self) -> Result<(), Trouble> {
        match &self.outside {
            Some(outside) => outside.clean_up(&self.request).await,
            None => {
                let cleaning = self.user_code.clean_up(&self.run, &self.sandbox, &self.request);
                cleaning.await.map_err(trouble)
            }
        }
    }
}

impl Drop for Provision {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !std::mem::take(&mut self.is_begun) {
            return;
        }
        let left = Self {
            user_code: Arc::clone(&self.user_code),
            run: std::mem::take(&mut self.run),
            sandbox: std::mem::take(&mut self.sandbox),
            request: self.request.take(),
            outside: self.outside.take(),
            is_begun: false,
        };
        runtime.spawn(async move {
            if left.outside.is_none() {
                left.user_code.kill_if_stuck().await;
            }
            left.clean_up_before().await;
        });
    }
}

fn warn(run: &str, sandbox: &str, trouble: &Trouble) {
    tracing::warn!(run, sandbox, error = trouble.message, "sandbox provider cleanup failed");
}

/// What a provider failed with; another try may do better unless it was asked for something wrong.
pub(super) fn trouble(error: Error) -> Trouble {
    const FINAL: [&str; 3] =
        ["INVALID_INPUT", "HEARTBEAT_PAYLOAD_TOO_LARGE", "HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE"];
    let mut trouble = Trouble::from(error);
    if trouble.code == "TASK_FAILED" {
        "SANDBOX_EXECUTION_FAILED".clone_into(&mut trouble.code);
    }
    trouble.is_retryable &= !FINAL.contains(&trouble.code.as_str());
    trouble
}

/// A host that knows when it was spoken to.
struct Watched<'a> {
    host: &'a dyn ProviderHost,
    /// How many children are under way.
    busy: AtomicUsize,
    last: Mutex<Instant>,
}

impl Watched<'_> {
    /// When the provider was last known to live.
    fn last(&self) -> Instant {
        if self.busy.load(Ordering::Relaxed) > 0 { Instant::now() } else { *lock(&self.last) }
    }
}

/// Counts a child for as long as it is under way, however it ends.
struct Busy<'a>(&'a Watched<'a>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(&self.0.last) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl ProviderHost for Watched<'_> {
    async fn heartbeat(&self, data: Value) {
        *lock(&self.last) = Instant::now();
        self.host.heartbeat(data).await;
    }

    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, Trouble> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(self);
        self.host.child(workflow, request).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::user_code::testing::{listening, request, user_code};

    const PROVIDER: &str = "const provider = {\n\
          id: \"p\",\n\
          async run({ config, ...request }) {\n\
            if (config.ask) return { output: seen };\n\
            if (config.spin) for (;;) {}\n\
            if (config.code) throw Object.assign(new Error(\"no\"), { code: config.code });\n\
            if (config.silent) await new Promise(() => {});\n\
            if (config.child) await request.executeChildWorkflow(null, { workflow: request.workflow, input: { n: \"late\" } });\n\
            for (let n = 0; n < 6; n += 1) {\n\
              request.heartbeat(n);\n\
              await new Promise((done) => setTimeout(done, 250));\n\
            }\n\
            return { status: \"finished\" };\n\
          },\n\
          cleanup() { seen.cleaned = (seen.cleaned ?? 0) + 1; },\n\
        };";

    /// What comes of a try whose `config` is that, and how often its provider has cleaned up.
    async fn tried(
        config: Value,
        times: Times,
        is_dropped: bool,
    ) -> (Result<Value, Trouble>, Value) {
        let user_code = user_code(PROVIDER, "provider").await;
        let host = listening(&user_code);
        let with = |config: Value| {
            let mut request = request();
            request["config"] = config;
            request
        };
        let mut provision = Provision::new(&user_code, "run", "box", with(config));
        let outcome = provision.work(times, &host).await;
        if is_dropped {
            drop(provision);
        } else {
            provision.clean_up().await.unwrap();
        }
        let ask = with(json!({ "ask": true }));
        loop {
            let seen = user_code.provide("run", "box", &ask, &host).await.unwrap();
            if seen["output"]["cleaned"] != Value::Null {
                return (outcome, seen["output"]["cleaned"].clone());
            }
            tokio::task::yield_now().await;
        }
    }

    const NONE: Times = Times { whole: None, silent: None };

    fn silent(milliseconds: u64) -> Times {
        Times { silent: Some(Duration::from_millis(milliseconds)), ..NONE }
    }

    fn whole(milliseconds: u64) -> Times {
        Times { whole: Some(Duration::from_millis(milliseconds)), ..NONE }
    }

    #[tokio::test]
    async fn a_provider_cleans_up_once_however_it_ended() {
        let mut all = Vec::new();
        for (config, times, expected) in [
            (json!({}), NONE, None),
            (json!({}), silent(1_000), None),
            (json!({ "child": true }), silent(1_000), None),
            (json!({ "silent": true }), silent(300), Some(("TASK_HEARTBEAT_TIMEOUT", true))),
            (json!({}), whole(300), Some(("TASK_TIMEOUT", true))),
            (json!({ "spin": true }), whole(300), Some(("TASK_TIMEOUT", true))),
            (json!({ "code": "INVALID_INPUT" }), NONE, Some(("INVALID_INPUT", false))),
            (json!({ "code": "EBUSY" }), NONE, Some(("EBUSY", true))),
        ] {
            let tries = [false, true].map(|is_dropped| tried(config.clone(), times, is_dropped));
            all.push(
                async move { (config, expected, futures_util::future::join_all(tries).await) },
            );
        }
        for (config, expected, tries) in futures_util::future::join_all(all).await {
            for (outcome, cleaned) in tries {
                assert_eq!(cleaned, json!(1), "{config}");
                let failed = outcome.err().map(|trouble| (trouble.code, trouble.is_retryable));
                let failed = failed.as_ref().map(|(code, retry)| (code.as_str(), *retry));
                assert_eq!(failed, expected, "{config}");
            }
        }
    }

    #[tokio::test]
    async fn what_never_worked_is_not_cleaned_up() {
        let user_code = user_code(PROVIDER, "provider").await;
        drop(Provision::new(&user_code, "run", "box", request()));
        let mut ask = request();
        ask["config"]["ask"] = true.into();
        let seen = user_code.provide("run", "box", &ask, &listening(&user_code)).await.unwrap();
        assert_eq!(seen["output"], json!({}));
    }
}
