//! `stockade reject`: deletes a bundle, even a damaged one, or the view that a killed run left.

use stockade_api::RejectBundle;
use stockade_core::Problem;

use crate::args::Reject;
use crate::output;
use crate::problem::short_id;
use crate::review::Review;

/// Removes the bundle.
pub(crate) fn run(arguments: &Reject) -> Result<u8, Problem> {
    let rejected = Review::open()?.reject(RejectBundle { id: arguments.id.clone() })?;
    if arguments.json {
        output::print_answer(&rejected)?;
    } else {
        eprint_line!("stockade: {} rejected", short_id(&rejected.id));
    }
    Ok(0)
}
