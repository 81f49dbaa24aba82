//! Which sandboxes are in use now, and when each was used last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::SandboxId;

use crate::clock::now_ms;

/// The uses of every sandbox that was used since this process started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<Mutex<HashMap<SandboxId, Use>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Use {
    active: u32,
    last_ms: i64,
}

/// One use. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct UseGuard {
    activity: Activity,
    id: SandboxId,
}

impl Activity {
    /// Starts a use.
    pub(crate) fn start(&self, id: &SandboxId) -> UseGuard {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = uses.entry(id.clone()).or_default();
        entry.last_ms = now_ms();
        entry.active += 1;
        drop(uses);
        UseGuard { activity: self.clone(), id: id.clone() }
    }

    /// When a sandbox was used last, in milliseconds since 1970; the current time while it is in
    /// use.
    pub(crate) fn last_ms(&self, id: &SandboxId) -> Option<i64> {
        let uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uses.get(id).map(|entry| if entry.active > 0 { now_ms() } else { entry.last_ms })
    }

    /// Removes a sandbox that has ended.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        let mut uses = self.activity.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A sandbox that has ended meanwhile is not added again.
        if let Some(entry) = uses.get_mut(&self.id) {
            entry.last_ms = now_ms();
            entry.active = entry.active.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_lasts_until_it_is_dropped() {
        let (activity, id) = (Activity::default(), SandboxId::new("a").unwrap());
        assert_eq!(activity.last_ms(&id), None);
        let (first, second) = (activity.start(&id), activity.start(&id));
        drop(first);
        assert!(activity.last_ms(&id).is_some_and(|last| last >= now_ms() - 1000));
        drop(second);
        assert!(activity.last_ms(&id).is_some());
        activity.forget(&id);
        assert_eq!(activity.last_ms(&id), None);
    }
}
