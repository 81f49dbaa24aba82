//! Finds the modules of a program: on disk when a run starts, and in the stored sources afterwards.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use stockade_script::{SourceFile, join_relative};
use stockade_snippet::library::{Error as PackageError, Packages};

use super::aliases::KnownAliases;
use super::library::NAMES;
use super::portable;
use super::sources::{Modules, Sources};
use crate::graph::nearest;

/// The largest file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// The name of the directory of packages. It is also the prefix of the names of their files.
pub(super) const PACKAGES: &str = "node_modules/";

/// The suffixes that are tried for the path of an import, in order. TypeScript writes `./x.js` for
/// `x.ts`.
const ENDINGS: &[&str] =
    &[".ts", ".tsx", ".js", ".jsx", ".mjs", "/index.ts", "/index.tsx", "/index.js"];

/// Modules of Node.js and Bun that are often imported without `node:`.
const HOST: [&str; 13] = [
    "bun",
    "child_process",
    "crypto",
    "fs",
    "http",
    "https",
    "module",
    "net",
    "os",
    "path",
    "process",
    "stream",
    "worker_threads",
];

/// Modules of Node.js whose names packages have as well. Such a name without a package is one of Node.js.
const ALSO_PACKAGES: [&str; 16] = [
    "assert",
    "async_hooks",
    "buffer",
    "cluster",
    "console",
    "constants",
    "dns",
    "events",
    "perf_hooks",
    "punycode",
    "querystring",
    "readline",
    "string_decoder",
    "timers",
    "url",
    "util",
];

/// A program that is loaded from a file.
#[derive(Debug)]
pub(crate) enum Program {
    /// A program whose modules are found on disk.
    Disk(Disk),
    /// A program that contains its modules.
    Portable(Sources),
}

impl Program {
    /// The program of a workflow file, and the file itself.
    pub(crate) fn of(file: &Path) -> Result<(Self, SourceFile), String> {
        match portable::read(file)? {
            Some((sources, entry)) => Ok((Self::Portable(sources), entry)),
            None => Disk::for_entry(file).map(|(disk, entry)| (Self::Disk(disk), entry)),
        }
    }

    /// All sources that were read.
    pub(crate) fn into_sources(self) -> Sources {
        match self {
            Self::Disk(disk) => disk.read,
            Self::Portable(sources) => sources,
        }
    }
}

impl Modules for Program {
    fn import(&mut self, importer: &str, specifier: &str) -> Result<SourceFile, String> {
        match self {
            Self::Disk(disk) => disk.import(importer, specifier),
            Self::Portable(sources) => sources.import(importer, specifier),
        }
    }
}

/// The files below one directory on disk, and the packages that are installed for it. Records all files
/// that were read.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    /// The packages, once the program imports one.
    packages: Option<Packages>,
    aliases: KnownAliases,
    read: Sources,
}

