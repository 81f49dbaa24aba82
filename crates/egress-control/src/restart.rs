//! When a process that ended is started again.

use std::time::Duration;

/// How long a process must run so that its end counts as a first failure.
const STEADY: Duration = Duration::from_secs(10);
/// The pause after the second failure in a row. Each further one is twice as long; after the first
/// failure the process is restarted immediately.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The pauses between starts: none after a steady run, else an exponential backoff.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// How often in a row the process ended early or could not be started.
    failures: u32,
}

impl Backoff {
    /// The pause before the next start. `ran` is how long the process ran, zero for one that could not
    /// be started.
    pub(crate) fn pause(&mut self, ran: Duration) -> Duration {
        if ran >= STEADY {
            self.failures = 0;
        }
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE),
        };
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_process_runs_steadily() {
        let mut backoff = Backoff::default();
        let mut pause = |ran| backoff.pause(ran).as_millis();
        let early = Duration::from_secs(1);
        assert_eq!([pause(early), pause(early), pause(Duration::ZERO)], [0, 200, 400]);
        assert_eq!([pause(STEADY), pause(early)], [0, 200]);
        (0..40).for_each(|_| {
            pause(early);
        });
        assert_eq!(pause(early), LONGEST_PAUSE.as_millis());
    }
}
