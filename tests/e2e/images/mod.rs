//! Images of the store as roots, with the layouts, users and entrypoints of popular ones.

mod persistent;
mod popular;
mod run;
mod sample;
mod subordinate;
mod workflow;
