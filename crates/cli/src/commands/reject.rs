//! `stockade reject`: a bundle is thrown away, also one that is damaged, or the
//! view that a killed run left.

use serde_json::json;
use stockade_bundle::RelativePath;
use stockade_bundle::store::{Error, Listed};
use stockade_core::{Code, Problem};

use crate::args::Reject;
use crate::problem::{caused, of_store, short};
use crate::review::{READING, Review, output};
use crate::run;

/// Removes the bundle.
#[expect(clippy::print_stderr, reason = "what is not data goes to stderr")]
pub(crate) fn run(arguments: &Reject) -> Result<u8, Problem> {
    let review = Review::open()?;
    let id = match review.store.find(&arguments.id, &READING) {
        Ok(bundle) => {
            let id = bundle.id().to_owned();
            bundle.hold().and_then(|()| bundle.remove()).map_err(|e| of_store(&e))?;
            id
        }
        Err(error @ (Error::Altered(_) | Error::Invalid(_))) => {
            remove_damaged(&review, &arguments.id, &error)?
        }
        Err(Error::NotFound(_)) if run::discard(&review.data, &arguments.id)? => {
            arguments.id.clone()
        }
        Err(error) => return Err(of_store(&error)),
    };
    if arguments.json {
        output::print_json(&json!({ "id": id, "rejected": true }))?;
    } else {
        eprintln!("stockade: {} rejected", short(&id));
    }
    Ok(0)
}

/// Removes a bundle that can be found and not be read.
fn remove_damaged(review: &Review, name: &str, error: &Error) -> Result<String, Problem> {
    let listed = review.store.list(&READING).map_err(|e| of_store(&e))?;
    let mut damaged = listed.into_iter().filter(|listed| {
        listed.bundle.is_err() && (name == "latest" || listed.id.starts_with(name))
    });
    let (Some(Listed { id, .. }), None) = (damaged.next(), damaged.next()) else {
        return Err(of_store(error));
    };
    let bundles = review.data.bundles().map_err(|e| caused(Code::Io, &e))?;
    let path = RelativePath::new(id.as_str()).map_err(|e| {
        Problem::new(Code::Io, format!("cannot remove {id}")).because(e.to_string())
    })?;
    bundles.remove_tree(&path).map_err(|e| caused(Code::Io, &e))?;
    Ok(id)
}
