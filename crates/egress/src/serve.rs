//! Serving the listeners of a sandbox.

use std::sync::Arc;

use tokio::net::TcpStream;

use crate::listeners::Listeners;
use crate::sandbox::Sandbox;
use crate::{accept, dns, proxy};

impl Sandbox {
    /// Serves the sandbox's listeners. Does not end; dropping it ends all connections.
    pub fn serve(self: Arc<Self>, listeners: Listeners) -> impl Future<Output = ()> + Send {
        let Listeners { everything, proxy, datagrams, streams } = listeners;
        async move {
            tokio::join!(
                accept::serve(&self, everything, TcpStream::local_addr),
                proxy::serve(&self, proxy),
                dns::serve_datagrams(&self, datagrams),
                dns::serve_streams(&self, streams),
            );
        }
    }
}
