//! The JavaScript engine: modules of TypeScript and JavaScript are parsed, checked, transformed,
//! linked and run in their own realm. The caller decides which code a module may contain.

mod compile;
mod graph;
mod library;
mod places;
mod position;
mod source;
mod survey;
mod walls;

pub mod fetch;
pub mod lasting;
pub mod outside;
pub mod realm;
pub mod worker;

pub use compile::{Finding, Import, Inspector, Lazy, Lenient, Module, compile, compile_elements};
pub use graph::{Unresolved, joined, resolve};
pub use library::{LibraryModule, LibraryPackage, LibrarySet};
pub use source::{Fault, SourceFile};
pub use survey::{Survey, survey, uses_free};
pub use walls::{TOO_DEEP, is_beyond_stack};

/// The syntax tree that an [`Inspector`] sees.
pub mod syntax {
    pub use oxc_ast as tree;
    pub use oxc_ast_visit as visit;
    pub use oxc_semantic::Scoping;
    pub use oxc_span::{GetSpan, Span};
    pub use oxc_syntax as kinds;
}
