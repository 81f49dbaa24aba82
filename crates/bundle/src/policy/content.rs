//! Files that tools of the host execute in part: the manifests of packages. Most changes to them
//! have no effect before a user starts something; a change to what an installation, a language server
//! or a build front end executes without being asked counts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::path::RelativePath;

use super::names::folded;

/// The largest manifest that is read. A change to a larger one counts.
pub const MAX_BYTES: u64 = 4 << 20;

/// How a manifest is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Npm,
    Composer,
    /// The tables and the parts of lines that count.
    Lines {
        tables: &'static [&'static str],
        parts: &'static [&'static str],
    },
}

/// Scripts that `npm install` and its like execute
/// (<https://docs.npmjs.com/cli/using-npm/scripts>, <https://pnpm.io/scripts>).
const NPM_SCRIPTS: &[&str] = &[
    "preinstall",
    "install",
    "postinstall",
    "prepublish",
    "preprepare",
    "prepare",
    "postprepare",
    "prepack",
    "postpack",
    "dependencies",
    "predependencies",
    "postdependencies",
    "pnpm:devpreinstall",
    "preuninstall",
    "uninstall",
    "postuninstall",
    "prepublishonly",
];

/// Fields of `package.json` that make package managers, hooks of git or editors execute something.
const NPM_FIELDS: &[&str] = &[
    "gypfile",
    "packageManager",
    "devEngines",
    "husky",
    "simple-git-hooks",
    "lint-staged",
    "pre-commit",
    "pre-push",
    "gitHooks",
    "ghooks",
    "commitlint",
    "pnpm",
    "trustedDependencies",
    "dependenciesMeta",
    "allowScripts",
    "lavamoat",
    "eslintConfig",
    "prettier",
    "stylelint",
    "babel",
    "binary",
];

/// Scripts and fields of `composer.json` (<https://getcomposer.org/doc/articles/scripts.md>).
const COMPOSER_FIELDS: &[&str] =
    &["scripts", "config", "autoload", "autoload-dev", "extra", "repositories", "type"];

const PYPROJECT: Form = Form::Lines {
    tables: &[
        "build-system",
        "tool.hatch.build",
        "tool.hatch.envs",
        "tool.hatch.env",
        "tool.poetry.build",
        "tool.poetry.plugins",
        "tool.poetry.requires-plugins",
        "tool.pdm.build",
        "tool.pdm.plugins",
        "tool.setuptools.cmdclass",
        "tool.setuptools.dynamic",
        "tool.setuptools-",
        "tool.setuptools_",
        "tool.setuptools.ext-modules",
        "tool.scikit-build",
        "tool.meson-python",
        "tool.maturin",
        "tool.flit",
        "tool.pytest",
        "tool.pylint",
        "tool.mypy",
        "tool.uv",
        "tool.pixi",
        "tool.rye",
        "tool.cibuildwheel",
        "tool.tox",
        "project.entry-points",
    ],
    parts: &[
        "build-backend",
        "backend-path",
        "build-system",
        "cmdclass",
        "init-hook",
        "load-plugins",
        "plugins=",
    ],
};

const CARGO: Form = Form::Lines {
    tables: &["patch", "replace"],
    parts: &[
        "build=",
        "proc-macro",
        "proc_macro",
        "links=",
        "[patch",
        "[replace",
        "metabuild",
        "plugin=",
    ],
};

const PROJECT_OF_DOTNET: Form = Form::Lines {
    tables: &[],
    parts: &[
        "<exec",
        "<usingtask",
        "<target",
        "<import",
        "<sdk",
        "sdk=",
        "task=",
        "buildevent",
        "<analyzer",
        "generator",
        "command=",
        "initialtargets",
        "restoresources",
    ],
};

const SETUP_CFG: Form = Form::Lines {
    tables: &[
        "options.entry_points",
        "tool:pytest",
        "mypy",
        "flake8",
        "pylint",
        "global",
        "build_ext",
        "command",
    ],
    parts: &["cmdclass", "setup_hooks", "plugins", "attr:", "command-packages", "init-hook"],
};

