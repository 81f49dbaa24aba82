//! Exceptions of a program, with positions in the user's files. Every text comes from the program:
//! it is bounded, and never trusted.

use std::fmt;

use rquickjs::function::This;
use rquickjs::{Array, CaughtError, Coerced, Ctx, Function, Object, Value};

use super::Program;

/// The prefix of the names of our own scripts; their frames are hidden.
pub(super) const OWN_PREFIX: &str = "stockade:";

/// The longest text that is taken from an exception, in bytes.
const MAX_BYTES: usize = 8 << 10;

/// The name and the message of the engine's error for a lack of memory.
const EXHAUSTED: (&str, &str) = ("InternalError", "out of memory");

/// The most frames that are kept.
const MAX_FRAMES: usize = 20;

/// An exception.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    /// The kind of error, such as `TypeError`; `None` for a thrown value that is not an error.
    pub name: Option<String>,
    /// The error's message, or the value as text.
    pub message: String,
    /// The error's `code`, if it has one that is a text. Numbers are the old codes of `DOMException`.
    pub code: Option<String>,
    /// The stack trace, innermost frame first: `at name (file:line:column)`.
    pub frames: Vec<String>,
    /// The error's cause.
    pub cause: Option<Box<Self>>,
    /// Whether the engine had no memory left: then it throws `null`, or an error of its own.
    #[serde(default)]
    pub is_exhausted: bool,
}

/// The format of the reference: message, code, stack, cause and the cause's stack, each on its own
/// lines.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(code) = &self.code {
            write!(f, "\n[code: {code}]")?;
        }
        self.stack(f)?;
        let mut next = self.cause.as_deref();
        while let Some(cause) = next {
            write!(f, "\nCause: {}", cause.message)?;
            cause.stack(f)?;
            next = cause.cause.as_deref();
        }
        Ok(())
    }
}

impl Failure {
    fn stack(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = &self.name else { return Ok(()) };
        write!(f, "\n{name}: {}", self.message)?;
        for frame in &self.frames {
            write!(f, "\n    {frame}")?;
        }
        Ok(())
    }

    /// A lack of memory that the engine could not throw.
    pub(super) fn exhausted() -> Self {
        Self {
            name: Some(EXHAUSTED.0.to_owned()),
            message: EXHAUSTED.1.to_owned(),
            is_exhausted: true,
            ..Self::default()
        }
    }

    pub(super) fn of<'js>(ctx: &Ctx<'js>, error: CaughtError<'js>, program: &Program) -> Self {
        match error {
            CaughtError::Exception(exception) => {
                Self::of_value(ctx, &exception.into_object().into_value(), program)
            }
            CaughtError::Value(value) => Self::of_value(ctx, &value, program),
            CaughtError::Error(error) => {
                Self { message: truncate(error.to_string()), ..Self::default() }
            }
        }
    }

    pub(super) fn of_value<'js>(ctx: &Ctx<'js>, value: &Value<'js>, program: &Program) -> Self {
        Self::with_depth(ctx, value, program, 0)
    }

    fn with_depth<'js>(
        ctx: &Ctx<'js>,
        value: &Value<'js>,
        program: &Program,
        depth: usize,
    ) -> Self {
        let Some(object) = value.as_object().filter(|_| value.is_error()) else {
            return Self::of_other(ctx, value, program);
        };
        let frames = field(ctx, object, "stack").unwrap_or_default();
        let frames = frames.lines().filter_map(|line| frame(line.trim()));
        let cause = object.get::<_, Value<'js>>("cause").ok();
        // Getters of the program may have thrown; that is ignored.
        drop(ctx.catch());
        let cause =
            cause.filter(|cause| !cause.is_undefined() && !cause.is_null() && depth < MAX_DEPTH);
        let name = field(ctx, object, "name").unwrap_or_else(|| "Error".to_owned());
        let mut message = field(ctx, object, "message").unwrap_or_default();
        let is_exhausted = name == EXHAUSTED.0 && message == EXHAUSTED.1;
        let inner =
            if depth < MAX_DEPTH { inner_errors(ctx, object, program, depth) } else { Vec::new() };
        if !inner.is_empty() {
            message = format!("{message} ({})", inner.join("; "));
        }
        Self {
            is_exhausted,
            name: Some(name),
            message,
            code: code(ctx, object),
            frames: frames.take(MAX_FRAMES).collect(),
            cause: cause.map(|cause| Box::new(Self::with_depth(ctx, &cause, program, depth + 1))),
        }
    }
}

