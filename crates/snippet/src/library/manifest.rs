//! The `package.json` of a package, as far as it determines the target of an import. The rules are
//! those of the Node.js documentation, "Modules: Packages"; the conditions are those of a realm,
//! which has web APIs and no Node.js.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The active conditions besides `default`. The package determines their order.
const CONDITIONS: &[&str] = &["import", "module", "browser"];

/// The parsed manifest of a package.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Manifest {
    /// Its name.
    pub(super) name: Option<String>,
    /// Its version.
    pub(super) version: Option<String>,
    /// Whether its `.js` files are modules.
    pub(super) is_module: bool,
    exports: Option<Target>,
    imports: Option<Target>,
    /// The `module` field, which bundlers use.
    module: Option<String>,
    main: Option<String>,
}

/// The value of an entry of `exports` or `imports`, in source order.
#[derive(Debug, Clone, PartialEq)]
enum Target {
    Text(String),
    First(Vec<Self>),
    Conditions(Vec<(String, Self)>),
    /// Explicitly blocked, or invalid.
    Null,
}

/// The target of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImportTarget {
    /// A file of the package, by its full path below it.
    File(String),
    /// A file of the package whose extension may be missing, or a directory.
    Legacy(String),
    /// A file of the package that is a module whatever its extension.
    Module(String),
    /// Another specifier that must be resolved.
    External(String),
}

impl Manifest {
    /// Parses the text of a `package.json`.
    ///
    /// # Errors
    /// Why it is not a JSON object.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let target = serde_json::from_str::<Target>(text).map_err(|error| error.to_string())?;
        let Target::Conditions(fields) = target else { return Err("not a JSON object".to_owned()) };
        let mut manifest = Self::default();
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("name", Target::Text(text)) => manifest.name = Some(text),
                ("version", Target::Text(text)) => manifest.version = Some(text),
                ("type", Target::Text(text)) => manifest.is_module = text == "module",
                ("module", Target::Text(text)) => manifest.module = Some(text),
                ("main", Target::Text(text)) => manifest.main = Some(text),
                ("exports", value) if value != Target::Null => manifest.exports = Some(value),
                ("imports", value @ Target::Conditions(_)) => manifest.imports = Some(value),
                _ => {}
            }
        }
        Ok(manifest)
    }

    /// The target of a subpath, `.` or `./x`; `None` if the package does not export it.
    pub(super) fn exported(&self, subpath: &str) -> Option<ImportTarget> {
        let Some(exports) = &self.exports else { return self.legacy_target(subpath) };
        let target = match exports {
            Target::Conditions(entries) if has_subpaths(entries) => {
                return find_target(entries, subpath, Target::file);
            }
            whole => (subpath == ".").then_some(whole)?,
        };
        target.pick("", &Target::file)
    }

    /// The target in a package without `exports`.
    fn legacy_target(&self, subpath: &str) -> Option<ImportTarget> {
        if subpath != "." {
            return relative(subpath).map(ImportTarget::Legacy);
        }
        if let Some(module) = &self.module {
            return relative(&with_dot_slash(module)).map(ImportTarget::Module);
        }
        let main = self.main.as_deref().unwrap_or("index.js");
        relative(&with_dot_slash(main)).map(ImportTarget::Legacy)
    }

    /// The subpaths that the package exports by name.
    pub(super) fn subpaths(&self) -> Vec<String> {
        match &self.exports {
            Some(Target::Conditions(entries)) if has_subpaths(entries) => {
                let names = entries.iter().map(|(name, _)| name);
                names.filter(|name| !name.contains('*')).cloned().collect()
            }
            _ => vec![".".to_owned()],
        }
    }

    /// The target of an import within the package that begins with `#`.
    pub(super) fn internal(&self, specifier: &str) -> Option<ImportTarget> {
        let Some(Target::Conditions(entries)) = &self.imports else { return None };
        find_target(entries, specifier, |text| {
            if text.starts_with("./") {
                Target::file(text)
            } else {
                Some(ImportTarget::External(text.to_owned()))
            }
        })
    }
}

fn has_subpaths(entries: &[(String, Target)]) -> bool {
    entries.iter().any(|(name, _)| name.starts_with('.'))
}

/// The entry for a name: an exact match, else the longest matching pattern.
fn find_target(
    entries: &[(String, Target)],
    name: &str,
    file: impl Fn(&str) -> Option<ImportTarget>,
) -> Option<ImportTarget> {
    let whole = entries.iter().find(|(key, _)| key == name && !key.contains('*'));
    if let Some((_, target)) = whole {
        return target.pick("", &file);
    }
    let fitting = entries.iter().filter_map(|(key, target)| {
        let (before, after) = key.split_once('*')?;
        let star = name.strip_prefix(before)?.strip_suffix(after)?;
        (!star.is_empty()).then_some((before.len(), star, target))
    });
    let (_, star, target) = fitting.max_by_key(|(length, ..)| *length)?;
    target.pick(star, &file)
}

impl Target {
    /// The target, by the first matching condition in the order of the package.
    fn pick(
        &self,
        star: &str,
        file: &impl Fn(&str) -> Option<ImportTarget>,
    ) -> Option<ImportTarget> {
        self.decide(star, file).flatten()
    }

    /// An inner `None` is a final decision as well: there is no target.
    fn decide(
        &self,
        star: &str,
        file: &impl Fn(&str) -> Option<ImportTarget>,
    ) -> Option<Option<ImportTarget>> {
        match self {
            Self::Text(text) => Some(file(&text.replace('*', star))),
            Self::First(targets) => {
                targets.iter().find_map(|target| target.decide(star, file).filter(Option::is_some))
            }
            Self::Conditions(targets) => targets.iter().find_map(|(condition, target)| {
                let holds = condition == "default" || CONDITIONS.contains(&condition.as_str());
                if holds { target.decide(star, file) } else { None }
            }),
            Self::Null => Some(None),
        }
    }