const POM: Form = Form::Lines {
    tables: &[],
    parts: &[
        "<plugin",
        "</plugin",
        "<goal",
        "<phase",
        "<extension",
        "<exec",
        "<arg",
        "<configuration",
        "<compilerarg",
        "<annotationprocessor",
        "<path>",
    ],
};

const DENO: Form =
    Form::Lines { tables: &[], parts: &["plugins", "allowscripts", "nodemodulesdir"] };

const TSCONFIG: Form = Form::Lines { tables: &[], parts: &["plugins", "\"transform\"", "extends"] };

fn form(path: &RelativePath) -> Option<Form> {
    let name = folded(path.file_name());
    Some(match name.as_slice() {
        b"package.json" | b"package.json5" | b"package.yaml" => Form::Npm,
        b"composer.json" => Form::Composer,
        b"pyproject.toml" | b"pixi.toml" | b"tox.ini" => PYPROJECT,
        b"cargo.toml" => CARGO,
        b"setup.cfg" => SETUP_CFG,
        b"pom.xml" => POM,
        b"deno.json" | b"deno.jsonc" => DENO,
        name if name.starts_with(b"tsconfig") && name.ends_with(b".json")
            || name == b"jsconfig.json" =>
        {
            TSCONFIG
        }
        name if name.ends_with(b"proj") && name.contains(&b'.') => PROJECT_OF_DOTNET,
        _ => return None,
    })
}

/// Whether the content of a path decides whether a change to it counts.
pub fn is_judged(path: &RelativePath) -> bool {
    form(path).is_some()
}

/// Whether a change to a file that [`is_judged`] changes what tools execute. `old` is `None` if there
/// was no file.
pub fn changes_execution(path: &RelativePath, old: Option<&[u8]>, new: &[u8]) -> bool {
    let parts = |content: &[u8]| match form(path) {
        Some(Form::Npm) => npm(content),
        Some(Form::Composer) => fields(content, COMPOSER_FIELDS, &[]),
        Some(Form::Lines { tables, parts }) => Some(lines(content, tables, parts)),
        None => Some(BTreeMap::new()),
    };
    let Some(new) = parts(new) else { return true };
    // An old content that cannot be read had no effect.
    let old = old.and_then(parts).unwrap_or_default();
    new.iter().any(|(key, value)| old.get(key) != Some(value))
}

/// What counts, by a name: for lines, how often each occurs.
type Parts = BTreeMap<String, Value>;

fn npm(content: &[u8]) -> Option<Parts> {
    fields(content, NPM_FIELDS, NPM_SCRIPTS)
}

/// The fields of an object, and the scripts of its field `scripts`. `None` if it cannot be read.
fn fields(content: &[u8], names: &[&str], scripts: &[&str]) -> Option<Parts> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    if content.trim_ascii().is_empty() {
        return Some(Parts::new());
    }
    let object: Map<String, Value> = serde_json::from_slice(content).ok()?;
    let mut parts = Parts::new();
    for (name, value) in &object {
        if names.contains(&name.as_str()) {
            parts.insert(name.clone(), value.clone());
        }
    }
    if let Some(Value::Object(all)) = object.get("scripts") {
        for (name, value) in all {
            if scripts.contains(&name.to_ascii_lowercase().as_str()) {
                parts.insert(format!("scripts.{name}"), value.clone());
            }
        }
    }
    Some(parts)
}

