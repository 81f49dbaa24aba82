//! One call of a provider: its time limits, and its cleanup, which happens in any case, even if the
//! call was dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;

use super::external::ExternalProvider;
use crate::authoring::{ChildRequest, Error};
use crate::engine::task_error::TaskError;
use crate::engine::user_code::{ChildResult, ProviderHost, UserCode};
use crate::journal::WorkflowRef;
use crate::sync::lock;

/// The time limits of a provider.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimeLimits {
    /// For the whole work.
    pub(crate) total: Option<Duration>,
    /// Without a heartbeat. The provider need not send heartbeats while one of its child runs is
    /// running.
    pub(crate) silence: Option<Duration>,
}

/// One call of a provider. If it is dropped without [`ProviderCall::clean_up`], the provider cleans up
/// in the background.
pub(crate) struct ProviderCall {
    user_code: Arc<UserCode>,
    run: String,
    sandbox: String,
    request: Value,
    /// The provider, if it is a program.
    external: Option<Arc<ExternalProvider>>,
    is_started: bool,
}

impl ProviderCall {
    /// A call of the provider of a `<Sandbox>`, with the part of its request that is data. After a
    /// crash, the same request can be cleaned up even though its work was not done in this process.
    pub(crate) fn new(user_code: &Arc<UserCode>, run: &str, sandbox: &str, request: Value) -> Self {
        let (user_code, run, sandbox) = (Arc::clone(user_code), run.to_owned(), sandbox.to_owned());
        Self { user_code, run, sandbox, request, external: None, is_started: false }
    }

    /// Makes this a call of a program.
    pub(crate) fn external(mut self, external: ExternalProvider) -> Self {
        self.external = Some(Arc::new(external));
        self
    }

    /// Makes the provider do its work; returns its output, to be [read](super::result::read).
    ///
    /// # Errors
    /// The error that it threw, `TASK_TIMEOUT`, `TASK_HEARTBEAT_TIMEOUT`, or the loss of its process.
    pub(crate) async fn work(
        &mut self,
        times: TimeLimits,
        host: &dyn ProviderHost,
    ) -> Result<Value, TaskError> {
        self.is_started = true;
        let watched =
            WatchedHost { host, busy: AtomicUsize::new(0), last: Mutex::new(Instant::now()) };
        let end = times.total.map(|whole| Instant::now() + whole);
        let work = async {
            match &self.external {
                Some(external) => external.provide(&self.request, &watched).await,
                None => {
                    let work =
                        self.user_code.provide(&self.run, &self.sandbox, &self.request, &watched);
                    work.await.map_err(task_error)
                }
            }
        };
        let mut work = std::pin::pin!(work);
        let (code, limit) = loop {
            let silent = times.silence.map(|silent| watched.last() + silent);
            let next = [end, silent].into_iter().flatten().min();
            let outcome = match next {
                None => work.as_mut().await,
                Some(next) => match tokio::time::timeout_at(next, work.as_mut()).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let now = Instant::now();
                        if let Some(whole) = times.total.filter(|_| end.is_some_and(|at| at <= now))
                        {
                            break ("TASK_TIMEOUT", whole);
                        }
                        match times.silence {
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
        // A function that never returns does not notice that it was aborted.
        if self.external.is_none() {
            self.user_code.kill_if_stuck().await;
        }
        let what =
            if code == "TASK_TIMEOUT" { "took longer than" } else { "sent no heartbeat for" };
        let id = &self.sandbox;
        let message = format!("the provider of sandbox \"{id}\" {what} {} ms", limit.as_millis());
        Err(TaskError::new(code, message).retryable())
    }

    /// Makes the provider clean up after the same call before a crash. Errors are logged.
    pub(crate) async fn clean_up_before(&self) {
        if let Err(error) = self.run_cleanup().await {
            warn(&self.run, &self.sandbox, &error);
        }
    }

    /// Makes the provider clean up. Its result must already be on the host, because the cleanup may
    /// remove it.
    ///
    /// # Errors
    /// Why the cleanup failed. The result of the call does not depend on it.
    pub(crate) async fn clean_up(mut self) -> Result<(), TaskError> {
        self.is_started = false;
        self.run_cleanup().await
    }

    async fn run_cleanup(&self) -> Result<(), TaskError> {
        match &self.external {
            Some(external) => external.clean_up(&self.request).await,
            None => {
                let cleaning = self.user_code.clean_up(&self.run, &self.sandbox, &self.request);
                cleaning.await.map_err(task_error)
            }
        }
    }
}

impl Drop for ProviderCall {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !std::mem::take(&mut self.is_started) {
            return;
        }
        let left = Self {
            user_code: Arc::clone(&self.user_code),
            run: std::mem::take(&mut self.run),
            sandbox: std::mem::take(&mut self.sandbox),
            request: self.request.take(),
            external: self.external.take(),
            is_started: false,
        };
        runtime.spawn(async move {
            if left.external.is_none() {
                left.user_code.kill_if_stuck().await;
            }
            left.clean_up_before().await;
        });
    }
}

fn warn(run: &str, sandbox: &str, task_error: &TaskError) {
    tracing::warn!(run, sandbox, error = task_error.message, "sandbox provider cleanup failed");
}

/// The failure of a provider. Another attempt may succeed, unless the request is wrong.
pub(super) fn task_error(error: Error) -> TaskError {
    const FINAL: [&str; 3] =
        ["INVALID_INPUT", "HEARTBEAT_PAYLOAD_TOO_LARGE", "HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE"];
    let mut task_error = TaskError::from(error);
    if task_error.code == "TASK_FAILED" {
        "SANDBOX_EXECUTION_FAILED".clone_into(&mut task_error.code);
    }
    task_error.is_retryable &= !FINAL.contains(&task_error.code.as_str());
    task_error
}

/// A host that records when the provider last called it.
struct WatchedHost<'a> {
    host: &'a dyn ProviderHost,
    /// How many child runs are running.
    busy: AtomicUsize,
    last: Mutex<Instant>,
}

impl WatchedHost<'_> {
    /// When the provider was last known to be alive.
    fn last(&self) -> Instant {
        if self.busy.load(Ordering::Relaxed) > 0 { Instant::now() } else { *lock(&self.last) }
    }
}

