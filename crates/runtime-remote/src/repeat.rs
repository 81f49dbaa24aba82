//! When a request is sent again: only after a failure that allows it, and never earlier than the server
//! asks for.

use std::time::Duration;

use crate::failure::Failure;

/// How often a request is sent, and the pause before it is sent again, which grows.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(150);
/// The longest pause. After a refusal that asks for more, the caller decides.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a request may be sent again when it is unknown whether the server has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It may: it has the same effect twice.
    Always,
    /// Only if the server has certainly not acted on it.
    IfUnseen,
}

impl Repeat {
    /// Sends a request until it succeeds, or may not be sent again.
    ///
    /// # Errors
    /// The last failure.
    pub async fn send<T, F>(self, mut request: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut attempt = 1;
        loop {
            let failure = match request().await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let Some(pause) = self.pause(&failure, attempt) else { return Err(failure) };
            tracing::debug!(%failure, "a request is sent again");
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// The pause after a failed attempt, the first of which is 1; `None` after the last one.
    fn pause(self, failure: &Failure, attempt: u32) -> Option<Duration> {
        let may_repeat = match self {
            Self::Always => failure.is_transient(),
            Self::IfUnseen => failure.is_unseen(),
        };
        if !may_repeat || attempt >= ATTEMPTS {
            return None;
        }
        let requested = match failure {
            Failure::Refused { retry_after, .. } => retry_after.map(Duration::from_secs),
            _ => None,
        };
        let pause = requested.unwrap_or_else(|| PAUSE * 2_u32.pow(attempt - 1));
        (pause <= LONGEST_PAUSE).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_not_sent_earlier_than_the_server_asks_for() {
        let limited = |seconds| Failure::refused(429, seconds, b"");
        for (seconds, pause) in [
            (None, Some(PAUSE)),
            (Some(2), Some(Duration::from_secs(2))),
            (Some(5), Some(LONGEST_PAUSE)),
            (Some(6), None),
            (Some(u64::MAX), None),
        ] {
            assert_eq!(Repeat::IfUnseen.pause(&limited(seconds), 1), pause, "{seconds:?}");
        }
        assert_eq!(Repeat::IfUnseen.pause(&limited(None), 3), Some(4 * PAUSE));
        assert_eq!(Repeat::IfUnseen.pause(&limited(None), ATTEMPTS), None);
    }

    #[test]
    fn what_the_server_may_have_done_is_not_repeated() {
        let lost = Failure::Lost(String::new(), String::new());
        assert_eq!(Repeat::Always.pause(&lost, 1), Some(PAUSE));
        assert_eq!(Repeat::IfUnseen.pause(&lost, 1), None);
        assert_eq!(Repeat::Always.pause(&Failure::refused(404, None, b""), 1), None);
    }
}
