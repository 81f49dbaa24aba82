//! References to secrets of the vault, in arguments: `NAME`, `NAME#FIELD`, or the path of a
//! `.ffsecret` file, which is read here. Values are with the server.

use std::io::Read as _;

use stockade_api::{SecretMapping, SecretReference};
use stockade_core::{Code, Problem};

use crate::args::sandbox_flags::Pair;

/// The end of the name of a file with a reference.
const SUFFIX: &str = ".ffsecret";
/// The longest such file, in bytes.
const MAX_BYTES: u64 = 16 << 10;

/// The variables of `--secret-env`.
///
/// # Errors
/// As [`reference`].
pub(crate) fn mappings(flags: &[Pair]) -> Result<Vec<SecretMapping>, Problem> {
    let mapping =
        |Pair(env, text): &Pair| Ok(SecretMapping { env: env.clone(), secret: reference(text)? });
    flags.iter().map(mapping).collect()
}

/// A reference.
///
/// # Errors
/// [`Code::SecretRefNotFound`] or [`Code::SecretRefInvalid`] for a file that is not there, or is no
/// reference.
pub(crate) fn reference(text: &str) -> Result<SecretReference, Problem> {
    let (name, field) = match text.rsplit_once('#') {
        Some((name, field)) => (name, Some(field.to_owned())),
        None => (text, None),
    };
    let content = if name.ends_with(SUFFIX) { Some(read(name)?) } else { None };
    Ok(SecretReference { content, field, ..SecretReference::new(name) })
}

fn read(path: &str) -> Result<String, Problem> {
    let failed = |error: std::io::Error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::SecretRefNotFound,
            _ => Code::SecretRefInvalid,
        };
        Problem::new(code, format!("cannot read the reference {path}")).because(error.to_string())
    };
    let mut content = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut content).map_err(failed)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_a_secret_or_a_file() {
        let plain = reference("github").unwrap();
        assert_eq!((plain.reference.as_str(), plain.field, plain.content), ("github", None, None));
        let field = reference("app#secretKey").unwrap();
        assert_eq!(field.field.as_deref(), Some("secretKey"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ffsecret");
        let name = path.to_str().unwrap();
        assert_eq!(reference(name).unwrap_err().code, Code::SecretRefNotFound);
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(reference(name).unwrap().content.as_deref(), Some("{}"));
    }
}
