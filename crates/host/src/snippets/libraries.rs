//! The library set from the arguments, else from the environment, else the built-in one.

use std::ffi::OsStr;
use std::path::PathBuf;

use stockade_core::address::hosts::{Hosts, InvalidHosts};
use stockade_core::{Code, Problem};
use stockade_script::LibrarySet;
use stockade_snippet::Imports;
use stockade_snippet::library::{self, Error, Selection};

use stockade_cli::args::snippet::Libraries;
use stockade_cli::problem::caused;

/// The variable with the package directory, if no argument names it.
const DIRECTORY: &str = "STOCKADE_LIBRARIES";
/// The variable with the packages that snippets may import besides those that Directive allows, if
/// no argument names them.
const PACKAGES: &str = "STOCKADE_PACKAGES";

/// The variable with the hosts that packages may fetch from, if no argument names them.
const FETCH: &str = "STOCKADE_FETCH";

/// The hosts that packages may fetch from.
pub(crate) fn hosts(arguments: &Libraries) -> Result<Hosts, Problem> {
    if let Some(hosts) = &arguments.fetch {
        return Ok(hosts.clone());
    }
    match std::env::var(FETCH) {
        Err(std::env::VarError::NotPresent) => Ok(Hosts::Public),
        Ok(text) => text.parse().map_err(|error: InvalidHosts| {
            Problem::new(Code::InvalidInput, format!("{FETCH}: {error}"))
        }),
        Err(error) => Err(caused(Code::InvalidInput, &error)),
    }
}

/// The allowed imports of snippets, and their library set; from a directory, only the selected
/// modules.
pub(super) fn select_library(
    arguments: &Libraries,
    selection: Selection<'_>,
) -> Result<(Imports, LibrarySet), Problem> {
    let imports = imports(&arguments.packages)?;
    let given = |text: &OsStr| (!text.is_empty()).then(|| PathBuf::from(text));
    let named = std::env::var_os(DIRECTORY).and_then(|text| given(&text));
    let Some(directory) = arguments.directory.clone().or(named) else {
        if let Some(package) = imports.packages.first() {
            let message = format!("{package} is not built in, and --libraries is not set");
            return Err(
                Problem::new(Code::InvalidInput, message).remedied_by("--libraries node_modules")
            );
        }
        return Ok((imports, library::built_in()));
    };
    let set = library::load_installed(&directory, &imports, selection)
        .map_err(|error| library_problem(&error))?;
    Ok((imports, set))
}

/// The allowed imports, with additional packages.
pub(crate) fn imports(packages: &[String]) -> Result<Imports, Problem> {
    let named = std::env::var(PACKAGES).unwrap_or_default();
    let named = named.split(',').map(str::trim).filter(|name| !name.is_empty());
    let packages = if packages.is_empty() {
        named.map(ToOwned::to_owned).collect()
    } else {
        packages.to_vec()
    };
    if let Some(wrong) = packages.iter().find(|name| !library::is_package_specifier(name)) {
        let message = format!("{wrong:?} is not the name of a package");
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("--package zod, or --package @scope/name/part"));
    }
    Ok(Imports { packages, ..Imports::default() })
}

fn library_problem(error: &Error) -> Problem {
    let problem = caused(Code::LibraryUnavailable, error);
    match error {
        Error::NotInstalled(name) => problem.remedied_by(format!("npm install {name}")),
        Error::Open(..) | Error::Empty(_) => {
            problem.remedied_by("npm install @directive-run/core, and --libraries node_modules")
        }
        _ => problem,
    }
}
