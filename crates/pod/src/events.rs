//! What follows a reply: the events of a command, its input, and connections.

use std::io;
use std::time::Duration;

use stockade_runtime::{Connection, Error, Event, Events, Input, Result, Stream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::frame::{Frame, PIECE, message, protocol, read_frame, write_frame};
use crate::wire::Reply;

/// How long the end of an input may take after the caller is gone.
const LAST: Duration = Duration::from_millis(500);

/// Sends the events of a command, until its end or until the caller is gone.
pub(crate) async fn send_events(
    mut events: Events,
    input: &mut (impl AsyncRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut byte = [0];
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Nothing follows the request: this is the end of the call.
            _ = input.read(&mut byte) => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        let is_error = |stream| stream == Stream::Error;
        let frame = match event {
            Event::Output { stream, offset, bytes } => Frame::Output { stream, offset, bytes },
            Event::Lost { stream, offset, length } => {
                message(&Reply::Lost { is_error: is_error(stream), offset, length })?
            }
            Event::RefusedCalls(names) => message(&Reply::RefusedCalls(names))?,
            Event::Ended(ending) => message(&Reply::Ended(ending))?,
        };
        write_frame(output, &frame).await?;
    }
}

/// Writes a content to the input of a command. Each piece that the command's side has taken is confirmed.
pub(crate) async fn receive_input(
    to: Input,
    input: &mut (impl AsyncRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    loop {
        let done = match read_frame(input).await? {
            Some(Frame::Data(bytes)) => write_whole(&to, bytes).await,
            Some(Frame::End) => to.close().await,
            None => {
                // What was accepted is done by a task of this process.
                tokio::time::sleep(LAST).await;
                return Ok(());
            }
            Some(_) => return Err(protocol()),
        };
        match done {
            Ok(()) => write_frame(output, &Frame::Accepted).await?,
            Err(error) => return write_frame(output, &message(&failed(error))?).await,
        }
    }
}

/// Writes a piece, and returns when all of it has been written: one piece waits while another one is written, so a
/// second empty one is accepted only after that.
async fn write_whole(to: &Input, bytes: Vec<u8>) -> Result<()> {
    to.write(bytes).await?;
    to.write(Vec::new()).await?;
    to.write(Vec::new()).await
}

fn failed(error: Error) -> Reply {
    Reply::Failed(error.into())
}

/// Relays between a connection inside and the caller, until both directions have ended.
pub(crate) async fn relay(
    connection: Box<dyn Connection>,
    input: &mut (impl AsyncRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(connection);
    let inwards = async {
        loop {
            match read_frame(input).await? {
                Some(Frame::Data(bytes)) => to.write_all(&bytes).await?,
                Some(Frame::End) => return to.shutdown().await,
                // The caller is gone, with both directions.
                None => return Err(io::ErrorKind::BrokenPipe.into()),
                Some(_) => return Err(protocol()),
            }
        }
    };
    let outwards = async {
        let mut piece = vec![0; PIECE];
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return write_frame(output, &Frame::End).await;
            }
            write_frame(output, &Frame::Data(piece[..read].to_vec())).await?;
        }
    };
    tokio::try_join!(inwards, outwards).map(drop)
}
