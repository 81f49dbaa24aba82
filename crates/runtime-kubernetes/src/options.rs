//! How pods are made: the variables of the environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const KUBECONFIG: &str = "STOCKADE_KUBECONFIG";
const IMAGE: &str = "STOCKADE_KUBERNETES_IMAGE";
const INSTALLATION: &str = "STOCKADE_KUBERNETES_INSTALLATION";
const RUNTIME_CLASS: &str = "STOCKADE_KUBERNETES_RUNTIME_CLASS";
const WARM: &str = "STOCKADE_KUBERNETES_WARM";
const LIFETIME: &str = "STOCKADE_KUBERNETES_LIFETIME";
/// The default of the longest life of a pod.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most unused pods of one kind.
const MOST_WARM: u32 = 1000;

/// How pods are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The data directory.
    pub data: PathBuf,
    /// The file that says where the cluster is; without one, the usual ones and the service account of a pod.
    pub kubeconfig: Option<PathBuf>,
    /// The image with the program `stockade`, for init containers. Without it no sandbox can be made.
    pub image: Option<String>,
    /// The name by which servers that share their records share their pods; else one of this data directory.
    pub installation: Option<String>,
    /// The runtime class of pods, such as `gvisor`.
    pub runtime_class: Option<String>,
    /// How many unused pods are kept for each kind of sandbox, where agent-sandbox is installed.
    pub warm: u32,
    /// How long a pod lives at most: then the cluster ends it, whatever becomes of this server.
    pub lifetime: Duration,
    /// Why the variables cannot be used: the name of one, and what it should be.
    pub invalid: Option<String>,
}

impl Options {
    /// The options in the environment. What cannot be understood is reported by the first use.
    #[must_use]
    pub fn from_environment(data: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        Self::read(data.clone(), variable).unwrap_or_else(|reason| Self {
            data,
            kubeconfig: None,
            image: None,
            installation: None,
            runtime_class: None,
            warm: 0,
            lifetime: WEEK,
            invalid: Some(reason),
        })
    }

    fn read(data: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let set = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &'static str| -> Result<Option<String>, String> {
            let value = set(name).map(OsString::into_string);
            value.transpose().map_err(|_| format!("{name} is not text"))
        };
        let number = |name: &'static str, most: u64| -> Result<Option<u64>, String> {
            let Some(value) = text(name)? else { return Ok(None) };
            let number = value.parse().ok().filter(|number| *number <= most);
            number.map(Some).ok_or_else(|| format!("{name} must be a number up to {most}"))
        };
        let is_label = |text: &String| {
            let is_inner =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=40).contains(&text.len())
                && text.bytes().all(is_inner)
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        let label = |name: &'static str| match text(name)? {
            Some(value) if !is_label(&value) => Err(format!(
                "{name} must have 1 to 40 characters: small letters, digits and inner hyphens"
            )),
            value => Ok(value),
        };
        let lifetime = number(LIFETIME, u64::from(u32::MAX))?.map_or(WEEK, Duration::from_secs);
        if lifetime.is_zero() {
            return Err(format!("{LIFETIME} must be a number of seconds, and not 0"));
        }
        Ok(Self {
            data,
            kubeconfig: set(KUBECONFIG).map(PathBuf::from),
            image: text(IMAGE)?,
            installation: label(INSTALLATION)?,
            runtime_class: label(RUNTIME_CLASS)?,
            warm: number(WARM, MOST_WARM.into())?.and_then(|n| n.try_into().ok()).unwrap_or(0),
            lifetime,
            invalid: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Options {
        Options::from_environment("/data".into(), |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_variables_are_read() {
        let none = read(&[]);
        assert_eq!((none.image, none.warm, none.lifetime), (None, 0, WEEK));
        let all = read(&[
            (KUBECONFIG, "/etc/config"),
            (IMAGE, "registry.example/stockade:1"),
            (INSTALLATION, "main"),
            (RUNTIME_CLASS, "gvisor"),
            (WARM, "3"),
            (LIFETIME, "60"),
        ]);
        assert_eq!(all.kubeconfig, Some("/etc/config".into()));
        assert_eq!(all.image.as_deref(), Some("registry.example/stockade:1"));
        assert_eq!(all.installation.as_deref(), Some("main"));
        assert_eq!(all.runtime_class.as_deref(), Some("gvisor"));
        assert_eq!((all.warm, all.lifetime), (3, Duration::from_secs(60)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (name, value) in [
            (INSTALLATION, "Main"),
            (INSTALLATION, "-a"),
            (RUNTIME_CLASS, "a/b"),
            (WARM, "-1"),
            (WARM, "1001"),
            (LIFETIME, "0"),
            (LIFETIME, "soon"),
        ] {
            assert!(read(&[(name, value)]).invalid.unwrap().contains(name), "{name}={value}");
        }
    }
}
