//! One sandbox as this room knows it: its policy, the names that it has asked for, and how much it
//! may have. Whoever is to be reached from inside is reached through here.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;
use stockade_core::SandboxId;
use stockade_core::address::{Class, classify};
use stockade_core::network::binding::InvalidBinding;
use stockade_core::network::{Host, Name, Policy, Refusal, Way};
use stockade_egress_control::{Credential, Event, Outcome};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::credentials::{self, Credentials};
use crate::intercept::Interception;
use crate::limits::Limits;
use crate::listeners::Listeners;
use crate::names::{Meaning, Names};
use crate::record::Record;
use crate::resolve::{NotFound, Resolve};
use crate::trust::Trust;
use crate::{arrival, dns, proxy};

/// The most addresses of a name that are looked at. One that has more is judged by these, and
/// connected to at these alone.
const MAX_ADDRESSES: usize = 16;

/// What a sandbox is made from.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which sandbox it is.
    pub id: SandboxId,
    /// Who may be reached from it.
    pub policy: Policy,
    /// How much it may have.
    pub limits: Limits,
    /// Finds the addresses of names.
    pub resolve: Arc<dyn Resolve>,
    /// Takes what is to be recorded.
    pub record: Arc<dyn Record>,
}

/// One sandbox.
#[derive(Debug)]
pub struct Sandbox {
    id: SandboxId,
    policy: watch::Sender<Arc<Policy>>,
    names: Mutex<Names>,
    resolve: Arc<dyn Resolve>,
    record: Arc<dyn Record>,
    limits: Limits,
    connections: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    credentials: RwLock<Option<(Arc<Credentials>, Trust)>>,
}

impl Sandbox {
    /// A sandbox of which nobody has asked for anything yet.
    pub fn new(options: Options) -> Arc<Self> {
        let Options { id, policy, limits, resolve, record } = options;
        Arc::new(Self {
            id,
            policy: watch::Sender::new(Arc::new(policy)),
            names: Mutex::new(Names::new(limits.names)),
            resolve,
            record,
            connections: Arc::new(Semaphore::new(limits.connections)),
            lookups: Arc::new(Semaphore::new(limits.lookups)),
            credentials: RwLock::new(None),
            limits,
        })
    }

    /// Lets another policy hold from now on. Connections that it would not allow end.
    ///
    /// # Errors
    /// [`InvalidBinding`] where a credential would be bound to a host that it does not name.
    pub fn set_policy(&self, policy: Policy) -> Result<(), InvalidBinding> {
        let credentials = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((credentials, _)) = credentials.as_ref() {
            credentials.check(&policy)?;
        }
        self.policy.send_replace(Arc::new(policy));
        Ok(())
    }

    /// Gives the sandbox these credentials in the place of all others. The certificate of the
    /// authority (PEM) that programs inside have to believe, for the hosts that they are bound to.
    ///
    /// # Errors
    /// Why they are not taken; nothing is changed then.
    pub fn set_credentials(
        &self,
        credentials: Vec<Credential>,
        trust: Trust,
    ) -> Result<String, credentials::Error> {
        let mut current = self.credentials.write().unwrap_or_else(PoisonError::into_inner);
        let credentials = match current.take() {
            // Programs inside believe the authority that they were given first.
            Some((old, old_trust)) => match old.with(credentials, &self.current_policy()) {
                Ok(new) => new,
                Err(error) => {
                    *current = Some((old, old_trust));
                    return Err(error);
                }
            },
            None => Credentials::new(credentials, &self.current_policy())?,
        };
        let pem = credentials.authority.pem();
        *current = Some((Arc::new(credentials), trust));
        Ok(pem)
    }

    /// How connections to a port of a host are looked into, where they are.
    pub(crate) fn interception(&self, host: &Host, port: u16) -> Option<Interception> {
        let Host::Name(name) = host else { return None };
        let credentials = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        let (credentials, trust) = credentials.as_ref()?;
        credentials.are_for(name, port).then(|| Interception {
            name: name.clone(),
            port,
            credentials: Arc::clone(credentials),
            trust: trust.clone(),
        })
    }

    /// Serves what arrives at the sandbox's listeners. Does not end; all connections end when it is
    /// dropped.
    pub fn serve(self: Arc<Self>, listeners: Listeners) -> impl Future<Output = ()> + Send {
        let Listeners { everything, proxy, datagrams, streams } = listeners;
        async move {
            tokio::join!(
                arrival::serve(&self, everything, TcpStream::local_addr),
                proxy::serve(&self, proxy),
                dns::serve_datagrams(&self, datagrams),
                dns::serve_streams(&self, streams),
            );
        }
    }

    /// How much it may have.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The policy that holds now, and word of the next ones.
    pub(crate) fn policy(&self) -> watch::Receiver<Arc<Policy>> {
        self.policy.subscribe()
    }

