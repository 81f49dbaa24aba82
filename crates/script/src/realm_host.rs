//! The interface between a realm and the outside: requests and their responses. A realm itself has
//! no access to anything outside.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The outside of a realm. All texts from a realm are under the control of the program.
pub trait RealmHost {
    /// Receives a line of the console: its level (`log`, `warn`, `error`) and its text.
    fn write(&mut self, level: &str, text: &str);

    /// Starts a fetch; [`RealmHost::wait`] returns the response under the same number.
    ///
    /// # Errors
    /// Why nothing is fetched, as a message for the program.
    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String>;

    /// Cancels a fetch; there may still be a response.
    fn abort(&mut self, id: u32);

    /// Waits for a response, at most so long.
    fn wait(&mut self, timeout: Duration) -> Option<FetchResult>;
}

/// An outside that is used again after the run.
impl<O: RealmHost> RealmHost for Rc<RefCell<O>> {
    fn write(&mut self, level: &str, text: &str) {
        self.borrow_mut().write(level, text);
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String> {
        self.borrow_mut().fetch(id, request)
    }

    fn abort(&mut self, id: u32) {
        self.borrow_mut().abort(id);
    }

    fn wait(&mut self, timeout: Duration) -> Option<FetchResult> {
        self.borrow_mut().wait(timeout)
    }
}

/// The result of a fetch: a response, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResult {
    /// The number of the fetch.
    pub id: u32,
    /// Its result.
    pub result: Result<Response, String>,
}

/// A request of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// The absolute URL.
    pub url: String,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
    /// How redirects are handled.
    pub redirect: Redirect,
}

impl Request {
    /// The total size of the request, in bytes.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        let body = self.body.as_ref().map_or(0, Vec::len);
        self.method.len() + self.url.len() + headers.sum::<usize>() + body
    }
}

/// How a redirect is handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Redirect {
    /// It is followed, and its URL is checked like the first one.
    #[default]
    Follow,
    /// It is an error.
    Error,
    /// It is returned as the response.
    Manual,
}

/// A complete response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// Such as 200.
    pub status: u16,
    /// The reason phrase.
    pub status_text: String,
    /// The URL of the response.
    pub url: String,
    /// Whether that differs from the requested URL.
    pub redirected: bool,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// An outside that prints console lines and supports nothing else.
pub struct Console<W>(pub W);

impl<W> std::fmt::Debug for Console<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").finish_non_exhaustive()
    }
}

impl<W: FnMut(&str, &str)> RealmHost for Console<W> {
    fn write(&mut self, level: &str, text: &str) {
        (self.0)(level, text);
    }

    fn fetch(&mut self, _: u32, _: Request) -> Result<(), String> {
        Err("sandbox: outbound fetch blocked — no network is available here".to_owned())
    }

    fn abort(&mut self, _: u32) {}

    fn wait(&mut self, timeout: Duration) -> Option<FetchResult> {
        std::thread::sleep(timeout);
        None
    }
}
