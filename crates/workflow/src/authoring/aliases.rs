//! Names of modules that the `tsconfig.json` of a project maps to its files, as `~/*` in a pack of
//! workflows. Files are read by the caller; nothing here leaves the project.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stockade_script::join_relative;

use super::json_text::without_comments;

/// The file with the mappings.
const FILE: &str = "tsconfig.json";
/// How many files may extend each other.
const MAX_DEPTH: usize = 8;

/// The mappings of one directory and what is below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Aliases {
    /// Patterns with at most one `*`, and what they stand for, from the root of the project.
    patterns: Vec<(String, Vec<String>)>,
    /// The directory in which names without a pattern are looked for.
    base: Option<String>,
}

/// The mappings of all directories that were looked at.
#[derive(Debug, Default)]
pub(super) struct KnownAliases(BTreeMap<String, Result<Aliases, String>>);

impl KnownAliases {
    /// The names of files that a specifier may stand for in a file of the project, most likely first.
    /// `read` gives the content of a file of the project, if it exists.
    ///
    /// # Errors
    /// A file with mappings that cannot be read.
    pub(super) fn targets(
        &mut self,
        importer: &str,
        specifier: &str,
        read: impl Fn(&str) -> Option<Result<String, String>>,
    ) -> Result<Vec<String>, String> {
        let mut folder = folder_of(importer);
        loop {
            let name = in_folder(folder, FILE);
            let known = self.0.get(&name).cloned();
            let found = known.or_else(|| read(&name).map(|text| Aliases::read(&name, text, &read)));
            if let Some(found) = found {
                self.0.insert(name, found.clone());
                return found.map(|aliases| aliases.targets(specifier));
            }
            if folder.is_empty() {
                return Ok(Vec::new());
            }
            folder = folder_of(folder);
        }
    }
}

impl Aliases {
    fn read(
        name: &str,
        text: Result<String, String>,
        read: impl Fn(&str) -> Option<Result<String, String>>,
    ) -> Result<Self, String> {
        let mut aliases = Self::default();
        let mut next = Some((name.to_owned(), text));
        for _ in 0..MAX_DEPTH {
            let Some((name, text)) = next.take() else { return Ok(aliases) };
            let settings: Value = serde_json::from_str(&without_comments(&text?))
                .map_err(|error| format!("{name} is not JSON: {error}"))?;
            let empty = Map::new();
            let options = settings.get("compilerOptions").and_then(Value::as_object);
            aliases.take(folder_of(&name), options.unwrap_or(&empty));
            // A package is not a part of the project, and has no mappings of it.
            let extended = settings.get("extends").and_then(Value::as_str);
            let Some(extended) = extended.filter(|extended| extended.starts_with('.')) else {
                return Ok(aliases);
            };
            let Some(file) = join_relative(folder_of(&name), extended) else { return Ok(aliases) };
            let file = if file.ends_with(".json") { file } else { format!("{file}.json") };
            next = read(&file).map(|text| (file, text));
        }
        Err(format!("{name} extends more than {MAX_DEPTH} files"))
    }

    /// Adds the mappings of one file, unless a file that extends it has its own.
    fn take(&mut self, folder: &str, options: &Map<String, Value>) {
        let base = options.get("baseUrl").and_then(Value::as_str);
        let base = base.and_then(|base| join_relative(folder, base));
        let paths = options.get("paths").and_then(Value::as_object);
        if let Some(paths) = paths.filter(|_| self.patterns.is_empty()) {
            let from = base.as_deref().or(self.base.as_deref()).unwrap_or(folder);
            self.patterns = paths
                .iter()
                .map(|(pattern, targets)| {
                    let targets = targets.as_array().into_iter().flatten();
                    let targets = targets.filter_map(Value::as_str);
                    let inside = targets.filter_map(|target| join_relative(from, target));
                    (pattern.clone(), inside.collect())
                })
                .collect();
        }
        self.base = self.base.take().or(base);
    }

    fn targets(&self, specifier: &str) -> Vec<String> {
        let matches = self.patterns.iter().filter_map(|(pattern, targets)| {
            let Some((before, after)) = pattern.split_once('*') else {
                return (pattern == specifier).then(|| (usize::MAX, targets.clone()));
            };
            let middle = specifier.strip_prefix(before)?.strip_suffix(after)?;
            let named = targets.iter().map(|target| target.replace('*', middle)).collect();
            Some((before.len(), named))
        });
        let best = matches.max_by_key(|(length, _)| *length);
        let mapped = best.map(|(_, targets)| targets).unwrap_or_default();
        let based = self.base.as_deref().and_then(|base| join_relative(base, specifier));
        // What a `*` stands for may have `..` in it.
        mapped.iter().filter_map(|target| join_relative("", target)).chain(based).collect()
    }
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn in_folder(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(
        files: &[(&str, &str)],
        importer: &str,
        specifier: &str,
    ) -> Result<Vec<String>, String> {
        KnownAliases::default().targets(importer, specifier, |name| {
            let found = files.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| Ok((*text).to_owned()))
        })
    }

    const PACK: &str = "{ \"compilerOptions\": { /* ours */ \"paths\": { \"~/*\": [\"./*\"], \"~/agents\": [\"./agents/index\"], }, } }";

    #[test]
    fn a_pattern_stands_for_files_beside_it() {
        let files = [(".smithers/tsconfig.json", PACK), ("tsconfig.json", "{}")];
        let found = |specifier| targets(&files, ".smithers/workflows/a.tsx", specifier).unwrap();
        assert_eq!(found("~/components/Review"), [".smithers/components/Review"]);
        assert_eq!(found("~/agents"), [".smithers/agents/index"]);
        assert_eq!(found("zod"), Vec::<String>::new());
        assert_eq!(found("~/../../../etc/passwd"), Vec::<String>::new());
        assert_eq!(targets(&files, "flow.tsx", "~/a").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn files_extend_each_other() {
        let base = "{ \"compilerOptions\": { \"baseUrl\": \"./source\", \"paths\": { \"@lib/*\": [\"lib/*\", \"../other/*\"] } } }";
        let files = [
            ("app/tsconfig.json", "{ \"extends\": \"../base\" }"),
            ("base.json", base),
            ("ring/tsconfig.json", "{ \"extends\": \"./tsconfig.json\" }"),
            ("bad/tsconfig.json", "{"),
        ];
        let found = targets(&files, "app/flow.tsx", "@lib/a").unwrap();
        assert_eq!(found, ["source/lib/a", "other/a", "source/@lib/a"]);
        assert!(targets(&files, "ring/flow.tsx", "a").unwrap_err().contains("extends more than"));
        assert!(
            targets(&files, "bad/flow.tsx", "a")
                .unwrap_err()
                .contains("bad/tsconfig.json is not JSON")
        );
    }
}
