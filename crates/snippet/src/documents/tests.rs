//! Which blocks of a document are examples, and the mapping of positions to the document.

use super::*;

fn files(example: &Example) -> Vec<(String, String)> {
    let file = |file: SourceFile| (file.path, file.source);
    example.input(None).files.unwrap().into_iter().map(file).collect()
}

#[test]
fn blocks_of_the_languages_are_examples_wherever_they_stand() {
    let document = "---\ntitle: a\n---\n# Title\n\n```ts\none\n```\n\n~~~ TypeScript {1,3}\ntwo\n~~~\n\
                    \n```sh\nno\n```\n\n    ```ts\n    indented code\n    ```\n\n\
                    1. item\n\n   ````js\n   three\n     deeper\n   ````\n\n> ```tsx\n> four\n> ```\n\
                    \n<!--\n```ts\ncommented out\n```\n-->\n\n```\nno\n```\n```tsconfig\nno\n```\n";
    let found = examples(document, Syntax::Markdown);
    let lines: Vec<_> = found.iter().map(|example| example.line).collect();
    assert_eq!(lines, [6, 10, 24, 29]);
    assert_eq!(files(&found[0]), [("src/main.ts".to_owned(), "one\n".to_owned())]);
    assert_eq!(files(&found[1])[0].1, "two\n");
    assert_eq!(files(&found[2])[0], ("src/example.js".to_owned(), "three\n  deeper\n".to_owned()));
    assert_eq!(files(&found[2])[1].1, "import \"./example.js\";\n");
    assert_eq!(files(&found[3])[0], ("src/example.tsx".to_owned(), "four\n".to_owned()));
}

#[test]
fn marked_blocks_are_left_out() {
    let document = "```ts skip\na\n```\n\n<!-- stockade: skip -->\n\n```ts\nb\n```\n\n```ts\nc\n```\n\n\
                    <!-- stockade: skip -->\nText between.\n\n```ts\nd\n```\n";
    let skipped: Vec<_> =
        examples(document, Syntax::Markdown).iter().map(|example| example.skipped).collect();
    assert_eq!(skipped, [true, true, false, false]);
}

#[test]
fn named_blocks_are_files_of_one_example() {
    let document = "```ts file=src/counter.ts\na\n```\n\n```ts\nalone\n```\n\n\
                    ```ts file=\"src/main.ts\"\nb\n```\n\n```ts file=src/main.ts\nagain\n```\n\n\
                    ```ts file=src/x.ts skip\nleft out\n```\n";
    let found = examples(document, Syntax::Markdown);
    let names = |example: &Example| -> Vec<String> {
        files(example).into_iter().map(|(path, _)| path).collect()
    };
    assert_eq!(found.iter().map(|example| example.line).collect::<Vec<_>>(), [1, 5, 13, 17]);
    assert_eq!(names(&found[0]), ["src/counter.ts", "src/main.ts"]);
    assert_eq!(names(&found[1]), ["src/main.ts"]);
    assert_eq!(files(&found[2])[0].1, "again\n");
    assert!(found[3].skipped);
}

#[test]
fn places_are_those_of_the_document() {
    let document = "# T\r\n\r\n- item\r\n\r\n  ```ts\r\n  const é = 1;\r\n\r\n    boom();\r\n  ```\r\n\
                    \r\n> ```ts file=src/a.ts\r\n> first();\r\n> second();\r\n> ```\r\n";
    let found = examples(document, Syntax::Markdown);
    let placed = |at: usize, text: &str| found[at].relocate(text, "docs/a.md", document);
    assert_eq!(placed(0, "x\n    at f (src/main.ts:3:3)"), "x\n    at f (docs/a.md:8:5)");
    assert_eq!(placed(0, "src/main.ts:1:7 — é"), "docs/a.md:6:9 — é");
    assert_eq!(placed(0, "src/main.ts:99:1"), "docs/a.md:9:1");
    for same in ["lib/src/main.ts:1:1", "src/main.ts", "src/main.ts:1", "src/other.ts:1:1"] {
        assert_eq!(placed(0, same), same);
    }
    assert_eq!(placed(1, "src/a.ts:2:1: no"), "docs/a.md:13:3: no");
}

