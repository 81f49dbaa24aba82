//! Resolves imports to files of a payload. TypeScript writes `./x.js` for the file `x.ts`.

/// An import that matches no file of the payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot resolve \"{specifier}\" from \"{importer}\" — tried {}", .candidates.join(", "))]
pub struct Unresolved {
    /// The imported module.
    pub specifier: String,
    /// The importing file.
    pub importer: String,
    /// The names that were tried, in order.
    pub candidates: Vec<String>,
}

/// Resolves a relative import: first relative to the importing file, then to the root of the
/// payload. `exists` says which files there are.
///
/// # Errors
/// [`Unresolved`] if there is none, also for an import that leaves the payload.
pub fn resolve(
    importer: &str,
    specifier: &str,
    exists: impl Fn(&str) -> bool,
) -> Result<String, Unresolved> {
    let bare = specifier.strip_suffix(".js").unwrap_or(specifier);
    let folder = importer.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut tried = Vec::new();
    if let Some(base) = join_relative(folder, bare) {
        tried.extend([format!("{base}.ts"), format!("{base}.js"), base]);
    }
    if let Some(base) = join_relative("", bare) {
        tried.extend([format!("{base}.ts"), format!("{base}.js")]);
    }
    if let Some(base) = join_relative(folder, bare) {
        tried.extend([format!("{base}.tsx"), format!("{base}.jsx")]);
    }
    match tried.iter().position(|name| exists(name)) {
        Some(found) => Ok(tried.swap_remove(found)),
        None => Err(Unresolved {
            specifier: specifier.to_owned(),
            importer: importer.to_owned(),
            candidates: tried,
        }),
    }
}

/// A relative path below a folder, without `.` and `..`; `None` if it leaves the root.
pub fn join_relative(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(relative.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_seen_from_its_file_and_then_from_the_root() {
        let files = ["src/a.ts", "src/b/c.js", "d.ts", "src/view.tsx"];
        let resolve = |importer: &str, specifier: &str| {
            resolve(importer, specifier, |name| files.contains(&name)).ok()
        };
        assert_eq!(resolve("src/main.ts", "./a.js").as_deref(), Some("src/a.ts"));
        assert_eq!(resolve("src/b/c.js", "../a.js").as_deref(), Some("src/a.ts"));
        assert_eq!(resolve("src/main.ts", "./b/c.js").as_deref(), Some("src/b/c.js"));
        assert_eq!(resolve("src/main.ts", "./d.js").as_deref(), Some("d.ts"));
        assert_eq!(resolve("src/main.ts", "./view.js").as_deref(), Some("src/view.tsx"));
        assert_eq!(resolve("src/main.ts", "../../../a.js"), None);
    }

    #[test]
    fn what_was_tried_is_told() {
        let error = resolve("src/main.ts", "./nope.js", |_| false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot resolve \"./nope.js\" from \"src/main.ts\" — tried src/nope.ts, src/nope.js, \
             src/nope, nope.ts, nope.js, src/nope.tsx, src/nope.jsx"
        );
    }
}
