//! `stockade explain`: the page of an error code, as plain text that fits the terminal. The pages are
//! those of `docs/errors`, so a terminal shows what the documents say.

use stockade_core::{Code, Problem};

use crate::args::Explain;
use crate::args::help::wrap;
use crate::commands::print::print_text;
use crate::problem::Failure;
use crate::profile::nearest;
use crate::terminal;

/// Each code with its page in Markdown.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// Pages about other things than error codes, which hints name.
const TOPICS: &[(&str, &str)] =
    &[("SYSTEM_CALLS", include_str!("../../../../docs/system-calls.md"))];

/// The widest text, also on wider terminals.
const MAX_WIDTH: usize = 100;
const DEFAULT_WIDTH: usize = 80;
const CODE_INDENT: &str = "    ";

/// Prints the page of a code, or the list of all codes.
pub(crate) fn run(arguments: &Explain) -> Result<u8, Failure> {
    let width = terminal::columns().unwrap_or(DEFAULT_WIDTH).min(MAX_WIDTH);
    match &arguments.code {
        Some(code) => print_text(&text_of(find(code)?, width))?,
        None => print_text(&list(width))?,
    }
    Ok(0)
}

/// The page of a code, which may be written as in a message: `[IO]`.
fn find(code: &str) -> Result<&'static str, Problem> {
    let name = code.trim_matches(['[', ']']).to_ascii_uppercase().replace('-', "_");
    let pages = || PAGES.iter().chain(TOPICS);
    if let Some((_, page)) = pages().find(|(known, _)| *known == name) {
        return Ok(page);
    }
    let problem = Problem::new(Code::NotFound, format!("there is no error code {code}"));
    Err(match nearest(&name, pages().map(|(known, _)| *known)) {
        Some(nearest) => problem.remedied_by(format!("stockade explain {nearest}")),
        None => problem.remedied_by("stockade explain"),
    })
}

/// All codes and topics, each with the first sentence of its page.
fn list(width: usize) -> String {
    let longest = PAGES.iter().map(|(code, _)| code.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (code, page) in PAGES.iter().chain(TOPICS) {
        let page = text_of(page, usize::MAX);
        let first = page.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
        let sentence = first.split_inclusive(". ").next().unwrap_or_default().trim_end();
        let indent = " ".repeat(longest + 2);
        text += &format!("{code:longest$}  {}\n", wrap(sentence, &indent, width));
    }
    text
}

/// A page of Markdown as text: paragraphs and list items are wrapped, code is indented, and the marks
/// of headings, links and emphasis are removed.
fn text_of(page: &str, width: usize) -> String {
    let mut text = String::new();
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in page.lines().chain([""]) {
        let is_fence = line.trim_start().starts_with("```");
        let is_item = line.starts_with("- ") || line.starts_with("* ");
        let heading = line.trim_start_matches('#');
        let is_heading = heading.len() < line.len();
        let starts_new = line.is_empty() || is_fence || is_item || is_heading || is_code;
        if starts_new && !paragraph.is_empty() {
            let indent = if paragraph.starts_with("- ") { "  " } else { "" };
            text += &wrap(&inline(&paragraph), indent, width);
            text.push('\n');
            paragraph.clear();
        }
        if is_fence {
            is_code = !is_code;
        } else if is_code {
            text += CODE_INDENT;
            text += line;
            text.push('\n');
        } else if is_heading {
            text += &inline(heading.trim_start());
            text += if line.starts_with("##") { ":\n" } else { "\n" };
        } else if line.starts_with('|') {
            text += line;
            text.push('\n');
        } else if line.is_empty() {
            if !text.ends_with("\n\n") && !text.is_empty() {
                text.push('\n');
            }
        } else {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph += line.trim_start();
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A line without the marks of emphasis and links; the address of a link follows its text.
fn inline(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, label, target, after)) = link(rest) {
        text += before;
        text += label;
        if target.starts_with("http") {
            text += &format!(" ({target})");
        }
        rest = after;
    }
    text += rest;
    text.replace("**", "")
}

/// The first link of a line: the text before it, its label, its target, and the text after it.
fn link(line: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, rest) = line.split_once('[')?;
    let (label, rest) = rest.split_once("](")?;
    let (target, after) = rest.split_once(')')?;
    Some((before, label, target, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_that_fits_a_terminal() {
        for code in Code::ALL {
            let page = find(code.as_str()).unwrap();
            for width in [40, 80, 100] {
                let text = text_of(page, width);
                assert!(text.starts_with(&format!("{code}\n")), "{text}");
                assert!(text.contains("What to do:"), "{code}");
                let is_wide = |line: &&str| {
                    line.chars().count() > width
                        && line.trim_start().contains(' ')
                        && !line.starts_with(CODE_INDENT)
                        && !line.starts_with('|')
                };
                assert_eq!(text.lines().find(is_wide), None, "{code} at {width}");
            }
        }
        assert_eq!(PAGES.len(), Code::ALL.len());
        let lines = list(80).lines().filter(|line| !line.starts_with(' ')).count();
        assert_eq!(lines, PAGES.len() + TOPICS.len());
        assert!(find("system-calls").unwrap().contains("refusedCalls"));
    }

    #[test]
    fn a_code_is_found_as_it_is_printed() {
        for name in ["IO", "io", "[IO]"] {
            assert!(find(name).unwrap().starts_with("# IO"), "{name}");
        }
        assert!(find("bundle-conflict").is_ok());
        let missing = find("BUNDLE_CONFLIKT").unwrap_err();
        assert_eq!(missing.remediation.as_deref(), Some("stockade explain BUNDLE_CONFLICT"));
        assert_eq!(find("x").unwrap_err().remediation.as_deref(), Some("stockade explain"));
    }

    #[test]
    fn markdown_becomes_text() {
        let page = "# T\n\nOne `two` **three**\nfour [five](http://x).\n\n## Do\n\n- a\n  b\n- c\n\n```sh\nstockade ls\n```\n";
        assert_eq!(
            text_of(page, 80),
            "T\n\nOne `two` three four five (http://x).\n\nDo:\n\n- a b\n- c\n\n    stockade ls\n"
        );
    }
}
