//! The cases of output channels and of the splitter.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod support;

use std::fmt::Debug;

use stockade_service::streams::{
    Channel, Chunk, Cursor, Decoder, Encoding, Error, Item, Piece, Size, channel, split,
};
use support::{drive, no_driver, same};

const CAPACITY: u64 = 1 << 20;

#[test]
fn streams() {
    drive("tests/cases/streams.rs::streams", "streams.json", |case| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            match case.name.as_str() {
                "late subscriber sees all from the start" => late().await,
                "close ends iterators" => close().await,
                "early break unsubscribes" => early().await,
                "error reaches readers" => error().await,
                "splitter" => splitter().await,
                "splitter without exit" => without_exit().await,
                "chunk never splits a code point when text" => code_points(),
                "order" => order().await,
                _ => no_driver(),
            }
        })
    });
}

async fn late() -> Result<(), String> {
    let (writer, channel) = channel(CAPACITY);
    for text in ["a", "b", "c"] {
        writer.send(Vec::from(text));
    }
    let mut reader = channel.subscribe(Cursor::default());
    for (sequence, text) in [(0, "a"), (1, "b"), (2, "c")] {
        same(Some(Ok(Item::Value { sequence, value: text.into() })), reader.next().await)?;
    }
    Ok(())
}

async fn close() -> Result<(), String> {
    let (writer, channel) = channel(CAPACITY);
    writer.send(b"a".to_vec());
    writer.close();
    same((vec![b"a".to_vec()], None), all(&channel).await)
}

async fn early() -> Result<(), String> {
    let (writer, channel) = channel(CAPACITY);
    let mut reader = channel.subscribe(Cursor::default());
    writer.send(b"a".to_vec());
    reader.next().await.unwrap().unwrap();
    same(1, channel.readers())?;
    drop(reader);
    same(0, channel.readers())
}

async fn error() -> Result<(), String> {
    let (writer, channel) = channel(CAPACITY);
    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { all(&channel).await }
    });
    tokio::task::yield_now().await;
    writer.send(b"a".to_vec());
    writer.fail(Error::Failed("broken".to_owned()));
    let expected = (vec![b"a".to_vec()], Some(Error::Failed("broken".to_owned())));
    same(&expected, &waiting.await.unwrap())?;
    same(&expected, &all(&channel).await)
}

async fn splitter() -> Result<(), String> {
    let (writer, source) = channel(CAPACITY);
    let split = split(&source, CAPACITY);
    for chunk in [
        Chunk::Stdout(b"a".to_vec()),
        Chunk::Stderr(b"b".to_vec()),
        Chunk::Stdout(b"c".to_vec()),
        Chunk::Exit(3),
    ] {
        writer.send(chunk);
    }
    same((vec![b"a".to_vec(), b"c".to_vec()], None), values(&split.stdout).await)?;
    same((vec![b"b".to_vec()], None), values(&split.stderr).await)?;
    same((vec![3], None), values(&split.exit).await)
}

async fn without_exit() -> Result<(), String> {
    let (writer, source) = channel(CAPACITY);
    let split = split(&source, CAPACITY);
    writer.send(Chunk::Stdout(b"a".to_vec()));
    writer.close();
    same((vec![b"a".to_vec()], Some(Error::NoExit)), values(&split.stdout).await)?;
    same((vec![], Some(Error::NoExit)), values(&split.stderr).await)?;
    same((vec![], Some(Error::NoExit)), values(&split.exit).await)
}

fn code_points() -> Result<(), String> {
    let mut text = Decoder::new(Encoding::Text);
    let parts = [text.push(b"a\xe2\x82"), text.push(b"\xac\xff"), text.finish()];
    same(["a", "\u{20ac}\u{fffd}", ""].map(str::to_owned), parts)?;
    let mut base64 = Decoder::new(Encoding::Base64);
    same("4oI=".to_owned(), base64.push(b"\xe2\x82"))
}

async fn order() -> Result<(), String> {
    let (writer, source) = channel(CAPACITY);
    let split = split(&source, CAPACITY);
    for number in 0..100_u8 {
        let chunk = if number % 3 == 0 { Chunk::Stderr } else { Chunk::Stdout };
        writer.send(chunk(vec![number]));
    }
    writer.send(Chunk::Exit(0));
    for (channel, is_error) in [(&split.stdout, false), (&split.stderr, true)] {
        let expected: Vec<_> = (0..100_u8).filter(|number| (number % 3 == 0) == is_error).collect();
        let pieces = all(channel).await.0;
        let numbers: Vec<_> = pieces.iter().map(|piece| piece.sequence).collect();
        same(expected.iter().map(|number| u64::from(*number)).collect(), numbers)?;
        same(expected, pieces.into_iter().flat_map(|piece| piece.value).collect())?;
    }
    Ok(())
}

/// All that is in a channel, and the error that it ends with.
async fn all<T: Size + Clone + Debug>(channel: &Channel<T>) -> (Vec<T>, Option<Error>) {
    let mut reader = channel.subscribe(Cursor::default());
    let mut values = Vec::new();
    loop {
        match reader.next().await {
            Some(Ok(Item::Value { value, .. })) => values.push(value),
            Some(Ok(Item::Truncated { bytes })) => panic!("{bytes} bytes are gone"),
            Some(Err(error)) => return (values, Some(error)),
            None => return (values, None),
        }
    }
}

async fn values<T: Clone + Debug>(channel: &Channel<Piece<T>>) -> (Vec<T>, Option<Error>)
where
    Piece<T>: Size,
{
    let (pieces, error) = all(channel).await;
    (pieces.into_iter().map(|piece| piece.value).collect(), error)
}
