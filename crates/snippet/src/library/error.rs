//! Why packages in a directory are unavailable.

use std::io;
use std::path::PathBuf;

use stockade_script::Fault;

/// A problem of a directory of packages, or of one package in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory does not exist or cannot be read.
    #[error("open the directory of packages {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// None of the allowed packages is in the directory.
    #[error("{} has none of the packages that snippets may import", .0.display())]
    Empty(PathBuf),
    /// There are more files than the limit.
    #[error("the packages have more than {0} files")]
    TooManyFiles(usize),
    /// There are more bytes than the limit.
    #[error("the packages have more than {0} bytes")]
    TooLarge(u64),
    /// A file cannot be read, or is not text.
    #[error("read {path} of the packages")]
    Read {
        /// Its path below the directory.
        path: String,
        /// The error of the kernel.
        #[source]
        source: io::Error,
    },
    /// A link leads out of the directory.
    #[error("{0} is or leads through a link that leaves the directory of packages")]
    OutsideDirectory(String),
    /// A package does not exist.
    #[error("{0} is not installed")]
    NotInstalled(String),
    /// A package that another one imports does not exist.
    #[error("{importer} imports \"{specifier}\", which is not installed")]
    Missing {
        /// The importing file.
        importer: String,
        /// The imported module.
        specifier: String,
    },
    /// A module of Node.js is imported.
    #[error(
        "{importer} imports \"{specifier}\", a part of Node.js, which is not available in the sandbox"
    )]
    NodeModule {
        /// The importing file.
        importer: String,
        /// The imported module.
        specifier: String,
    },
    /// A package does not export the imported subpath.
    #[error("the `exports` of {package} have no importable \"{subpath}\"")]
    NotExported {
        /// The package.
        package: String,
        /// The imported subpath.
        subpath: String,
    },
    /// A file does not exist.
    #[error("{0} does not exist")]
    NoFile(String),
    /// A file is a CommonJS module.
    #[error("{0} is a CommonJS module; only ECMAScript modules can be imported in the sandbox")]
    CommonJs(String),
    /// A file is neither JavaScript nor JSON.
    #[error("{0} is neither JavaScript nor JSON")]
    Kind(String),
    /// A file has a syntax error.
    #[error("{0}")]
    Syntax(Fault),
    /// A `package.json` is invalid.
    #[error("{path} is invalid: {why}")]
    Manifest {
        /// Its path below the directory.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    /// Whether it concerns the directory as a whole, not one package in it.
    pub(super) const fn affects_all(&self) -> bool {
        matches!(self, Self::Open(..) | Self::Empty(_) | Self::TooManyFiles(_) | Self::TooLarge(_))
    }
}
