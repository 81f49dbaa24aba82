//! The variables in the texts of a `devcontainer.json`: `${localEnv:NAME:default}`,
//! `${containerWorkspaceFolder}` and the others of the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// The values of variables.
#[derive(Debug)]
pub(super) struct Variables<'a> {
    /// The project's root on the host.
    pub(super) local: &'a Path,
    /// Its path inside; unknown while that itself is read.
    pub(super) container: Option<&'a Path>,
    /// The id of the configuration.
    pub(super) id: &'a str,
    /// The variables of the container.
    pub(super) container_env: &'a BTreeMap<String, String>,
}

/// The names of the caller's variables that a value names.
pub(super) fn local_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            for name in references(text) {
                if let Some(("localEnv" | "env", rest)) = name.split_once(':') {
                    names.insert(rest.split(':').next().unwrap_or_default().to_owned());
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| local_names(value, names)),
        Value::Object(object) => object.values().for_each(|value| local_names(value, names)),
        _ => {}
    }
}

/// What stands between `${` and `}` in a text.
fn references(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

impl Variables<'_> {
    /// A text with the values of its variables. What is no variable of the specification is left
    /// as it is, for a shell.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let Some((name, after)) = rest[at + 2..].split_once('}') else { break };
            expanded.push_str(&rest[..at]);
            match self.value(name) {
                Some(value) => expanded.push_str(&value),
                None => expanded.push_str(&rest[at..at + 3 + name.len()]),
            }
            rest = after;
        }
        expanded.push_str(rest);
        expanded
    }

    /// All texts of a value, expanded.
    pub(super) fn expand_all(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.expand(text)),
            Value::Array(list) => list.iter().map(|value| self.expand_all(value)).collect(),
            Value::Object(object) => Value::Object(
                object.iter().map(|(name, value)| (name.clone(), self.expand_all(value))).collect(),
            ),
            other => other.clone(),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let base = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        match name {
            "localWorkspaceFolder" => return Some(text(self.local)),
            "localWorkspaceFolderBasename" => return base(self.local),
            "containerWorkspaceFolder" => return self.container.map(text),
            "containerWorkspaceFolderBasename" => return self.container.and_then(base),
            "devcontainerId" => return Some(self.id.to_owned()),
            _ => {}
        }
        let (kind, rest) = name.split_once(':')?;
        let (variable, default) = rest.split_once(':').unwrap_or((rest, ""));
        let found = match kind {
            "localEnv" | "env" => std::env::var(variable).ok(),
            "containerEnv" => self.container_env.get(variable).cloned().or_else(|| {
                // Every sandbox has a search path.
                (variable == "PATH").then(|| stockade_plan::environment::PATH.to_owned())
            }),
            _ => return None,
        };
        Some(found.unwrap_or_else(|| default.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_their_values_and_defaults() {
        let environment = BTreeMap::from([("A".to_owned(), "a".to_owned())]);
        let variables = Variables {
            local: Path::new("/home/me/project"),
            container: Some(Path::new("/workspaces/project")),
            id: "id",
            container_env: &environment,
        };
        for (text, expanded) in [
            ("plain", "plain"),
            ("${localWorkspaceFolder}/x", "/home/me/project/x"),
            ("a${localWorkspaceFolderBasename}b${devcontainerId}", "aprojectbid"),
            ("${containerWorkspaceFolder}", "/workspaces/project"),
            ("${containerWorkspaceFolderBasename}", "project"),
            ("${localEnv:STOCKADE_NO_SUCH_VARIABLE}", ""),
            ("${localEnv:STOCKADE_NO_SUCH_VARIABLE:a:b}", "a:b"),
            ("${containerEnv:A}:${containerEnv:B:c}", "a:c"),
            ("echo ${HOME} ${x:-y} ${", "echo ${HOME} ${x:-y} ${"),
            ("${unfinished", "${unfinished"),
        ] {
            assert_eq!(variables.expand(text), expanded, "{text}");
        }
    }

    #[test]
    fn the_callers_variables_are_found_wherever_they_are() {
        let mut names = BTreeSet::new();
        let value = serde_json::json!({
            "a": ["${localEnv:ONE}", { "b": "x${env:TWO:default}${localEnv:ONE}" }],
            "c": "${containerEnv:THREE} ${localEnv",
        });
        local_names(&value, &mut names);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["ONE", "TWO"]);
    }
}
