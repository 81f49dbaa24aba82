//! Resolves imports to files below a `node_modules` directory, like Node.js.

use std::collections::BTreeMap;
use std::sync::Arc;

use stockade_script::join_relative;

use super::error::Error;
use super::manifest::{ImportTarget, Manifest};
use super::tree::{PackageFile, Tree};

/// The suffixes that are tried for a path if a package lets importers omit the extension.
const ENDINGS: &[&str] = &["", ".mjs", ".js", "/index.mjs", "/index.js"];

/// The target file of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// Its path below the directory, without links.
    pub(super) path: String,
    /// Whether the package declares it a module, whatever its extension.
    pub(super) is_module: bool,
}

/// Resolves imports, and caches the packages that it has read.
#[derive(Debug)]
pub(super) struct Resolver {
    tree: Tree,
    manifests: BTreeMap<String, Option<Arc<Manifest>>>,
}

/// A package: its directory without links, and its manifest.
#[derive(Debug, Clone)]
pub(super) struct Package {
    pub(super) directory: String,
    pub(super) manifest: Arc<Manifest>,
}

impl Resolver {
    pub(super) fn new(tree: Tree) -> Self {
        Self { tree, manifests: BTreeMap::new() }
    }

    /// Reads a resolved file.
    pub(super) fn read(&mut self, path: &str) -> Result<PackageFile, Error> {
        self.tree.read(path)?.ok_or_else(|| Error::NoFile(path.to_owned()))
    }

    /// The target of an import in a file.
    pub(super) fn resolve(&mut self, importer: &str, specifier: &str) -> Result<File, Error> {
        let missing = |importer: &str| Error::Missing {
            importer: importer.to_owned(),
            specifier: specifier.to_owned(),
        };
        if specifier.starts_with("./") || specifier.starts_with("../") {
            let path =
                join_relative(parent(importer), specifier).ok_or_else(|| missing(importer))?;
            return self.legacy_file(&path, false);
        }
        let own = self.package_of(importer)?;
        if specifier.starts_with('#') {
            let own = own.ok_or_else(|| missing(importer))?;
            let target = own.manifest.internal(specifier).ok_or_else(|| missing(importer))?;
            return match target {
                // Only one step: the result must not be such a specifier again.
                ImportTarget::External(other) if !other.starts_with('#') => {
                    self.resolve(importer, &other)
                }
                target => self.file(&own.directory, target),
            };
        }
        if specifier.starts_with("node:") {
            let (importer, specifier) = (importer.to_owned(), specifier.to_owned());
            return Err(Error::NodeModule { importer, specifier });
        }
        let (name, subpath) = split(specifier).ok_or_else(|| missing(importer))?;
        let own = own.filter(|own| own.manifest.name.as_deref() == Some(name));
        let package = match own {
            Some(own) => own,
            None => self.package(parent(importer), name)?.ok_or_else(|| missing(importer))?,
        };
        self.exported(&package, name, &subpath)
    }

    /// The export of a package under a subpath, `.` or `./x`.
    pub(super) fn exported(
        &mut self,
        package: &Package,
        name: &str,
        subpath: &str,
    ) -> Result<File, Error> {
        let target = package.manifest.exported(subpath).ok_or_else(|| Error::NotExported {
            package: name.to_owned(),
            subpath: subpath.to_owned(),
        })?;
        self.file(&package.directory, target)
    }

