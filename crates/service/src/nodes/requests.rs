//! Nodes that talk to servers inside the container.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Map, Value, json};
use stockade_api::{Bytes, HttpRequest, Problem, Result, WebSocket};
use stockade_core::Code;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::ports::{Call, members};
use crate::streams::{Decoder, Encoding};

/// How much of a response or of all messages is returned.
const LIMIT_BYTES: u64 = 10 << 20;
/// How long a connection may take, unless the request says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much is read at a time.
const PIECE_BYTES: usize = 64 << 10;

fn request(call: &Call<'_>) -> Result<HttpRequest> {
    let ports = call.ports;
    Ok(HttpRequest {
        sandbox_id: ports.sandbox()?,
        port: ports.endpoint()?,
        method: ports.or_default("method")?,
        path: ports.optional("path")?.unwrap_or_else(|| "/".to_owned()),
        headers: ports.or_default("headers")?,
        body: ports.optional("body")?,
        timeout_seconds: ports.optional("timeoutSeconds")?,
        limit_bytes: ports.optional("limitBytes")?,
        markdown: ports.or_default("markdown")?,
    })
}

/// Sends a request.
pub(super) async fn http(call: &Call<'_>) -> Result<Map<String, Value>> {
    let request = request(call)?;
    let answer = call.sandboxes.http_request(&call.caller_of("request"), request).await?;
    Ok(members(json!({
        "statusCode": answer.status,
        "headers": answer.headers,
        "body": answer.body,
        "truncated": answer.truncated,
        "markdown": answer.markdown,
    })))
}

/// Sends a request, and returns the response as the chunks in which it came.
pub(super) async fn stream(call: &Call<'_>) -> Result<Map<String, Value>> {
    let request = request(call)?;
    let limit = request.limit_bytes.unwrap_or(LIMIT_BYTES);
    let end = Instant::now() + patience(request.timeout_seconds);
    let answer = call.sandboxes.http_stream(&call.caller_of("stream"), request).await?;
    let (mut chunks, mut decoder) = (Vec::new(), Decoder::new(Encoding::Text));
    let (mut body, mut piece) = (answer.body.0, vec![0; PIECE_BYTES]);
    let (mut total, mut is_whole) = (0, false);
    while total < limit {
        // What has come until then is the answer.
        let Ok(read) = tokio::time::timeout_at(end, body.read(&mut piece)).await else { break };
        let length = read.map_err(|error| {
            Problem::new(Code::Unreachable, "the response ended early").because(error.to_string())
        })?;
        if length == 0 {
            is_whole = true;
            break;
        }
        total += length as u64;
        chunks.push(decoder.push(&piece[..length]));
    }
    chunks.push(decoder.finish());
    chunks.retain(|chunk| !chunk.is_empty());
    Ok(members(json!({
        "statusCode": answer.head.status,
        "headers": answer.head.headers,
        "chunks": chunks,
        "truncated": !is_whole,
    })))
}

fn patience(seconds: Option<f64>) -> Duration {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(PATIENCE)
}

/// Sends messages, and receives until as many have come as requested, the server closes, or the time
/// has passed.
pub(super) async fn web_socket(call: &Call<'_>) -> Result<Map<String, Value>> {
    let ports = call.ports;
    let seconds: Option<f64> = ports.optional("timeoutSeconds")?;
    let end = Instant::now() + patience(seconds);
    let messages: Vec<Bytes> = ports.or_default("messages")?;
    let expected: usize = ports.optional("receive")?.unwrap_or(messages.len());
    let limit: u64 = ports.optional("limitBytes")?.unwrap_or(LIMIT_BYTES);
    let request = WebSocket {
        sandbox_id: ports.sandbox()?,
        port: ports.endpoint()?,
        path: ports.optional("path")?.unwrap_or_else(|| "/".to_owned()),
        headers: ports.or_default("headers")?,
        protocols: ports.or_default("protocols")?,
        timeout_seconds: seconds,
    };
    let open = call.sandboxes.web_socket(&call.caller_of("socket"), request).await?;
    let largest = Some(usize::try_from(limit).unwrap_or(usize::MAX));
    let config = WebSocketConfig::default().max_message_size(largest);
    let mut socket =
        WebSocketStream::from_raw_socket(open.connection, Role::Client, Some(config)).await;
    let (mut received, mut total, mut close) = (Vec::new(), 0, None);
    let talk = async {
        for message in messages {
            let message = match String::from_utf8(message.0) {
                Ok(text) => Message::text(text),
                Err(error) => Message::binary(error.into_bytes()),
            };
            socket.send(message).await?;
        }
        while received.len() < expected && total < limit {
            let content = match socket.next().await {
                None => break,
                Some(Err(error)) => return Err(error),
                Some(Ok(Message::Text(text))) => text.as_bytes().to_vec(),
                Some(Ok(Message::Binary(bytes))) => bytes.to_vec(),
                Some(Ok(Message::Close(frame))) => {
                    close = frame.map(|frame| u16::from(frame.code));
                    break;
                }
                Some(Ok(_)) => continue,
            };
            total += content.len() as u64;
            received.push(Bytes(content));
        }
        // The server may have closed already.
        let _ = socket.close(None).await;
        Ok::<(), tokio_tungstenite::tungstenite::Error>(())
    };
    if let Ok(Err(error)) = tokio::time::timeout_at(end, talk).await {
        return Err(Problem::new(Code::Unreachable, "the WebSocket ended with an error")
            .because(error.to_string()));
    }
    Ok(members(json!({
        "protocol": open.protocol, "messages": received, "closeCode": close,
    })))
}
