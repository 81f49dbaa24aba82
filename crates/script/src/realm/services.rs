//! What the realm's own scripts ask of the host: output, the clock, randomness, texts and URLs.
//! Nothing here opens or reaches anything.

use std::rc::Rc;

use rquickjs::function::Opt;
use rquickjs::{Ctx, Exception, Function, Object, Result, TypedArray};
use url::{Url, form_urlencoded, quirks};

use super::State;

/// The parts of a URL that can be read and set.
const URL_PARTS: &[&str] = &[
    "href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search",
    "hash",
];

/// The most random bytes that are given at once.
const MAX_RANDOM_BYTES: usize = 65_536;

/// The object that our scripts are called with.
pub(super) fn host<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    let writer = Rc::clone(state);
    let write = move |level: String, text: String| writer.write(&level, &text);
    host.set("write", Function::new(ctx.clone(), write)?)?;
    let clock = Rc::clone(state);
    let now = move || clock.started.elapsed().as_secs_f64() * 1_000.0;
    host.set("now", Function::new(ctx.clone(), now)?)?;
    host.set("random", Function::new(ctx.clone(), random)?)?;
    host.set("encode", Function::new(ctx.clone(), encode)?)?;
    host.set("decode", Function::new(ctx.clone(), decode)?)?;
    host.set("urlParts", URL_PARTS.to_vec())?;
    host.set("parseUrl", Function::new(ctx.clone(), parse_url)?)?;
    host.set("urlPart", Function::new(ctx.clone(), url_part)?)?;
    host.set("setUrlPart", Function::new(ctx.clone(), set_url_part)?)?;
    host.set("parseQuery", Function::new(ctx.clone(), parse_query)?)?;
    host.set("writeQuery", Function::new(ctx.clone(), write_query)?)?;
    Ok(host)
}

impl State {
    /// Hands a line on while there is room; what is over the limit is thrown away.
    fn write(&self, level: &str, text: &str) {
        // A line costs something even when it is empty.
        let Some(left) = self.output_left.get().checked_sub(text.len() + 1) else {
            self.output_left.set(0);
            self.output_cut.set(true);
            return;
        };
        self.output_left.set(left);
        if let Ok(mut sink) = self.sink.try_borrow_mut() {
            sink(level, text);
        }
    }
}

fn random<'js>(ctx: Ctx<'js>, count: usize) -> Result<TypedArray<'js, u8>> {
    let mut bytes = vec![0; count.min(MAX_RANDOM_BYTES)];
    if getrandom::fill(&mut bytes).is_err() {
        return Err(Exception::throw_message(&ctx, "no randomness can be had"));
    }
    TypedArray::new(ctx, bytes)
}

fn encode<'js>(ctx: Ctx<'js>, text: String) -> Result<TypedArray<'js, u8>> {
    TypedArray::new(ctx, text.into_bytes())
}

fn decode(bytes: Vec<u8>, fatal: bool) -> Option<String> {
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(_) if fatal => None,
        Err(error) => Some(String::from_utf8_lossy(error.as_bytes()).into_owned()),
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

/// The URL with a part set; `None` when the part cannot be set so, and the URL stays.
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
