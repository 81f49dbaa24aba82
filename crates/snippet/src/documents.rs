//! Examples in Markdown: the fenced code blocks of a document that are programs, and the mapping of
//! their positions to the document.
//!
//! A block is a program by itself if its language is TypeScript or JavaScript. Blocks with
//! `file=PATH` after their language are files of one example, whose entry is `src/main.ts`; a
//! repeated name starts the next example. `skip` after the language, or `<!-- stockade: skip -->`
//! before the block, excludes a block. What looks like a block of such a language but is a part of a block of
//! HTML is excluded too, and so it is told.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use stockade_script::SourceFile;

use crate::payload::{ENTRY, Input};

/// Before a block that is not run.
const SKIP: &str = "<!-- stockade: skip -->";
/// The same in MDX.
const MDX_SKIP: &str = "{/* stockade: skip */}";
/// What some editors write before the first line.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// The file name of a block whose language differs from that of the entry, without its extension.
const EXAMPLE: &str = "src/example";

/// A program in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The line of its opening fence, from 1.
    pub line: u32,
    /// Whether it is excluded.
    pub skipped: bool,
    blocks: Vec<Block>,
}

/// A fenced code block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    line: u32,
    skipped: bool,
    /// Whether it names its file.
    named: bool,
    file: SourceFile,
    /// The offsets of each piece of text in the file and in the document, in bytes.
    chunks: Vec<(usize, usize)>,
}

/// The syntax of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// Markdown, as CommonMark defines it.
    Markdown,
    /// MDX.
    Mdx,
}

impl Syntax {
    /// The syntax of the document with this name.
    pub fn of(name: &str) -> Self {
        let is_mdx =
            name.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case("mdx"));
        if is_mdx { Self::Mdx } else { Self::Markdown }
    }
}

/// The programs in a document, in order.
pub fn examples(document: &str, syntax: Syntax) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut several: Option<Example> = None;
    for block in blocks(document, syntax) {
        let is_again = |example: &Example| {
            example.blocks.iter().any(|other| other.file.path == block.file.path)
        };
        if !block.named || block.skipped {
            let Block { line, skipped, .. } = block;
            examples.push(Example { line, skipped, blocks: vec![block] });
        } else if let Some(example) = several.as_mut().filter(|example| !is_again(example)) {
            example.blocks.push(block);
        } else {
            let next = Example { line: block.line, skipped: false, blocks: vec![block] };
            examples.extend(several.replace(next));
        }
    }
    examples.extend(several);
    examples.sort_by_key(|example| example.line);
    examples
}

impl Example {
    /// The input of a run.
    pub fn input(&self, timeout_ms: Option<f64>) -> Input {
        let mut files: Vec<_> = self.blocks.iter().map(|block| block.file.clone()).collect();
        if let [SourceFile { path, .. }] = files.as_slice()
            && path.starts_with(EXAMPLE)
        {
            let source = format!("import \"./{}.js\";\n", EXAMPLE.trim_start_matches("src/"));
            files.push(SourceFile { path: ENTRY.to_owned(), source });
        }
        Input { source: None, files: Some(files), timeout_ms }
    }

