//! Which commands clients have joined, so that the output that they have not read yet is not
//! discarded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stockade_core::ExecId;
use tokio::sync::watch;

/// The commands that clients have joined.
#[derive(Debug, Default)]
pub(crate) struct Attachments(Mutex<HashMap<ExecId, Weak<watch::Sender<()>>>>);

/// One client that reads the output of a command, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Attachment(
    #[expect(dead_code, reason = "its end is the end of the channel")] Arc<watch::Sender<()>>,
);

impl Attachments {
    /// A client joins a command.
    pub(crate) fn start(&self, exec: &ExecId) -> Attachment {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.get(exec).and_then(Weak::upgrade) {
            return Attachment(shared);
        }
        known.retain(|_, shared| shared.strong_count() > 0);
        let shared = Arc::new(watch::Sender::new(()));
        known.insert(exec.clone(), Arc::downgrade(&shared));
        Attachment(shared)
    }

    /// Waits until no client reads the output of a command.
    pub(crate) async fn wait_until_free(&self, exec: &ExecId) {
        let joined = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(exec).and_then(Weak::upgrade).map(|shared| shared.subscribe())
        };
        if let Some(mut joined) = joined {
            // Nothing is ever sent: this fails when the last client has left.
            while joined.changed().await.is_ok() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_is_free_when_its_last_reader_has_left() {
        let (attachments, exec) = (Attachments::default(), ExecId::new("x-1").unwrap());
        attachments.wait_until_free(&exec).await;
        let (first, second) = (attachments.start(&exec), attachments.start(&exec));
        let mut waiting = std::pin::pin!(attachments.wait_until_free(&exec));
        assert!(futures_poll(waiting.as_mut()).await);
        drop(first);
        assert!(futures_poll(waiting.as_mut()).await);
        drop(second);
        waiting.await;
    }

    /// Whether a future is still waiting.
    async fn futures_poll(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
        })
        .await
    }
}
