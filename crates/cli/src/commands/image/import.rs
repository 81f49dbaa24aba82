//! `stockade image import`.

use stockade_core::{Code, Problem};

use crate::args::image::ImageImport;
use crate::problem::Failure;

/// Adds the image.
pub(super) fn run(arguments: &ImageImport) -> Result<u8, Failure> {
    let source = arguments.source.to_string_lossy();
    Err(Problem::new(Code::Unsupported, format!("cannot import {source}")).into())
}