/// The lines of a configuration that lie in one of the tables or contain one of the parts, without
/// blanks and quotes and in lower case, each with how often it occurs.
fn lines(content: &[u8], tables: &[&str], parts: &[&str]) -> Parts {
    let text = String::from_utf8_lossy(content);
    let mut found = Parts::new();
    let mut is_inside = false;
    let mut string = None;
    for line in text.lines() {
        let is_in_string = string.is_some();
        if !tables.is_empty() {
            string = string_after(line, string);
        }
        let plain: String =
            line.chars().filter(|c| !c.is_whitespace() && *c != '\'' && *c != '"').collect();
        let plain = plain.to_lowercase();
        if plain.is_empty() || plain.starts_with('#') && !is_in_string {
            continue;
        }
        if let Some(header) = plain.strip_prefix('[').filter(|_| !is_in_string) {
            let name = header.trim_start_matches('[');
            is_inside = tables.iter().any(|table| name.starts_with(table));
        }
        let quoted = line.to_lowercase();
        let is_it = is_inside
            || tables.iter().any(|table| plain.starts_with(table))
            || parts.iter().any(|part| plain.contains(part) || quoted.contains(part))
            // A name with an escape can be any name.
            || plain.split('=').next().is_some_and(|name| name.contains('\\'));
        if is_it {
            let count = found.entry(plain).or_insert_with(|| Value::from(0));
            *count = Value::from(count.as_u64().unwrap_or_default() + 1);
        }
    }
    found
}

/// The quotes of the string of several lines that is open after a line of TOML, if it was the one
/// that is given before it.
fn string_after(line: &str, open: Option<&'static str>) -> Option<&'static str> {
    let mut open = open;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some(quotes) = open {
            if rest.starts_with('\\') && quotes == "\"\"\"" {
                rest = rest.get(2..).unwrap_or_default();
            } else if let Some(after) = rest.strip_prefix(quotes) {
                open = None;
                rest = after.trim_start_matches(&quotes[..1]);
            } else {
                rest = &rest[c.len_utf8()..];
            }
            continue;
        }
        match c {
            '#' => break,
            '"' if rest.starts_with("\"\"\"") => (open, rest) = (Some("\"\"\""), &rest[3..]),
            '\'' if rest.starts_with("'''") => (open, rest) = (Some("'''"), &rest[3..]),
            '"' | '\'' => rest = after_string(&rest[1..], c),
            c => rest = &rest[c.len_utf8()..],
        }
    }
    open
}

