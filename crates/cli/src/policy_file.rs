//! Files with network policies, in TOML or JSON, and the presets that stand for one.

use std::path::Path;

use stockade_core::access::Effect;
use stockade_core::network::document::{InvalidDocument, PolicyDocument, Preset};
use stockade_core::network::{Policy, Rule, TrafficLimits};
use stockade_core::{Code, Problem};

use crate::document_file;

/// The file that `--net learn` writes.
pub(crate) const LEARNED: &str = "stockade-policy.toml";

/// The policy in a file, or of a preset if there is no file of that name.
///
/// # Errors
/// [`Code::InvalidInput`] if it cannot be read; [`Code::RuleInvalid`] for a rule that is invalid.
pub(crate) fn read(name: &str) -> Result<PolicyDocument, Problem> {
    let path = Path::new(name);
    if let Some(preset) = Preset::ALL.iter().find(|preset| preset.as_str() == name)
        && !path.exists()
    {
        return Ok(PolicyDocument::of_preset(*preset));
    }
    let unreadable = |cause: String| {
        let presets: Vec<_> = Preset::ALL.iter().map(|preset| preset.as_str()).collect();
        Problem::new(Code::InvalidInput, format!("cannot read the policy {name}"))
            .because(cause)
            .remedied_by(format!("use a file, or one of: {}", presets.join(", ")))
    };
    let document: PolicyDocument = document_file::read(path).map_err(|error| match error {
        document_file::Error::Read(cause) => unreadable(cause),
        document_file::Error::Parse(cause) => {
            Problem::new(Code::RuleInvalid, format!("the policy {name} is invalid")).because(cause)
        }
    })?;
    document.policy().map_err(|error| {
        let cause = match error {
            InvalidDocument::Rule(error) => {
                let rule = document.rules().get(error.index).map(Rule::subject).unwrap_or_default();
                format!("the rule about {rule}: {}", error.reason)
            }
            InvalidDocument::Limits(error) => error.to_string(),
        };
        Problem::new(Code::RuleInvalid, format!("the policy {name} is invalid")).because(cause)
    })?;
    Ok(document)
}

/// What several files say together.
pub(crate) struct Together {
    /// `allow` only if all have it.
    pub(crate) default: Effect,
    /// The rules of all.
    pub(crate) rules: Vec<Rule>,
    /// The lowest ones.
    pub(crate) limits: TrafficLimits,
}

/// The policy that these files have together; without any it denies everything.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_all(names: &[String]) -> Result<Together, Problem> {
    let documents: Vec<_> = names.iter().map(|name| read(name)).collect::<Result<_, _>>()?;
    let mut defaults = documents.iter().map(|document| document.default);
    let is_open = !names.is_empty() && defaults.all(|default| default == Effect::Allow);
    let limits = documents.iter().map(|document| document.limits);
    Ok(Together {
        default: if is_open { Effect::Allow } else { Effect::Deny },
        rules: documents.iter().flat_map(PolicyDocument::rules).collect(),
        limits: limits.fold(TrafficLimits::default(), TrafficLimits::lower),
    })
}

/// The policy of a document.
///
/// # Errors
/// [`Code::RuleInvalid`].
pub(crate) fn policy(document: &PolicyDocument) -> Result<Policy, Problem> {
    document.policy().map_err(Problem::from)
}

/// Refuses a file that exists: an existing policy is not replaced.
///
/// # Errors
/// [`Code::Conflict`].
pub(crate) fn refuse_existing(path: &Path) -> Result<(), Problem> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Problem::new(Code::Conflict, format!("{} exists", path.display()))
        .because("`--net learn` writes a new file")
        .remedied_by("--learn-file OTHER.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_two_syntaxes_and_no_unknown_members() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy");
        let name = path.to_str().unwrap();
        for (text, is_good) in [
            ("[[allow]]\nhost = \"a.example\"\nmethods = [\"GET\"]\npaths = [\"/v1/*\"]\n", true),
            ("{\"allow\": [{\"host\": \"a.example\", \"ports\": [443]}]}", true),
            ("default = \"allow\"\n[[deny]]\nhost = \"*.bad.example\"\n", true),
            ("presets = [\"package-registries\"]\n", true),
            ("[[allow]]\nhosts = \"a.example\"\n", false),
            ("[[allow]]\nhost = \"10.0.0.0/8\"\npaths = [\"/\"]\n", false),
            ("presets = [\"all\"]\n", false),
            ("allow = \"a.example\"\n", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(name).is_ok(), is_good, "{text}");
        }
        assert!(read("package-registries").is_ok());
        assert_eq!(read("no-such-file").unwrap_err().code, Code::InvalidInput);
    }
}
