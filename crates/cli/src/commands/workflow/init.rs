//! `stockade init`: writes a first workflow file and the type declarations for editors.

use std::fs::OpenOptions;
use std::io::Write as _;

use stockade_core::{Code, Problem};

use crate::args::workflow::Init;
use crate::commands::print::notify;
use crate::problem::{Failure, caused};

/// The initial files of a directory of workflows: names and texts.
const FIRST_FILES: &[(&str, &str)] = &[
    ("workflow.tsx", include_str!("../../first/workflow.tsx")),
    ("stockade.d.ts", include_str!("../../first/stockade.d.ts")),
    ("tsconfig.json", include_str!("../../first/tsconfig.json")),
];

/// Writes the files into a directory. Existing files are not changed.
pub(crate) fn run(arguments: &Init) -> Result<u8, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory).map_err(|error| caused(Code::Io, &error))?;
    let there = FIRST_FILES.iter().find(|(name, _)| directory.join(name).exists());
    if let Some((name, _)) = there {
        let message = format!("{name} already exists in {}", directory.display());
        let problem = Problem::new(Code::Conflict, message);
        return Err(problem.remedied_by("stockade init NEW-DIRECTORY").into());
    }
    for (name, text) in FIRST_FILES {
        let path = directory.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| caused(Code::Io, &error))?;
        notify(&format!("wrote {}", path.display()));
    }
    notify(&format!("run it: stockade up {}", directory.join("workflow.tsx").display()));
    Ok(0)
}
