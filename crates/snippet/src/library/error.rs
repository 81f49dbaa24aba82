//! Why packages cannot be had from a directory.

use std::io;
use std::path::PathBuf;

use stockade_script::Fault;

/// What is wrong with a directory of packages, or with one package in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory is not there, or may not be read.
    #[error("open the directory of packages {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// None of the packages that snippets may import is in the directory.
    #[error("{} has none of the packages that snippets may import", .0.display())]
    Empty(PathBuf),
    /// There are more files than are read.
    #[error("the packages have more than {0} files")]
    TooManyFiles(usize),
    /// There is more than is read.
    #[error("the packages have more than {0} bytes")]
    TooLarge(u64),
    /// A file may not be read, or is no text.
    #[error("read {path} of the packages")]
    Read {
        /// Below the directory.
        path: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A link leads out of the directory.
    #[error("{0} is or leads through a link that leaves the directory of packages")]
    Leaves(String),
    /// A package is not there.
    #[error("{0} is not installed")]
    NotInstalled(String),
    /// A package is not there that another one imports.
    #[error("{importer} imports \"{specifier}\", which is not installed")]
    Missing {
        /// The file that imports it.
        importer: String,
        /// What it imports.
        specifier: String,
    },
    /// A part of Node.js is imported.
    #[error(
        "{importer} imports \"{specifier}\", a part of Node.js, which is not available in the sandbox"
    )]
    NodeModule {
        /// The file that imports it.
        importer: String,
        /// What it imports.
        specifier: String,
    },
    /// A package does not show what is imported of it.
    #[error("the `exports` of {package} have no importable \"{subpath}\"")]
    NotExported {
        /// The package.
        package: String,
        /// What is imported of it.
        subpath: String,
    },
    /// A file is not there.
    #[error("{0} does not exist")]
    NoFile(String),
    /// A file is a CommonJS module.
    #[error("{0} is a CommonJS module; only ECMAScript modules can be imported in the sandbox")]
    CommonJs(String),
    /// A file is neither JavaScript nor JSON.
    #[error("{0} is neither JavaScript nor JSON")]
    Kind(String),
    /// A file is no JavaScript.
    #[error("{0}")]
    Syntax(Fault),
    /// A `package.json` cannot be understood.
    #[error("{path} is invalid: {why}")]
    Manifest {
        /// Below the directory.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// Whether it is about the directory as a whole, and not about one package in it.
    pub(super) const fn is_of_all(&self) -> bool {
        matches!(self, Self::Open(..) | Self::Empty(_) | Self::TooManyFiles(_) | Self::TooLarge(_))
    }
}
