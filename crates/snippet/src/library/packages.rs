//! The files of installed packages, one by one, for callers that load modules without a library
//! set.

use std::path::Path;

use stockade_script::{SourceFile, survey};

use super::error::Error;
use super::resolve::Resolver;
use super::tree::Tree;

/// A `node_modules` directory.
#[derive(Debug)]
pub struct Packages(Resolver);

impl Packages {
    /// Opens a directory by a path that the user gave.
    ///
    /// # Errors
    /// If it does not exist or cannot be read.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        Ok(Self(Resolver::new(Tree::open(directory)?)))
    }

    /// The target file of an import, resolved like in Node.js: from a file of the directory, or
    /// with an empty `importer` from a file beside it. Its path is below the directory, without
    /// links.
    ///
    /// # Errors
    /// Why there is none, or why it cannot be a module.
    pub fn import(&mut self, importer: &str, specifier: &str) -> Result<SourceFile, Error> {
        let file = self.0.resolve(importer, specifier)?;
        let path = file.path;
        let source = self.0.read(&path)?.text;
        let found = SourceFile { path: path.clone(), source };
        if path.ends_with(".json") || path.ends_with(".mjs") || file.is_module {
            return Ok(found);
        }
        if !path.ends_with(".js") && !path.ends_with(".cjs") {
            return Err(Error::Kind(path));
        }
        if path.ends_with(".cjs") {
            return Err(Error::CommonJs(path));
        }
        // A declared module is not parsed here: the caller parses it once.
        let called = self.0.is_module(&path);
        if matches!(called, Ok(true)) || survey(&found).is_ok_and(|survey| survey.is_module) {
            return Ok(found);
        }
        called?;
        Err(Error::CommonJs(path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_found_as_node_finds_them() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/package.json", "{\"type\": \"module\", \"exports\": {\".\": \"./main.js\"}}");
        write("a/main.js", "import \"./more.js\"; import \"b\";");
        write("a/more.js", "1;");
        write("b/package.json", "{\"main\": \"b.js\"}");
        write("b/b.js", "module.exports = 1;");
        let mut packages = Packages::open(root.path()).unwrap();
        assert_eq!(packages.import("", "a").unwrap().path, "a/main.js");
        assert_eq!(packages.import("a/main.js", "./more.js").unwrap().source, "1;");
        assert!(matches!(packages.import("a/main.js", "b"), Err(Error::CommonJs(_))));
        assert!(matches!(packages.import("", "c"), Err(Error::Missing { .. })));
    }
}
