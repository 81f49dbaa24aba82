//! The generated part of the package for TypeScript: interfaces, the methods of the client, and errors.

use std::fmt::Write as _;

use super::MARK;
use super::schema::{Api, Definition, Field, Object, Shape, Type};
use super::words::{camel_case, pascal_case, wrap};

/// The longest line of a description.
const WIDTH: usize = 100;

/// `models.ts`.
pub(super) fn models(api: &Api) -> String {
    let mut text =
        format!("// {MARK}\n// The types that travel between a client and a server.\n\n");
    text.push_str(
        "/** Bytes that are mostly text: a string if they are UTF-8, else base64. */\n\
         export type Bytes = string | { base64: string };\n",
    );
    for Definition { name, description, shape } in &api.definitions {
        text.push('\n');
        match shape {
            Shape::Object(object) => write_interface(&mut text, name, description, object),
            Shape::Tagged(variants) => {
                for variant in variants {
                    write_interface(
                        &mut text,
                        &variant.name,
                        &variant.description,
                        &variant.object,
                    );
                    text.push('\n');
                }
                let names: Vec<_> = variants.iter().map(|variant| variant.name.clone()).collect();
                write_alias(&mut text, name, description, &names);
            }
            Shape::Choice(values) => {
                let mut all = vec![description.clone()];
                let with_meaning = values.iter().filter(|(_, meaning)| !meaning.is_empty());
                all.extend(with_meaning.map(|(value, meaning)| format!("- `{value}`: {meaning}")));
                let values: Vec<_> = values.iter().map(|(value, _)| format!("{value:?}")).collect();
                text.push_str(&comment(&all, 0));
                write_union(&mut text, name, &values);
            }
            Shape::Alias(kind) => write_alias(&mut text, name, description, &[notation(kind, "")]),
        }
    }
    text
}

/// `errors.ts`.
pub(super) fn errors(api: &Api) -> String {
    let mut text = format!("// {MARK}\n// A class for each stable error code.\n");
    text.push_str("import { StockadeError } from \"../problem.ts\";\n");
    let mut list = String::new();
    for (code, description) in &api.codes {
        let name = format!("{}Error", pascal_case(code));
        let _ = write!(text, "\n{}", comment(std::slice::from_ref(description), 0));
        let _ = write!(
            text,
            "export class {name} extends StockadeError {{\n  static override readonly code = \"{code}\";\n}}\n"
        );
        let _ = writeln!(list, "  {code}: {name},");
    }
    let _ = write!(
        text,
        "\n/** The classes by their codes. */\nexport const BY_CODE = {{\n{list}}} as const;\n"
    );
    text
}

/// `operations.ts`.
pub(super) fn operations(api: &Api) -> String {
    let mut text = format!("// {MARK}\n// A method for each operation of a server.\n");
    text.push_str(
        "import type * as models from \"./models.ts\";\n\n\
         /** The version of the protocol. */\n",
    );
    let _ = writeln!(text, "export const VERSION = \"{}\";", api.version);
    text.push_str(
        "\n/** How an operation is called. */\nexport interface CallOptions {\n  \
         /** The key of this one call: another one with the same key does nothing and has the same result. */\n  \
         key?: string;\n}\n\n\
         /** The operations of a server. */\n\
         export abstract class Operations {\n  \
         protected abstract call(operation: string, request: unknown, options?: CallOptions): Promise<unknown>;\n",
    );
    for operation in &api.operations {
        let method = camel_case(&operation.name);
        let (parameter, sent) = match &operation.request {
            None => (String::new(), "{}"),
            Some(kind) => (format!("request: {}, ", notation(kind, "models.")), "request"),
        };
        let result = operation
            .response
            .as_ref()
            .map_or_else(|| "void".to_owned(), |kind| notation(kind, "models."));
        let _ = write!(
            text,
            "\n{}  async {method}({parameter}options?: CallOptions): Promise<{result}> {{\n    ",
            comment(std::slice::from_ref(&operation.description), 2)
        );
        let call = format!("await this.call(\"{}\", {sent}, options)", operation.name);
        let _ = match &operation.response {
            Some(_) => writeln!(text, "return ({call}) as {result};\n  }}"),
            None => writeln!(text, "{call};\n  }}"),
        };
    }
    text.push_str("}\n");
    text
}

fn write_interface(text: &mut String, name: &str, description: &str, object: &Object) {
    text.push_str(&comment(&[description.to_owned()], 0));
    let _ = writeln!(text, "export interface {name} {{");
    for field in &object.fields {
        text.push_str(&comment(std::slice::from_ref(&field.description), 2));
        let _ = writeln!(text, "  {}", member(field));
    }
    if object.is_open {
        text.push_str("  /** Further members, by their names. */\n  [name: string]: unknown;\n");
    }
    text.push_str("}\n");
}

fn member(field: &Field) -> String {
    let mark = if field.is_required { "" } else { "?" };
    format!("{}{mark}: {};", field.name, notation(&field.kind, ""))
}

fn write_alias(text: &mut String, name: &str, description: &str, parts: &[String]) {
    text.push_str(&comment(&[description.to_owned()], 0));
    write_union(text, name, parts);
}

fn write_union(text: &mut String, name: &str, parts: &[String]) {
    let line = format!("export type {name} = {};", parts.join(" | "));
    let _ = match line.len() > WIDTH {
        true => writeln!(text, "export type {name} =\n  | {};", parts.join("\n  | ")),
        false => writeln!(text, "{line}"),
    };
}

/// The notation of a type; `module` precedes the names of those of `models`.
fn notation(kind: &Type, module: &str) -> String {
    match kind {
        Type::Any => "unknown".to_owned(),
        Type::Text => "string".to_owned(),
        Type::Bytes => format!("{module}Bytes"),
        Type::Integer | Type::Number => "number".to_owned(),
        Type::Flag => "boolean".to_owned(),
        Type::Constant(value) => format!("{value:?}"),
        Type::List(item) => match notation(item, module) {
            item if item.contains(' ') => format!("({item})[]"),
            item => format!("{item}[]"),
        },
        Type::Map(value) => format!("Record<string, {}>", notation(value, module)),
        Type::Optional(kind) => format!("{} | null", notation(kind, module)),
        Type::OneOf(kinds) => {
            let parts: Vec<_> = kinds.iter().map(|kind| notation(kind, module)).collect();
            parts.join(" | ")
        }
        Type::Named(name) => format!("{module}{name}"),
    }
}

/// A comment with paragraphs, indented.
fn comment(paragraphs: &[String], indent: usize) -> String {
    let margin = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    for (number, paragraph) in paragraphs.iter().enumerate() {
        if number == 1 {
            lines.push(String::new());
        }
        lines.extend(wrap(&paragraph.replace("*/", "* /"), WIDTH - indent - 7));
    }
    match lines.as_slice() {
        [] => String::new(),
        [only] => format!("{margin}/** {only} */\n"),
        lines => {
            let mut text = format!("{margin}/**\n");
            for line in lines {
                let _ = writeln!(text, "{}", format!("{margin} * {line}").trim_end());
            }
            text + &format!("{margin} */\n")
        }
    }
}
