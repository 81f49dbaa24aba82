//! A call: reads one request, lets the keeper do it, and writes the reply with what follows it.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Serialize;
use stockade_runtime::{
    Content, Error, Exec, PackedTree, Result, Runtime as _, Target, TreeProgress, Usage,
    WHOLE_INPUT_BYTES,
};
use stockade_runtime_native::{Native, Options};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use crate::events::{receive_input, relay, send_events};
use crate::first::{Ask, ask};
use crate::frame::{Frame, PIECE, message, protocol, read_frame, write_frame};
use crate::start::start;
use crate::wire::{Reply, Request, sandbox};
use crate::{ARGUMENT, AWAIT_KEEPER, DATA};

/// How many pieces of a content may wait.
const WAITING: usize = 4;

/// Runs a call at the standard streams; returns the exit code.
pub(crate) fn run() -> u8 {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(tokio) = tokio else { return 1 };
    let streams = rustix::io::dup(rustix::stdio::stdin())
        .and_then(|input| Ok((input, rustix::io::dup(rustix::stdio::stdout())?)));
    let Ok((input, output)) = streams else { return 1 };
    let stream = |descriptor: OwnedFd| tokio::fs::File::from_std(descriptor.into());
    let served = tokio.block_on(serve(Path::new(DATA), stream(input), stream(output)));
    // A thread may still read the standard input.
    tokio.shutdown_background();
    match served {
        Ok(()) => 0,
        Err(error) => {
            // The caller may be gone, and with it the reader of this.
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    }
}

async fn serve(
    data: &Path,
    mut input: impl AsyncRead + Unpin + Send,
    mut output: impl AsyncWrite + Unpin + Send,
) -> io::Result<()> {
    let Some(Frame::Message(request)) = read_frame(&mut input).await? else {
        return Err(protocol());
    };
    let request: Request = serde_json::from_slice(&request)?;
    let keeper = vec![std::env::current_exe()?.into(), ARGUMENT.into(), AWAIT_KEEPER.into()];
    let native = Native::open(Options { data: data.to_owned(), keeper, pool: 0 });
    let done = match native {
        Ok(native) => {
            let call = Call { native, data };
            let done = call.act(request, &mut input).await;
            match done {
                Ok(done) => Ok((call, done)),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    };
    let (_call, done) = match done {
        Ok(done) => done,
        Err(error) => {
            return write_frame(&mut output, &message(&Reply::Failed(error.into()))?).await;
        }
    };
    let (value, rest) = match done {
        Done::Value(value) => (value, None),
        Done::Followed(rest) => {
            // Whether a command takes input.
            let has_input = matches!(&rest, Rest::Events(exec) if exec.input.is_some());
            (has_input.into(), Some(rest))
        }
    };
    write_frame(&mut output, &message(&Reply::Done(value))?).await?;
    match rest {
        None => Ok(()),
        Some(Rest::Events(exec)) => {
            // Whoever holds the input keeps it open, and another call writes to it.
            drop(exec.input);
            send_events(exec.events, &mut input, &mut output).await
        }
        Some(Rest::Input(to)) => receive_input(to, &mut input, &mut output).await,
        Some(Rest::Content(content)) => send_content(content, None, &mut output).await,
        Some(Rest::Tree(PackedTree { content, progress })) => {
            send_content(content, Some(&progress), &mut output).await
        }
        Some(Rest::Connection(connection)) => relay(connection, &mut input, &mut output).await,
    }
}

/// What was done.
enum Done {
    Value(serde_json::Value),
    Followed(Rest),
}

/// What follows a reply.
enum Rest {
    Events(Exec),
    Input(stockade_runtime::Input),
    Content(Content),
    Tree(PackedTree),
    Connection(Box<dyn stockade_runtime::Connection>),
}

fn value(value: impl Serialize) -> Result<Done> {
    let value = serde_json::to_value(value);
    value.map(Done::Value).map_err(|error| Error::Invalid(error.to_string()))
}

struct Call<'a> {
    native: Native,
    data: &'a Path,
}

impl Call<'_> {
    async fn act(
        &self,
        request: Request,
        input: &mut (impl AsyncRead + Unpin + Send),
    ) -> Result<Done> {
        let (native, id) = (&self.native, &sandbox()?);
        match request {
            Request::Start { spec, isolation } => {
                value(start(native, self.data, *spec, *isolation).await?)
            }
            Request::Inspect => value(native.inspect(id).await?),
            Request::Usage => {
                let Usage { memory_bytes, cpu_time, processes, disk_bytes, reasons } =
                    native.usage(id).await?;
                value((memory_bytes, cpu_time, processes, disk_bytes, reasons))
            }
            Request::Execute { exec, command } => {
                let mut whole = Vec::new();
                if command.has_whole_input() {
                    let limit = WHOLE_INPUT_BYTES as u64 + 1;
                    let read = receive(input, async |content: Content| {
                        content.take(limit).read_to_end(&mut whole).await
                    });
                    read.await.map_err(lost)?.map_err(lost)?;
                }
                let command = command.into_command(whole)?;
                Ok(Done::Followed(Rest::Events(native.execute(id, &exec, &command).await?)))
            }
            Request::Attach { exec, from } => {
                Ok(Done::Followed(Rest::Events(native.attach(id, &exec, from).await?)))
            }
            Request::Input { exec } => {
                let to = native.attach(id, &exec, Default::default()).await?.input;
                let closed = || Error::Invalid("the command's input is closed".to_owned());
                Ok(Done::Followed(Rest::Input(to.ok_or_else(closed)?)))
            }
            Request::Signal { exec, signal } => value(native.signal(id, &exec, signal).await?),
            Request::Kill { exec } => value(native.kill(id, &exec).await?),
            Request::Resize { exec, size } => value(native.resize(id, &exec, size).await?),
            Request::Acknowledge { exec } => value(native.acknowledge(id, &exec).await?),
            Request::End => {
                native.end(id).await?;
                value(ask(self.data, Ask::Settle).await?)
            }
            Request::Renew { lease } => value(native.renew(id, lease).await?),
            Request::ChangeLimits { change } => value(native.change_limits(id, &change).await?),
            Request::ConnectTcp { port } => self.connect(Target::Tcp(port)).await,
            Request::ConnectUnix { path } => self.connect(Target::Unix(path)).await,
            files => self.act_on_files(files, input).await,
        }
    }

    async fn connect(&self, target: Target) -> Result<Done> {
        let connection = self.native.connect(&sandbox()?, &target).await?;
        Ok(Done::Followed(Rest::Connection(connection)))
    }

    async fn act_on_files(
        &self,
        request: Request,
        input: &mut (impl AsyncRead + Unpin + Send),
    ) -> Result<Done> {
        let (native, id) = (&self.native, &sandbox()?);
        match request {
            Request::Stat { path } => value(native.stat(id, &path).await?),
            Request::ReadDirectory { path } => value(native.read_directory(id, &path).await?),
            Request::ReadFile { path, range } => {
                Ok(Done::Followed(Rest::Content(native.read_file(id, &path, range).await?)))
            }
            Request::WriteFile { path, options } => {
                let write = async |content| native.write_file(id, &path, content, options).await;
                value(receive(input, write).await.map_err(lost)??)
            }
            Request::Unpack { to, mode } => {
                let unpack = async |content| native.unpack(id, &to, mode, content).await;
                value(receive(input, unpack).await.map_err(lost)??)
            }
            Request::Pack { from, mark } => {
                Ok(Done::Followed(Rest::Tree(native.pack(id, &from, mark).await?)))
            }
            Request::MakeDirectory { path, options } => {
                value(native.make_directory(id, &path, options).await?)
            }
            Request::SetAttributes { path, mode, owner } => {
                value(native.set_attributes(id, &path, mode, owner).await?)
            }
            Request::Rename { from, to } => value(native.rename(id, &from, &to).await?),
            Request::Remove { path } => value(native.remove(id, &path).await?),
            other => Err(Error::Invalid(format!("{} is no operation on files", other.verb()))),
        }
    }
}

fn lost(source: io::Error) -> Error {
    Error::Unreachable { what: "the caller".to_owned(), source }
}

/// Passes the content that follows a request to an operation. The content fails when the caller is lost, so
/// nothing incomplete is taken for the whole.
async fn receive<T>(
    input: &mut (impl AsyncRead + Unpin + Send),
    operation: impl AsyncFnOnce(Content) -> T,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let content = Box::pin(Pieces { receiver, piece: Vec::new(), used: 0, is_whole: false });
    let feed = async move {
        loop {
            let piece = match read_frame(input).await? {
                Some(Frame::Data(bytes)) => Some(bytes),
                Some(Frame::End) => None,
                Some(Frame::Broken) | None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => return Err(protocol()),
            };
            let is_end = piece.is_none();
            // An operation that has failed reads no more; the rest is read and dropped.
            let _ = sender.send(piece).await;
            if is_end {
                return Ok(());
            }
        }
    };
    let mut operation = std::pin::pin!(operation(content));
    tokio::select! {
        done = &mut operation => Ok(done),
        fed = feed => match fed {
            Ok(()) => Ok(operation.await),
            Err(error) => {
                // Its content fails now: it ends only after it has removed what it had written.
                operation.await;
                Err(error)
            }
        },
    }
}

/// A content from pieces.
struct Pieces {
    receiver: mpsc::Receiver<Option<Vec<u8>>>,
    piece: Vec<u8>,
    used: usize,
    is_whole: bool,
}

impl AsyncRead for Pieces {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.used == this.piece.len() && !this.is_whole {
            match std::task::ready!(this.receiver.poll_recv(context)) {
                Some(Some(piece)) => (this.piece, this.used) = (piece, 0),
                Some(None) => this.is_whole = true,
                None => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        let rest = &this.piece[this.used..];
        let taken = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..taken]);
        this.used += taken;
        Poll::Ready(Ok(()))
    }
}

async fn send_content(
    mut content: Content,
    progress: Option<&TreeProgress>,
    output: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut sent = (0, 0);
    loop {
        let read = content.read(&mut piece).await;
        let now = progress.map_or(sent, TreeProgress::read);
        if now != sent {
            sent = now;
            let (paths, bytes) = now;
            write_frame(output, &message(&Reply::Packed { paths, bytes })?).await?;
        }
        match read {
            Ok(0) => return write_frame(output, &Frame::End).await,
            Ok(read) => write_frame(output, &Frame::Data(piece[..read].to_vec())).await?,
            Err(error) => {
                let fault = Error::Exhausted(format!("the rest cannot be read: {error}")).into();
                return write_frame(output, &message(&Reply::Failed(fault))?).await;
            }
        }
    }
}
