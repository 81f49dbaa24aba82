//! Prompts in Markdown: a `.md` or `.mdx` file becomes a module whose default export is a component that
//! renders its text. In `.mdx`, expressions in braces and elements are code, as in MDX; in `.md` only
//! properties in braces, such as `{props.name}`, are replaced. Each line of a document is the same line of
//! the module, so errors have the positions of the document.

use serde_json::{Map, Value};
use stockade_script::{Fault, SourceFile};

/// Whether a file is a document.
pub(super) fn is_document(path: &str) -> bool {
    path.ends_with(".md") || path.ends_with(".mdx")
}

/// The module of a document, as TypeScript with elements.
///
/// # Errors
/// If the front matter is not a map of simple values, or an expression or element does not end.
pub(super) fn module(file: &SourceFile) -> Result<SourceFile, Vec<Fault>> {
    let is_mdx = file.path.ends_with(".mdx");
    let fault = |line: usize, message: String| {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        vec![Fault { path: file.path.clone(), line, column: 1, message }]
    };
    let source = file.source.strip_prefix('\u{feff}').unwrap_or(&file.source).replace("\r\n", "\n");
    let (matter, start) = front_matter(&source).map_err(|(line, why)| fault(line, why))?;
    let mut parts = Parts { code: String::new(), body: String::new(), layout: false };
    let before = source[..start].matches('\n').count();
    let text = &source[start..];
    if is_mdx {
        parts.read(text).map_err(|(at, why)| {
            fault(before + 1 + text[..at].matches('\n').count(), why.to_owned())
        })?;
    } else {
        parts.read_plain(text);
    }
    let Parts { code, body, layout } = parts;
    // Code that follows text comes before it, on lines of its own; usually it is at the beginning.
    let lines = "\n".repeat(before);
    let matter = Value::Object(matter);
    let content = match layout {
        true => format!("<MDXLayout {{...props}}>{body}</MDXLayout>"),
        false => format!("<>{body}</>"),
    };
    let module = format!(
        "export const frontmatter = {matter};{lines}{code}export default function MDXContent(props: any) {{ return {content}; }}\n"
    );
    // The name decides the syntax.
    Ok(SourceFile { path: format!("{}.tsx", file.path), source: module })
}

type Front = (Map<String, Value>, usize);

/// The front matter, and where the text after it begins.
fn front_matter(source: &str) -> Result<Front, (usize, String)> {
    let none = (Map::new(), 0);
    let Some(rest) = source.strip_prefix("---\n") else { return Ok(none) };
    let Some(end) =
        rest.find("\n---\n").map(|at| at + 1).or_else(|| rest.starts_with("---\n").then_some(0))
    else {
        return Ok(none);
    };
    let mut found = Map::new();
    let mut open: Option<String> = None;
    for (number, line) in rest[..end].lines().enumerate() {
        let is_nothing = line.trim().is_empty() || line.trim_start().starts_with('#');
        if is_nothing {
            continue;
        }
        let item = line.trim_start().strip_prefix("- ");
        if let (Some(item), Some(name)) = (item, &open) {
            match found.get_mut(name) {
                Some(Value::Array(items)) => items.push(scalar(item)),
                _ => drop(found.insert(name.clone(), Value::Array(vec![scalar(item)]))),
            }
            continue;
        }
        let pair = line.split_once(':').filter(|(name, _)| !name.starts_with([' ', '-', '"']));
        let Some((name, value)) = pair else {
            let why = "the front matter can have only `name: value` lines and lists of values";
            return Err((number + 2, why.to_owned()));
        };
        let (name, value) = (name.trim().to_owned(), value.trim());
        open = value.is_empty().then(|| name.clone());
        found.insert(name, if value.is_empty() { Value::Null } else { scalar(value) });
    }
    Ok((found, 4 + end + 4))
}

fn scalar(text: &str) -> Value {
    let text = text.trim();
    let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    match quoted {
        Some(inner) => Value::from(inner.replace("''", "'")),
        None => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    }
}

/// The parts of a document.
struct Parts {
    /// The imports and exports.
    code: String,
    /// The content of the element.
    body: String,
    /// Whether the default export is the layout of the document.
    layout: bool,
}

