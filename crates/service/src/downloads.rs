//! How far the downloads are that operations wait for, and how many an owner has at once. It is in memory
//! only: a download that a crash has interrupted starts again with the next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stockade_api::{DownloadProgress, DownloadStatus};
use stockade_core::{Code, OwnerId, Problem};
use tokio::sync::watch;

/// How long [`Downloads::wait`] waits for news.
const WAIT: Duration = Duration::from_secs(10);

/// The most images that a client of another machine may have downloaded at once, and the most of its
/// requests that may wait for them. A download counts until it has ended, also if its request has ended.
const MAX_IMAGES: usize = 8;
const MAX_REQUESTS: usize = 256;

type Key = (OwnerId, String);

/// The downloads of all owners, by their image's name.
#[derive(Debug, Default)]
pub(crate) struct Downloads {
    all: Arc<Mutex<HashMap<Key, Download>>>,
    running: Arc<Running>,
}

/// For how many requests each image of an owner is downloaded.
#[derive(Debug, Default)]
struct Running(Mutex<HashMap<OwnerId, HashMap<String, usize>>>);

impl Running {
    /// Counts a request.
    ///
    /// # Errors
    /// [`Code::RateLimited`] if it is limited, and there are too many.
    fn count(self: &Arc<Self>, key: &Key, is_limited: bool) -> Result<Counted, Problem> {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, image) = key;
        let own = owners.get(owner);
        let images = own.map_or(0, HashMap::len);
        let requests: usize = own.map_or(0, |own| own.values().sum());
        let is_new = own.is_none_or(|own| !own.contains_key(image));
        if is_limited && (is_new && images >= MAX_IMAGES || requests >= MAX_REQUESTS) {
            return Err(Problem::new(Code::RateLimited, "too many images are downloaded at once")
                .because(format!(
                    "the server downloads at most {MAX_IMAGES} images for the keys of one owner at \
                     once, for at most {MAX_REQUESTS} requests"
                ))
                .remedied_by("wait for the end of a download, and send the request again"));
        }
        *owners.entry(owner.clone()).or_default().entry(image.clone()).or_default() += 1;
        Ok(Counted { running: Arc::clone(self), key: key.clone() })
    }
}

/// A request that is counted until this is dropped.
#[derive(Debug)]
struct Counted {
    running: Arc<Running>,
    key: Key,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (owner, image) = &self.key;
        let mut owners = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = owners.get_mut(owner) else { return };
        if let Some(requests) = own.get_mut(image) {
            *requests -= 1;
        }
        own.retain(|_, requests| *requests > 0);
        if own.is_empty() {
            owners.remove(owner);
        }
    }
}

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
    counted: Arc<Counted>,
}

impl Downloads {
    /// An operation of this owner starts to wait for a download.
    ///
    /// # Errors
    /// [`Code::RateLimited`] if it is limited, and the owner has too many.
    pub(crate) fn begin(
        &self,
        owner: &OwnerId,
        image: &str,
        is_limited: bool,
    ) -> Result<WaitingOperation, Problem> {
        let key = (owner.clone(), image.to_owned());
        let counted = Arc::new(self.running.count(&key, is_limited)?);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
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
        Ok(WaitingOperation { all: self.all.clone(), key, status, counted })
    }

    /// The status of a download, once it is another one than the caller has seen, at the latest after
    /// some seconds.
    pub(crate) async fn wait(&self, owner: &OwnerId, image: &str, seen: u64) -> DownloadStatus {
        let key = (owner.clone(), image.to_owned());
        let subscribed = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// What is called with each progress; it may outlive the operation, and counts as long.
    pub(crate) fn report(&self) -> impl Fn(DownloadProgress) + Send + Sync + 'static + use<> {
        // A strong reference would hide the end from the requests that wait for the status.
        let status = Arc::downgrade(&self.status);
        let counted = Arc::clone(&self.counted);
        move |progress| {
            let _ = &counted;
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
        let begin = || downloads.begin(&one, "app:1", true).unwrap();
        let (first, second) = (begin(), begin());
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

    #[test]
    fn an_owner_has_a_limited_number_of_downloads_until_they_have_ended() {
        let downloads = Downloads::default();
        let (one, other) = (OwnerId::from_uid(1), OwnerId::from_uid(2));
        let begin = |image: &str| downloads.begin(&one, image, true);
        let mut reports = Vec::new();
        for number in 0..MAX_IMAGES {
            // The request ends; the download goes on.
            reports.push(begin(&format!("app:{number}")).unwrap().report());
        }
        assert_eq!(begin("app:new").unwrap_err().code, Code::RateLimited);
        downloads.begin(&other, "app:new", true).unwrap();
        downloads.begin(&one, "app:new", false).unwrap();
        // More requests for the same images are no more downloads, but their number is limited too.
        let waiting: Vec<_> = (MAX_IMAGES..MAX_REQUESTS).map(|_| begin("app:0").unwrap()).collect();
        assert_eq!(begin("app:0").unwrap_err().code, Code::RateLimited);
        drop(waiting);
        reports.pop();
        begin("app:new").unwrap();
        reports.clear();
        assert!(downloads.running.0.lock().unwrap().is_empty());
    }
}
