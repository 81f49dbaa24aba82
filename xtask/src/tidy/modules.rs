//! The modules of one crate as a tree, with the paths that each of them names. Reads tokens, not
//! types: enough to see which module uses which. Code under `#[cfg(test)]` is skipped.

use std::collections::BTreeMap;

use super::Tree;
use super::rust_text::code_only;

/// A path in the source: `crate`, `super` or `self` and names, or only names.
type Path = Vec<String>;

/// A module, by its index in [`Modules`]; the root of the crate is the first.
pub(super) type Id = usize;

/// The modules of a crate.
#[derive(Debug)]
pub(super) struct Modules(Vec<Module>);

#[derive(Debug, Default)]
struct Module {
    /// The names from the root to this module.
    path: Path,
    file: String,
    parent: Option<Id>,
    children: BTreeMap<String, Id>,
    /// The imports of this module, by their local names.
    imports: BTreeMap<String, Vec<Path>>,
    /// Every path in this module that starts in this crate.
    named: Vec<Path>,
}

/// The maximum length of a chain of imports.
const MAX_IMPORTS: usize = 20;

impl Modules {
    /// The modules below `crates/NAME/src/lib.rs` or `main.rs`; empty if neither file exists.
    pub(super) fn of(tree: &Tree, root: &str) -> Self {
        let mut modules = Self(Vec::new());
        if let Some(file) = tree.file(root) {
            let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
            let module = Module { file: root.to_owned(), ..Module::default() };
            modules.add(tree, module, directory, &tokens(&code_only(&file.text)));
        }
        modules
    }

    /// Each use of another module: the module that uses, the module that defines the name, and the
    /// path as text.
    pub(super) fn uses(&self) -> Vec<(Id, Id, String)> {
        let mut uses = Vec::new();
        for (id, module) in self.0.iter().enumerate() {
            for path in &module.named {
                if let Some(target) = self.resolve(id, path, MAX_IMPORTS)
                    && target != id
                {
                    uses.push((id, target, path.join("::")));
                }
            }
        }
        uses
    }

    /// The names from the root to a module.
    pub(super) fn path(&self, id: Id) -> &[String] {
        &self.0[id].path
    }

    /// The file of a module.
    pub(super) fn file(&self, id: Id) -> &str {
        &self.0[id].file
    }

    fn add(&mut self, tree: &Tree, module: Module, directory: &str, tokens: &[String]) -> Id {
        let id = self.0.len();
        self.0.push(module);
        let found = Reader { tokens, at: 0 }.read();
        for (name, body) in found.modules {
            let mut child = Module { parent: Some(id), ..Module::default() };
            child.path = self.0[id].path.iter().chain([&name]).cloned().collect();
            let below = format!("{directory}/{name}");
            let added = match body {
                Some(tokens) => {
                    child.file.clone_from(&self.0[id].file);
                    self.add(tree, child, &below, &tokens)
                }
                None => {
                    let places = [format!("{below}.rs"), format!("{below}/mod.rs")];
                    let Some(file) = places.iter().find_map(|place| tree.file(place)) else {
                        continue;
                    };
                    child.file.clone_from(&file.path);
                    self.add(tree, child, &below, &self::tokens(&code_only(&file.text)))
                }
            };
            self.0[id].children.insert(name, added);
        }
        let module = &mut self.0[id];
        for (path, name) in found.imports {
            module.named.push(path.clone());
            module.imports.entry(name).or_default().push(path);
        }
        module.named.extend(found.paths);
        module.named.retain(|path| matches!(path[0].as_str(), "crate" | "super" | "self"));
        id
    }

    /// The module that defines what a path names; a name that is imported on the path is resolved
    /// to its origin. `None` for names of another crate.
    fn resolve(&self, from: Id, path: &[String], imports_left: usize) -> Option<Id> {
        let mut names = path.iter().map(String::as_str).peekable();
        let mut at = match names.peek().copied()? {
            "crate" => {
                names.next();
                0
            }
            "self" => {
                names.next();
                from
            }
            "super" => from,
            name if self.0[from].children.contains_key(name) => from,
            name if self.0[from].imports.contains_key(name) => from,
            _ => return None,
        };
        for name in names {
            let module = &self.0[at];
            if name == "super" {
                at = module.parent?;
            } else if let Some(child) = module.children.get(name) {
                at = *child;
            } else {
                let imports = module.imports.get(name).filter(|_| imports_left > 0);
                let origin = imports.and_then(|imports| {
                    imports.iter().find_map(|path| self.resolve(at, path, imports_left - 1))
                });
                match origin {
                    Some(origin) => at = origin,
                    // An item of this module: the rest of the path belongs to the item.
                    None => return Some(at),
                }
            }
        }
        Some(at)
    }
}

