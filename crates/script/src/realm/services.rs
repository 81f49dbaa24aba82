//! The host functions for the realm's own scripts: output, the clock, randomness, texts, URLs and
//! fetches. Nothing here opens files or connections: fetches are passed to the outside.

use std::borrow::Cow;
use std::rc::Rc;

use rquickjs::function::Opt;
use rquickjs::{Ctx, Exception, Function, Object, Result, TypedArray, Undefined};
use url::{Url, form_urlencoded, quirks};

use super::State;
use crate::realm_host::{FetchResult, Redirect, Request, Response};

/// The parts of a URL that can be read and set.
const URL_PARTS: &[&str] = &[
    "href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search",
    "hash",
];

/// The most random bytes of one call.
const MAX_RANDOM_BYTES: usize = 65_536;

/// How many bytes are drawn at a time for `Math.random()`.
const RANDOM_BUFFER_BYTES: usize = 1_024;

/// The object that is passed to our scripts.
pub(super) fn host<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    let writer = Rc::clone(state);
    let write = move |level: String, text: String| writer.write(&level, &text);
    host.set("write", Function::new(ctx.clone(), write)?)?;
    let clock = Rc::clone(state);
    let now = move || clock.started.elapsed().as_secs_f64() * 1_000.0;
    host.set("now", Function::new(ctx.clone(), now)?)?;
    let places = Rc::clone(state);
    let place = move |file: String, line: u32, column: u32| places.place(&file, line, column);
    host.set("place", Function::new(ctx.clone(), place)?)?;
    host.set("random", Function::new(ctx.clone(), random)?)?;
    let draws = Rc::clone(state);
    let draw = move |ctx: Ctx<'_>| draws.next_random(&ctx);
    host.set("draw", Function::new(ctx.clone(), draw)?)?;
    host.set("encode", Function::new(ctx.clone(), encode)?)?;
    host.set("decode", Function::new(ctx.clone(), decode)?)?;
    host.set("urlParts", URL_PARTS.to_vec())?;
    host.set("parseUrl", Function::new(ctx.clone(), parse_url)?)?;
    host.set("urlPart", Function::new(ctx.clone(), url_part)?)?;
    host.set("setUrlPart", Function::new(ctx.clone(), set_url_part)?)?;
    host.set("parseQuery", Function::new(ctx.clone(), parse_query)?)?;
    host.set("writeQuery", Function::new(ctx.clone(), write_query)?)?;
    let fetches = Rc::clone(state);
    let fetch = move |ctx: Ctx<'js>, method, url, headers, body, redirect| {
        fetches.fetch(&ctx, (method, url), headers, body, redirect)
    };
    host.set("fetch", Function::new(ctx.clone(), fetch)?)?;
    let aborts = Rc::clone(state);
    let abort = move |id: u32| aborts.abort(id);
    host.set("abort", Function::new(ctx.clone(), abort)?)?;
    Ok(host)
}

/// Settles a fetch of the program with its response.
pub(super) fn settle<'js>(
    ctx: &Ctx<'js>,
    settle: &Function<'js>,
    answer: FetchResult,
) -> Result<()> {
    let Response { status, status_text, url, redirected, headers, body } = match answer.result {
        Ok(response) => response,
        Err(why) => return settle.call((answer.id, why)),
    };
    let head = Object::new(ctx.clone())?;
    head.set("status", status)?;
    head.set("statusText", status_text)?;
    head.set("url", url)?;
    head.set("redirected", redirected)?;
    let headers = headers.into_iter().map(|(name, value)| vec![name, value]);
    head.set("headers", headers.collect::<Vec<_>>())?;
    // Copied into the engine's heap, which has a limit.
    head.set("body", TypedArray::<u8>::new_copy(ctx.clone(), body)?)?;
    settle.call((answer.id, Undefined, head))
}

impl State {
    /// The place in a file as it was written; `None` for our own scripts.
    fn place(&self, file: &str, line: u32, column: u32) -> Option<String> {
        if file.starts_with(super::failure::OWN_PREFIX) {
            return None;
        }
        let program = self.program.try_borrow().ok()?;
        let (line, column) = match program.modules.get(file) {
            Some(module) => module.source_position(line, column),
            None => (line, column),
        };
        Some(format!("{file}:{line}:{column}"))
    }

    /// Passes a line on while there is output budget; lines over the limit are discarded.
    fn write(&self, level: &str, text: &str) {
        // An empty line has a cost, too.
        let Some(left) = self.output_left.get().checked_sub(text.len() + 1) else {
            self.output_left.set(0);
            self.output_truncated.set(true);
            return;
        };
        self.output_left.set(left);
        if let Ok(mut outside) = self.host.try_borrow_mut()
            && let Some(outside) = outside.as_mut()
        {
            outside.write(level, text);
        }
    }

    /// A number from 0 to 1 for `Math.random()`. The engine's own generator would be the same in
    /// every process that is forked from one.
    fn next_random(&self, ctx: &Ctx<'_>) -> Result<f64> {
        let mut left = self.random.borrow_mut();
        if left.len() < size_of::<u32>() {
            left.resize(RANDOM_BUFFER_BYTES, 0);
            if !fill(&mut left) {
                left.clear();
                return Err(no_randomness(ctx));
            }
        }
        let (rest, bytes) = left.split_last_chunk().ok_or_else(|| no_randomness(ctx))?;
        let number = f64::from(u32::from_le_bytes(*bytes)) / (f64::from(u32::MAX) + 1.0);
        let rest = rest.len();
        left.truncate(rest);
        Ok(number)
    }

