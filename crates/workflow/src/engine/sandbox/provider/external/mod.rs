//! Providers that are programs: a module that the user's own node or bun runs, or any command. They run
//! beside this process with all rights of the user, and only programs that a file of the user names are
//! started. Their messages have the same limits as those of a provider in a realm.

mod module_process;
mod program;
mod provider;

pub(super) use program::find_program;
pub(super) use provider::ExternalProvider;
