//! Connections to ports and sockets inside: a call each.

use std::io;

use stockade_core::SandboxId;
use stockade_pod::{Frame, Request};
use stockade_runtime::{Connection, Result, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::client::Kubernetes;
use crate::session::Session;

/// How much may be under way in each direction.
const BUFFER: usize = 64 << 10;

/// Connects to a port or socket inside.
pub(crate) async fn connect(
    runtime: &Kubernetes,
    id: &SandboxId,
    target: &Target,
) -> Result<Box<dyn Connection>> {
    let request = match target {
        Target::Tcp(port) => Request::ConnectTcp { port: *port },
        Target::Unix(path) => Request::ConnectUnix { path: path.clone() },
    };
    let (_, session) = runtime.begin(id, &request, None).await?;
    let (here, there) = tokio::io::duplex(BUFFER);
    tokio::spawn(async move {
        // Its end is the end of the connection, which is all that can be told.
        let _ = relay(session, there).await;
    });
    Ok(Box::new(here))
}

async fn relay(session: Session, local: DuplexStream) -> io::Result<()> {
    let Session { mut sender, mut receiver } = session;
    let (mut from, mut to) = tokio::io::split(local);
    let inwards = async {
        let mut piece = vec![0; BUFFER / 2];
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return sender.send(&Frame::End).await;
            }
            sender.send(&Frame::Data(piece[..read].to_vec())).await?;
        }
    };
    let outwards = async {
        loop {
            match receiver.receive().await? {
                Some(Frame::Data(bytes)) => to.write_all(&bytes).await?,
                Some(Frame::End) => return to.shutdown().await,
                // Both directions have ended with it.
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    };
    tokio::try_join!(inwards, outwards).map(drop)
}
