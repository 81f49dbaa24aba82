//! A superset of the imports in a text, determined without parsing: every quoted text that looks
//! like an import of a package. Only imports written with escapes are missed.

use std::collections::BTreeSet;

use super::resolve::is_package_specifier;

/// The longest import that is searched for, in bytes.
const MAX_BYTES: usize = 214;

/// Adds all possible imports of packages in a text.
pub fn imports(text: &str, found: &mut BTreeSet<String>) {
    for (at, quote) in text.match_indices(['"', '\'', '`']) {
        let Some(rest) = text.get(at + quote.len()..) else { continue };
        // If the limit splits a character, the text is not an import in any case.
        let rest = rest.get(..MAX_BYTES).unwrap_or(rest);
        if let Some((inner, _)) = rest.split_once(quote)
            && is_package_specifier(inner)
        {
            found.insert(inner.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_import_of_a_package_is_among_what_is_found() {
        let text = "// don't\nimport { z } from 'zod'; import \"@directive-run/core/testing\";\n\
                    export * from \"./x.js\"; import(`a/b`); \"two words\"; \"é\"; \"https://a\"";
        let mut found = BTreeSet::new();
        imports(text, &mut found);
        for expected in ["zod", "@directive-run/core/testing", "a/b"] {
            assert!(found.contains(expected), "{expected}: {found:?}");
        }
        assert!(!found.iter().any(|import| import.contains([' ', '.', 'é', ':'])), "{found:?}");
    }
}