/// What follows a string of one line, whose first quote is left out.
fn after_string(text: &str, quote: char) -> &str {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if quote == '"' => is_escaped = true,
            c if c == quote => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(name: &str, old: &str, new: &str) -> bool {
        let path = RelativePath::new(name).unwrap();
        assert!(is_judged(&path), "{name}");
        changes_execution(&path, (old != "-").then_some(old.as_bytes()), new.as_bytes())
    }

    #[test]
    fn scripts_of_an_installation_count() {
        let plain = r#"{"name": "x", "scripts": {"test": "jest", "build": "tsc"}}"#;
        for script in
            ["preinstall", "install", "postinstall", "prepare", "prepublish", "pnpm:devPreinstall"]
        {
            let new = format!(r#"{{"name": "x", "scripts": {{"{script}": "sh evil.sh"}}}}"#);
            for old in ["-", plain, "", "{"] {
                assert!(counts("package.json", old, &new), "{script} {old}");
                assert!(counts("web/package.json", old, &new), "{script} {old}");
            }
            assert!(!counts("package.json", &new, &new.replace("\"x\"", "\"y\"")), "{script}");
            assert!(counts("package.json", &new, &new.replace("evil", "worse")), "{script}");
            assert!(!counts("package.json", &new, plain), "{script}");
        }
        for field in [
            r#""gypfile": true"#,
            r#""packageManager": "pnpm@1""#,
            r#""husky": {"hooks": {"pre-commit": "x"}}"#,
        ] {
            assert!(counts("package.json", plain, &format!("{{{field}}}")), "{field}");
        }
        assert!(counts("package.json", plain, "{ not JSON"));
        let escaped = r#"{"scripts": {"post\u0069nstall": "x"}}"#;
        assert!(counts("package.json", plain, escaped));
        for quiet in
            [r#"{"version": "2"}"#, r#"{"dependencies": {"a": "1"}, "scripts": {"test": "evil"}}"#]
        {
            assert!(!counts("package.json", plain, quiet), "{quiet}");
        }
    }

    #[test]
    fn scripts_of_other_managers_count() {
        for (name, old, new) in [
            ("composer.json", "{}", r#"{"scripts": {"post-install-cmd": "x"}}"#),
            ("composer.json", "{}", r#"{"config": {"allow-plugins": true}}"#),
            (
                "pyproject.toml",
                "[project]\nname = 'x'\n",
                "[build-system]\nbuild-backend = 'evil'\n",
            ),
            ("pyproject.toml", "-", "build-system = { build-backend = \"evil\" }\n"),
            ("pyproject.toml", "-", "[ \"build-system\" ]\nrequires = ['evil']\n"),
            ("pyproject.toml", "-", "[\"build\\u002dsystem\"]\n\"build\\u002dbackend\" = 'evil'\n"),
            (
                "pyproject.toml",
                "[build-system]\nrequires = []\n",
                "[build-system]\nrequires = ['x']\n",
            ),
            (
                "pyproject.toml",
                "[tool.a]\n",
                "[build-system]\nx = '''\n[other]\n'''\nrequires = ['evil']\n",
            ),
            (
                "pyproject.toml",
                "[tool.pytest.ini_options]\n",
                "[tool.pytest.ini_options]\naddopts = '-p evil'\n",
            ),
            (
                "Cargo.toml",
                "[package]\nname = 'x'\n",
                "[package]\nname = 'x'\nbuild = \"evil.rs\"\n",
            ),
            ("Cargo.toml", "[package]\n", "[lib]\nproc-macro = true\n"),
            ("Cargo.toml", "[package]\n", "[patch.crates-io]\nserde = { path = 'evil' }\n"),
            ("x.csproj", "<Project/>", "<Project><Target><Exec Command='x'/></Target></Project>"),
            ("setup.cfg", "[metadata]\n", "[options]\ncmdclass = evil\n"),
            (
                "pom.xml",
                "<project/>",
                "<project><build><plugins><plugin>\n</plugin></plugins></build></project>",
            ),
            ("tsconfig.json", "{}", r#"{"compilerOptions": {"plugins": [{"name": "./evil"}]}}"#),
        ] {
            assert!(counts(name, old, new), "{name} {new}");
            assert!(!counts(name, new, new), "{name} {new}");
        }
    }

    #[test]
    fn other_changes_are_quiet() {
        for (name, old, new) in [
            ("composer.json", "{}", r#"{"require": {"a/b": "1"}}"#),
            (
                "pyproject.toml",
                "[tool.black]\nx = '''\n(a|b)\n'''\n[project]\nversion = '1'\n",
                "[tool.black]\nx = '''\n(a|b)\n'''\n[project]\nversion = '2'\n",
            ),
            (
                "pyproject.toml",
                "[build-system]\nrequires = []\n[project]\nversion = '1'\n",
                "[build-system]\nrequires = []\n[project]\nversion = '2'\n",
            ),
            (
                "pyproject.toml",
                "[project]\ndependencies = []\n",
                "[project]\ndependencies = ['x']\n",
            ),
            (
                "Cargo.toml",
                "[package]\nversion = '1'\n",
                "[package]\nversion = '2'\n[dependencies]\nserde = '1'\n",
            ),
            (
                "x.csproj",
                "<Project></Project>",
                "<Project>\n<PackageReference Include='x'/>\n</Project>",
            ),
            ("tsconfig.json", "{}", r#"{"compilerOptions": {"strict": true}}"#),
        ] {
            assert!(!counts(name, old, new), "{name} {new}");
        }
        for name in ["README.md", "src/main.rs", "package-lock.json", "go.mod", "Makefile"] {
            assert!(!is_judged(&RelativePath::new(name).unwrap()), "{name}");
        }
    }
}
