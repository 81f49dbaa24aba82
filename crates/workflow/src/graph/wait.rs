//! What tasks wait for: decisions, times and signals.

use std::time::Duration;

use serde_json::{Value, json};

/// A question for a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub title: Option<String>,
    /// Further text about the question.
    pub summary: Option<String>,
    /// What happens when it is denied.
    pub on_deny: OnDeny,
    /// What the user answers.
    pub answer: Answer,
}

/// What a user answers to a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Answer {
    /// Whether it is approved.
    #[default]
    Decision,
    /// JSON, as the note of an approval.
    Note,
    /// One of these options, as the note of an approval.
    Selection(Vec<String>),
    /// All of these options in an order, as the note of an approval.
    Ranking(Vec<String>),
}

impl Approval {
    /// The output of the task for a decision.
    ///
    /// # Errors
    /// Why the decision is not an answer.
    pub(crate) fn output(&self, decision: &Value) -> Result<Value, String> {
        let note = decision["note"].as_str();
        let needs = |what: &str| format!("the answer is the note of the approval: {what}");
        let word = || note.map(str::trim).filter(|note| !note.is_empty());
        match &self.answer {
            _ if decision["approved"] != true => Ok(decision.clone()),
            Answer::Decision => Ok(decision.clone()),
            Answer::Note => {
                let text = word().ok_or_else(|| needs("give it as JSON with --note"))?;
                serde_json::from_str(text)
                    .map_err(|error| needs(&format!("it is not JSON: {error}")))
            }
            Answer::Selection(options) => {
                let known = options.join(", ");
                let chosen = word().filter(|word| options.iter().any(|option| option == word));
                let chosen = chosen.ok_or_else(|| needs(&format!("one of {known} with --note")))?;
                Ok(json!({ "selected": chosen, "notes": null }))
            }
            Answer::Ranking(options) => {
                let known = options.join(",");
                let ranked: Vec<&str> =
                    word().unwrap_or_default().split(',').map(str::trim).collect();
                let (mut one, mut other) =
                    (ranked.clone(), options.iter().map(String::as_str).collect::<Vec<_>>());
                one.sort_unstable();
                other.sort_unstable();
                if one != other {
                    return Err(needs(&format!("all of {known} in an order with --note")));
                }
                Ok(json!({ "ranked": ranked, "notes": null }))
            }
        }
    }
}

/// What happens when an approval is denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDeny {
    /// The task fails.
    #[default]
    Fail,
    /// The run continues, and the answer is the output.
    Continue,
    /// The run continues as if the task did not exist.
    Skip,
}

/// A wait for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// For this long after the task starts.
    After(Duration),
    /// Until this time, in milliseconds since 1970.
    Until(i64),
}

/// A wait for a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// The correlation id, which distinguishes signals with this name.
    pub correlation: Option<String>,
    /// What happens when the signal does not arrive in time.
    pub on_timeout: OnTimeout,
}

/// What happens when a signal does not arrive in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The task fails.
    #[default]
    Fail,
    /// The run continues without an answer.
    Continue,
    /// The run continues as if the task did not exist.
    Skip,
}
