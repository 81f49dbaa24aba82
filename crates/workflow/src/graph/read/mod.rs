//! Reads the elements of a rendering. Unknown elements and attributes are errors, and all errors are
//! reported together.

mod agent;
mod cache;
mod node;
mod props;
mod sandbox;
mod task;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use self::props::Props;
use super::fault::{Fault, SourceLocation};
use super::model::{Loop, Order, Task};
use super::nearest::nearest;

/// An element as a realm renders it, without its child elements.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Element {
    /// Its name, such as `task`.
    pub(super) kind: String,
    /// Its location in the source.
    #[serde(default)]
    pub(super) place: Option<SourceLocation>,
    /// Its attributes.
    #[serde(default)]
    pub(super) props: Map<String, Value>,
}

/// An element without its child elements.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    /// A task.
    Task(Arc<Task>),
    /// A group of other elements.
    Group {
        /// The order in which they are executed.
        order: Order,
    },
    /// Elements that are executed repeatedly.
    Loop(Loop),
}

/// The known elements, and their names in the source.
const ELEMENTS: &[(&str, &str)] = &[
    ("workflow", "Workflow"),
    ("task", "Task"),
    ("sequence", "Sequence"),
    ("parallel", "Parallel"),
    ("merge-queue", "MergeQueue"),
    ("branch", "Branch"),
    ("loop", "Loop"),
    ("approval", "Approval"),
    ("timer", "Timer"),
    ("wait-for-event", "WaitForEvent"),
    ("signal", "Signal"),
    ("subflow", "Subflow"),
    ("sandbox", "Sandbox"),
    ("human", "HumanTask"),
    ("worktree", "Worktree"),
    ("boundary", "TryCatchFinally"),
    ("continue-as-new", "ContinueAsNew"),
];

/// The default of `maxIterations`.
const MAX_ITERATIONS: u32 = 5;

/// The name of an element in the source.
fn element_name(kind: &str) -> &str {
    ELEMENTS.iter().find(|(known, _)| *known == kind).map_or(kind, |(_, written)| written)
}

/// Reads the elements of a rendering.
pub(super) struct Reader<'a> {
    /// The schemas that outputs refer to by their numbers.
    pub(super) schemas: &'a [Value],
    /// Whether the outputs of tasks are cached by default.
    pub(super) is_cached: bool,
    /// The errors in the elements that were read.
    pub(super) faults: Vec<Fault>,
}

impl Reader<'_> {
    /// Reads the outermost element; returns its name.
    ///
    /// # Errors
    /// An error if it is not a workflow.
    pub(super) fn workflow(&mut self, element: Element) -> Result<String, Vec<Fault>> {
        let Element { kind, place, props } = element;
        if kind != "workflow" {
            let message =
                format!("the outermost element must be <Workflow>, not <{}>", element_name(&kind));
            return Err(vec![Fault { place, message }]);
        }
        let mut props = Props::new("Workflow", props, place.as_ref(), self.schemas);
        let name = props.required_text("name");
        self.is_cached = props.flag("cache").unwrap_or_default();
        props.finish(&mut self.faults);
        Ok(name)
    }

    /// Reads another element; `None` if a workflow cannot contain it.
    pub(super) fn part(&mut self, element: Element) -> Option<Part> {
        let Element { kind, place, props } = element;
        let known = ELEMENTS.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
        let Some(name) = known.or_else(|| node::find(&kind).map(|node| node.name)) else {
            let names = ELEMENTS.iter().map(|(_, name)| *name);
            let suggestion = nearest(&kind, names.clone());
            let hint = suggestion.map(|suggestion| format!(" — did you mean <{suggestion}>?"));
            let hint = hint.unwrap_or_else(|| {
                format!(" — there are {}", names.collect::<Vec<_>>().join(", "))
            });
            let message = format!("there is no element <{kind}>{hint}");
            self.faults.push(Fault { place, message });
            return None;
        };
        let mut props = Props::new(name, props, place.as_ref(), self.schemas);
        let is_skipped = props.flag("skipIf").unwrap_or_default();
        let part = match kind.as_str() {
            "workflow" => {
                props.fault("cannot be nested; use <Subflow>");
                None
            }
            "sequence" | "parallel" | "merge-queue" | "branch" | "worktree" | "boundary" => {
                Some(Part::Group { order: order(&kind, &mut props) })
            }
            "loop" => {
                let mut repeated = repeated(&mut props);
                repeated.until |= is_skipped;
                repeated.location.clone_from(&place);
                Some(Part::Loop(repeated))
            }
            _ => {
                let mut task = task::read(&kind, is_skipped, self.is_cached, &mut props);
                task.location.clone_from(&place);
                Some(Part::Task(Arc::new(task)))
            }
        };
        props.finish(&mut self.faults);
        part
    }
}

fn order(kind: &str, props: &mut Props<'_>) -> Order {
    let (id, label) = (props.text("id"), props.text("label"));
    // They are only for display; the engine does not use them.
    drop((id, label));
    for (name, why) in [
        ("failurePolicy", "use continueOnFail, or <TryCatchFinally>"),
        ("priority", "tasks start in the order of the file; `maxConcurrency` limits them"),
    ] {
        props.refuse(name, why);
    }
    match kind {
        "parallel" => Order::Parallel {
            limit: props.count("maxConcurrency", 1).flatten(),
            subtrees: props.count("subtreeConcurrency", 1).flatten(),
        },
        "merge-queue" => {
            // The default of a queue is one task at a time.
            let limit = props.count("maxConcurrency", 1).unwrap_or(Some(1));
            Order::Parallel { limit, subtrees: None }
        }
        "boundary" => Order::Boundary {
            caught: props.flag("caught").unwrap_or_default(),
            rethrows: props.flag("rethrows").unwrap_or_default(),
        },
        "worktree" => {
            props.required_text("path");
            props.text("branch");
            props.text("baseBranch");
            Order::Sequence
        }
        "branch" => {
            props.flag("if");
            if props.take("children").is_some() {
                props.fault("cannot have children: use `then` and `else`");
            }
            Order::Sequence
        }
        _ => Order::Sequence,
    }
}

fn repeated(props: &mut Props<'_>) -> Loop {
    props.refuse("continueAsNewEvery", "a <ContinueAsNew> after the loop does it");
    let id = props.required_text("id");
    props.text("label");
    let until = props.flag("until").unwrap_or_default();
    let max_iterations = props.count("maxIterations", 1).unwrap_or(Some(MAX_ITERATIONS));
    let choices = [("fail", true), ("return-last", false)];
    Loop {
        id,
        until,
        max_iterations: max_iterations.unwrap_or(u32::MAX),
        fails_at_maximum: props.choice("onMaxReached", &choices).unwrap_or_default(),
        children: Vec::new(),
        location: None,
    }
}
