//! Reading of the OpenAPI document: the operations of Stockade's own dialect and their types, in the form that
//! both languages are written from.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value};

use super::words::pascal_case;

/// What precedes the names of the schemas of the dialect.
const PREFIX: &str = "#/components/schemas/stockade.";
/// The paths of plain operations.
const CALL: &str = "/stockade/v0/call/";
/// The type of bytes that are mostly text.
const BYTES: &str = "Bytes";
/// The type of error codes.
const CODE: &str = "Code";

/// What the document describes.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) version: String,
    pub(super) operations: Vec<Operation>,
    pub(super) definitions: Vec<Definition>,
    /// The error codes with their descriptions.
    pub(super) codes: Vec<(String, String)>,
}

/// A plain operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) description: String,
    /// Without one, the request has no members.
    pub(super) request: Option<Type>,
    /// Without one, the response has no members.
    pub(super) response: Option<Type>,
}

/// A type with a name.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) shape: Shape,
}

/// The shape of a type with a name.
#[derive(Debug)]
pub(super) enum Shape {
    /// An object.
    Object(Object),
    /// One of several texts, each with its description.
    Choice(Vec<(String, String)>),
    /// Objects that differ by the value of one member.
    Tagged(Vec<Variant>),
    /// Another name of a type.
    Alias(Type),
}

/// An object.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) fields: Vec<Field>,
    /// Whether it has further members, of any name.
    pub(super) is_open: bool,
}

/// One of the objects of [`Shape::Tagged`].
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) object: Object,
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) kind: Type,
    pub(super) is_required: bool,
    /// The value if it is absent, as far as that is known.
    pub(super) default: Option<Value>,
    /// Whether `null` is something else than an absent member.
    pub(super) has_null: bool,
}

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Any,
    Text,
    Bytes,
    Integer,
    Number,
    Flag,
    Constant(String),
    List(Box<Self>),
    Map(Box<Self>),
    Optional(Box<Self>),
    OneOf(Vec<Self>),
    Named(String),
}

/// Reads the document.
pub(super) fn read(document: &Value) -> anyhow::Result<Api> {
    let schemas = document["components"]["schemas"].as_object().context("there are no schemas")?;
    let reader = Reader { schemas };
    let mut definitions = Vec::new();
    let mut codes = Vec::new();
    for (name, schema) in schemas {
        let Some(name) = name.strip_prefix("stockade.") else { continue };
        let found = reader.definitions(name, schema).with_context(|| format!("the type {name}"))?;
        for definition in found {
            if let (CODE, Shape::Choice(values)) = (definition.name.as_str(), &definition.shape) {
                codes.clone_from(values);
            }
            definitions.push(definition);
        }
    }
    ensure!(!codes.is_empty(), "there are no error codes");
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().context("there are no paths")? {
        let Some(name) = path.strip_prefix(CALL).filter(|name| !name.starts_with('{')) else {
            continue;
        };
        let operation = &methods["post"];
        let content = |value: &Value| value["content"]["application/json"]["schema"].clone();
        let request = content(&operation["requestBody"]);
        let response = content(&operation["responses"]["200"]);
        operations.push(Operation {
            name: name.to_owned(),
            description: text(operation, "description"),
            request: reader
                .with_members(&request)
                .with_context(|| format!("the request of {name}"))?,
            response: reader
                .with_members(&response)
                .with_context(|| format!("the response of {name}"))?,
        });
    }
    let version = text(&document["info"], "version");
    Ok(Api { version, operations, definitions, codes })
}

struct Reader<'a> {
    schemas: &'a Map<String, Value>,
}

