//! Files with network policies, in TOML or JSON, and the presets that stand for one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use stockade_core::access::Effect;
use stockade_core::network::document::{InvalidDocument, PolicyDocument, Preset};
use stockade_core::network::{Host, Policy, Rule, TrafficLimits};
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

/// Writes the policy that allows exactly what was connected to.
///
/// # Errors
/// [`Code::Io`] if the file cannot be written, [`Code::Conflict`] if it exists.
pub(crate) fn write_learned(path: &Path, used: &BTreeSet<(Host, u16)>) -> Result<(), Problem> {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (host, port) in used {
        hosts.entry(host.to_string()).or_default().push(port.to_string());
    }
    // A host has no character that would need an escape.
    let rule = |(host, ports): (String, Vec<String>)| {
        format!("\n[[allow]]\nhost = \"{host}\"\nports = [{}]\n", ports.join(", "))
    };
    let rules: String = hosts.into_iter().map(rule).collect();
    let text = format!("default = \"deny\"\n{rules}");
    let failed = |cause: String| {
        Problem::new(Code::Io, format!("cannot write {}", path.display())).because(cause)
    };
    let mut file = std::fs::File::create_new(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Problem::new(Code::Conflict, format!("{} exists", path.display()))
        }
        _ => failed(error.to_string()),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_is_a_policy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let host = |text: &str| Host::parse(text).unwrap();
        let used = [(host("a.example"), 443), (host("a.example"), 80), (host("9.9.9.9"), 53)];
        write_learned(&path, &used.clone().into()).unwrap();
        let read = policy(&read(path.to_str().unwrap()).unwrap()).unwrap();
        for (host, port) in used {
            assert!(read.check(&host, port).is_ok(), "{host} {port}");
        }
        assert!(read.check(&host("a.example"), 22).is_err());
        assert!(read.check(&host("b.example"), 443).is_err());
        assert_eq!(refuse_existing(&path).unwrap_err().code, Code::Conflict);
        assert!(write_learned(&path, &BTreeSet::new()).is_err());
    }

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
