//! How far the downloads are that operations wait for. It is in memory only: a download that a crash has
//! interrupted starts again with the next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stockade_api::{DownloadProgress, DownloadStatus};
use stockade_core::OwnerId;
use tokio::sync::watch;

/// How long [`Downloads::wait`] waits for news.
const WAIT: Duration = Duration::from_secs(10);

type Key = (OwnerId, String);

/// The downloads of all owners, by their image's name.
#[derive(Debug, Default)]
pub(crate) struct Downloads(Arc<Mutex<HashMap<Key, Download>>>);

#[derive(Debug)]
struct Download {
    status: Arc<watch::Sender<DownloadStatus>>,
    /// How many operations wait for it.
    operations: usize,
}

/// An operation that waits for a download. When the last one is dropped, nothing is known of it.
#[derive(Debug)]
pub(crate) struct WaitingOperation {
    all: Arc<Mutex<HashMap<Key, Download>>>,
    key: Key,
    status: Arc<watch::Sender<DownloadStatus>>,
}

impl Downloads {
    /// An operation of this owner starts to wait for a download.
    pub(crate) fn begin(&self, owner: &OwnerId, image: &str) -> WaitingOperation {
        let key = (owner.clone(), image.to_owned());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let download = all.entry(key.clone()).or_insert_with(|| Download {
            status: Arc::new(watch::Sender::new(DownloadStatus {
                number: 1,
                progress: Some(DownloadProgress::Waiting),
            })),
            operations: 0,
        });
        download.operations += 1;
        let status = download.status.clone();
        drop(all);
        WaitingOperation { all: self.0.clone(), key, status }
    }

    /// The status of a download, once it is another one than the caller has seen, at the latest after
    /// some seconds.
    pub(crate) async fn wait(&self, owner: &OwnerId, image: &str, seen: u64) -> DownloadStatus {
        let key = (owner.clone(), image.to_owned());
        let subscribed = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&key).map(|download| download.status.subscribe())
        };
        let Some(mut status) = subscribed else { return DownloadStatus::default() };
        let news = status.wait_for(|status| status.number != seen);
        match tokio::time::timeout(WAIT, news).await {
            Ok(Ok(status)) => return status.clone(),
            // It has ended.
            Ok(Err(_)) => return DownloadStatus::default(),
            Err(_) => {}
        }
        status.borrow().clone()
    }
}

impl WaitingOperation {
    /// What is called with each progress; it may outlive the operation.
    pub(crate) fn report(&self) -> impl Fn(DownloadProgress) + Send + Sync + 'static + use<> {
        // A strong reference would hide the end from the requests that wait for the status.
        let status = Arc::downgrade(&self.status);
        move |progress| {
            if let Some(status) = status.upgrade() {
                status.send_modify(|status| {
                    status.number += 1;
                    status.progress = Some(progress);
                });
            }
        }
    }
}

impl Drop for WaitingOperation {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(download) = all.get_mut(&self.key) {
            download.operations -= 1;
            if download.operations == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_sees_the_progress_of_its_own_downloads() {
        let downloads = Downloads::default();
        let (one, other) = (OwnerId::from_uid(1), OwnerId::from_uid(2));
        assert_eq!(downloads.wait(&one, "app:1", 0).await, DownloadStatus::default());
        let (first, second) = (downloads.begin(&one, "app:1"), downloads.begin(&one, "app:1"));
        let waiting = downloads.wait(&one, "app:1", 0).await;
        assert_eq!(waiting.progress, Some(DownloadProgress::Waiting));
        for (owner, image) in [(&other, "app:1"), (&one, "app:2")] {
            assert_eq!(downloads.wait(owner, image, 0).await, DownloadStatus::default());
        }
        // Without news the status is the same, after a while.
        assert_eq!(downloads.wait(&one, "app:1", waiting.number).await, waiting);
        let report = first.report();
        report(DownloadProgress::Unpacking);
        drop(first);
        report(DownloadProgress::Unpacking);
        let news = downloads.wait(&one, "app:1", waiting.number).await;
        assert_eq!(news.progress, Some(DownloadProgress::Unpacking));
        let end = downloads.wait(&one, "app:1", news.number);
        let (end, ()) = tokio::join!(end, async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(second);
        });
        assert_eq!(end, DownloadStatus::default());
        report(DownloadProgress::Unpacking);
        assert_eq!(downloads.wait(&one, "app:1", 0).await, DownloadStatus::default());
    }
}
