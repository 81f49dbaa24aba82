//! How long a connection may live: as long as the API key of its latest request can be used. What it
//! still sends or receives, such as a stream or a WebSocket, ends with the key.

use std::sync::{Arc, Mutex, PoisonError};

use stockade_api::KeyDirectory;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The lifetime of one connection.
#[derive(Debug, Default)]
pub(crate) struct Lifetime {
    cut: CancellationToken,
    /// Cancelled when the connection has ended by itself.
    ended: CancellationToken,
    /// The id of the key of the latest request, and what ends its watch.
    key: Mutex<Option<(String, CancellationToken)>>,
}

impl Lifetime {
    /// Completes when the connection must end.
    pub(crate) fn cut(&self) -> WaitForCancellationFutureOwned {
        self.cut.clone().cancelled_owned()
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Binds the connection to the key of a request; `None` for one without a key. A connection serves
    /// one request after the other, and a proxy in front may use it for several keys.
    pub(super) fn bind(&self, keys: &Arc<dyn KeyDirectory>, id: Option<&str>) {
        let mut key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if key.as_ref().map(|(id, _)| id.as_str()) == id {
            return;
        }
        if let Some((_, watch)) = key.take() {
            watch.cancel();
        }
        let Some(id) = id else { return };
        let watch = self.ended.child_token();
        *key = Some((id.to_owned(), watch.clone()));
        drop(key);
        let (keys, id, cut) = (Arc::clone(keys), id.to_owned(), self.cut.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = watch.cancelled() => {}
                () = keys.until_unusable(&id) => cut.cancel(),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use stockade_api::{ApiKey, Problem};
    use tokio::sync::watch;

    use super::*;

    #[derive(Debug)]
    struct Keys(watch::Receiver<&'static str>);

    #[async_trait::async_trait]
    impl KeyDirectory for Keys {
        async fn find_key(&self, _: &str) -> Result<Option<ApiKey>, Problem> {
            Ok(None)
        }

        async fn find_key_by_id(&self, _: &str) -> Result<Option<ApiKey>, Problem> {
            Ok(None)
        }

        async fn until_unusable(&self, id: &str) {
            let mut revoked = self.0.clone();
            if revoked.wait_for(|revoked| *revoked == id).await.is_err() {
                std::future::pending::<()>().await;
            }
        }

        async fn has_keys(&self) -> Result<bool, Problem> {
            Ok(true)
        }

        async fn token_secret(&self) -> Result<[u8; 32], Problem> {
            Ok([0; 32])
        }
    }

    #[tokio::test]
    async fn the_key_of_the_latest_request_counts() {
        let (revoke, revoked) = watch::channel("");
        let keys: Arc<dyn KeyDirectory> = Arc::new(Keys(revoked));
        let lifetime = Lifetime::default();
        lifetime.bind(&keys, Some("a"));
        lifetime.bind(&keys, Some("a"));
        lifetime.bind(&keys, Some("b"));
        revoke.send_replace("a");
        tokio::task::yield_now().await;
        assert!(!lifetime.cut.is_cancelled());
        revoke.send_replace("b");
        lifetime.cut().await;

        let without = Lifetime::default();
        without.bind(&keys, Some("b"));
        without.bind(&keys, None);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!without.cut.is_cancelled());
    }

    #[tokio::test]
    async fn nothing_is_watched_after_the_end() {
        let (revoke, revoked) = watch::channel("");
        let keys: Arc<dyn KeyDirectory> = Arc::new(Keys(revoked));
        let lifetime = Lifetime::default();
        lifetime.bind(&keys, Some("a"));
        lifetime.end();
        while revoke.receiver_count() > 1 {
            tokio::task::yield_now().await;
        }
        assert!(!lifetime.cut.is_cancelled());
    }
}