    fn current_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.borrow())
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        // Whoever panicked with it left whole entries.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among the connections.
    pub(crate) fn admit_connection(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let limit = self.limits.connections;
        let permit = Arc::clone(&self.connections).try_acquire_owned();
        permit.map_err(|_| Refusal::TooMany { what: "connections", limit })
    }

    /// A place among the questions for names.
    pub(crate) fn admit_lookup(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lookups).try_acquire_owned().ok()
    }

    /// Who is meant by an address: the name that it was given for, or itself.
    ///
    /// # Errors
    /// [`Refusal::AddressNotAllowed`] for one that was given for nothing.
    pub(crate) fn host(&self, address: IpAddr) -> Result<Host, Refusal> {
        let address = address.to_canonical();
        match self.names().meaning(address) {
            Meaning::Name(name) => Ok(Host::Name(name)),
            Meaning::Itself => Ok(Host::Address(address)),
            Meaning::Nothing => Err(Refusal::AddressNotAllowed { address }),
        }
    }

    /// Where a name leads, at one port or, without one, at some, if the policy lets it.
    pub(crate) async fn lookup(
        &self,
        name: &Name,
        port: Option<u16>,
    ) -> Result<Vec<IpAddr>, Refusal> {
        let policy = self.current_policy();
        match port {
            Some(port) => policy.check(&Host::Name(name.clone()), port)?,
            None => policy.check_lookup(name)?,
        }
        let pinned = self.names().pinned(name);
        if let Some(addresses) = pinned {
            policy.check_resolved(name, port, &addresses)?;
            return Ok(addresses);
        }
        let unresolved = |cause: NotFound| Refusal::Unresolved {
            name: name.clone(),
            certain: !matches!(cause, NotFound::Failed(_)),
            cause: cause.to_string(),
        };
        let found = timeout(self.limits.lookup, self.resolve.resolve(name)).await;
        let late = |_| NotFound::Failed("no name server answered in time".to_owned());
        let mut found = found.map_err(late).and_then(|found| found).map_err(unresolved)?;
        if found.addresses.is_empty() {
            return Err(unresolved(NotFound::NoAddress));
        }
        found.addresses.truncate(MAX_ADDRESSES);
        policy.check_resolved(name, port, &found.addresses)?;
        self.names().pin(name, found.addresses.clone(), found.valid)?;
        Ok(found.addresses)
    }

    /// A connection to a port of a host, if the policy lets it: to an address that was checked, and
    /// to no other.
    pub(crate) async fn reach(
        &self,
        host: &Host,
        port: u16,
    ) -> Result<(TcpStream, IpAddr), Refusal> {
        let addresses = match host {
            Host::Name(name) => self.lookup(name, Some(port)).await?,
            Host::Address(address) => {
                self.current_policy().check(host, port)?;
                vec![*address]
            }
        };
        for address in &addresses {
            self.check_own(host, *address, port).await?;
        }
        let mut cause = "it has no address".to_owned();
        for address in addresses {
            let connecting = TcpStream::connect(SocketAddr::new(address, port));
            match timeout(self.limits.connect, connecting).await {
                Ok(Ok(stream)) => {
                    // Delays what is small; where it fails, it does.
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, address));
                }
                Ok(Err(error)) => cause = error.to_string(),
                Err(_) => cause = "no answer in time".to_owned(),
            }
        }
        Err(Refusal::Unreachable { host: host.clone(), port, cause })
    }

    /// Refuses an address of this very machine, whatever its class: what listens there has not been
    /// made for everybody. Only a rule for that address allows it.
    async fn check_own(&self, host: &Host, address: IpAddr, port: u16) -> Result<(), Refusal> {
        if classify(address) == Class::Loopback
            || self.current_policy().allows_exactly(address, port)
            || !is_own(address).await
        {
            return Ok(());
        }
        Err(Refusal::InternalAddress { host: host.clone(), address, class: Class::Loopback })
    }

    /// Records what came of something.
    pub(crate) fn record(
        &self,
        way: Way,
        host: Option<&Host>,
        port: Option<u16>,
        outcome: impl Into<Outcome>,
    ) {
        self.record.record(Event {
            at: Timestamp::now(),
            sandbox_id: self.id.clone(),
            way,
            host: host.cloned(),
            port,
            outcome: outcome.into(),
            lost: 0,
        });
    }
}

/// Whether an address is one of this machine's: to such a one the kernel would connect from itself.
/// Nothing is sent for that.
async fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect((address, 1)).await?;
        socket.local_addr()
    };
    // Where there is no way to it, there will be none for a connection either.
    from.await.is_ok_and(|from| from.ip().to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_machines_own_addresses_are_known() {
        assert!(is_own("127.0.0.1".parse().unwrap()).await);
        assert!(!is_own("192.0.2.1".parse().unwrap()).await);
    }
}