#[test]
fn a_fence_in_an_element_of_mdx_is_found() {
    let document = "# T\n\n<CodeGroup>\n```ts\none();\n```\n</CodeGroup>\n\n<Tab>\n    ```js title=\"a\"\n    two();\n      three();\n    ```\n</Tab>\n\n{/* stockade: skip */}\n```ts\nfour();\n```\n";
    let found = examples(document, Syntax::Mdx);
    let lines: Vec<_> = found.iter().map(|example| (example.line, example.skipped)).collect();
    assert_eq!(lines, [(4, false), (10, false), (17, true)]);
    let input = found[1].input(None);
    assert_eq!(input.files.unwrap()[0].source, "two();\n  three();\n");
    let text = found[1].relocate("src/example.js:2:3", "a.mdx", document);
    assert_eq!(text, "a.mdx:12:7");
    assert_eq!(Syntax::of("a/b.MDX"), Syntax::Mdx);
    assert_eq!(Syntax::of("a.mdx.md"), Syntax::Markdown);
}

#[test]
fn no_fence_of_a_language_is_passed_over() {
    let found = |document: &str| -> Vec<(u32, bool)> {
        let found = examples(document, Syntax::Markdown);
        found.iter().map(|example| (example.line, example.skipped)).collect()
    };
    for start in
        ["```cts", "```cjs", "```TypeScriptReact", "```{.ts .wide}", "~~~ {ts}", "\u{feff}```ts"]
    {
        assert_eq!(found(&format!("{start}\n1;\n")), [(1, false)], "{start}");
    }
    assert_eq!(found("\u{feff}---\na: b\n---\n```ts\n1;\n```\n"), [(4, false)]);
    assert_eq!(examples("\u{feff}```ts\n1;\n```\n", Syntax::Mdx).len(), 1);
    // CommonMark has no blocks of code in a block of HTML, which ends with an empty line.
    let document = "<div>\n```ts\n1;\n```\n~~~sh\n~~~\n</div>\n\n<p>\n\n```ts\n2;\n```\n</p>\n";
    assert_eq!(found(document), [(2, true), (11, false)]);
    assert_eq!(found("<!-- a\n```ts\n1;\n```\n-->\n\n```{1,3}\n```\n"), []);
}

#[test]
fn a_fence_in_a_list_is_found() {
    let lines = |document: &str, syntax| -> Vec<(u32, bool)> {
        let found = examples(document, syntax);
        found.iter().map(|example| (example.line, example.skipped)).collect()
    };
    for start in ["- ", "1. ", "10)  ", "> * ", "- - ", "+\t"] {
        let inner = " ".repeat(start.len().max(4));
        let document = format!("{start}```ts\n{inner}1;\n{inner}```\n");
        assert_eq!(lines(&document, Syntax::Mdx), [(1, false)], "{start:?}");
    }
    let document = "- ```js\n  one();\n    two();\n  ```\n";
    let input = examples(document, Syntax::Mdx)[0].input(None);
    assert_eq!(input.files.unwrap()[0].source, "one();\n  two();\n");
    // Neither code in a line, nor a comment, nor metadata begins a block.
    let none = "---\ntitle: |\n  ```ts\n---\n```ts `x` ```\n\n{/* later:\n```ts\n1;\n```\n*/}\n";
    assert_eq!(lines(none, Syntax::Mdx), []);
    let open = "{/* without an end\n\nor `{/*` in a line\n\n```ts\n1;\n```\n";
    assert_eq!(lines(open, Syntax::Mdx), [(5, false)]);
    assert_eq!(lines("<div>\n- ```ts\n</div>\n", Syntax::Markdown), [(2, true)]);
}

#[test]
fn lines_between_rules_are_no_metadata() {
    let document = "---\ntitle: |\n  ```ts\n---\n```ts\n1;\n```\ntext\n\n---\n#### A\n```ts\n2;\n```\n\n---\n#### B\n```js\n3;\n```\n";
    let found = examples(document, Syntax::Markdown);
    assert_eq!(found.iter().map(|example| example.line).collect::<Vec<_>>(), [5, 12, 18]);
    assert_eq!(files(&found[1])[0].1, "2;\n");
    assert_eq!(found[1].relocate("src/main.ts:1:1", "a.md", document), "a.md:13:1");
    // Without an end it is not metadata.
    assert_eq!(examples("---\n\n```ts\n1;\n```\n", Syntax::Markdown).len(), 1);
}
