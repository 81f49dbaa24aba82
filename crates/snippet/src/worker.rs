//! The worker process: it inherits the engine with its library set from the zygote that it was
//! forked from, reads one snippet, and runs it. Its output is untrusted ([`crate::runner`]).

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use stockade_script::realm::{Limits, Realm};
use stockade_script::worker::wire::FromWorker;
use stockade_script::worker::{Channel, Serve};
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
pub(crate) enum WorkerRequest {
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
    Ok(Box::new(move |channel| serve(Channel::new(channel), &setup, &realm)))
}

/// Serves one request; returns the exit code.
fn serve(mut channel: Channel, setup: &Setup, realm: &Realm) -> u8 {
    let Ok(request) = channel.receive_request() else { return 1 };
    let Ok(request) = serde_json::from_slice::<WorkerRequest>(&request) else { return 2 };
    channel.send(&FromWorker::ReadingStarted);
    let channel = Rc::new(RefCell::new(channel));
    let reply = match request {
        WorkerRequest::Check(files) => {
            let faults = check(&files, &setup.imports).err().unwrap_or_default();
            Reply::Checked(faults)
        }
        WorkerRequest::Run(input) => {
            let ready = read(input, &setup.imports, &setup.library);
            channel.borrow_mut().send(&FromWorker::ReadingFinished);
            Reply::Ran(match ready {
                Ok(ready) => Box::new(run(ready, realm, Box::new(Rc::clone(&channel)))),
                Err(refused) => refused,
            })
        }
    };
    let Ok(reply) = serde_json::to_vec(&reply) else { return 3 };
    channel.borrow_mut().send(&FromWorker::Response(reply));
    0
}