impl Reader<'_> {
    /// A type with a name, and those of objects in it that have a title.
    fn definitions(&self, name: &str, schema: &Value) -> anyhow::Result<Vec<Definition>> {
        if name == BYTES {
            return Ok(Vec::new());
        }
        let mut definitions = Vec::new();
        for choice in choices(schema) {
            if let Some(title) = choice["title"].as_str() {
                definitions.push(self.definition(title, choice)?);
            }
        }
        definitions.push(self.definition(name, schema)?);
        Ok(definitions)
    }

    fn definition(&self, name: &str, schema: &Value) -> anyhow::Result<Definition> {
        let shape = if let Some(values) = texts(schema) {
            Shape::Choice(values)
        } else if let Some(variants) = self.variants(name, schema)? {
            Shape::Tagged(variants)
        } else if schema["type"] == "object" && choices(schema).is_empty() && !is_map(schema) {
            Shape::Object(self.object(schema)?)
        } else {
            Shape::Alias(self.kind(schema)?)
        };
        Ok(Definition { name: name.to_owned(), description: text(schema, "description"), shape })
    }

    /// The objects of a type, if they differ by a member with a constant.
    fn variants(&self, name: &str, schema: &Value) -> anyhow::Result<Option<Vec<Variant>>> {
        let choices = choices(schema);
        let tag = |choice: &Value| {
            let mut properties = choice["properties"].as_object()?.values();
            let constant = properties.find_map(|property| property["const"].as_str());
            constant.map(str::to_owned)
        };
        let tags: Option<Vec<_>> = choices.iter().map(|choice| tag(choice)).collect();
        let Some(tags) = tags.filter(|tags| !tags.is_empty()) else { return Ok(None) };
        let variant = |(choice, tag): (&Value, String)| {
            let mut object = self.object(schema)?;
            object.fields.extend(self.object(choice)?.fields);
            Ok(Variant {
                name: format!("{name}{}", pascal_case(&tag)),
                description: text(choice, "description"),
                object,
            })
        };
        choices.into_iter().zip(tags).map(variant).collect::<anyhow::Result<_>>().map(Some)
    }

    fn object(&self, schema: &Value) -> anyhow::Result<Object> {
        let mut object = Object::default();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let kind = self.kind(property).with_context(|| format!("the member {name}"))?;
            object.fields.push(Field {
                name: name.clone(),
                description: text(property, "description"),
                kind,
                is_required: required.iter().any(|one| one == name),
                default: property.get("default").cloned(),
                has_null: property.get("x-null").is_some(),
            });
        }
        // A variant may consist of another object.
        if schema["$ref"].is_string() {
            object.fields.extend(self.object(self.target(schema)?)?.fields);
        }
        object.is_open = match &schema["additionalProperties"] {
            Value::Bool(is_open) => *is_open,
            Value::Object(_) => true,
            _ => false,
        };
        Ok(object)
    }

    fn target(&self, schema: &Value) -> anyhow::Result<&Value> {
        let name = reference(schema).context("a reference is no name")?;
        self.schemas.get(&format!("stockade.{name}")).with_context(|| format!("there is no {name}"))
    }

    /// A type, unless it is an object without members.
    fn with_members(&self, schema: &Value) -> anyhow::Result<Option<Type>> {
        let kind = self.kind(schema)?;
        if let Type::Named(_) = &kind {
            let target = self.target(schema)?;
            let is_object = target["type"] == "object" && !is_map(target);
            if is_object && target["properties"].as_object().is_none_or(Map::is_empty) {
                return Ok(None);
            }
        }
        Ok(Some(kind))
    }

    fn kind(&self, schema: &Value) -> anyhow::Result<Type> {
        if let Some(name) = reference(schema) {
            return Ok(if name == BYTES { Type::Bytes } else { Type::Named(name.to_owned()) });
        }
        if let Some(constant) = schema["const"].as_str() {
            return Ok(Type::Constant(constant.to_owned()));
        }
        if let Some(values) = texts(schema) {
            return Ok(Type::OneOf(
                values.into_iter().map(|(value, _)| Type::Constant(value)).collect(),
            ));
        }
        let choices = choices(schema);
        if !choices.is_empty() {
            let mut kinds = Vec::new();
            let mut has_null = false;
            for choice in choices {
                match choice["title"].as_str() {
                    _ if choice["type"] == "null" => has_null = true,
                    Some(title) => kinds.push(Type::Named(title.to_owned())),
                    None => kinds.push(self.kind(choice)?),
                }
            }
            let kind = match kinds.as_slice() {
                [only] => only.clone(),
                _ => Type::OneOf(kinds),
            };
            return Ok(if has_null { Type::Optional(Box::new(kind)) } else { kind });
        }
        match &schema["type"] {
            Value::Null => Ok(Type::Any),
            Value::String(name) => self.simple(name, schema),
            Value::Array(names) => {
                let mut others =
                    names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
                let (Some(name), None) = (others.next(), others.next()) else {
                    bail!("the types {names:?} are not supported");
                };
                Ok(Type::Optional(Box::new(self.simple(name, schema)?)))
            }
            other => bail!("the type {other} is not supported"),
        }
    }

    fn simple(&self, name: &str, schema: &Value) -> anyhow::Result<Type> {
        Ok(match name {
            "string" => Type::Text,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Flag,
            "array" => Type::List(Box::new(self.kind(&schema["items"])?)),
            "object" => {
                ensure!(schema["properties"].is_null(), "an object in another one has no name");
                match &schema["additionalProperties"] {
                    values @ Value::Object(_) => Type::Map(Box::new(self.kind(values)?)),
                    _ => Type::Map(Box::new(Type::Any)),
                }
            }
            other => bail!("the type {other} is not supported"),
        })
    }
}

