//! The JavaScript engine: modules of TypeScript and JavaScript are parsed, checked, transformed,
//! linked and run in their own realm. The caller decides which code a module may contain.

mod compile;
mod graph;
mod library;
mod position;
mod source;
mod source_locations;
mod survey;
mod worker_jail;

pub mod fetch;
pub mod persistent_realm;
pub mod realm;
pub mod realm_host;
pub mod worker;

pub use compile::{
    Finding, Import, Inspector, LazyImport, Lenient, Module, compile, compile_elements,
};
pub use graph::{Unresolved, join_relative, resolve};
pub use library::{LibraryModule, LibraryPackage, LibrarySet};
pub use source::{Fault, SourceFile};
pub use survey::{Survey, survey, uses_free_name};
pub use worker_jail::{TOO_DEEP, is_stack_overflow};

/// The syntax tree that an [`Inspector`] sees.
pub mod syntax {
    pub use oxc_ast as tree;
    pub use oxc_ast_visit as visit;
    pub use oxc_semantic::Scoping;
    pub use oxc_span::{GetSpan, Span};
    pub use oxc_syntax as kinds;
}