impl Disk {
    /// The files that a workflow can import: those of its project, which is the nearest directory above
    /// that has a `.git` or a `package.json`, or else those of its own directory. A pack in `.smithers` is
    /// a part of the project around it.
    fn for_entry(file: &Path) -> Result<(Self, SourceFile), String> {
        let path = fs::canonicalize(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        let root = project_of(folder).to_owned();
        let name =
            relative(&root, &path).ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
        let mut disk = Self {
            root,
            packages: None,
            aliases: KnownAliases::default(),
            read: Sources { entry: name.clone(), ..Sources::default() },
        };
        let source = disk.open(&name)?;
        Ok((disk, source))
    }

    fn open(&mut self, name: &str) -> Result<SourceFile, String> {
        let source = content(&self.root, name)?;
        self.read.files.insert(name.to_owned(), source.clone());
        Ok(SourceFile { path: name.to_owned(), source })
    }

    /// A file of the project that an import resolves to, which is recorded.
    fn linked(
        &mut self,
        importer: &str,
        specifier: &str,
        name: &str,
    ) -> Result<SourceFile, String> {
        let file = match self.read.file(name) {
            Some(known) => known,
            None => self.open(name)?,
        };
        self.read.links.push((importer.to_owned(), specifier.to_owned(), name.to_owned()));
        Ok(file)
    }

    /// The file that a name of the project's `tsconfig.json` stands for, if there is one.
    fn aliased(&mut self, importer: &str, specifier: &str) -> Result<Option<String>, String> {
        let root = &self.root;
        let read = |name: &str| root.join(name).is_file().then(|| content(root, name));
        let targets = self.aliases.targets(importer, specifier, read)?;
        let mut names = targets.iter().flat_map(|target| endings(target));
        Ok(names.find(|name| root.join(name).is_file()))
    }

    /// A file of a package, from the nearest `node_modules` above the workflow.
    fn package(&mut self, importer: &str, specifier: &str) -> Result<SourceFile, String> {
        if let Some(why) = host_module_error(specifier) {
            return Err(why);
        }
        if self.packages.is_none() {
            let entry = self.root.join(&self.read.entry);
            let mut above = entry.ancestors().skip(1);
            let directory = above.find_map(|folder| {
                let directory = folder.join("node_modules");
                directory.is_dir().then_some(directory)
            });
            let directory = directory.ok_or_else(|| {
                if is_also_package(specifier) {
                    return unavailable(specifier);
                }
                let meant = nearest(specifier, NAMES);
                let hint = meant.map(|meant| format!(" — did you mean \"{meant}\"?"));
                let hint = hint.unwrap_or_else(|| {
                    ": no directory above the workflow has a node_modules; only \"smithers-orchestrator\", \"stockade\", and files of the project (./ and ../) can be imported without it. Packages that need Node.js need an engine on Node.js, which is planned"
                        .to_owned()
                });
                format!("cannot find the package \"{specifier}\"{hint}")
            })?;
            self.packages = Some(Packages::open(&directory).map_err(|error| error.to_string())?);
        }
        let packages = self.packages.as_mut().ok_or("there are no packages")?;
        let found = packages
            .import(importer, specifier)
            .map_err(|error| {
                let why = match error {
                    PackageError::Missing { importer, specifier } if importer.is_empty() => {
                        PackageError::NotInstalled(specifier)
                    }
                    other => other,
                };
                if matches!(why, PackageError::NotInstalled(_)) && is_also_package(specifier) {
                    return unavailable(specifier);
                }
                format!(
                    "cannot import the package \"{specifier}\": {why}. Packages that need Node.js need an engine on Node.js, which is planned"
                )
            })?;
        Ok(SourceFile { path: format!("{PACKAGES}{}", found.path), source: found.source })
    }

    /// The file names that a relative import can resolve to, in order.
    fn candidates(&self, importer: &str, specifier: &str) -> Result<Vec<String>, String> {
        let folder = importer.rsplit_once('/').map_or("", |(folder, _)| folder);
        let name = join_relative(folder, specifier).ok_or_else(|| {
            format!("\"{specifier}\" leads outside of the project {}", self.root.display())
        })?;
        Ok(endings(&name))
    }
}

impl Modules for Disk {
    fn import(&mut self, importer: &str, specifier: &str) -> Result<SourceFile, String> {
        let within = importer.strip_prefix(PACKAGES);
        if within.is_some() || !specifier.starts_with('.') {
            let aliased = match within {
                None => self.aliased(importer, specifier),
                Some(_) => Ok(None),
            };
            if let Ok(Some(name)) = &aliased {
                return self.linked(importer, specifier, name);
            }
            let found = self.package(within.unwrap_or_default(), specifier);
            let found = found.map_err(|why| match aliased {
                Err(settings) => format!("{why}; {settings}"),
                Ok(_) => why,
            })?;
            let name = found.path.clone();
            self.read.files.insert(name.clone(), found.source.clone());
            self.read.links.push((importer.to_owned(), specifier.to_owned(), name));
            return Ok(found);
        }
        let names = self.candidates(importer, specifier)?;
        let found = names.iter().find(|name| self.root.join(name).is_file());
        let found = found
            .ok_or_else(|| format!("cannot find \"{specifier}\" — tried {}", names.join(", ")))?;
        self.linked(importer, specifier, found)
    }
}

/// The content of a file below the root.
fn content(root: &Path, name: &str) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot read {name}: {error}");
    let inside = fs::canonicalize(root.join(name)).map_err(cannot)?;
    if !inside.starts_with(root) {
        return Err(format!("{name} leads outside of {}", root.display()));
    }
    let file = fs::File::open(&inside).map_err(cannot)?;
    let mut source = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut source).map_err(cannot)?;
    if source.len() as u64 > MAX_BYTES {
        return Err(format!("{name} is larger than {MAX_BYTES} bytes"));
    }
    Ok(source)
}

/// The file names that the path of an import can mean, in order.
fn endings(name: &str) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    for (written, meant) in [(".js", [".ts", ".tsx"]), (".jsx", [".tsx", ".ts"])] {
        if let Some(stem) = name.strip_suffix(written) {
            names.splice(0..0, meant.iter().map(|ending| format!("{stem}{ending}")));
        }
    }
    names.extend(ENDINGS.iter().map(|ending| format!("{name}{ending}")));
    names
}

