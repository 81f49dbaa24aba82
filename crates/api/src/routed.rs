//! Operations that other servers may execute: one of them, or all.

use std::fmt::Debug;
use std::pin::Pin;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use stockade_core::Code;

use crate::{Caller, Problem, Result};

/// The member with the name of an image.
const IMAGE_NAME: &str = "reference";

/// Decides which server executes an operation.
#[async_trait]
pub trait Route: Debug + Send + Sync {
    /// The operations of another server.
    type Operations: Debug + Send + Sync;

    /// The server that executes a request.
    ///
    /// # Errors
    /// If that server cannot be reached.
    async fn route(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
    ) -> Result<Routing<Self::Operations>>;
}

/// Which server executes a request.
#[derive(Debug)]
pub enum Routing<T> {
    /// This one.
    Here,
    /// Another one.
    There(Elsewhere<T>),
    /// All, and their answers become one.
    Everywhere {
        /// The others that answer.
        others: Vec<Elsewhere<T>>,
        /// The ids of those that have something which belongs to the answer, and do not answer.
        silent: Vec<String>,
    },
}

/// Another server, which executes a request.
pub struct Elsewhere<T> {
    /// Its id.
    pub host: String,
    /// Its operations.
    pub operations: T,
    /// Ends when it does not answer any more.
    pub gone: Pin<Box<dyn Future<Output = Problem> + Send>>,
}

impl<T: Debug> Debug for Elsewhere<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elsewhere").field("operations", &self.operations).finish_non_exhaustive()
    }
}

/// The answer of another server, or why there is none.
pub(crate) async fn answer_of<T>(
    gone: impl Future<Output = Problem> + Send,
    answer: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    tokio::select! {
        answer = answer => answer,
        problem = gone => Err(problem),
    }
}

/// Refuses a streamed operation on all servers: there is none.
pub(crate) fn not_everywhere(operation: &str) -> Problem {
    Problem::new(Code::Unsupported, format!("{operation} is executed by one server"))
}