    /// The package of a name, as seen from a directory.
    pub(super) fn package(&mut self, from: &str, name: &str) -> Result<Option<Package>, Error> {
        let mut directory = from;
        while !directory.is_empty() {
            if last(directory) != "node_modules" {
                let found = self.manifest(&format!("{directory}/node_modules/{name}"))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            directory = parent(directory);
        }
        self.manifest(name)
    }

    /// The package that a file belongs to.
    fn package_of(&mut self, file: &str) -> Result<Option<Package>, Error> {
        let mut directory = parent(file);
        while !directory.is_empty() && last(directory) != "node_modules" {
            let found = self.manifest(directory)?;
            if found.is_some() {
                return Ok(found);
            }
            directory = parent(directory);
        }
        Ok(None)
    }

    /// Whether a package declares its `.js` files modules.
    pub(super) fn is_module(&mut self, file: &str) -> Result<bool, Error> {
        Ok(self.package_of(file)?.is_some_and(|package| package.manifest.is_module))
    }

    /// The package in a directory, if there is one.
    fn manifest(&mut self, directory: &str) -> Result<Option<Package>, Error> {
        let path = format!("{directory}/package.json");
        let Some(real) = self.tree.find(&path)? else { return Ok(None) };
        let directory = parent(&real).to_owned();
        let known = match self.manifests.get(&directory) {
            Some(known) => known.clone(),
            None => {
                let found = self.read(&real)?;
                let manifest = Manifest::parse(&found.text)
                    .map_err(|why| Error::Manifest { path: real.clone(), why })?;
                let manifest = Some(Arc::new(manifest));
                self.manifests.insert(directory.clone(), manifest.clone());
                manifest
            }
        };
        Ok(known.map(|manifest| Package { directory, manifest }))
    }

    fn file(&self, directory: &str, target: ImportTarget) -> Result<File, Error> {
        let below = |path: &str| format!("{directory}/{path}");
        match target {
            ImportTarget::File(path) => match self.tree.find(&below(&path))? {
                Some(path) => Ok(File { path, is_module: false }),
                None => Err(Error::NoFile(below(&path))),
            },
            ImportTarget::Module(path) => self.legacy_file(&below(&path), true),
            ImportTarget::Legacy(path) | ImportTarget::External(path) => {
                self.legacy_file(&below(&path), false)
            }
        }
    }

    /// A file by a path whose extension may be missing.
    fn legacy_file(&self, path: &str, is_module: bool) -> Result<File, Error> {
        for ending in ENDINGS {
            if let Some(path) = self.tree.find(&format!("{path}{ending}"))? {
                return Ok(File { path, is_module });
            }
        }
        Err(Error::NoFile(path.to_owned()))
    }
}

/// Whether a text is an import of a package, `name` or `@scope/name`, or of a subpath of it.
pub fn is_package_specifier(text: &str) -> bool {
    split(text).is_some_and(|(_, subpath)| !subpath.ends_with('/'))
}

/// The package name and the subpath of an import; `None` if it is not an import of a package.
pub(super) fn split(specifier: &str) -> Option<(&str, String)> {
    let slashes = if specifier.starts_with('@') { 2 } else { 1 };
    let end = specifier.match_indices('/').nth(slashes - 1).map_or(specifier.len(), |(at, _)| at);
    let (name, below) = specifier.split_at(end);
    let is_name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
    };
    let valid = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(s, n)| is_name(s) && is_name(n)),
        None => is_name(name) && name != "node_modules",
    };
    valid.then(|| (name, format!(".{below}")))
}

/// The directory of a path; empty for one at the top.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn last(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_are_told_from_what_is_below() {
        let of = |specifier| split(specifier).map(|(name, subpath)| format!("{name} {subpath}"));
        assert_eq!(of("zod").as_deref(), Some("zod ."));
        assert_eq!(of("zod/v4/mini").as_deref(), Some("zod ./v4/mini"));
        assert_eq!(of("@a/b").as_deref(), Some("@a/b ."));
        assert_eq!(of("@a/b/c").as_deref(), Some("@a/b ./c"));
        for wrong in
            ["", "@a", "@a/", "/a", "../a", ".a", "a:b", "https://a", "node_modules", "a b"]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert!(
            is_package_specifier("@a/b")
                && is_package_specifier("@a/b/c")
                && is_package_specifier("a/b")
        );
        assert!(
            !is_package_specifier("a/")
                && !is_package_specifier("./a")
                && !is_package_specifier("@a")
        );
    }
}