/// How many causes and errors within errors are followed.
const MAX_DEPTH: usize = 5;
/// How many errors within one are told.
const MAX_INNER: usize = 5;

/// The errors within an error, such as those of an `AggregateError`.
fn inner_errors<'js>(
    ctx: &Ctx<'js>,
    object: &Object<'js>,
    program: &Program,
    depth: usize,
) -> Vec<String> {
    let errors = object.get::<_, Array<'js>>("errors");
    let Ok(errors) = errors else {
        drop(ctx.catch());
        return Vec::new();
    };
    let found = errors.iter::<Value<'js>>().take(MAX_INNER).flatten();
    found.map(|error| Failure::with_depth(ctx, &error, program, depth + 1).message).collect()
}

impl Failure {
    /// A thrown value that is no error, by what is in it.
    fn of_other<'js>(ctx: &Ctx<'js>, value: &Value<'js>, _: &Program) -> Self {
        if value.is_null() {
            return Self { message: "null".to_owned(), is_exhausted: true, ..Self::default() };
        }
        let Some(object) = value.as_object().filter(|_| !value.is_function()) else {
            return Self { message: text(ctx, value.clone()), ..Self::default() };
        };
        let json = ctx.json_stringify(value.clone());
        let json = json.ok().flatten().and_then(|json| json.to_string().ok()).map(truncate);
        drop(ctx.catch());
        let message = field(ctx, object, "message").filter(|message| !message.is_empty());
        Self {
            code: code(ctx, object),
            message: message.or(json).unwrap_or_else(|| text(ctx, value.clone())),
            ..Self::default()
        }
    }
}

/// A property as text, if there is one.
fn field<'js>(ctx: &Ctx<'js>, object: &Object<'js>, name: &str) -> Option<String> {
    match object.get::<_, Value<'js>>(name) {
        Ok(value) if value.is_undefined() || value.is_null() => None,
        Ok(value) => Some(text(ctx, value)),
        Err(_) => {
            drop(ctx.catch());
            None
        }
    }
}

fn code<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> Option<String> {
    match object.get::<_, Value<'js>>("code") {
        Ok(value) if value.is_string() => Some(text(ctx, value)),
        Ok(_) => None,
        Err(_) => {
            drop(ctx.catch());
            None
        }
    }
}

fn text<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> String {
    if let Ok(text) = value.get::<Coerced<String>>() {
        return truncate(text.0);
    }
    drop(ctx.catch());
    let text = well_formed(ctx, value).map(truncate);
    drop(ctx.catch());
    text.unwrap_or_else(|| "[unprintable]".to_owned())
}

/// A text with halves of surrogate pairs, without them. The program may have changed the function that does it: then
/// it changes the text of its own error.
fn well_formed<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Option<String> {
    value.as_string()?;
    let prototype = ctx
        .globals()
        .get::<_, Object<'js>>("String")
        .ok()?
        .get::<_, Object<'js>>("prototype")
        .ok()?;
    let convert = prototype.get::<_, Function<'js>>("toWellFormed").ok()?;
    convert.call::<_, String>((This(value),)).ok()
}

fn truncate(mut text: String) -> String {
    if text.len() > MAX_BYTES {
        let end = (0..=MAX_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A frame of a stack, whose places are already those of the user's files; `None` for our own scripts.
fn frame(line: &str) -> Option<String> {
    let rest = line.strip_prefix("at ")?;
    let (name, place) = match rest.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')) {
        Some((name, place)) => (Some(name.trim_end()), place),
        None => (None, rest),
    };
    if place.starts_with(OWN_PREFIX) {
        return None;
    }
    Some(match name.filter(|name| *name != "<anonymous>") {
        Some(name) => format!("at {name} ({place})"),
        None => format!("at {place}"),
    })
}
