//! The report of a gate in JUnit format, which continuous integration servers read: a suite for
//! each document, a case for each example.

use std::fmt::Write as _;

use super::example_result::ExampleResult;

/// The report as XML.
pub(super) fn report(results: &[ExampleResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites {}>", counts(results));
    for suite in results.chunk_by(|result, next| result.document == next.document) {
        let Some(first) = suite.first() else { continue };
        let name = escaped(&first.document);
        let _ = writeln!(xml, "  <testsuite name=\"{name}\" {}>", counts(suite));
        for result in suite {
            case(&mut xml, &name, result);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn case(xml: &mut String, document: &str, result: &ExampleResult) {
    let seconds = seconds(std::slice::from_ref(result));
    let _ = write!(
        xml,
        "    <testcase classname=\"{document}\" name=\"line {}\" file=\"{document}\" line=\"{}\" \
         time=\"{seconds}\"",
        result.line, result.line
    );
    let Some(transcript) = &result.transcript else {
        xml.push_str("><skipped/></testcase>\n");
        return;
    };
    xml.push('>');
    if result.failed() {
        let message = transcript.errors.first().and_then(|error| error.lines().next());
        let kind = transcript.error_code.and_then(|code| serde_json::to_value(code).ok());
        let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("error");
        let _ = write!(
            xml,
            "\n      <failure message=\"{}\" type=\"{kind}\">{}</failure>",
            escaped(message.unwrap_or_default()),
            escaped(&transcript.errors.join("\n"))
        );
    }
    if !transcript.logs.is_empty() {
        let logs = escaped(&transcript.logs.join("\n"));
        let _ = write!(xml, "\n      <system-out>{logs}</system-out>");
    }
    xml.push_str("\n    </testcase>\n");
}

fn counts(results: &[ExampleResult]) -> String {
    let failures = results.iter().filter(|result| result.failed()).count();
    let skipped = results.iter().filter(|result| result.transcript.is_none()).count();
    let (tests, seconds) = (results.len(), seconds(results));
    format!(
        "tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" \
         time=\"{seconds}\""
    )
}

/// The total time of runs, in seconds.
fn seconds(results: &[ExampleResult]) -> String {
    let ran = results.iter().filter_map(|result| result.transcript.as_ref());
    let milliseconds: u64 = ran.map(|transcript| transcript.duration_ms).sum();
    format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000)
}

/// A text for XML 1.0, which cannot represent some characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_escaped_or_replaced() {
        assert_eq!(
            escaped("<a b=\"c\">&\n\u{1b}[0m"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#10;\u{fffd}[0m"
        );
    }

    #[test]
    fn a_suite_is_a_document() {
        let skipped = |document: &str, line| ExampleResult {
            document: document.to_owned(),
            line,
            transcript: None,
        };
        let xml = report(&[skipped("a.md", 3), skipped("a.md", 9), skipped("b&.md", 1)]);
        assert_eq!(xml.matches("<testsuite ").count(), 2);
        assert!(xml.contains(
            "<testsuite name=\"a.md\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"2\""
        ));
        assert!(xml.contains("classname=\"b&amp;.md\" name=\"line 1\""));
    }
}