type Unreadable = (usize, &'static str);

impl Parts {
    /// Reads plain Markdown.
    fn read_plain(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let property = rest[at..].find('}').map(|end| &rest[at..=at + end]);
            match property.filter(|property| is_property(property)) {
                Some(property) => {
                    self.text(&rest[..at]);
                    self.body.push_str(property);
                    rest = &rest[at + property.len()..];
                }
                None => {
                    self.text(&rest[..=at]);
                    rest = &rest[at + 1..];
                }
            }
        }
        self.text(rest);
    }

    /// Reads MDX.
    fn read(&mut self, text: &str) -> Result<(), Unreadable> {
        let mut at = 0;
        let mut literal = String::new();
        let mut starts_block = true;
        while at < text.len() {
            let rest = &text[at..];
            let starts_line = at == 0 || text.as_bytes()[at - 1] == b'\n';
            if starts_line && starts_block && is_code(rest) {
                self.text(&std::mem::take(&mut literal));
                let end = at + code_end(rest);
                self.add_code(&text[at..end]);
                at = end;
                continue;
            }
            if starts_line && let Some(fence) = fence(rest) {
                let end = fence_end(rest, fence);
                literal.push_str(&rest[..end]);
                (at, starts_block) = (at + end, false);
                continue;
            }
            let character = rest.chars().next().unwrap_or_default();
            match character {
                '\\' if rest[1..].starts_with(['{', '}', '<']) => {
                    literal.push_str(&rest[1..2]);
                    at += 2;
                }
                '`' => {
                    let ticks = rest.len() - rest.trim_start_matches('`').len();
                    let close = rest[ticks..].find(&rest[..ticks]);
                    let length = close.map_or(ticks, |close| 2 * ticks + close);
                    literal.push_str(&rest[..length]);
                    at += length;
                }
                '{' => {
                    let length = braces(rest).ok_or((at, "an expression has no closing brace"))?;
                    self.text(&std::mem::take(&mut literal));
                    self.body.push_str(&rest[..length]);
                    at += length;
                }
                '<' if rest.starts_with("<!--") => {
                    let end = rest.find("-->").ok_or((at, "a comment does not end"))? + 3;
                    self.text(&std::mem::take(&mut literal));
                    self.body.push_str(&"\n".repeat(rest[..end].matches('\n').count()));
                    at += end;
                }
                '<' if rest[1..]
                    .starts_with(|c: char| c.is_ascii_alphabetic() || "/>".contains(c)) =>
                {
                    let length = tag(rest).ok_or((at, "an element has no closing `>`"))?;
                    self.text(&std::mem::take(&mut literal));
                    self.body.push_str(&rest[..length]);
                    at += length;
                }
                _ => {
                    literal.push(character);
                    at += character.len_utf8();
                }
            }
            let line = literal.rsplit('\n').nth(usize::from(literal.ends_with('\n')));
            starts_block =
                literal.ends_with('\n') && line.is_none_or(|line| line.trim().is_empty());
            starts_block |= literal.is_empty() && starts_line;
        }
        self.text(&literal);
        Ok(())
    }

    /// Adds text that is rendered as it is, with as many lines as it has.
    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            let lines = "\n".repeat(text.matches('\n').count());
            self.body.push_str(&format!("{{{}{lines}}}", Value::from(text)));
        }
    }

    fn add_code(&mut self, code: &str) {
        let line = code.trim_start();
        if let Some(rest) = line.strip_prefix("export default ") {
            self.layout = true;
            self.code.push_str("const MDXLayout: any = ");
            self.code.push_str(rest);
        } else {
            self.code.push_str(code);
        }
    }
}

/// Whether a text is only a property in braces, such as `{props.name}`.
fn is_property(text: &str) -> bool {
    let inner = text.strip_prefix("{props.").and_then(|text| text.strip_suffix('}'));
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
    };
    inner.is_some_and(|inner| inner.split('.').all(is_name))
}

fn is_code(text: &str) -> bool {
    ["import ", "import{", "export ", "export{"].iter().any(|word| text.starts_with(word))
}

/// The end of a block of imports and exports: the next empty line outside of all brackets.
fn code_end(text: &str) -> usize {
    let mut at = 0;
    let mut depth = 0_usize;
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() && depth == 0 {
            return at;
        }
        let mut rest = line;
        while let Some(character) = rest.chars().next() {
            let length = match character {
                '"' | '\'' | '`' => string(rest).unwrap_or(1),
                '{' | '(' | '[' => {
                    depth += 1;
                    1
                }
                '}' | ')' | ']' => {
                    depth = depth.saturating_sub(1);
                    1
                }
                other => other.len_utf8(),
            };
            rest = &rest[length.min(rest.len())..];
        }
        at += line.len();
    }
    text.len()
}

/// The fence that begins here.
fn fence(text: &str) -> Option<&str> {
    let inner = text.trim_start_matches(' ');
    let mark = inner.chars().next().filter(|mark| "`~".contains(*mark))?;
    let length = inner.len() - inner.trim_start_matches(mark).len();
    (text.len() - inner.len() <= 3 && length >= 3).then(|| &inner[..length])
}