    fn fetch(
        &self,
        ctx: &Ctx<'_>,
        (method, url): (String, String),
        headers: Vec<Vec<String>>,
        body: Option<String>,
        redirect: u8,
    ) -> Result<u32> {
        let pair = |pair: Vec<String>| <[String; 2]>::try_from(pair).ok();
        let headers = headers.into_iter().filter_map(pair).map(|[name, value]| (name, value));
        let request = Request {
            method,
            url,
            headers: headers.collect(),
            body: body.as_deref().map(bytes),
            redirect: match redirect {
                1 => Redirect::Error,
                2 => Redirect::Manual,
                _ => Redirect::Follow,
            },
        };
        let id = self.last_fetch.get().wrapping_add(1);
        self.last_fetch.set(id);
        let begun = match self.host.borrow_mut().as_mut() {
            Some(outside) => outside.fetch(id, request),
            None => Err("fetch is not available yet".to_owned()),
        };
        begun.map_err(|why| Exception::throw_type(ctx, &why))?;
        self.fetches.borrow_mut().insert(id);
        Ok(id)
    }

    fn abort(&self, id: u32) {
        if self.fetches.borrow_mut().remove(&id)
            && let Some(outside) = self.host.borrow_mut().as_mut()
        {
            outside.abort(id);
        }
    }
}

/// Fills a buffer with random bytes by the system call alone, because a worker may make no other.
fn fill(mut bytes: &mut [u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(filled) => bytes = bytes.split_at_mut(filled).1,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

fn no_randomness(ctx: &Ctx<'_>) -> rquickjs::Error {
    Exception::throw_message(ctx, "random numbers are not available")
}

fn random<'js>(ctx: Ctx<'js>, count: usize) -> Result<TypedArray<'js, u8>> {
    let mut bytes = vec![0; count.min(MAX_RANDOM_BYTES)];
    if !fill(&mut bytes) {
        return Err(no_randomness(&ctx));
    }
    TypedArray::new_copy(ctx, bytes)
}

fn encode<'js>(ctx: Ctx<'js>, text: String) -> Result<TypedArray<'js, u8>> {
    TypedArray::new_copy(ctx, text.into_bytes())
}

/// The bytes of a text with one character for each byte: this is how bytes leave the engine, whose
/// memory is not accessed directly.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(character).unwrap_or_default()).collect()
}

fn decode(text: String, fatal: bool) -> Option<String> {
    match String::from_utf8_lossy(&bytes(&text)) {
        Cow::Owned(_) if fatal => None,
        text => Some(text.into_owned()),
    }
}

fn parse_url(url: String, base: Opt<String>) -> Option<String> {
    let base = base.0.filter(|base| !base.is_empty());
    let parsed = match base {
        Some(base) => Url::parse(&base).and_then(|base| base.join(&url)),
        None => Url::parse(&url),
    };
    parsed.ok().map(String::from)
}

fn url_part(href: String, part: String) -> Option<String> {
    let url = Url::parse(&href).ok()?;
    Some(match part.as_str() {
        "origin" => quirks::origin(&url),
        "protocol" => quirks::protocol(&url).to_owned(),
        "username" => quirks::username(&url).to_owned(),
        "password" => quirks::password(&url).to_owned(),
        "host" => quirks::host(&url).to_owned(),
        "hostname" => quirks::hostname(&url).to_owned(),
        "port" => quirks::port(&url).to_owned(),
        "pathname" => quirks::pathname(&url).to_owned(),
        "search" => quirks::search(&url).to_owned(),
        "hash" => quirks::hash(&url).to_owned(),
        _ => href,
    })
}

/// The URL with a part replaced; `None` if the value is invalid, and the URL stays as it is.
fn set_url_part(href: String, part: String, value: String) -> Option<String> {
    let mut url = Url::parse(&href).ok()?;
    match part.as_str() {
        "href" => quirks::set_href(&mut url, &value).ok()?,
        "protocol" => quirks::set_protocol(&mut url, &value).ok()?,
        "username" => quirks::set_username(&mut url, &value).ok()?,
        "password" => quirks::set_password(&mut url, &value).ok()?,
        "host" => quirks::set_host(&mut url, &value).ok()?,
        "hostname" => quirks::set_hostname(&mut url, &value).ok()?,
        "port" => quirks::set_port(&mut url, &value).ok()?,
        "pathname" => quirks::set_pathname(&mut url, &value),
        "search" => quirks::set_search(&mut url, &value),
        "hash" => quirks::set_hash(&mut url, &value),
        _ => return None,
    }
    Some(url.into())
}

fn parse_query(query: String) -> Vec<Vec<String>> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.map(|(name, value)| vec![name.into_owned(), value.into_owned()]).collect()
}

fn write_query(pairs: Vec<Vec<String>>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for pair in &pairs {
        if let [name, value] = pair.as_slice() {
            query.append_pair(name, value);
        }
    }
    query.finish()
}
