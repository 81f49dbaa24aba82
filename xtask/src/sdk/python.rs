//! The generated part of the package for Python: dataclasses, the methods of the client, and errors.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::MARK;
use super::schema::{Api, Definition, Field, Object, Shape, Type};
use super::words::{camel_case, pascal_case, snake_case, wrap};

/// The longest line of a description.
const WIDTH: usize = 100;
/// Words of the language that no member can have as its name.
const KEYWORDS: [&str; 5] = ["class", "def", "from", "import", "in"];

/// `models.py`.
pub(super) fn models(api: &Api) -> String {
    let mut text = head("The types that travel between a client and a server.");
    text.push_str(
        "from __future__ import annotations\n\n\
         from dataclasses import dataclass, field\n\
         from typing import Any, Literal, TypeAlias\n\n\
         from ._model import UNSET, Model, Unset\n",
    );
    let mut aliases = Vec::new();
    for Definition { name, description, shape } in &api.definitions {
        match shape {
            Shape::Object(object) => write_class(&mut text, name, description, object),
            Shape::Tagged(variants) => {
                for variant in variants {
                    write_class(&mut text, &variant.name, &variant.description, &variant.object);
                }
                let names = variants.iter().map(|variant| Type::Named(variant.name.clone()));
                aliases.push((name, Type::OneOf(names.collect()), documented(description, &[])));
            }
            Shape::Choice(values) => {
                let kinds = values.iter().map(|(value, _)| Type::Constant(value.clone())).collect();
                aliases.push((name, Type::OneOf(kinds), documented(description, values)));
            }
            Shape::Alias(kind) => aliases.push((name, kind.clone(), documented(description, &[]))),
        }
    }
    text.push('\n');
    // An alias is evaluated at once, so those that it names come before it.
    let mut known: BTreeSet<&str> = BTreeSet::new();
    while !aliases.is_empty() {
        let waiting: BTreeSet<_> = aliases.iter().map(|(name, ..)| (*name).clone()).collect();
        let (ready, later): (Vec<_>, Vec<_>) = aliases.into_iter().partition(|(name, kind, _)| {
            names(kind).iter().all(|other| *other == name.as_str() || !waiting.contains(*other))
        });
        assert!(!ready.is_empty(), "aliases refer to each other");
        for (name, kind, description) in ready {
            let _ = writeln!(text, "\n{name}: TypeAlias = {}", annotation(&kind, ""));
            text.push_str(&docstring(&description, 0));
            known.insert(name);
        }
        aliases = later;
    }
    text
}

/// `errors.py`.
pub(super) fn errors(api: &Api) -> String {
    let mut text = head("A class for each stable error code.");
    text.push_str("from __future__ import annotations\n\nfrom ._problem import StockadeError\n");
    let mut list = String::new();
    for (code, description) in &api.codes {
        let name = format!("{}Error", pascal_case(code));
        let _ = write!(
            text,
            "\n\nclass {name}(StockadeError):\n{}",
            docstring(std::slice::from_ref(description), 4)
        );
        let _ = write!(text, "\n    code = \"{code}\"\n");
        let _ = writeln!(list, "    \"{code}\": {name},");
    }
    let _ = write!(
        text,
        "\n\nBY_CODE: dict[str, type[StockadeError]] = {{\n{list}}}\n\"\"\"The classes by their codes.\"\"\"\n"
    );
    text
}

/// `_protocol.py`.
pub(super) fn protocol(api: &Api) -> String {
    let mut text = head("The protocol that this version speaks.");
    let _ = writeln!(text, "VERSION = \"{}\"", api.version);
    text
}

/// `_async/operations.py`.
pub(super) fn operations(api: &Api) -> String {
    let mut text = head("A method for each operation of a server.");
    text.push_str(
        "from __future__ import annotations\n\n\
         import builtins\n\n\
         from .. import models\n\
         from .._model import T\n\n\n\
         class AsyncOperations:\n    \"\"\"The operations of a server.\"\"\"\n\n    \
         async def _call(\n        self, operation: str, request: object, response: type[T], key: str | None\n    \
         ) -> T:\n        raise NotImplementedError\n",
    );
    for operation in &api.operations {
        let name = &operation.name;
        let (parameter, sent) = match &operation.request {
            None => (String::new(), "{}"),
            Some(kind @ Type::Named(_)) if !is_text(api, kind) => {
                (format!("request: {}, ", annotation(kind, "models.")), "request")
            }
            Some(_) => ("id: str, ".to_owned(), "id"),
        };
        let kind = operation.response.as_ref().map(|kind| annotation(kind, "models."));
        let kind = kind.map(|kind| kind.replace("list[", "builtins.list["));
        let result = kind.as_deref().unwrap_or("None");
        let _ = write!(
            text,
            "\n    async def {name}(\n        self, {parameter}*, key: str | None = None\n    ) -> {result}:\n{}",
            docstring(std::slice::from_ref(&operation.description), 8)
        );
        let _ = match &kind {
            Some(kind) => {
                writeln!(text, "        return await self._call(\"{name}\", {sent}, {kind}, key)")
            }
            None => writeln!(
                text,
                "        await self._call(\"{name}\", {sent}, dict[str, object], key)"
            ),
        };
    }
    text
}

fn is_text(api: &Api, kind: &Type) -> bool {
    let Type::Named(name) = kind else { return *kind == Type::Text };
    let definition = api.definitions.iter().find(|definition| definition.name == *name);
    matches!(definition.map(|it| &it.shape), Some(Shape::Alias(Type::Text)))
}

fn head(what: &str) -> String {
    format!("# {MARK}\n\"\"\"{what}\"\"\"\n\n")
}

