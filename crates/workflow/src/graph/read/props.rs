//! The attributes of one element. Each attribute is taken by its name, as a value of its type;
//! attributes that were not taken are unknown. Values that JSON cannot express are objects with the key
//! `$`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::graph::fault::{Fault, SourceLocation};
use crate::graph::function::Function;
use crate::graph::model::Output;
use crate::graph::nearest::{nearest, unknown_field};

/// The term for a workflow in messages.
pub(super) const WORKFLOW: &str = "the result of `smithers(…)`";

/// The attributes that were not taken yet, and the errors in those that were.
pub(super) struct Props<'a> {
    element: &'static str,
    values: Map<String, Value>,
    location: Option<&'a SourceLocation>,
    schemas: &'a [Value],
    known: Vec<&'static str>,
    faults: Vec<Fault>,
}

impl<'a> Props<'a> {
    pub(super) fn new(
        element: &'static str,
        values: Map<String, Value>,
        location: Option<&'a SourceLocation>,
        schemas: &'a [Value],
    ) -> Self {
        Self { element, values, location, schemas, known: Vec::new(), faults: Vec::new() }
    }

    /// Reports the attributes that were not taken, and the errors of the others.
    pub(super) fn finish(mut self, faults: &mut Vec<Fault>) {
        for name in self.values.keys() {
            let suggestion = nearest(name, self.known.iter().copied());
            let hint = suggestion.map(|suggestion| format!(" — did you mean `{suggestion}`?"));
            let is_body = name == "children" && self.element == "Sandbox";
            let body = " — the <Sandbox> of createSmithers() may have a body: \
                        const { Sandbox } = createSmithers(…)";
            let hint = if is_body { Some(body.to_owned()) } else { hint };
            let hint = hint.unwrap_or_else(|| {
                // What the library adds is written by no author.
                let mut known = self.known.clone();
                known.retain(|name| !name.starts_with('$'));
                known.sort_unstable();
                format!(" — it has {}", known.join(", "))
            });
            let message = format!("<{}> has no attribute `{name}`{hint}", self.element);
            self.faults.push(Fault { place: self.location.cloned(), message });
        }
        faults.append(&mut self.faults);
    }

    /// Reports an error of the element.
    pub(super) fn fault(&mut self, message: impl Into<String>) {
        let message = format!("<{}> {}", self.element, message.into());
        self.faults.push(Fault { place: self.location.cloned(), message });
    }

    /// Reports the fields of an object in an attribute that are not known.
    pub(super) fn check_fields(&mut self, name: &str, object: &Map<String, Value>, known: &[&str]) {
        for field in object.keys().filter(|field| !known.contains(&field.as_str())) {
            self.fault(unknown_field(name, field, known));
        }
    }

