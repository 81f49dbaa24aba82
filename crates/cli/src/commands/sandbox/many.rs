//! The same change of many sandboxes, several at a time, with a progress line.

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stockade_api::{LATEST, ListSandboxes, Sandbox};
use stockade_core::SandboxId;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{STATES, find_by_prefix, find_latest, list_all, not_found};
use crate::problem::Failure;
use crate::remote::Remote;

/// How many changes are made at the same time.
const AT_ONCE: usize = 16;

/// How many changes have no progress line.
const FEW: usize = 4;

/// Makes a change for each item, several at a time. The results have the order of the items. A
/// progress line is printed on a terminal, with this word for what is done.
pub(super) async fn side_by_side<I, T, Fut>(
    remote: &Arc<Remote>,
    word: &'static str,
    items: Vec<I>,
    change: impl Fn(Arc<Remote>, I) -> Fut,
) -> Vec<Result<T, Failure>>
where
    T: Send + 'static,
    Fut: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let progress = progress(word, items.len());
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut changes = JoinSet::new();
    for (number, item) in items.into_iter().enumerate() {
        let (slots, change) = (slots.clone(), change(remote.clone(), item));
        changes.spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire_owned().await;
            (number, change.await)
        });
    }
    let mut done = Vec::with_capacity(changes.len());
    while let Some(ended) = changes.join_next().await {
        progress.inc(1);
        // A task that panicked has ended the process already.
        done.extend(ended);
    }
    progress.finish_and_clear();
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The progress line, which is drawn only on a terminal.
fn progress(word: &'static str, count: usize) -> ProgressBar {
    if count < FEW {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{msg} {pos} of {len} {wide_bar} {eta}") {
        Ok(style) => bar.with_style(style).with_message(word),
        // The template is constant.
        Err(_) => bar,
    }
}

/// Finds sandboxes by their ids, unique prefixes of them, or `latest`, with few requests. Each is
/// named once. A failure has the name that was not found.
pub(super) async fn find_all(
    remote: &Remote,
    names: &[String],
) -> Result<Vec<Result<SandboxId, (String, Failure)>>, Failure> {
    let alive = list_all(remote, ListSandboxes::default()).await?;
    let mut all = None;
    let mut found: Vec<Result<SandboxId, (String, Failure)>> = Vec::with_capacity(names.len());
    for name in names {
        let id = match find_among(&alive, name) {
            Ok(None) => {
                if all.is_none() {
                    let states = STATES.to_vec();
                    let request = ListSandboxes { states, ..ListSandboxes::default() };
                    all = Some(list_all(remote, request).await?);
                }
                let ended = find_by_prefix(all.as_deref().unwrap_or_default(), name);
                ended.and_then(|id| {
                    id.ok_or_else(|| not_found(&format!("there is no sandbox {name}")).into())
                })
            }
            Ok(Some(id)) => Ok(id),
            Err(failure) => Err(failure),
        };
        let is_known = |id: &SandboxId| found.iter().flatten().any(|known| known == id);
        if !id.as_ref().is_ok_and(is_known) {
            found.push(id.map_err(|failure| (name.clone(), failure)));
        }
    }
    Ok(found)
}

fn find_among(alive: &[Sandbox], name: &str) -> Result<Option<SandboxId>, Failure> {
    match name {
        LATEST => find_latest(alive).map(Some),
        name => find_by_prefix(alive, name),
    }
}
