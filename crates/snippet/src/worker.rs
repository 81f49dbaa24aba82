//! The worker process: it inherits the engine with its library set from the zygote that it was
//! forked from, reads one snippet, and runs it. Its output is untrusted ([`crate::runner`]).

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use stockade_script::realm::{Limits, Realm};
use stockade_script::worker::wire::FromWorker;
use stockade_script::worker::{Serve, Wire};
use stockade_script::{Fault, LibrarySet, SourceFile};

use crate::imports::Imports;
use crate::payload::Input;
use crate::run::{read, run};
use crate::transcript::Transcript;
use crate::validator::check;

/// The only argument with which a multi-purpose program has to call [`process`].
pub const ARGUMENT: &str = "__snippets";

/// The data from which a zygote prepares.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Setup {
    pub(crate) imports: Imports,
    pub(crate) library: LibrarySet,
}

/// A request to a worker.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Question {
    Run(Input),
    Check(Vec<SourceFile>),
}

/// The response of a worker.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Reply {
    /// The transcript without the lines, which were sent before it.
    Ran(Box<Transcript>),
    Checked(Vec<Fault>),
}

/// Runs the zygote process: the first and only action of the program in [`crate::Options`]. Returns
/// the exit code.
pub fn process() -> u8 {
    stockade_script::worker::process(prepare)
}

fn prepare(input: OwnedFd) -> Result<Serve, String> {
    let mut input = File::from(input);
    let mut bytes = Vec::new();
    let read = input.rewind().and_then(|()| input.read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    let setup: Setup = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    drop((bytes, input));
    let realm = Realm::new(&setup.library, &Limits::default()).map_err(|e| e.to_string())?;
    Ok(Box::new(move |wire| serve(Wire::new(wire), &setup, &realm)))
}

/// Serves one request; returns the exit code.
fn serve(mut wire: Wire, setup: &Setup, realm: &Realm) -> u8 {
    let Ok(question) = wire.question() else { return 1 };
    let Ok(question) = serde_json::from_slice::<Question>(&question) else { return 2 };
    wire.say(&FromWorker::Reading);
    let wire = Rc::new(RefCell::new(wire));
    let reply = match question {
        Question::Check(files) => {
            let faults = check(&files, &setup.imports).err().unwrap_or_default();
            Reply::Checked(faults)
        }
        Question::Run(input) => {
            let ready = read(input, &setup.imports, &setup.library);
            wire.borrow_mut().say(&FromWorker::Read);
            Reply::Ran(match ready {
                Ok(ready) => Box::new(run(ready, realm, Box::new(Rc::clone(&wire)))),
                Err(refused) => refused,
            })
        }
    };
    let Ok(reply) = serde_json::to_vec(&reply) else { return 3 };
    wire.borrow_mut().say(&FromWorker::Answer(reply));
    0
}