/// The project of a directory: the nearest one above it that has a `.git` or a `package.json`, or else the
/// directory itself. A pack in `.smithers` is a part of the project around it.
pub(crate) fn project_of(folder: &Path) -> &Path {
    let pack =
        folder.ancestors().find(|above| above.file_name().is_some_and(|name| name == ".smithers"));
    let outside = pack.and_then(Path::parent).unwrap_or(folder);
    let is_project =
        |folder: &&Path| folder.join(".git").exists() || folder.join("package.json").exists();
    outside.ancestors().find(is_project).unwrap_or(outside)
}

/// The error for an import of a module of Node.js or Bun; `None` for other specifiers.
fn host_module_error(specifier: &str) -> Option<String> {
    let is_host = specifier.starts_with("node:")
        || specifier.starts_with("bun:")
        || HOST.contains(&specifier.split('/').next().unwrap_or_default());
    is_host.then(|| unavailable(specifier))
}

fn is_also_package(specifier: &str) -> bool {
    ALSO_PACKAGES.contains(&specifier.split('/').next().unwrap_or_default())
}

fn unavailable(specifier: &str) -> String {
    format!(
        "\"{specifier}\" is not available: a workflow file has no access to files, programs or the network of the host; use a command instead, as agent={{{{ command: … }}}} or <Sandbox command=…>. An engine on Node.js is planned"
    )
}

fn relative(root: &Path, path: &Path) -> Option<String> {
    path.strip_prefix(root).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_files_of_the_project_and_stay_as_they_were() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("p/package.json", "{}");
        write("p/flows/main.tsx", "main");
        write("p/lib/a.ts", "a");
        write("p/lib/b/index.ts", "b");
        write("p/data.json", "1");
        write("outside.ts", "no");
        std::os::unix::fs::symlink("../outside.ts", place.path().join("p/link.ts")).unwrap();
        let (mut disk, entry) = Disk::for_entry(&place.path().join("p/flows/main.tsx")).unwrap();
        assert_eq!((entry.path.as_str(), entry.source.as_str()), ("flows/main.tsx", "main"));
        let mut found = |specifier: &str| disk.import("flows/main.tsx", specifier);
        assert_eq!(found("../lib/a").unwrap().path, "lib/a.ts");
        assert_eq!(found("../lib/a.js").unwrap().source, "a");
        assert_eq!(found("../lib/b").unwrap().path, "lib/b/index.ts");
        assert_eq!(found("../data.json").unwrap().source, "1");
        assert!(found("../../outside").unwrap_err().contains("leads outside of the project"));
        assert!(found("../link").unwrap_err().contains("leads outside of"));
        assert!(found("./gone").unwrap_err().contains("tried flows/gone, flows/gone.ts"));
        let why = found("left-pad").unwrap_err();
        assert!(why.contains("the package \"left-pad\"") && why.contains("is planned"), "{why}");
        write("p/node_modules/zod/package.json", "{}");
        let why = found("ai").unwrap_err();
        assert!(why.contains("\"ai\": ai is not installed. Packages that need"), "{why}");
        // A module of Node.js is no package that could be installed.
        for name in ["util", "timers/promises", "node:util", "fs"] {
            let why = found(name).unwrap_err();
            assert!(why.contains("is not available") && why.contains("is planned"), "{why}");
        }
        write("p/.smithers/package.json", "{}");
        write("p/.smithers/workflows/flow.tsx", "flow");
        let pack = place.path().join("p/.smithers/workflows/flow.tsx");
        let (mut pack, entry) = Disk::for_entry(&pack).unwrap();
        assert_eq!(entry.path, ".smithers/workflows/flow.tsx");
        let imported = pack.import(".smithers/workflows/flow.tsx", "../../lib/a");
        assert_eq!(imported.unwrap().path, "lib/a.ts");
        write(
            "p/.smithers/tsconfig.json",
            "{ \"compilerOptions\": { \"paths\": { \"~/*\": [\"./*\"] } } }",
        );
        write("p/.smithers/components/View.tsx", "view");
        let aliased = pack.import(".smithers/workflows/flow.tsx", "~/components/View").unwrap();
        assert_eq!(
            (aliased.path.as_str(), aliased.source.as_str()),
            (".smithers/components/View.tsx", "view")
        );
        let link = pack.read.links.last().unwrap();
        assert_eq!(
            (link.1.as_str(), link.2.as_str()),
            ("~/components/View", ".smithers/components/View.tsx")
        );
        let mut sources = disk.read;
        let hash = sources.hash();
        fs::write(place.path().join("p/lib/a.ts"), "changed").unwrap();
        assert_eq!(sources.import("flows/main.tsx", "../lib/a").unwrap().source, "a");
        assert!(sources.import("lib/a.ts", "./else").is_err());
        sources.files.insert("lib/a.ts".to_owned(), "changed".to_owned());
        assert_ne!(sources.hash(), hash);
    }
}
