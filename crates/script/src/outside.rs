//! What a realm asks of the outside, and what it is answered. A realm itself reaches nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Whatever a realm speaks to. All of its texts are the program's own.
pub trait Outside {
    /// Takes a line of the console: its level (`log`, `warn`, `error`) and its text.
    fn write(&mut self, level: &str, text: &str);

    /// Begins to fetch; [`Outside::wait`] answers under the same number.
    ///
    /// # Errors
    /// Why nothing is fetched, in words for the program.
    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String>;

    /// Gives a fetch up; there may be an answer nevertheless.
    fn abort(&mut self, id: u32);

    /// Waits for an answer at most so long.
    fn wait(&mut self, timeout: Duration) -> Option<Answer>;
}

/// An outside that is needed again after the run.
impl<O: Outside> Outside for Rc<RefCell<O>> {
    fn write(&mut self, level: &str, text: &str) {
        self.borrow_mut().write(level, text);
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String> {
        self.borrow_mut().fetch(id, request)
    }

    fn abort(&mut self, id: u32) {
        self.borrow_mut().abort(id);
    }

    fn wait(&mut self, timeout: Duration) -> Option<Answer> {
        self.borrow_mut().wait(timeout)
    }
}

/// The answer to a fetch: a response, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Which.
    pub id: u32,
    /// What came of it.
    pub result: Result<Response, String>,
}

/// A request that a program makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// As `GET`.
    pub method: String,
    /// The absolute URL.
    pub url: String,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// What is sent, if anything.
    pub body: Option<Vec<u8>>,
    /// What becomes of a redirect.
    pub redirect: Redirect,
}

impl Request {
    /// How large it is in all.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        let body = self.body.as_ref().map_or(0, Vec::len);
        self.method.len() + self.url.len() + headers.sum::<usize>() + body
    }
}

/// What becomes of an answer that names another place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Redirect {
    /// It is followed, and what it names is checked as the first URL was.
    #[default]
    Follow,
    /// It is an error.
    Error,
    /// It is the response.
    Manual,
}

/// A response, whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// As 200.
    pub status: u16,
    /// The reason phrase.
    pub status_text: String,
    /// The URL that answered.
    pub url: String,
    /// Whether that is another one than was asked.
    pub redirected: bool,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// All of what was sent.
    pub body: Vec<u8>,
}

/// The outside that takes lines and has nothing else.
pub struct Console<W>(pub W);

impl<W> std::fmt::Debug for Console<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").finish_non_exhaustive()
    }
}

impl<W: FnMut(&str, &str)> Outside for Console<W> {
    fn write(&mut self, level: &str, text: &str) {
        (self.0)(level, text);
    }

    fn fetch(&mut self, _: u32, _: Request) -> Result<(), String> {
        Err("sandbox: outbound fetch blocked — no network is available here".to_owned())
    }

    fn abort(&mut self, _: u32) {}

    fn wait(&mut self, timeout: Duration) -> Option<Answer> {
        std::thread::sleep(timeout);
        None
    }
}