/// The answers of all servers as one, beginning with that of this server. What only some of them have is
/// found if one has it; a server that has stopped to answer is one of the silent ones.
///
/// # Errors
/// The problem of a server that could not do what it was to do.
pub(crate) fn combine<A: Serialize + DeserializeOwned>(
    own: Result<A>,
    others: Vec<(String, Result<A>)>,
    mut silent: Vec<String>,
) -> Result<A> {
    let mut found: Option<Value> = None;
    let mut missing = None;
    let named = std::iter::once((None, own))
        .chain(others.into_iter().map(|(host, answer)| (Some(host), answer)));
    for (host, answer) in named {
        match (host, answer) {
            (_, Ok(answer)) => {
                let answer = serde_json::to_value(&answer).map_err(unreadable)?;
                match &mut found {
                    None => found = Some(answer),
                    Some(found) => merge(found, answer),
                }
            }
            (Some(host), Err(problem)) if problem.code == Code::Unreachable => silent.push(host),
            (_, Err(problem)) if is_missing(&problem) => {
                missing.get_or_insert(problem);
            }
            (_, Err(problem)) => return Err(problem),
        }
    }
    let Some(mut found) = found else {
        return Err(missing.unwrap_or_else(|| {
            Problem::new(Code::Unreachable, "no server of the cluster answers")
        }));
    };
    sort(&mut found);
    if let (Value::Object(members), false) = (&mut found, silent.is_empty()) {
        silent.sort();
        silent.dedup();
        members.insert("unreachableServers".to_owned(), silent.into());
    }
    serde_json::from_value(found).map_err(unreadable)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the function of `map_err`")]
fn unreadable(error: serde_json::Error) -> Problem {
    Problem::new(Code::Io, "the answers of the servers cannot be read").because(error.to_string())
}

/// Whether a server says that it does not have something.
fn is_missing(problem: &Problem) -> bool {
    matches!(problem.code, Code::NotFound | Code::ImageNotFound)
}

/// Adds an answer to another one: lists are joined, and numbers added.
fn merge(into: &mut Value, other: Value) {
    match (into, other) {
        (Value::Object(into), Value::Object(other)) => {
            for (name, value) in other {
                match into.get_mut(&name) {
                    Some(into) => merge(into, value),
                    None => {
                        into.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(into), Value::Array(other)) => {
            for item in other {
                if !into.iter().any(|known| is_same(known, &item)) {
                    into.push(item);
                }
            }
        }
        (Value::Number(into), Value::Number(other)) => {
            if let (Some(one), Some(two)) = (into.as_u64(), other.as_u64()) {
                *into = Number::from(one.saturating_add(two));
            }
        }
        _ => {}
    }
}

/// Whether two items of lists mean the same: several servers may have the same image.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one.get(IMAGE_NAME), other.get(IMAGE_NAME)) {
        (Some(_), Some(_)) => {
            [IMAGE_NAME, "platform", "id"].iter().all(|name| one.get(name) == other.get(name))
        }
        _ => one == other,
    }
}

/// Sorts the lists of an answer again: what has a time by its age, the newest first; the rest by its name.
fn sort(answer: &mut Value) {
    let Value::Object(members) = answer else { return };
    for list in members.values_mut().filter_map(Value::as_array_mut) {
        let text = |item: &Value, name: &str| {
            item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name = ["name", IMAGE_NAME]
            .into_iter()
            .find(|name| list.iter().all(|item| item.get(name).is_some()));
        if let Some(name) = name {
            list.sort_by_key(|item| text(item, name));
        } else if list.iter().all(|item| item.is_object()) {
            list.sort_by_key(|item| std::cmp::Reverse(text(item, "createdAt")));
        }
    }
}

/// The operations of `inner`, of which some are executed by other servers.
#[derive(Debug, Clone)]
pub struct Routed<T, R> {
    /// Executes those of this server.
    pub inner: T,
    /// Chooses the server.
    pub router: R,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn combined(own: Result<Value>, other: Result<Value>, silent: &[&str]) -> Result<Value> {
        let silent = silent.iter().map(|host| (*host).to_owned()).collect();
        combine(own, vec![("b".to_owned(), other)], silent)
    }

    #[test]
    fn lists_of_all_servers_become_one() {
        let own = json!({ "volumes": [{ "name": "b" }, { "name": "d" }] });
        let other = json!({ "volumes": [{ "name": "a" }, { "name": "c" }] });
        let names = [("a"), "b", "c", "d"].map(|name| json!({ "name": name }));
        assert_eq!(combined(Ok(own), Ok(other), &[]), Ok(json!({ "volumes": names })));
        let own = json!({ "bundles": [{ "id": "1", "createdAt": "2026-01-03" }] });
        let other = json!({ "bundles": [{ "id": "2", "createdAt": "2026-01-04" }] });
        let both = combined(Ok(own), Ok(other), &["c"]).unwrap();
        assert_eq!(both["bundles"][0]["id"], "2");
        assert_eq!(both["unreachableServers"], json!(["c"]));
    }

    #[test]
    fn one_server_that_has_it_is_enough() {
        let missing = || Err(Problem::new(Code::NotFound, "not here"));
        let freed = |bytes: u64| Ok(json!({ "freedBytes": bytes }));
        assert_eq!(combined(missing(), freed(3), &[]), freed(3));
        assert_eq!(combined(freed(4), freed(3), &[]), freed(7));
        assert_eq!(combined(missing(), missing(), &[]).unwrap_err().code, Code::NotFound);
        let busy = Err(Problem::new(Code::Busy, "in use"));
        assert_eq!(combined(freed(4), busy, &[]).unwrap_err().code, Code::Busy);
        let gone = Err(Problem::new(Code::Unreachable, "gone"));
        let alone = combined(Ok(json!({ "volumes": [] })), gone, &[]).unwrap();
        assert_eq!(alone["unreachableServers"], json!(["b"]));
    }
}
