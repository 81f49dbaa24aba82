//! Calls with one message in each direction.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use serde_json::json;

use super::terms::Terms;
use crate::e2b::failure::{RpcCode, RpcError};

/// The message of a call.
pub(in crate::e2b) struct Unary<T>(pub(in crate::e2b) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Unary<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        check_type(request.headers(), "application/json").map_err(|refusal| *refusal)?;
        Terms::of(request.headers()).map_err(|error| error.into_response())?;
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| {
            RpcError::new(RpcCode::ResourceExhausted, error.to_string()).into_response()
        })?;
        let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
        let parsed = serde_json::from_slice(text).map_err(|error| {
            let message = format!("the message cannot be read: {error}");
            RpcError::new(RpcCode::InvalidArgument, message).into_response()
        });
        Ok(Self(parsed?))
    }
}

/// Refuses another type of content, such as that of binary messages, and compression.
pub(super) fn check_type(headers: &HeaderMap, expected: &str) -> Result<(), Box<Response>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE.as_str()).and_then(|kind| kind.split(';').next());
    if !kind.unwrap_or_default().trim().eq_ignore_ascii_case(expected) {
        let body =
            json!({ "code": "unknown", "message": format!("the content type must be {expected}") });
        return Err(Box::new((StatusCode::UNSUPPORTED_MEDIA_TYPE, Json(body)).into_response()));
    }
    for name in ["content-encoding", "connect-content-encoding"] {
        if text(name).is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
            let message = "compressed messages are not supported";
            return Err(Box::new(RpcError::new(RpcCode::Unimplemented, message).into_response()));
        }
    }
    Ok(())
}

/// Bytes in JSON: both alphabets, with and without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { alphabet::URL_SAFE } else { alphabet::STANDARD };
    GeneralPurpose::new(&alphabet, config).decode(text).ok()
}

/// Bytes in a message, if they are there.
pub(in crate::e2b) fn bytes_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let decoded = text.map(|text| {
        decode(&text).ok_or_else(|| serde::de::Error::custom("the bytes are not base64"))
    });
    decoded.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_every_form_of_base64() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(decode(text), Some(vec![0xfb, 0xff]), "{text}");
        }
        assert_eq!(decode(""), Some(Vec::new()));
        assert_eq!(decode("?"), None);
    }
}
