//! The request for a session, and what of it is supported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stockade_api::Bytes;

use crate::failure::{Failure, invalid, unsupported};

/// Places for the state of a session's shell.
const PLACES: [&str; 3] = ["/var/tmp", "/tmp", "/dev/shm"];
/// Its name there.
const NAME: &str = ".opensandbox-session";
/// How long a session without a command lives, unless the request says otherwise, in seconds.
const IDLE_SECONDS: u64 = 3600;

/// What a session does with the files below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// It changes them itself.
    Rw,
    /// It changes a copy.
    Overlay,
    /// It cannot change them.
    Ro,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Workspace {
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<Mode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Overlay {
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<Mode>,
    /// Whether its changes are shown and committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) persist: Option<bool>,
}

/// Which variables of the sandbox a session has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Variables {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<VariablesMode>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    keys: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum VariablesMode {
    Allow,
    Deny,
}

impl Variables {
    /// The variables that a session has, of those of the sandbox.
    pub(super) fn select(&self, all: BTreeMap<String, Bytes>) -> BTreeMap<String, Bytes> {
        let allows = self.mode == Some(VariablesMode::Allow);
        all.into_iter().filter(|(name, _)| self.keys.contains(name) == allows).collect()
    }
}

/// The request for a session. It is also what the properties of a session repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) workspace: Option<Workspace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) overlays: Vec<Overlay>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extra_writable: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    binds: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share_net: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) env_passthrough: Option<Variables>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid_mode: Option<UidMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_timeout_seconds: Option<u64>,
}

/// Every session has the walls of a sandbox, whichever it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Profile {
    Strict,
    Balanced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum UidMode {
    Setpriv,
    Userns,
}

/// A directory that a session may change, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) path: String,
    pub(super) mode: Mode,
    pub(super) is_shown: bool,
}

impl Create {
    /// Refuses what is invalid or not supported, and completes the rest.
    pub(super) fn check(mut self) -> Result<Self, Failure> {
        if self.workspace.is_none() && self.overlays.is_empty() {
            return Err(invalid("one of `workspace` and `overlays` is required"));
        }
        let requested = [
            (!self.extra_writable.is_empty(), "`extra_writable`"),
            (!self.binds.is_empty(), "`binds`"),
            (self.share_net == Some(true), "`share_net`"),
            (self.uid_mode == Some(UidMode::Userns), "`uid_mode: userns`"),
        ];
        if let Some((_, what)) = requested.iter().find(|(requested, _)| *requested) {
            return Err(unsupported(format_args!("{what} of an isolated session")));
        }
        if self.gid.is_some() && self.uid.is_none() {
            return Err(invalid("a `gid` needs a `uid`"));
        }
        if let Some(workspace) = &mut self.workspace {
            workspace.mode.get_or_insert(Mode::Overlay);
        }
        for overlay in &mut self.overlays {
            let mode = *overlay.mode.get_or_insert(Mode::Overlay);
            if mode != Mode::Overlay && overlay.persist.is_some() {
                return Err(invalid("`persist` is for the mode `overlay`"));
            }
        }
        let roots = self.roots();
        for (at, root) in roots.iter().enumerate() {
            let is_plain = |part| matches!(part, Component::Normal(_) | Component::RootDir);
            if !root.path.starts_with('/') || !Path::new(&root.path).components().all(is_plain) {
                return Err(invalid(format!("the path {:?} is not absolute", root.path)));
            }
            if roots.iter().take(at).any(|other| other.path == root.path) {
                return Err(invalid(format!("the path {:?} is named twice", root.path)));
            }
            if root.mode == Mode::Rw {
                let refused = unsupported("the mode `rw` of an isolated session");
                return Err(Failure(refused.0.remedied_by(
                    "use the mode `overlay`, and commit the changes; or run the command without a session",
                )));
            }
        }
        Ok(self)
    }

    /// The directories of the session; the first is where its commands begin.
    pub(super) fn roots(&self) -> Vec<Root> {
        let mut roots = Vec::new();
        if let Some(Workspace { path, mode }) = &self.workspace {
            let mode = mode.unwrap_or(Mode::Overlay);
            roots.push(Root { path: path.clone(), mode, is_shown: mode == Mode::Overlay });
        }
        for Overlay { path, mode, persist } in &self.overlays {
            let mode = mode.unwrap_or(Mode::Overlay);
            let is_shown = mode == Mode::Overlay && *persist != Some(false);
            roots.push(Root { path: path.clone(), mode, is_shown });
        }
        roots
    }

