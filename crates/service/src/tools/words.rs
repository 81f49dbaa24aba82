//! Splits command lines into words, according to a shell's quotes and separators.

/// One word, and whether it is at a position where a shell expects a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) first: bool,
}

/// The words of a line, without their quotes. A separator of commands makes the next word a first
/// one, also inside of double quotes, where a shell runs `$(…)`.
pub(super) fn words(line: &str) -> Vec<Word> {
    let mut words = Words::default();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (words.quote, character) {
            (Some(open), close) if open == close => words.quote = None,
            (Some('\''), other) => words.text.push(other),
            (_, '\\') => {
                words.begun = true;
                words.text.extend(characters.next());
            }
            (_, '(') => words.enter('('),
            (_, '`') if words.within.last().is_none_or(|(open, _)| *open != '`') => {
                words.enter('`');
            }
            (_, ')' | '`') => words.leave(),
            (None, ';' | '&' | '|' | '\n' | '{' | '}') => words.separate(),
            (None, '\'' | '"') => {
                words.quote = Some(character);
                words.begun = true;
            }
            (None, blank) if blank.is_whitespace() => words.end(),
            (_, other) => {
                words.text.push(other);
                words.begun = true;
            }
        }
    }
    words.end();
    words.found
}

/// The state of the splitting.
struct Words {
    found: Vec<Word>,
    text: String,
    begun: bool,
    first: bool,
    quote: Option<char>,
    /// The open constructs with their opening characters, each with the quote around it.
    within: Vec<(char, Option<char>)>,
}

impl Default for Words {
    fn default() -> Self {
        let (found, text, within) = (Vec::new(), String::new(), Vec::new());
        Self { found, text, begun: false, first: true, quote: None, within }
    }
}

impl Words {
    fn end(&mut self) {
        if std::mem::take(&mut self.begun) {
            let text = std::mem::take(&mut self.text);
            self.found.push(Word { text, first: std::mem::take(&mut self.first) });
        }
    }

    fn separate(&mut self) {
        self.end();
        self.first = true;
    }

    fn enter(&mut self, open: char) {
        self.separate();
        self.within.push((open, self.quote.take()));
    }

    fn leave(&mut self) {
        self.end();
        self.first = false;
        self.quote = self.within.pop().and_then(|(_, quote)| quote);
    }
}

/// The last component of a path.
pub(super) fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_go_and_separators_begin_anew() {
        let firsts = |line: &str| {
            let words = words(line).into_iter().filter(|word| word.first);
            words.map(|word| word.text).collect::<Vec<_>>()
        };
        assert_eq!(firsts("ls -l; rm x | wc && 'a b' c"), ["ls", "rm", "wc", "a b"]);
        assert_eq!(firsts("echo \"$(rm x)\" \\; y"), ["echo", "rm"]);
        assert_eq!(firsts("\\rm 'x;y'"), ["rm"]);
        let all: Vec<_> = words("a 'b c'\"d\" ''").into_iter().map(|word| word.text).collect();
        assert_eq!(all, ["a", "b cd", ""]);
    }
}