    /// A text of the transcript with positions in the example's files replaced by positions in the
    /// document of that name.
    pub fn relocate(&self, text: &str, name: &str, document: &str) -> String {
        let mut relocated = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let inside = relocated.ends_with(|c: char| c.is_alphanumeric() || "._-/:".contains(c));
            match self.locate(rest, document).filter(|_| !inside) {
                Some((length, line, column)) => {
                    relocated.push_str(&format!("{name}:{line}:{column}"));
                    rest = &rest[length..];
                }
                None => {
                    relocated.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        relocated
    }

    /// The position in the document for a `PATH:LINE:COLUMN` at the start of a text, and its
    /// length.
    fn locate(&self, text: &str, document: &str) -> Option<(usize, usize, usize)> {
        self.blocks.iter().find_map(|block| {
            let (line, after) = number(text.strip_prefix(block.file.path.as_str())?)?;
            let (column, after) = number(after)?;
            let (line, column) = position(document, block.offset(line, column));
            Some((text.len() - after.len(), line, column))
        })
    }
}

impl Block {
    /// A block without content.
    fn new(line: usize, info: &Info<'_>, is_excluded: bool) -> Self {
        Self {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            skipped: info.skip || is_excluded,
            named: info.file.is_some(),
            file: SourceFile { path: info.path(), source: String::new() },
            chunks: Vec::new(),
        }
    }

    /// The offset in the document for a line and column of the file.
    fn offset(&self, line: usize, column: usize) -> usize {
        let source = self.file.source.as_str();
        let starts = source.match_indices('\n').map(|(at, _)| at + 1);
        let start = std::iter::once(0).chain(starts).nth(line.saturating_sub(1));
        let start = start.unwrap_or(source.len());
        let mut units = column.saturating_sub(1);
        let mut offset = start;
        for character in source[start..].chars().take_while(|c| *c != '\n') {
            let Some(left) = units.checked_sub(character.len_utf16()) else { break };
            units = left;
            offset += character.len_utf8();
        }
        let chunk = self.chunks.iter().rev().find(|(at, _)| *at <= offset);
        chunk.map_or(0, |(at, from)| from + (offset - at))
    }
}

/// The number after a colon, and the rest of the text.
fn number(text: &str) -> Option<(usize, &str)> {
    let text = text.strip_prefix(':')?;
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// The line and the column in UTF-16 units of an offset, both from 1.
fn position(document: &str, offset: usize) -> (usize, usize) {
    let before = document.get(..offset).unwrap_or(document);
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    (line + 1, before[start..].encode_utf16().count() + 1)
}

/// Every code block of a document that is a program.
fn blocks(document: &str, syntax: Syntax) -> Vec<Block> {
    match syntax {
        Syntax::Markdown => markdown_blocks(document),
        Syntax::Mdx => mdx_blocks(document),
    }
}

/// The blocks of an MDX document: it has no blocks of HTML and no indented code, so every fence begins a
/// block, also in an element.
fn mdx_blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut skip = false;
    let body = body_start(document);
    let is_before =
        |(_, (start, line)): &(usize, (usize, &str))| *start < body && start + line.len() <= body;
    let mut lines = lines(document).enumerate().skip_while(is_before);
    while let Some((number, (start, line))) = lines.next() {
        let line = line.trim_start_matches(BYTE_ORDER_MARK);
        let inner = without_containers(line);
        let indent = line.len() - inner.len();
        let Some((fence, info)) = fence(inner) else {
            skip = match inner.trim() {
                SKIP | MDX_SKIP => true,
                "" => skip,
                _ => false,
            };
            // A comment of several lines, if it has an end.
            if let Some(comment) = inner.strip_prefix("{/*")
                && !comment.contains("*/")
                && document[start..].contains("*/")
            {
                lines.by_ref().find(|(_, (_, line))| line.contains("*/"));
            }
            continue;
        };
        let mark = fence.chars().next();
        let info = Info::of(info.trim());
        let mut block = info.map(|info| Block::new(number + 1, &info, skip));
        skip = false;
        for (_, (start, line)) in lines.by_ref() {
            let trimmed = line.trim_start_matches([' ', '\t', '>']).trim_end();
            let is_end =
                trimmed.starts_with(fence) && trimmed.trim_matches(mark.unwrap_or('`')).is_empty();
            if is_end {
                break;
            }
            let Some(block) = &mut block else { continue };
            let own = line.len() - line.trim_start_matches([' ', '\t', '>']).len();
            let from = own.min(indent);
            block.chunks.push((block.file.source.len(), start + from));
            block.file.source.push_str(&line[from..]);
            block.file.source.push('\n');
        }
        blocks.extend(block);
    }
    blocks
}

/// A line without the marks of the block quotes and lists that it is in or begins.
fn without_containers(line: &str) -> &str {
    let line = line.trim_start_matches([' ', '\t', '>']);
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let marks: &[char] = if digits > 0 { &['.', ')'] } else { &['-', '*', '+'] };
    match line[digits..].strip_prefix(marks) {
        Some(item) if digits < 10 && item.starts_with([' ', '\t']) => without_containers(item),
        _ => line,
    }
}

/// The fence with which a line begins, and what follows it.
fn fence(line: &str) -> Option<(&str, &str)> {
    let mark = line.chars().next().filter(|mark| "`~".contains(*mark))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    let (fence, info) = line.split_at(length);
    // Otherwise it is code in a line.
    let is_fence = length >= 3 && !(mark == '`' && info.contains('`'));
    is_fence.then_some((fence, info))
}

/// The lines of a text without their ends, and where each begins.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line.trim_end_matches(['\n', '\r']))
    })
}

