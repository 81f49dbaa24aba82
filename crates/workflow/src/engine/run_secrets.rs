//! The values of the secrets of runs. They are in the memory of this process only: after its end they are
//! given again, with `stockade resume` or for one sandbox with `stockade secret set`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use stockade_api::SecretValue;
use stockade_api::variables::SECRETS;
use stockade_core::network::secret::BoundSecret;
use stockade_core::{Code, Problem};

use crate::sync::lock;

/// The values, by the ids of runs.
#[derive(Debug, Default)]
pub(super) struct RunSecrets(Mutex<HashMap<String, BTreeMap<String, SecretValue>>>);

impl RunSecrets {
    /// Adds values of a run. Those that it has of other names stay.
    pub(super) fn add(&self, run: &str, values: BTreeMap<String, SecretValue>) {
        if !values.is_empty() {
            lock(&self.0).entry(run.to_owned()).or_default().extend(values);
        }
    }

    /// Gives a run the values of another one.
    pub(super) fn copy(&self, from: &str, to: &str) {
        let values = lock(&self.0).get(from).cloned().unwrap_or_default();
        self.add(to, values);
    }

    /// Removes the values of a run that has ended.
    pub(super) fn remove(&self, run: &str) {
        lock(&self.0).remove(run);
    }

    /// The values of some secrets of a run, or of a child of it.
    pub(super) fn values(
        &self,
        run: &str,
        secrets: &[BoundSecret],
    ) -> BTreeMap<String, SecretValue> {
        let root = run.split(":child:").next().unwrap_or(run);
        let all = lock(&self.0);
        let Some(values) = all.get(root) else { return BTreeMap::new() };
        let value = |secret: &BoundSecret| {
            values.get_key_value(&secret.name).map(|(name, value)| (name.clone(), value.clone()))
        };
        secrets.iter().filter_map(value).collect()
    }
}

/// The secrets that the environment of a run names.
///
/// # Errors
/// Which of them is invalid.
pub(super) fn bound(environment: &BTreeMap<String, String>) -> Result<Vec<BoundSecret>, String> {
    let text = environment.get(SECRETS).map(String::as_str).unwrap_or_default();
    text.split_whitespace()
        .map(|secret| secret.parse().map_err(|error: String| format!("{secret}: {error}")))
        .collect()
}

/// Refuses secrets that a run was started without.
///
/// # Errors
/// [`Code::InvalidInput`] for the first of them.
pub(super) fn check_named<'a>(
    run: &str,
    environment: &BTreeMap<String, String>,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), Problem> {
    let named = bound(environment).unwrap_or_default();
    let unknown = names.find(|name| named.iter().all(|it| it.name != **name));
    unknown.map_or(Ok(()), |name| {
        let message = format!("the run {run} was started without the secret {name}");
        Err(Problem::new(Code::InvalidInput, message)
            .because("the hosts that receive a secret are those of `stockade up --secret`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_and_its_children_have_the_values_of_their_own_secrets() {
        let secrets = RunSecrets::default();
        let value = |text: &str| SecretValue::new(text);
        let named = |name: &str| vec![format!("{name}@h.test").parse().unwrap()];
        secrets.add("a", BTreeMap::from([("ONE".to_owned(), value("1"))]));
        secrets.add("a", BTreeMap::from([("TWO".to_owned(), value("2"))]));
        for run in ["a", "a:child:b", "a:child:b:child:c"] {
            let found = secrets.values(run, &named("TWO"));
            assert_eq!(found, BTreeMap::from([("TWO".to_owned(), value("2"))]), "{run}");
        }
        secrets.remove("b");
        assert!(secrets.values("b", &named("ONE")).is_empty());
        assert!(secrets.values("a", &named("OTHER")).is_empty());
        assert!(!format!("{secrets:?}").contains("\"1\""));
    }

    #[test]
    fn the_environment_names_the_secrets() {
        let of = |text: &str| bound(&BTreeMap::from([(SECRETS.to_owned(), text.to_owned())]));
        assert_eq!(bound(&BTreeMap::new()), Ok(Vec::new()));
        let found: Vec<_> = of("A_KEY@a.test B_KEY@b.test:8443").unwrap();
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["A_KEY@a.test", "B_KEY@b.test:8443"]
        );
        assert!(of("A_KEY").is_err());
    }
}
