//! The delivery of fields in variables: which names may have one, and which values.

use std::collections::BTreeSet;

use stockade_core::network::variables::obeyed_by;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::fields::Fields;

/// The longest name of a variable, in bytes.
const NAME_BYTES: usize = 128;

/// Checks the names of variables, before any secret is read.
///
/// # Errors
/// [`Error::Duplicate`] or [`Error::Variable`].
pub fn check_variables<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for name in names {
        let wrong = |why| Err(Error::Variable { name: name.chars().take(64).collect(), why });
        let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !begins || name.len() > NAME_BYTES || !name.bytes().all(is_word) {
            return wrong("it is not a valid variable name");
        }
        if obeyed_by(name).is_some() {
            return wrong("programs obey it");
        }
        if !seen.insert(name) {
            return Err(Error::Duplicate(name.to_owned()));
        }
    }
    Ok(())
}

/// The value of a field for a variable.
///
/// # Errors
/// [`Error::NoField`], or [`Error::Value`] if no variable can have it.
pub fn variable_value(
    variable: &str,
    field: Option<&str>,
    fields: &Fields,
) -> Result<Zeroizing<String>, Error> {
    let value = fields.get(field)?;
    if value.contains('\0') {
        return Err(Error::Value(variable.to_owned()));
    }
    Ok(value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn a_variable_has_one_secret() {
        assert_eq!(check_variables(["A", "B"]), Ok(()));
        assert_eq!(check_variables(["A", "A"]), Err(Error::Duplicate("A".to_owned())));
        for bad in ["", "1A", "A-B", "A=B", "LD_PRELOAD", "PATH"] {
            assert!(matches!(check_variables([bad]), Err(Error::Variable { .. })), "{bad}");
        }
    }

    #[test]
    fn a_value_with_nul_is_for_no_variable() {
        assert_eq!(variable_value("A", None, &fields("x")).unwrap().as_str(), "x");
        let refused = variable_value("A", None, &fields("x\0y"));
        assert_eq!(refused.unwrap_err(), Error::Value("A".to_owned()));
    }
}