/// What was found in the tokens of a module.
#[derive(Debug, Default)]
struct SourceItems {
    /// Each module with its tokens, unless they are in a separate file.
    modules: Vec<(String, Option<Vec<String>>)>,
    /// Each path of a `use` with its local name.
    imports: Vec<(Path, String)>,
    /// Other paths.
    paths: Vec<Path>,
}

struct Reader<'t> {
    tokens: &'t [String],
    at: usize,
}

impl Reader<'_> {
    fn read(mut self) -> SourceItems {
        let mut found = SourceItems::default();
        while let Some(token) = self.peek(0) {
            match token {
                "#" if self.is_for_tests() => self.skip_item(),
                "mod" if self.peek(2) == Some(";") => {
                    found.modules.extend(self.peek(1).map(|name| (name.to_owned(), None)));
                    self.at += 3;
                }
                "mod" if self.peek(2) == Some("{") => {
                    let name = self.peek(1).unwrap_or_default().to_owned();
                    let end = self.block_end(self.at + 2);
                    let body = self.tokens[self.at + 3..end].to_vec();
                    found.modules.push((name, Some(body)));
                    self.at = end;
                }
                "use" => {
                    self.at += 1;
                    self.read_use(&[], &mut found.imports);
                }
                // `pub(in …)` restricts visibility, and is not a use.
                "crate" | "super" | "self" if !self.is_visibility() => {
                    let path = self.read_path();
                    if path.len() > 1 {
                        found.paths.push(path);
                    }
                }
                _ => self.at += 1,
            }
        }
        found
    }

    fn peek(&self, ahead: usize) -> Option<&str> {
        self.tokens.get(self.at + ahead).map(String::as_str)
    }

    fn is_visibility(&self) -> bool {
        let before = self.tokens[..self.at].iter().rev().map(String::as_str).take(3);
        before.eq(["in", "(", "pub"])
    }

    /// Whether `#[cfg(test)]` or `#[cfg(all(test, …))]` is here.
    fn is_for_tests(&self) -> bool {
        let starts = |wanted: &[&str]| {
            (0..).zip(wanted).all(|(ahead, token)| self.peek(ahead) == Some(token))
        };
        starts(&["#", "[", "cfg", "(", "test", ")"])
            || starts(&["#", "[", "cfg", "(", "all", "(", "test"])
    }

    /// Skips the item, statement or field that starts here, with its attributes.
    fn skip_item(&mut self) {
        while self.peek(0) == Some("#") {
            self.at = self.block_end(self.at + 1) + 1;
        }
        let words = ["pub", "mod", "use", "fn", "impl", "struct", "enum", "const", "static"];
        let more = ["trait", "type", "async", "unsafe", "extern", "macro_rules", "let"];
        let first = self.peek(0).unwrap_or_default();
        let is_item = words.contains(&first) || more.contains(&first);
        let start = if first == "pub" && self.peek(1) == Some("(") {
            self.block_end(self.at + 1) + 1
        } else {
            self.at + usize::from(first == "pub")
        };
        let is_use = self.tokens.get(start).is_some_and(|token| token == "use");
        while let Some(token) = self.peek(0) {
            match token {
                "{" if is_use => self.at = self.block_end(self.at) + 1,
                "{" => {
                    self.at = self.block_end(self.at) + 1;
                    return;
                }
                "(" | "[" => self.at = self.block_end(self.at) + 1,
                ";" => {
                    self.at += 1;
                    return;
                }
                "," if !is_item => {
                    self.at += 1;
                    return;
                }
                // The end of the enclosing block.
                "}" | ")" | "]" => return,
                _ => self.at += 1,
            }
        }
    }

    /// The index of the bracket that closes the one at `at`.
    fn block_end(&self, at: usize) -> usize {
        let mut depth = 0_usize;
        for (place, token) in self.tokens.iter().enumerate().skip(at) {
            match token.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return place;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Reads a path that starts here: names with `::` between them.
    fn read_path(&mut self) -> Path {
        let mut path = Path::new();
        while let Some(name) = self.peek(0).filter(|token| is_name(token)) {
            path.push(name.to_owned());
            self.at += 1;
            if self.peek(0) != Some("::") || !self.peek(1).is_some_and(is_name) {
                break;
            }
            self.at += 1;
        }
        path
    }

    /// Reads one tree of a `use`, up to the token that ends it.
    fn read_use(&mut self, prefix: &[String], found: &mut Vec<(Path, String)>) {
        let mut path = prefix.to_vec();
        if self.peek(0) == Some("::") {
            self.at += 1;
        }
        path.extend(self.read_path());
        match (self.peek(0), self.peek(1)) {
            (Some("::"), Some("{")) => {
                self.at += 2;
                self.read_group(&path, found);
            }
            (Some("::"), _) => {
                // A glob names the module itself.
                self.at += 2;
                found.push((path, "*".to_owned()));
            }
            (Some("{"), _) => {
                self.at += 1;
                self.read_group(&path, found);
            }
            (Some("as"), Some(name)) => {
                let name = name.to_owned();
                self.at += 2;
                found.push((path, name));
            }
            _ => {
                if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
                    path.pop();
                }
                if let Some(name) = path.last().cloned() {
                    found.push((path, name));
                }
            }
        }
    }

    fn read_group(&mut self, prefix: &[String], found: &mut Vec<(Path, String)>) {
        while let Some(token) = self.peek(0) {
            match token {
                "}" => {
                    self.at += 1;
                    return;
                }
                "," => self.at += 1,
                _ => {
                    let before = self.at;
                    self.read_use(prefix, found);
                    // A token that starts no tree is skipped, to avoid an endless loop.
                    self.at += usize::from(self.at == before);
                }
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::`, and every other character as a separate token.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The uses between modules, as `FROM -> TO`.
    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::of(&Tree::of(files), "crates/a/src/lib.rs");
        let name = |id| modules.path(id).join("::");
        let uses = modules.uses();
        uses.iter().map(|(from, to, _)| format!("{} -> {}", name(*from), name(*to))).collect()
    }

    #[test]
    fn imports_and_paths_are_followed() {
        let lib = "mod one; mod two { pub(in crate::one) fn f() { crate::one::g() } }";
        let one = "use super::two::{self as other, f}; use std::fmt; fn g() { $crate::two::f() }";
        let files = [("crates/a/src/lib.rs", lib), ("crates/a/src/one.rs", one)];
        assert_eq!(uses(&files), ["one -> two", "one -> two", "one -> two", "two -> one"]);
    }

    #[test]
    fn a_name_that_is_exported_again_counts_for_where_it_is_from() {
        let lib = "mod one; mod two; pub use two::inner::Thing;";
        let files = [
            ("crates/a/src/lib.rs", lib),
            ("crates/a/src/one.rs", "use crate::Thing; use crate::Own;"),
            ("crates/a/src/two/mod.rs", "pub mod inner;"),
            ("crates/a/src/two/inner.rs", "pub struct Thing;"),
        ];
        assert_eq!(uses(&files), ["one -> two::inner", "one -> "]);
    }

    #[test]
    fn tests_are_left_out() {
        let one = "#[cfg(test)] use crate::two::{A, B}; #[cfg(test)]\n#[expect(x)] mod tests { \
                   use crate::two::C; } struct S { #[cfg(test)] a: crate::two::A, b: u8 } \
                   #[cfg(test)] fn f<A, B>(a: crate::two::A) {} fn g() { crate::three::f() }";
        let files = [
            ("crates/a/src/lib.rs", "mod one; mod two; mod three;"),
            ("crates/a/src/one.rs", one),
            ("crates/a/src/two.rs", ""),
            ("crates/a/src/three.rs", ""),
        ];
        assert_eq!(uses(&files), ["one -> three"]);
    }
}