    /// A file of the package: a path that starts with `./` and stays below.
    fn file(text: &str) -> Option<ImportTarget> {
        relative(text).map(ImportTarget::File)
    }
}

/// The path in `main`, with the `./` that may be missing.
fn with_dot_slash(path: &str) -> String {
    if path.starts_with("./") { path.to_owned() } else { format!("./{path}") }
}

/// The path below the package for `./x/y`; `None` if it could be outside.
fn relative(path: &str) -> Option<String> {
    let below = path.strip_prefix("./")?.trim_end_matches('/');
    let is_plain = |name: &str| !matches!(name, "" | "." | ".." | "node_modules");
    below.split('/').all(is_plain).then(|| below.to_owned())
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Targets)
    }
}

struct Targets;

impl<'de> Visitor<'de> for Targets {
    type Value = Target;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Target, E> {
        Ok(Target::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Target, E> {
        Ok(Target::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Target, E> {
        Ok(Target::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Target, E> {
        Ok(Target::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Target, E> {
        Ok(Target::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Target, E> {
        Ok(Target::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Target, A::Error> {
        let mut targets = Vec::new();
        while let Some(target) = sequence.next_element()? {
            targets.push(target);
        }
        Ok(Target::First(targets))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Target, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Target::Conditions(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(text).unwrap()
    }

    fn file(path: &str) -> Option<ImportTarget> {
        Some(ImportTarget::File(path.to_owned()))
    }

    #[test]
    fn conditions_are_taken_in_the_order_of_the_package() {
        let zod = manifest(
            "{\"version\": \"4.6.7\", \"type\": \"module\", \"exports\": {\"./package.json\": \
             \"./package.json\", \".\": {\"@zod/source\": \"./src/index.ts\", \"types\": \
             \"./index.d.cts\", \"import\": \"./index.js\", \"require\": \"./index.cjs\"}, \
             \"./locales/*\": {\"import\": \"./locales/*\"}, \"./locales/inner/*.js\": null}}",
        );
        assert_eq!((zod.version.as_deref(), zod.is_module), (Some("4.6.7"), true));
        assert_eq!(zod.exported("."), file("index.js"));
        assert_eq!(zod.exported("./locales/en.js"), file("locales/en.js"));
        assert_eq!(zod.exported("./locales/inner/x.js"), None);
        assert_eq!(zod.exported("./src/index.ts"), None);
        assert_eq!(zod.subpaths(), ["./package.json", "."]);
        let ordered = |first: &str, second: &str| {
            manifest(&format!(
                "{{\"exports\": {{\"{first}\": \"./1.js\", \"{second}\": \"./2.js\"}}}}"
            ))
            .exported(".")
        };
        assert_eq!(ordered("import", "default"), file("1.js"));
        assert_eq!(ordered("default", "import"), file("1.js"));
        assert_eq!(ordered("node", "default"), file("2.js"));
        assert_eq!(ordered("require", "types"), None);
    }

    #[test]
    fn nested_conditions_and_lists_fall_through() {
        let nested = manifest(
            "{\"exports\": {\".\": [{\"node\": \"./n.js\"}, {\"browser\": {\"require\": \"./r.js\"}}, \
             \"bad\", {\"default\": {\"import\": \"./i.js\"}}]}}",
        );
        assert_eq!(nested.exported("."), file("i.js"));
    }

    #[test]
    fn a_package_without_exports_shows_everything() {
        let old = manifest("{\"main\": \"lib/index\", \"type\": \"commonjs\", \"private\": true}");
        assert_eq!(old.exported("."), Some(ImportTarget::Legacy("lib/index".to_owned())));
        assert_eq!(old.exported("./lib/x.js"), Some(ImportTarget::Legacy("lib/x.js".to_owned())));
        assert_eq!(old.exported("./../x.js"), None);
        assert_eq!(manifest("{}").exported("."), Some(ImportTarget::Legacy("index.js".to_owned())));
        let bundled = manifest("{\"main\": \"a.cjs\", \"module\": \"./es/a.js\"}");
        assert_eq!(bundled.exported("."), Some(ImportTarget::Module("es/a.js".to_owned())));
    }

    #[test]
    fn what_leaves_the_package_means_nothing() {
        for target in ["./../x.js", "/x.js", "x.js", "./node_modules/y/x.js", "./a//b.js"] {
            let manifest = manifest(&format!("{{\"exports\": \"{target}\"}}"));
            assert_eq!(manifest.exported("."), None, "{target}");
        }
        let climbing = manifest("{\"exports\": {\"./*\": \"./lib/*\"}}");
        assert_eq!(climbing.exported("./../../x.js"), None);
        assert!(Manifest::parse("[]").is_err() && Manifest::parse("{").is_err());
    }

    #[test]
    fn internal_names_mean_files_or_other_packages() {
        let own = manifest(
            "{\"imports\": {\"#a\": {\"node\": \"node:fs\", \"default\": \"./a.js\"}, \
             \"#p/*\": \"./p/*.js\", \"#dep\": \"other/x\"}}",
        );
        assert_eq!(own.internal("#a"), file("a.js"));
        assert_eq!(own.internal("#p/q"), file("p/q.js"));
        assert_eq!(own.internal("#dep"), Some(ImportTarget::External("other/x".to_owned())));
        assert_eq!(own.internal("#none"), None);
    }
}
