//! Splits command lines into words, according to a shell's quotes and separators.

/// One word, and whether it is at a position where a shell expects a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) first: bool,
}

/// The words of a line, without their quotes. A separator of commands makes the next word a first
/// one, also inside of double quotes, where a shell runs `$(…)`.
pub(super) fn tokenize(line: &str) -> Vec<Token> {
    let mut tokenizer = Tokenizer::default();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (tokenizer.quote, character) {
            (Some(open), close) if open == close => tokenizer.quote = None,
            (Some('\''), other) => tokenizer.text.push(other),
            (_, '\\') => {
                tokenizer.in_token = true;
                tokenizer.text.extend(characters.next());
            }
            (_, '(') => tokenizer.enter('('),
            (_, '`') if tokenizer.nesting.last().is_none_or(|(open, _)| *open != '`') => {
                tokenizer.enter('`');
            }
            (_, ')' | '`') => tokenizer.leave(),
            (None, ';' | '&' | '|' | '\n' | '{' | '}') => tokenizer.separate(),
            (None, '\'' | '"') => {
                tokenizer.quote = Some(character);
                tokenizer.in_token = true;
            }
            (None, blank) if blank.is_whitespace() => tokenizer.end(),
            (_, other) => {
                tokenizer.text.push(other);
                tokenizer.in_token = true;
            }
        }
    }
    tokenizer.end();
    tokenizer.tokens
}

/// The state of the splitting.
struct Tokenizer {
    tokens: Vec<Token>,
    text: String,
    in_token: bool,
    first: bool,
    quote: Option<char>,
    /// The open constructs with their opening characters, each with the quote around it.
    nesting: Vec<(char, Option<char>)>,
}

impl Default for Tokenizer {
    fn default() -> Self {
        let (tokens, text, nesting) = (Vec::new(), String::new(), Vec::new());
        Self { tokens, text, in_token: false, first: true, quote: None, nesting }
    }
}

impl Tokenizer {
    fn end(&mut self) {
        if std::mem::take(&mut self.in_token) {
            let text = std::mem::take(&mut self.text);
            self.tokens.push(Token { text, first: std::mem::take(&mut self.first) });
        }
    }

    fn separate(&mut self) {
        self.end();
        self.first = true;
    }

    fn enter(&mut self, open: char) {
        self.separate();
        self.nesting.push((open, self.quote.take()));
    }

    fn leave(&mut self) {
        self.end();
        self.first = false;
        self.quote = self.nesting.pop().and_then(|(_, quote)| quote);
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
            let tokenizer = tokenize(line).into_iter().filter(|word| word.first);
            tokenizer.map(|word| word.text).collect::<Vec<_>>()
        };
        assert_eq!(firsts("ls -l; rm x | wc && 'a b' c"), ["ls", "rm", "wc", "a b"]);
        assert_eq!(firsts("echo \"$(rm x)\" \\; y"), ["echo", "rm"]);
        assert_eq!(firsts("\\rm 'x;y'"), ["rm"]);
        let all: Vec<_> = tokenize("a 'b c'\"d\" ''").into_iter().map(|word| word.text).collect();
        assert_eq!(all, ["a", "b cd", ""]);
    }
}
