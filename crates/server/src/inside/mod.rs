//! What the dialects share about the inside of a sandbox: the files of its users (`names`, `stat`, `write`,
//! `range`, `attachment`, `directories`), what it uses now (`usage`), and bodies whose parts another task sends (`channel`).

mod attachment;
mod channel;
pub(crate) mod directories;
mod names;
pub(crate) mod range;
mod stat;
mod target;
pub(crate) mod usage;
pub(crate) mod write;

pub(crate) use attachment::attachment;
pub(crate) use channel::{Channel, Parts};
pub(crate) use names::Names;
pub(crate) use stat::stat;
pub(crate) use target::{Identity, Target};
