//! The Kubernetes backend: sandboxes are pods of a cluster.
//!
//! ```text
//!   Kubernetes ── API server ──┬── objects: namespaces, policies, pods, sandboxes, claims (`objects`, `cluster`)
//!                              ├── watch of pods (`watch`)
//!                              └── exec over a WebSocket (`session`, `calls`) ── the crate `pod` in the pod
//! ```
//!
//! A pod has a keeper of its own, which does what concerns commands and files; this crate makes and removes pods,
//! and passes requests on. Where the resources of agent-sandbox are installed, a pod belongs to one of them. All of
//! it is behind the cargo feature `kubernetes`.
//!
//! Reading order: `options`, `objects`, `client`, `lifecycle`, `calls`, `runtime`.

#[cfg(feature = "kubernetes")]
mod calls;
#[cfg(feature = "kubernetes")]
mod client;
#[cfg(feature = "kubernetes")]
mod cluster;
#[cfg(feature = "kubernetes")]
mod copies;
#[cfg(feature = "kubernetes")]
mod events;
#[cfg(feature = "kubernetes")]
mod failure;
#[cfg(feature = "kubernetes")]
mod input;
#[cfg(feature = "kubernetes")]
mod lifecycle;
#[cfg(feature = "kubernetes")]
mod names;
#[cfg(feature = "kubernetes")]
mod objects;
#[cfg(feature = "kubernetes")]
mod observed;
mod options;
#[cfg(feature = "kubernetes")]
mod port;
#[cfg(feature = "kubernetes")]
mod request;
#[cfg(feature = "kubernetes")]
mod runtime;
#[cfg(feature = "kubernetes")]
mod session;
#[cfg(feature = "kubernetes")]
mod tree;
#[cfg(feature = "kubernetes")]
mod watch;

#[cfg(feature = "kubernetes")]
pub use client::Kubernetes;
pub use options::Options;
