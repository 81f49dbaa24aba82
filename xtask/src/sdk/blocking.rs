//! The synchronous Python client from the asynchronous one: the same text without `async` and `await`, and with
//! the names of the synchronous classes and methods.

use super::MARK;

/// Names that change in another way than by their prefix.
const NAMES: &[(&str, &str)] = &[
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
    ("__aiter__", "__iter__"),
    ("__anext__", "__next__"),
    ("StopAsyncIteration", "StopIteration"),
    ("aclose", "close"),
    ("aiter_bytes", "iter_bytes"),
    ("aiter_lines", "iter_lines"),
    ("aread", "read"),
    ("asynccontextmanager", "contextmanager"),
    ("enter_async_context", "enter_context"),
    ("_async", "_sync"),
];

/// Converts a file.
pub(super) fn convert(name: &str, source: &str) -> String {
    if name == "__init__.py" {
        return format!("# {MARK}\n\"\"\"The synchronous client.\"\"\"\n");
    }
    let mut text = format!("# {MARK}\n");
    let mut rest = source.strip_prefix(&format!("# {MARK}\n")).unwrap_or(source);
    while let Some(first) = rest.chars().next() {
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        let end = rest.find(|character| is_part(character) != is_part(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        if matches!(word, "async" | "await") && rest.starts_with(' ') {
            rest = &rest[1..];
        } else {
            text.push_str(&converted(word));
        }
    }
    text
}

fn converted(word: &str) -> String {
    if let Some((_, new)) = NAMES.iter().find(|(old, _)| *old == word) {
        return (*new).to_owned();
    }
    match word.strip_prefix("Async") {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_uppercase()) => rest.to_owned(),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_and_nothing_else() {
        let source = "async def f(self) -> AsyncIterator[int]:\n    async with a.open() as b:\n        \
                      x = [i async for i in b]\n        await b.aclose()\n    asyncio = AsyncSandbox\n";
        let expected = "def f(self) -> Iterator[int]:\n    with a.open() as b:\n        \
                        x = [i for i in b]\n        b.close()\n    asyncio = Sandbox\n";
        assert_eq!(convert("a.py", source), format!("# {MARK}\n{expected}"));
    }
}