/// The blocks of a Markdown document.
fn markdown_blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut skip = false;
    let mut is_comment = false;
    let body = body_start(document);
    let parser = Parser::new_ext(&document[body..], Options::empty());
    for (event, range) in parser.into_offset_iter() {
        let start = body + range.start;
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let line = position(document, start).0;
                open = Info::of(&info).map(|info| Block::new(line, &info, skip));
                skip = false;
            }
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.chunks.push((block.file.source.len(), start));
                    block.file.source.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            Event::Start(Tag::HtmlBlock) => is_comment = document[start..].starts_with("<!--"),
            Event::Html(text) | Event::InlineHtml(text) => {
                let fence = fence(without_containers(&text)).filter(|_| !is_comment);
                if let Some(info) = fence.and_then(|(_, info)| Info::of(info.trim())) {
                    blocks.push(Block::new(position(document, start).0, &info, true));
                }
                skip = text.trim() == SKIP;
            }
            Event::Start(Tag::List(_) | Tag::Item | Tag::BlockQuote(_)) | Event::End(_) => {}
            _ => skip = false,
        }
    }
    blocks
}

/// Where the text begins, after a byte order mark and metadata. The parser takes everything between two lines
/// `---` for metadata, wherever they are.
fn body_start(document: &str) -> usize {
    let mark = if document.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    mark + front_matter_bytes(&document[mark..])
}

/// The length of the metadata at the start of a document: from a line `---` to the next one.
fn front_matter_bytes(document: &str) -> usize {
    let mut lines = lines(document);
    if lines.next().is_none_or(|(_, line)| line.trim_end() != "---") {
        return 0;
    }
    let end = lines.find(|(_, line)| matches!(line.trim_end(), "---" | "..."));
    end.map_or(0, |(start, line)| start + line.len())
}

/// The info string after the fence of a program.
struct Info<'i> {
    ending: &'static str,
    skip: bool,
    file: Option<&'i str>,
}

impl<'i> Info<'i> {
    /// `None` for a language that cannot run.
    fn of(info: &'i str) -> Option<Self> {
        // Pandoc writes `{.ts}`, and notebooks write `{ts}`.
        let info =
            info.strip_prefix('{').map_or(info, |info| info.trim_start().trim_start_matches('.'));
        let end = info.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(info.len());
        let (language, rest) = info.split_at(end);
        let ending = match language.to_ascii_lowercase().as_str() {
            "ts" | "typescript" | "mts" | "cts" => "ts",
            "js" | "javascript" | "mjs" | "cjs" | "es6" | "ecmascript" => "js",
            "tsx" | "typescriptreact" => "tsx",
            "jsx" | "javascriptreact" => "jsx",
            _ => return None,
        };
        let words = || rest.split(|c: char| c.is_whitespace() || "{},".contains(c));
        let file = words().find_map(|word| word.strip_prefix("file="));
        let file = file.map(|file| file.trim_matches(['"', '\'']));
        Some(Self { ending, skip: words().any(|word| word == "skip"), file })
    }

    fn path(&self) -> String {
        match (self.file, self.ending) {
            (Some(file), _) => file.to_owned(),
            (None, "ts") => ENTRY.to_owned(),
            (None, ending) => format!("{EXAMPLE}.{ending}"),
        }
    }
}

#[cfg(test)]
mod tests;