    /// Takes the attribute; `undefined` and `null` are `None`.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.values.remove(name).filter(|value| !value.is_null())
    }

    /// Refuses an attribute that Smithers has, and that is not executed here.
    pub(super) fn refuse(&mut self, name: &'static str, why: &str) {
        if self.values.remove(name).is_some_and(|value| !value.is_null()) {
            self.fault(format!("`{name}` is not supported: {why}"));
        }
    }

    /// Takes the attribute if its value has this tag.
    pub(super) fn take_tagged(
        &mut self,
        name: &'static str,
        tag: &str,
    ) -> Option<Map<String, Value>> {
        let found = tagged(self.values.get(name)?, tag)?.clone();
        drop(self.take(name));
        Some(found)
    }

    /// The attribute, without taking it.
    pub(super) fn peek(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    /// A list of any values.
    pub(super) fn list(&mut self, name: &'static str) -> Vec<Value> {
        match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(found) => self.type_fault(name, "a list", &found).unwrap_or_default(),
        }
    }

    fn type_fault<T>(&mut self, name: &str, expected: &str, found: &Value) -> Option<T> {
        self.fault(format!("`{name}` must be {expected}, not {}", excerpt(found)));
        None
    }

    /// A required, non-empty text.
    pub(super) fn required_text(&mut self, name: &'static str) -> String {
        match self.take(name) {
            Some(Value::String(text)) if !text.is_empty() => text,
            Some(found) => self.type_fault(name, "a string", &found).unwrap_or_default(),
            None => {
                self.fault(format!("needs `{name}`"));
                String::new()
            }
        }
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            found => self.type_fault(name, "a string", &found),
        }
    }

    pub(super) fn flag(&mut self, name: &'static str) -> Option<bool> {
        match self.take(name)? {
            Value::Bool(flag) => Some(flag),
            found => self.type_fault(name, "true or false", &found),
        }
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let found = self.take(name)?;
        let choice = found.as_str().unwrap_or_default();
        if let Some((_, meaning)) = choices.iter().find(|(known, _)| *known == choice) {
            return Some(*meaning);
        }
        let known = choices.iter().map(|(choice, _)| format!("\"{choice}\"")).collect::<Vec<_>>();
        let suggestion = nearest(choice, choices.iter().map(|(choice, _)| *choice));
        let hint = suggestion
            .map(|suggestion| format!(" — did you mean \"{suggestion}\"?"))
            .unwrap_or_default();
        let expected = known.join(" or ");
        self.fault(format!("`{name}` must be {expected}, not {}{hint}", excerpt(&found)));
        None
    }

    /// A whole number of at least `least`; `Some(None)` stands for infinity, where that is allowed.
    pub(super) fn count(&mut self, name: &'static str, least: u32) -> Option<Option<u32>> {
        let found = self.take(name)?;
        if is_infinite(&found) {
            return Some(None);
        }
        match whole(&found).and_then(|number| u32::try_from(number).ok()) {
            Some(number) if number >= least => Some(Some(number)),
            _ => self.type_fault(name, &format!("a whole number of at least {least}"), &found),
        }
    }

    /// A time in milliseconds; `None` also for infinity.
    pub(super) fn milliseconds(&mut self, name: &'static str) -> Option<Duration> {
        let found = self.take(name)?;
        if is_infinite(&found) {
            return None;
        }
        match found.as_f64().filter(|number| *number > 0.0) {
            Some(number) => Duration::try_from_secs_f64(number / 1_000.0).ok(),
            None => self.type_fault(name, "a number of milliseconds above 0", &found),
        }
    }

    /// A list of texts, or a single text.
    pub(super) fn texts(&mut self, name: &'static str) -> Vec<String> {
        let Some(found) = self.take(name) else { return Vec::new() };
        if let Some(text) = found.as_str() {
            return vec![text.to_owned()];
        }
        let items = found.as_array().map(Vec::as_slice);
        let texts: Option<Vec<_>> = items
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        texts.unwrap_or_else(|| self.type_fault(name, "a list of ids", &found).unwrap_or_default())
    }

    /// An object whose values are texts; `what` is the term for the values in messages.
    pub(super) fn pairs(&mut self, name: &'static str, what: &str) -> BTreeMap<String, String> {
        let Some(found) = self.take(name) else { return BTreeMap::new() };
        let pairs = found.as_object().and_then(|pairs| {
            let text =
                |(name, id): (&String, &Value)| Some((name.clone(), id.as_str()?.to_owned()));
            pairs.iter().map(text).collect()
        });
        pairs.unwrap_or_else(|| {
            let expected = format!("an object whose values are {what}");
            self.type_fault(name, &expected, &found).unwrap_or_default()
        })
    }

    /// An object, unchanged.
    pub(super) fn object(&mut self, name: &'static str) -> Option<Map<String, Value>> {
        match self.take(name)? {
            Value::Object(object) => Some(object),
            found => self.type_fault(name, "an object", &found),
        }
    }

    /// A function; `wanted` is the term for it in messages.
    pub(super) fn function_or(&mut self, name: &'static str, expected: &str) -> Option<Function> {
        let found = self.take(name)?;
        match tagged(&found, "function").and_then(|found| function_of(found, "ref")) {
            Some(function) => Some(function),
            None => self.type_fault(name, expected, &found),
        }
    }

    /// An output: a table handle, a schema, or the name of a table. A schema is stored in the table
    /// with the id of the task.
    pub(super) fn output(&mut self, name: &'static str, id: &str) -> Option<Output> {
        let found = self.take(name)?;
        if let Some(table) = found.as_str().filter(|table| !table.is_empty()) {
            return Some(Output { table: table.to_owned(), schema: None, parse: None });
        }
        if let Some(nothing) = tagged(&found, "nothing") {
            let known = nothing.get("known").and_then(Value::as_array).map(Vec::as_slice);
            let known: Vec<_> = known.unwrap_or_default().iter().map(Value::to_string).collect();
            let tables = match known.as_slice() {
                [] => "createSmithers() was called without tables".to_owned(),
                known => format!("the tables of createSmithers() are {}", known.join(", ")),
            };
            self.fault(format!("`{name}` is undefined: {tables}"));
            return None;
        }
        let Some(table) = tagged(&found, "table") else {
            return self.type_fault(
                name,
                "a schema, a table of `createSmithers`, or a name",
                &found,
            );
        };
        let schema = number_of(table, "schema").map(|at| at as usize);
        Some(Output {
            table: table.get("key").and_then(Value::as_str).unwrap_or(id).to_owned(),
            schema: schema.and_then(|at| self.schemas.get(at)).cloned(),
            parse: function_of(table, "parse"),
        })
    }
}

/// A value with this tag, which stands for a value that JSON cannot express.
pub(super) fn tagged<'a>(value: &'a Value, tag: &str) -> Option<&'a Map<String, Value>> {
    value.as_object().filter(|object| object.get("$").and_then(Value::as_str) == Some(tag))
}

/// The function that an object refers to.
pub(super) fn function_of(object: &Map<String, Value>, name: &str) -> Option<Function> {
    let found = object.get(name)?;
    // The JavaScript engine may write a whole number as 1.0.
    let number = found.as_u64().or_else(|| whole(found).and_then(|it| u64::try_from(it).ok()));
    number.map(Function)
}

pub(super) fn number_of(object: &Map<String, Value>, name: &str) -> Option<u32> {
    object.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok())
}

fn is_infinite(value: &Value) -> bool {
    tagged(value, "number").and_then(|number| number.get("value")) == Some(&"Infinity".into())
}

/// A whole number, which may be written as 1.0.
fn whole(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within the range")]
    let exact =
        |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
    value.as_i64().or_else(|| value.as_f64().and_then(exact))
}

/// A value as it is displayed in a message.
fn excerpt(value: &Value) -> String {
    match value.as_object().and_then(|object| object.get("$")).and_then(Value::as_str) {
        Some("number") => value["value"].as_str().unwrap_or("a number").to_owned(),
        Some("element") => "an element".to_owned(),
        Some("nothing") => "undefined".to_owned(),
        Some(tag) => format!("a {tag}"),
        None => {
            let text = value.to_string();
            if text.chars().count() <= 60 {
                return text;
            }
            format!("{}…", text.chars().take(60).collect::<String>())
        }
    }
}
