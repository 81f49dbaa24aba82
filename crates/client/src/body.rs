//! Response bodies as lines of JSON.

use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use stockade_api::Result;
use stockade_api::body::BodyReader;
use stockade_api::wire::ErrorBody;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use crate::{unreachable, unreadable};

/// Parses the lines of a body and sends them to a channel. A line that reports a failure is the
/// last.
pub(crate) async fn lines<T: DeserializeOwned>(body: Incoming, to: mpsc::Sender<Result<T>>) {
    let mut lines = BufReader::new(BodyReader::new(body)).split(b'\n');
    loop {
        let item = match lines.next_segment().await {
            Ok(None) => return,
            Ok(Some(line)) => match serde_json::from_slice::<ErrorBody>(&line) {
                Ok(failed) => Err(failed.error),
                Err(_) => serde_json::from_slice(&line).map_err(unreadable),
            },
            Err(error) => Err(unreachable(error)),
        };
        let last = item.is_err();
        if to.send(item).await.is_err() || last {
            return;
        }
    }
}
