//! The allowed imports of a snippet: its own files, and packages of a library set.

/// The packages of a library set, all of one scope.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Imports {
    /// The scope, such as `@directive-run`.
    pub scope: String,
    /// The packages that may be imported, with all their subpaths.
    pub allowed: Vec<String>,
    /// Packages that are refused with a special message: tools for a developer's machine that make
    /// no sense in a snippet.
    pub tools: Vec<String>,
    /// Packages of other scopes, or without a scope, that may be imported.
    pub packages: Vec<String>,
}

impl Default for Imports {
    /// The packages of the reference sandbox.
    fn default() -> Self {
        let names = |names: &str| names.split(' ').map(ToOwned::to_owned).collect();
        Self {
            scope: "@directive-run".to_owned(),
            allowed: names(
                "ai claude-plugin core el knowledge lint lit mutator optimistic query react \
                 scaffold solid sources svelte timeline vue",
            ),
            tools: names("cli mcp sandbox vite-plugin-api-proxy"),
            packages: Vec::new(),
        }
    }
}

impl Imports {
    /// Why an import is not allowed, if it is not.
    pub(crate) fn refusal(&self, specifier: &str) -> Option<String> {
        if is_relative(specifier) {
            return None;
        }
        let Self { scope, allowed, tools, packages } = self;
        let below = specifier.strip_prefix(scope.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let package = below.map(|rest| rest.split_once('/').map_or(rest, |(first, _)| first));
        let is_one_of = |list: &[String]| package.is_some_and(|p| list.iter().any(|one| one == p));
        if is_one_of(tools) {
            let package = package.unwrap_or_default();
            return Some(format!(
                "import \"{specifier}\" is denied — {scope}/{package} is a build/CLI/sandbox tool, \
                 not for use inside a sandboxed demo"
            ));
        }
        let is_of = |package: &String| {
            let below = specifier.strip_prefix(package.as_str());
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        if is_one_of(allowed) || packages.iter().any(is_of) {
            return None;
        }
        let mut sorted = allowed.clone();
        sorted.sort();
        let sorted = sorted.join(",");
        let others: String = packages.iter().map(|package| format!(", {package}")).collect();
        Some(format!(
            "import \"{specifier}\" is not allowed in the sandbox. Allowed: relative \"./X.js\" \
             paths or any of {scope}/{{{sorted}}}{others}."
        ))
    }

    /// Every package that may be imported, and whether it was requested by its full name.
    pub(crate) fn packages(&self) -> impl Iterator<Item = (String, bool)> {
        let of_scope = self.allowed.iter().map(|name| (format!("{}/{name}", self.scope), false));
        of_scope.chain(self.packages.iter().map(|name| (name.clone(), true)))
    }
}

/// Whether an import is relative, of a file of the payload: `./X.js` or `../X.js`.
fn is_relative(specifier: &str) -> bool {
    let rest = specifier.strip_prefix("./").or_else(|| specifier.strip_prefix("../"));
    rest.is_some_and(|rest| rest.len() > ".js".len() && rest.ends_with(".js"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_and_packages_of_the_set_are_imported() {
        let imports = Imports::default();
        for fine in ["./a.js", "../b/c.js", "@directive-run/core", "@directive-run/core/x"] {
            assert_eq!(imports.refusal(fine), None, "{fine}");
        }
        for refused in [
            "./a",
            "./.js",
            "/a.js",
            "a.js",
            "node:fs",
            "@directive-run",
            "@directive-run/",
            "@directive-run/corex",
            "@directive-runx/core",
            "@directive-run/../core",
            "https://example.com/a.js",
        ] {
            assert!(imports.refusal(refused).unwrap().contains("not allowed"), "{refused}");
        }
        assert!(imports.refusal("@directive-run/cli/x").unwrap().contains("is denied"));
        let imports = Imports { packages: vec!["zod".to_owned()], ..imports };
        for fine in ["zod", "zod/v4/mini", "@directive-run/core"] {
            assert_eq!(imports.refusal(fine), None, "{fine}");
        }
        for refused in ["zodiac", "zo", "@zod/core", "./zod"] {
            assert!(imports.refusal(refused).unwrap().ends_with("}, zod."), "{refused}");
        }
        assert!(imports.refusal("@directive-run/cli").unwrap().contains("is denied"));
    }
}
