//! How long each wait may take, and how often a failed download is tried again.

use std::time::Duration;

/// The deadlines of a download.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// To resolve a name and connect to one of its addresses, TLS included.
    pub connect: Duration,
    /// From a request to the head of its response.
    pub head: Duration,
    /// For all of a manifest, a token or the text of an error.
    pub document: Duration,
    /// For a part of a blob: in each such time, at least [`Times::slowest`] bytes per second must
    /// arrive.
    pub window: Duration,
    /// The lowest rate of a blob, in bytes per second.
    pub slowest: u64,
    /// How often a download that makes no progress is tried again.
    pub retries: u32,
    /// The pause before the first retry; each one is twice as long as the one before.
    pub pause: Duration,
    /// The longest pause that a registry may ask for; after a longer one the user tries again.
    pub longest_pause: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(20),
            head: Duration::from_secs(60),
            document: Duration::from_secs(60),
            window: Duration::from_secs(30),
            slowest: 1024,
            retries: 5,
            pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(20),
        }
    }
}