/// The alternatives of a schema.
fn choices(schema: &Value) -> Vec<&Value> {
    ["oneOf", "anyOf"].iter().filter_map(|name| schema[name].as_array()).flatten().collect()
}

/// The texts of a schema that allows nothing else, with their descriptions.
fn texts(schema: &Value) -> Option<Vec<(String, String)>> {
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| Some((value.as_str()?.to_owned(), String::new())))
            .collect();
    }
    let choices = choices(schema);
    if choices.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for choice in choices {
        match choice["const"].as_str() {
            Some(value) => all.push((value.to_owned(), text(choice, "description"))),
            None => all.extend(choice["enum"].is_array().then(|| texts(choice))??),
        }
    }
    Some(all)
}

/// Whether an object has members of any name only.
fn is_map(schema: &Value) -> bool {
    schema["properties"].is_null() && schema["additionalProperties"].is_object()
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(PREFIX)
}

fn text(value: &Value, name: &str) -> String {
    super::words::plain_text(value[name].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(schema: &Value) -> Type {
        Reader { schemas: &Map::new() }.kind(schema).unwrap()
    }

    #[test]
    fn types_are_read() {
        let text = || Box::new(Type::Text);
        for (schema, expected) in [
            (json!({}), Type::Any),
            (json!(true), Type::Any),
            (json!({ "type": "string" }), Type::Text),
            (json!({ "type": ["string", "null"] }), Type::Optional(text())),
            (json!({ "type": "array", "items": { "type": "string" } }), Type::List(text())),
            (
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
                Type::Map(text()),
            ),
            (
                json!({ "anyOf": [{ "$ref": "#/components/schemas/stockade.A" }, { "type": "null" }] }),
                Type::Optional(Box::new(Type::Named("A".to_owned()))),
            ),
            (json!({ "$ref": "#/components/schemas/stockade.Bytes" }), Type::Bytes),
        ] {
            assert_eq!(kind(&schema), expected, "{schema}");
        }
        let inner = json!({ "type": "object", "properties": { "a": {} } });
        assert!(Reader { schemas: &Map::new() }.kind(&inner).is_err());
    }

    #[test]
    fn an_object_in_a_variant_is_part_of_it() {
        let end = json!({ "type": "object", "required": ["code"], "properties": { "code": { "type": "integer" } } });
        let item = json!({
            "type": "object",
            "properties": { "sequence": { "type": "integer" } },
            "oneOf": [
                { "type": "object", "properties": { "kind": { "type": "string", "const": "exit" } },
                  "required": ["kind"], "$ref": "#/components/schemas/stockade.End" },
            ],
        });
        let schemas = json!({ "stockade.End": end, "stockade.Item": item });
        let reader = Reader { schemas: schemas.as_object().unwrap() };
        let definition = reader.definition("Item", &item).unwrap();
        let Shape::Tagged(variants) = definition.shape else { panic!("{definition:?}") };
        let names: Vec<_> =
            variants[0].object.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(
            (variants[0].name.as_str(), names),
            ("ItemExit", vec!["sequence", "kind", "code"])
        );
    }
}