fn write_class(text: &mut String, name: &str, description: &str, object: &Object) {
    let _ = write!(
        text,
        "\n\n@dataclass(frozen=True, kw_only=True, slots=True)\nclass {name}(Model):\n{}",
        docstring(&[description.to_owned()], 4)
    );
    for field in &object.fields {
        let _ = write!(text, "\n    {}\n", member(field));
        if !field.description.is_empty() {
            text.push_str(&docstring(std::slice::from_ref(&field.description), 4));
        }
    }
    if object.is_open {
        text.push_str(
            "\n    rest: dict[str, Any] = field(default_factory=dict, metadata={\"rest\": True})\n    \
             \"\"\"Further members, by their names.\"\"\"\n",
        );
    }
}

/// A member of a dataclass.
fn member(field: &Field) -> String {
    let mut name = snake_case(&field.name);
    let mut metadata = Vec::new();
    if KEYWORDS.contains(&name.as_str()) {
        name.push('_');
    }
    if camel_case(&name) != field.name {
        metadata.push(format!("\"name\": \"{}\"", field.name));
    }
    let is_tag = matches!(field.kind, Type::Constant(_));
    if is_tag {
        metadata.push("\"tag\": True".to_owned());
    }
    let mut kind = annotation(&field.kind, "");
    let default = match (&field.kind, &field.default) {
        (Type::Constant(value), _) => Some(format!("\"{value}\"")),
        _ if field.is_required => None,
        _ if field.has_null => {
            kind.push_str(" | Unset");
            Some("UNSET".to_owned())
        }
        (Type::List(_), _) => Some("list".to_owned()),
        (Type::Map(_), _) => Some("dict".to_owned()),
        (_, Some(value)) if literal(value).is_some() => literal(value),
        (Type::Flag, _) => Some("False".to_owned()),
        (Type::Optional(_) | Type::Any, _) => Some("None".to_owned()),
        _ => {
            kind.push_str(" | None");
            Some("None".to_owned())
        }
    };
    let is_factory = !field.is_required && matches!(field.kind, Type::List(_) | Type::Map(_));
    let mut arguments = Vec::new();
    if let Some(default) = &default {
        let argument = if is_factory { "default_factory" } else { "default" };
        arguments.push(format!("{argument}={default}"));
    }
    if !metadata.is_empty() {
        arguments.push(format!("metadata={{{}}}", metadata.join(", ")));
    }
    match default {
        Some(default) if metadata.is_empty() && !is_factory => {
            format!("{name}: {kind} = {default}")
        }
        _ if arguments.is_empty() => format!("{name}: {kind}"),
        _ => format!("{name}: {kind} = field({})", arguments.join(", ")),
    }
}

/// A value that a dataclass can have as its default.
fn literal(value: &Value) -> Option<String> {
    match value {
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(format!("{text:?}")),
        _ => None,
    }
}

/// The notation of a type; `module` precedes the names of those of `models`.
fn annotation(kind: &Type, module: &str) -> String {
    match kind {
        Type::Any => "Any".to_owned(),
        Type::Text | Type::Bytes => "str".to_owned(),
        Type::Integer => "int".to_owned(),
        Type::Number => "float".to_owned(),
        Type::Flag => "bool".to_owned(),
        Type::Constant(value) => format!("Literal[\"{value}\"]"),
        Type::List(item) => format!("list[{}]", annotation(item, module)),
        Type::Map(value) => format!("dict[str, {}]", annotation(value, module)),
        Type::Optional(kind) => format!("{} | None", annotation(kind, module)),
        Type::OneOf(kinds) => one_of(kinds, module),
        Type::Named(name) => format!("{module}{name}"),
    }
}

fn one_of(kinds: &[Type], module: &str) -> String {
    let constants: Vec<_> = kinds
        .iter()
        .filter_map(|kind| {
            if let Type::Constant(value) = kind { Some(format!("\"{value}\"")) } else { None }
        })
        .collect();
    if constants.len() == kinds.len() {
        let line = format!("Literal[{}]", constants.join(", "));
        return match line.len() > 80 {
            true => format!("Literal[\n    {},\n]", constants.join(",\n    ")),
            false => line,
        };
    }
    let mut parts: Vec<String> = Vec::new();
    for kind in kinds {
        let part = annotation(kind, module);
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(" | ")
}

/// The types that a type refers to by name.
fn names(kind: &Type) -> Vec<&str> {
    match kind {
        Type::Named(name) => vec![name],
        Type::List(inner) | Type::Map(inner) | Type::Optional(inner) => names(inner),
        Type::OneOf(kinds) => kinds.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

/// A description with those of values.
fn documented(description: &str, values: &[(String, String)]) -> Vec<String> {
    let mut paragraphs = vec![description.to_owned()];
    for (value, meaning) in values.iter().filter(|(_, meaning)| !meaning.is_empty()) {
        paragraphs.push(format!("- `{value}`: {meaning}"));
    }
    paragraphs
}

/// A documentation string with paragraphs, indented.
fn docstring(paragraphs: &[String], indent: usize) -> String {
    let margin = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    for (number, paragraph) in paragraphs.iter().enumerate() {
        if number == 1 {
            lines.push(String::new());
        }
        lines.extend(wrap(&paragraph.replace('\\', "\\\\"), WIDTH - indent - 6));
    }
    if lines.iter().all(String::is_empty) {
        return String::new();
    }
    let mut text = format!("{margin}\"\"\"");
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            text.push('\n');
            if !line.is_empty() {
                text.push_str(&margin);
            }
        }
        text.push_str(line);
    }
    let end = if text.ends_with('"') { " \"\"\"\n" } else { "\"\"\"\n" };
    text + end
}