/// Counts a child run while it is running.
struct ChildGuard<'a>(&'a WatchedHost<'a>);

impl Drop for ChildGuard<'_> {
    fn drop(&mut self) {
        *lock(&self.0.last) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl ProviderHost for WatchedHost<'_> {
    async fn heartbeat(&self, data: Value) {
        *lock(&self.last) = Instant::now();
        self.host.heartbeat(data).await;
    }

    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, TaskError> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = ChildGuard(self);
        self.host.child(workflow, request).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::user_code::testing::{recording_host, request, user_code};

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

    /// The outcome of an attempt with this `config`, and how often its provider cleaned up.
    async fn run_attempt(
        config: Value,
        times: TimeLimits,
        is_dropped: bool,
    ) -> (Result<Value, TaskError>, Value) {
        let user_code = user_code(PROVIDER, "provider").await;
        let host = recording_host(&user_code);
        let with = |config: Value| {
            let mut request = request();
            request["config"] = config;
            request
        };
        let mut call = ProviderCall::new(&user_code, "run", "box", with(config));
        let outcome = call.work(times, &host).await;
        if is_dropped {
            drop(call);
        } else {
            call.clean_up().await.unwrap();
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

    const NONE: TimeLimits = TimeLimits { total: None, silence: None };

    fn silent(milliseconds: u64) -> TimeLimits {
        TimeLimits { silence: Some(Duration::from_millis(milliseconds)), ..NONE }
    }

    fn whole(milliseconds: u64) -> TimeLimits {
        TimeLimits { total: Some(Duration::from_millis(milliseconds)), ..NONE }
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
            let attempts =
                [false, true].map(|is_dropped| run_attempt(config.clone(), times, is_dropped));
            all.push(
                async move { (config, expected, futures_util::future::join_all(attempts).await) },
            );
        }
        for (config, expected, attempts) in futures_util::future::join_all(all).await {
            for (outcome, cleaned) in attempts {
                assert_eq!(cleaned, json!(1), "{config}");
                let failed = outcome.err().map(|error| (error.code, error.is_retryable));
                let failed = failed.as_ref().map(|(code, retry)| (code.as_str(), *retry));
                assert_eq!(failed, expected, "{config}");
            }
        }
    }

    #[tokio::test]
    async fn what_never_worked_is_not_cleaned_up() {
        let user_code = user_code(PROVIDER, "provider").await;
        drop(ProviderCall::new(&user_code, "run", "box", request()));
        let mut ask = request();
        ask["config"]["ask"] = true.into();
        let seen =
            user_code.provide("run", "box", &ask, &recording_host(&user_code)).await.unwrap();
        assert_eq!(seen["output"], json!({}));
    }
}