    /// The rules of the session beside those of the sandbox, if it may not change everything.
    pub(super) fn access_rules(&self, outer: &[Value]) -> Vec<Value> {
        let rule = |effect: &str, level: &str, path: &str| json!({ "effect": effect, "level": level, "path": path });
        let mut rules = outer.to_vec();
        let protected = self.roots().into_iter().filter(|root| root.mode == Mode::Ro);
        let denials: Vec<_> = protected.map(|root| rule("deny", "readwrite", &root.path)).collect();
        if rules.is_empty() && !denials.is_empty() {
            rules.extend(["readwrite", "execute"].map(|level| rule("allow", level, "/")));
        }
        rules.extend(denials);
        rules
    }

    /// The directory for the state of its shell: the first one that is in none of its directories.
    pub(super) fn state_directory(&self) -> Result<String, Failure> {
        let roots = self.roots();
        let is_free =
            |place: &&&str| roots.iter().all(|root| !Path::new(place).starts_with(&root.path));
        let place = PLACES.iter().find(is_free);
        let place = place.ok_or_else(|| {
            let places = PLACES.join(", ");
            invalid(format!("one of {places} must be outside of the session's directories"))
        })?;
        Ok(format!("{place}/{NAME}"))
    }

    /// After how many seconds without a command the session ends.
    pub(super) const fn idle_seconds(&self) -> Option<u64> {
        match self.idle_timeout_seconds {
            None => Some(IDLE_SECONDS),
            Some(0) => None,
            seconds => seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Create, String> {
        let request: Create = serde_json::from_str(text).unwrap();
        request.check().map_err(|Failure(problem)| problem.code.to_string())
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for (text, code) in [
            ("{}", "INVALID_INPUT"),
            (r#"{"workspace":{"path":"w"}}"#, "INVALID_INPUT"),
            (r#"{"workspace":{"path":"/w/../x"}}"#, "INVALID_INPUT"),
            (r#"{"workspace":{"path":"/w"},"overlays":[{"path":"/w"}]}"#, "INVALID_INPUT"),
            (r#"{"workspace":{"path":"/w"},"gid":1}"#, "INVALID_INPUT"),
            (r#"{"overlays":[{"path":"/w","mode":"ro","persist":true}]}"#, "INVALID_INPUT"),
            (r#"{"workspace":{"path":"/w","mode":"rw"}}"#, "UNSUPPORTED"),
            (r#"{"workspace":{"path":"/w"},"share_net":true}"#, "UNSUPPORTED"),
            (r#"{"workspace":{"path":"/w"},"binds":[{"source":"/etc"}]}"#, "UNSUPPORTED"),
            (r#"{"workspace":{"path":"/w"},"uid_mode":"userns"}"#, "UNSUPPORTED"),
        ] {
            assert_eq!(check(text).unwrap_err(), code, "{text}");
        }
    }

    #[test]
    fn a_directory_is_copy_on_write_unless_the_request_says_otherwise() {
        let text = r#"{"workspace":{"path":"/w"},"overlays":[{"path":"/tmp","mode":"ro"},
            {"path":"/x","persist":false}],"idle_timeout_seconds":0}"#;
        let request = check(text).unwrap();
        let roots: Vec<_> = request.roots().iter().map(|root| (root.mode, root.is_shown)).collect();
        assert_eq!(roots, [(Mode::Overlay, true), (Mode::Ro, false), (Mode::Overlay, false)]);
        assert_eq!(request.state_directory().unwrap(), "/var/tmp/.opensandbox-session");
        assert_eq!(request.idle_seconds(), None);
        let rules = request.access_rules(&[]);
        assert_eq!(rules.len(), 3);
        assert_eq!(rules[2], json!({ "effect": "deny", "level": "readwrite", "path": "/tmp" }));
        assert!(check(r#"{"workspace":{"path":"/"}}"#).unwrap().state_directory().is_err());
    }

    #[test]
    fn variables_are_allowed_or_denied_by_name() {
        let all = || -> BTreeMap<String, Bytes> {
            [("A".to_owned(), "1".into()), ("B".to_owned(), "2".into())].into()
        };
        let names = |text: &str| -> Vec<String> {
            let variables: Variables = serde_json::from_str(text).unwrap();
            variables.select(all()).into_keys().collect()
        };
        assert_eq!(names("{}"), ["A", "B"]);
        assert_eq!(names(r#"{"keys":["A"]}"#), ["B"]);
        assert_eq!(names(r#"{"mode":"allow","keys":["A"]}"#), ["A"]);
    }
}
