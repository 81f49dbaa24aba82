//! Where a service gets the images from that the store of its data directory does not have.

use std::fmt::Debug;

use async_trait::async_trait;
use stockade_api::{DownloadProgress, Result};

/// What is called with the progress of a download, also after the request has ended.
pub type Report = Box<dyn Fn(DownloadProgress) + Send + Sync>;

/// Where the images of the store come from.
#[async_trait]
pub trait ImageSource: Debug + Send + Sync {
    /// Downloads the image of a name into the store of the data directory. The download continues
    /// if the caller stops waiting; a second request for the same image waits for it.
    ///
    /// # Errors
    /// Why there is no image.
    async fn pull(&self, name: &str, report: Report) -> Result<()>;

    /// The registry that a name leads to.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a text that is not the name of an image.
    fn registry(&self, name: &str) -> Result<String>;
}
