//! Bundles end by age, so that forgotten ones do not fill the disk: each removal is reported to the
//! caller, and is a line of the history.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stockade_api::{Bundle, Result};
use stockade_bundle::decisions::Action;
use stockade_bundle::store::{self, StoredBundle};

use crate::bundles::Bundles;
use crate::inspect::describe;
use crate::problem::store_problem;

/// How long a bundle waits for a decision.
pub const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Bundles {
    /// Removes the bundles that have waited too long. Returns the others, and what was removed.
    pub(crate) fn remove_old(
        &self,
        listed: Vec<StoredBundle>,
    ) -> Result<(Vec<StoredBundle>, Vec<Bundle>)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = u64::try_from(now.saturating_sub(MAX_AGE).as_millis()).unwrap_or(0);
        let (mut left, mut expired) = (Vec::new(), Vec::new());
        for stored in listed {
            let is_old = stored.bundle.as_ref().is_ok_and(|bundle| {
                bundle.manifest.created_at_ms < oldest && bundle.lock().is_ok()
            });
            match stored {
                StoredBundle { bundle: Ok(bundle), .. } if is_old => {
                    let removed = bundle.state().map(|state| describe(&bundle, &state)).and_then(
                        |described| {
                            let paths = bundle.manifest.entries.len();
                            bundle.record(&self.data, Action::Expired, paths)?;
                            bundle.remove()?;
                            Ok(described)
                        },
                    );
                    match removed {
                        Ok(described) => expired.push(described),
                        Err(store::Error::NotFound(_)) => {}
                        Err(error) => return Err(store_problem(&error)),
                    }
                }
                stored => left.push(stored),
            }
        }
        Ok((left, expired))
    }
}
