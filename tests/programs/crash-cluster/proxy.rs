//! The connection between the workers and their database, which can be cut off: a relay of TCP on the
//! loopback.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A relay to a port of this host. It ends with the process.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_cut: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A refused connection is closed without a response.
                let _ = accepting.relay(client, to);
            }
        });
        Ok(Self { port, shared })
    }

    /// Ends all connections and accepts no others, or accepts them again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::SeqCst);
        if is_cut {
            let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
            for stream in open.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Shared {
    fn relay(&self, client: TcpStream, to: u16) -> io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", to))?;
        for (from, into) in [(&client, &server), (&server, &client)] {
            let (mut from, mut into) = (from.try_clone()?, into.try_clone()?);
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut into);
                let _ = into.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
            });
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are not kept.
        open.retain(|stream| stream.peer_addr().is_ok());
        open.extend([client, server]);
        if self.is_cut.load(Ordering::SeqCst) {
            for stream in open.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }
}
