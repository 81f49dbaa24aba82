//! The execution of one run: the loop renders and plans it, starts tasks and commits their results,
//! until nothing is left. After a crash, the rows determine what is executed again: nothing that has
//! finished.
//!
//! The loop:
//!
//! ```text
//!  ┌─────────────────────────────────────────────────────────────────────────────────────────────┐
//!  ▼                                                                                             │
//! render, if stale ─► use answers, ─► plan ──► look up ──► commit ──► start ──► wait for an outcome,
//!  │            ▲     due times        │       outputs               attempts   a record, an answer
//!  │            │         │            │          │                             or a time
//!  │            └─────────┴────────────┼──────────┘
//!  ▼          something has changed    ▼
//! failed                      finished or failed
//! ```
//!
//! The status of the run:
//!
//! ```text
//!     ┌── only answers from outside can help ──────┐
//!     │                                            ▼
//!  running ◄─── an answer, a time, an outcome ── waiting
//!     │
//!     └──► finished or failed
//! ```
//!
//! The status of a task:
//!
//! ```text
//!              a known value, or a cached output
//!     ┌───────────────────────────────────────────────────────────┐
//!     │                                                           ▼
//!   ready ──────────────────────────────► running ──────────► finished, skipped or failed
//!     │                                   ▲ │ │ ▲                 ▲
//!     │            an answer, a time      │ │ │ │ pause over      │
//!     │         ┌─────────────────────────┘ │ │ └─────────┐       │
//!     ▼         │                           │ └──────► retrying   │
//!   waiting ────┘                           │  failure            │
//!     │  ▲                                  │                     │
//!     │  └── a child waits, or a review ────┘                     │
//!     └────────── an answer, a time (approval, event, timer) ─────┘
//! ```
//!
//! Reading order: `state` (the whole state, in parts: `task_table`, `plan`, `ledger`, `start_queue`,
//! `run_sandboxes`, `agent_sandboxes`), `main_loop`, `planning`, `task_start`, `task_end`, `answers` and `sandbox_waits`.
//! `agent_task`, `agent_ends`, `cache_lookup`, `child_workflow` and `provider_children` are for single kinds of
//! tasks.

mod agent_ends;
mod agent_sandboxes;
mod agent_task;
mod answers;
mod budgets;
mod cache_lookup;
mod child_count;
mod child_workflow;
mod continuation;
mod kept_files;
mod ledger;
mod main_loop;
mod outcome;
mod plan;
mod planning;
mod port_node;
mod project_files;
mod provider_children;
mod run_sandboxes;
mod sandbox_waits;
mod start_queue;
mod state;
mod task_end;
mod task_start;
mod task_table;
mod token_count;

pub(super) use outcome::End;
pub(super) use state::{Execution, journal_row};