fn fence_end(text: &str, fence: &str) -> usize {
    let mut at = text.find('\n').map_or(text.len(), |end| end + 1);
    for line in text[at..].split_inclusive('\n') {
        at += line.len();
        let line = line.trim();
        if line.starts_with(fence)
            && line.trim_matches(fence.chars().next().unwrap_or('`')).is_empty()
        {
            return at;
        }
    }
    text.len()
}

/// The length of an expression in braces.
fn braces(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        match rest.chars().next()? {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            '"' | '\'' | '`' => {
                at += string(rest).unwrap_or(1);
                continue;
            }
            '/' if rest.starts_with("/*") => {
                at += rest.find("*/")? + 2;
                continue;
            }
            _ => {}
        }
        at += rest.chars().next()?.len_utf8();
    }
    None
}

/// The length of a string that begins here; `None` if it does not end.
fn string(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut at = 1;
    while at < text.len() {
        let rest = &text[at..];
        let character = rest.chars().next()?;
        match character {
            '\\' => at += 1 + rest[1..].chars().next()?.len_utf8(),
            '$' if quote == '`' && rest.starts_with("${") => at += 1 + braces(&rest[1..])?,
            _ if character == quote => return Some(at + 1),
            '\n' if quote != '`' => return None,
            _ => at += character.len_utf8(),
        }
    }
    None
}

/// The length of a tag.
fn tag(text: &str) -> Option<usize> {
    let mut at = 1;
    while at < text.len() {
        let rest = &text[at..];
        match rest.chars().next()? {
            '>' => return Some(at + 1),
            '{' => at += braces(rest)?,
            '"' | '\'' => at += rest[1..].find(rest.chars().next()?)? + 2,
            other => at += other.len_utf8(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, source: &str) -> String {
        let file = SourceFile { path: path.to_owned(), source: source.to_owned() };
        module(&file).unwrap().source
    }

    #[test]
    fn text_stays_and_code_is_code() {
        let text = read("a.mdx", "# Job\n\nHelp {props.who} with `{this}` now.\n");
        assert!(text.contains(r##"{"# Job\n\nHelp "##), "{text}");
        assert!(text.contains("}{props.who}{"), "{text}");
        assert!(text.contains("with `{this}` now."), "{text}");
        let fenced = read("a.mdx", "```ts\nconst a = { b: 1 };\n```\n<Part one={1} />\n");
        assert!(fenced.contains("const a = { b: 1 };") && fenced.contains("<Part one={1} />"));
        let plain = read("a.md", "a {props.b} { c } {d}\n");
        assert!(plain.contains(r#"{"a "}{props.b}{" {"}{" c } {"}{"d}\n""#), "{plain}");
    }

    #[test]
    fn imports_and_exports_are_those_of_the_module() {
        let text =
            read("a.mdx", "import A from \"./a\";\n\nexport const b = {\n\n  c: 1,\n};\n\nx\n");
        assert!(text.contains("import A from \"./a\";\n"), "{text}");
        assert!(text.contains("export const b = {\n\n  c: 1,\n};\n"), "{text}");
        let layout = read("a.mdx", "export default function Page(props) {\n  return <p/>;\n}\n");
        assert!(layout.contains("const MDXLayout: any = function Page"), "{layout}");
        assert!(layout.contains("<MDXLayout {...props}>"), "{layout}");
    }

    #[test]
    fn front_matter_is_an_export() {
        let text = read("a.md", "---\ntitle: A title\nnumber: 3\nlist:\n  - a\n  - 'b'\n---\nx\n");
        assert!(
            text.starts_with(
                r#"export const frontmatter = {"list":["a","b"],"number":3,"title":"A title"}"#
            ),
            "{text}"
        );
        assert!(!text.contains("---"), "{text}");
        let file =
            SourceFile { path: "a.md".to_owned(), source: "---\na:\n  b: 1\n---\n".to_owned() };
        assert_eq!(module(&file).unwrap_err()[0].line, 3);
    }

    #[test]
    fn lines_are_those_of_the_document() {
        let text = read("a.mdx", "---\na: 1\n---\none\n\n{props.x}\n");
        let line = text.lines().position(|line| line.contains("{props.x}")).unwrap();
        assert_eq!(line, 5, "{text}");
        let file = SourceFile { path: "a.mdx".to_owned(), source: "a\n\n{b\n".to_owned() };
        assert_eq!(module(&file).unwrap_err()[0].line, 3);
    }
}
