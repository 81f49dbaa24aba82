//! Requests to a port renew its sandbox, if it was created with an extension that says so.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use stockade_api::{Caller, Problem, Renew, Sandbox, Sandboxes};
use stockade_core::Time;

/// The metadata with the extensions of a sandbox, as JSON.
pub(crate) const EXTENSIONS: &str = "opensandbox.io/extensions";
/// For how many seconds a request to a port renews a sandbox.
pub(crate) const RENEW: &str = "access.renew.extend.seconds";
/// The permitted numbers for it.
const RENEW_SECONDS: std::ops::RangeInclusive<u64> = 300..=86_400;
/// A sandbox is renewed only if so much of that time has passed: each renewal is recorded.
const RENEW_AFTER: f64 = 0.1;
/// With the value `skip`, a request does not renew its sandbox.
const HEADER: &str = "opensandbox-access-renew";

/// The number in the value of the extension, if it is permitted.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    text.parse().ok().filter(|seconds| RENEW_SECONDS.contains(seconds))
}

/// The extensions of a sandbox.
pub(crate) fn extensions(metadata: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    serde_json::from_str(metadata.get(EXTENSIONS)?).ok()
}

/// Renews the sandbox of a request to one of its ports, if it is to be renewed.
///
/// # Errors
/// If it cannot be renewed.
pub(crate) async fn renew(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    sandbox: &Sandbox,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let skips = headers.get(HEADER).is_some_and(|value| value == "skip");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Time::from_ms(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let Some(ttl) = renewal(sandbox, now).filter(|_| !skips) else { return Ok(()) };
    let renew = Renew { id: sandbox.id.clone(), ttl_seconds: Some(ttl), shorten: false };
    sandboxes.renew(caller, renew).await.map(drop)
}

/// The time to live, in seconds, that a sandbox gets by a request to one of its ports; `None` if it
/// stays as it is.
fn renewal(sandbox: &Sandbox, now: Time) -> Option<f64> {
    let extensions = extensions(&sandbox.metadata)?;
    let ttl = Duration::from_secs(seconds(extensions.get(RENEW)?)?).as_secs_f64();
    let left = sandbox.expires_at?.duration_since(now).as_secs_f64();
    (left < ttl * (1.0 - RENEW_AFTER)).then_some(ttl)
}
