//! Responses to navigations: redirects and short messages. None of them is stored, framed, or named to
//! the site that it leads to.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use stockade_api::Problem;
use stockade_core::Code;

use crate::failure::Reported;

/// The parameters of a query.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Parses a query in which no parameter is repeated.
    pub(super) fn parse(uri: &Uri) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(uri.query().unwrap_or("").as_bytes()) {
            if parameters.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                let message = format!("the parameter {name:?} is given twice");
                return Err(Problem::new(Code::InvalidInput, message));
            }
        }
        Ok(Self(parameters))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, Problem> {
        self.get(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            Problem::new(Code::InvalidInput, format!("the parameter {name:?} is missing"))
        })
    }
}

/// A redirect that sets cookies.
pub(super) fn redirect(location: &str, cookies: &[String]) -> Response {
    let mut response = plain(StatusCode::FOUND, "");
    let Ok(location) = HeaderValue::try_from(location) else {
        return plain(StatusCode::BAD_REQUEST, "the address is invalid\n");
    };
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location);
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            headers.append(header::SET_COOKIE, cookie);
        }
    }
    response
}

/// A problem as a message for a person.
pub(super) fn refusal(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.code.http_status());
    let mut text = format!("{}: {}\n", problem.code, problem.message);
    if let Some(cause) = &problem.cause {
        text.push_str(&format!("cause: {cause}\n"));
    }
    if let Some(remediation) = &problem.remediation {
        text.push_str(&format!("help: {remediation}\n"));
    }
    let mut response = plain(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text);
    response.extensions_mut().insert(Reported(problem.clone()));
    response
}

fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
