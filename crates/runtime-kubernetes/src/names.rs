//! The names and labels of our objects. Every object has the label of its installation, and nothing without it is
//! changed or removed.

use std::collections::BTreeMap;

use stockade_core::SandboxId;

/// The label with the installation.
pub(crate) const INSTALLATION: &str = "stockade.dev/installation";
/// The label of a pod that has a sandbox, or is to have one: a hash of its id.
pub(crate) const SANDBOX: &str = "stockade.dev/sandbox";
/// The annotation with the id.
pub(crate) const ID: &str = "stockade.dev/id";
/// The annotation with the labels of the sandbox, in JSON.
pub(crate) const LABELS: &str = "stockade.dev/labels";
/// The annotation with the time of the request, in milliseconds since 1970.
pub(crate) const CREATED: &str = "stockade.dev/created";
/// The label in a sandbox's own labels that names its owner.
const OWNER: &str = "stockade.dev/owner";

/// The names of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) installation: String,
}

impl Names {
    /// The namespace of an owner, whom the labels of a sandbox name.
    pub(crate) fn namespace(&self, labels: &BTreeMap<String, String>) -> String {
        let owner = labels.get(OWNER).map_or("", String::as_str);
        format!("stockade-{}", short_hash(&[&self.installation, owner]))
    }

    /// The name of the object of a sandbox.
    pub(crate) fn object(&self, id: &SandboxId) -> String {
        format!("sandbox-{}", self.sandbox(id))
    }

    /// The value of [`SANDBOX`]: an id may be longer than a label.
    pub(crate) fn sandbox(&self, id: &SandboxId) -> String {
        short_hash(&[&self.installation, id.as_str()])
    }

    /// The name of what pods of one kind share.
    pub(crate) fn shared(pod: &serde_json::Value) -> String {
        format!("kind-{}", short_hash(&[&pod.to_string()]))
    }

    /// The selector of all pods with sandboxes.
    pub(crate) fn all(&self) -> String {
        format!("{INSTALLATION}={},{SANDBOX}", self.installation)
    }

    /// The selector of one sandbox.
    pub(crate) fn one(&self, id: &SandboxId) -> String {
        format!("{INSTALLATION}={},{SANDBOX}={}", self.installation, self.sandbox(id))
    }
}

fn short_hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    // 128 bits: two ids never have the same one.
    hasher.finalize().to_hex().as_str()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_a_namespace_and_each_sandbox_a_name() {
        let names = Names { installation: "main".to_owned() };
        let of = |owner: &str| names.namespace(&[(OWNER.to_owned(), owner.to_owned())].into());
        assert_ne!(of("alice"), of("bob"));
        assert_eq!(of("alice"), of("alice"));
        assert_eq!(names.namespace(&BTreeMap::new()), of(""));
        let long = SandboxId::new("ab".repeat(30)).unwrap();
        assert!(names.object(&long).len() <= 63);
        let other = Names { installation: "other".to_owned() };
        assert_ne!(names.object(&long), other.object(&long));
    }
}
