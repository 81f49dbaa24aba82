//! The questions that wait for an answer in a later request. An answer is used once, and only for the
//! question that it belongs to.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stockade_core::OwnerId;

/// How many questions may wait; the oldest is forgotten.
const QUESTIONS: usize = 256;
/// How long a question waits.
const TIMEOUT: Duration = Duration::from_secs(900);

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) owner: OwnerId,
    pub(super) tool: &'static str,
    pub(super) subject: String,
}

/// The questions that wait.
#[derive(Debug, Default)]
pub(super) struct Decisions(Mutex<HashMap<String, (Instant, Subject)>>);

impl Decisions {
    /// Adds a question; returns the text with which its answer comes.
    pub(super) fn add(&self, asked: Subject) -> String {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, (since, _)| since.elapsed() < TIMEOUT);
        if waiting.len() >= QUESTIONS {
            let oldest = waiting.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(oldest) = oldest.map(|(state, _)| state.clone()) {
                waiting.remove(&oldest);
            }
        }
        let state = uuid::Uuid::new_v4().simple().to_string();
        waiting.insert(state.clone(), (Instant::now(), asked));
        state
    }

    /// Whether the answer with this text belongs to such a question, which then waits no longer.
    pub(super) fn take(&self, state: &str, asked: &Subject) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = waiting.remove(state);
        found.is_some_and(|(since, question)| since.elapsed() < TIMEOUT && question == *asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_used_once_and_for_its_question() {
        let asked = |owner: &str, subject: &str| Subject {
            owner: OwnerId::new(owner).unwrap(),
            tool: "apply",
            subject: subject.to_owned(),
        };
        let decisions = Decisions::default();
        let state = decisions.add(asked("a", "1"));
        assert!(!decisions.take("other", &asked("a", "1")));
        assert!(decisions.take(&state, &asked("a", "1")));
        assert!(!decisions.take(&state, &asked("a", "1")));
        for other in [asked("b", "1"), asked("a", "2")] {
            let state = decisions.add(asked("a", "1"));
            assert!(!decisions.take(&state, &other));
            assert!(!decisions.take(&state, &asked("a", "1")), "one attempt is all");
        }
    }

    #[test]
    fn the_number_of_questions_is_limited() {
        let decisions = Decisions::default();
        let asked =
            Subject { owner: OwnerId::new("a").unwrap(), tool: "t", subject: String::new() };
        for _ in 0..QUESTIONS * 2 {
            decisions.add(asked.clone());
        }
        assert_eq!(decisions.0.lock().unwrap().len(), QUESTIONS);
    }
}
