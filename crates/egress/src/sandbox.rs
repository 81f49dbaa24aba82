//! The state of one sandbox: its policy, the names that it has looked up, and its limits. All
//! connections from inside are checked and made through it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use stockade_core::SandboxId;
use stockade_core::address::{Class, classify};
use stockade_core::network::binding::InvalidBinding;
use stockade_core::network::{Host, Name, Policy, Refusal, Transport, Upstream, is_host_loopback};
use stockade_egress_control::{Credential, Event, Installed, Outcome};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::credentials::{self, Credentials};
use crate::first_bytes::body::Body;
use crate::first_bytes::http::Head;
use crate::learning::{self, Learning};
use crate::limits::Limits;
use crate::meter::Meter;
use crate::name_table::{AddressUse, NameTable};
use crate::placeholders::Search;
use crate::record::Record;
use crate::resolve::{NotFound, Resolve};
use crate::trust::Trust;
use crate::upstream;

/// The most addresses of a name that are used. If there are more, only these are checked and
/// connected to.
const MAX_ADDRESSES: usize = 16;

/// How long the addresses of the host's loopback are kept; they never change.
const LOOPBACK_VALID: Duration = Duration::from_secs(60 * 60);

/// The options of a sandbox.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which sandbox it is.
    pub id: SandboxId,
    /// Its network policy.
    pub policy: Policy,
    /// Its limits.
    pub limits: Limits,
    /// Resolves names.
    pub resolve: Arc<dyn Resolve>,
    /// Receives events.
    pub record: Arc<dyn Record>,
}

/// The permit for one connection, while that is open.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One sandbox.
#[derive(Debug)]
pub struct Sandbox {
    id: SandboxId,
    policy: watch::Sender<Arc<Policy>>,
    meter: Arc<Meter>,
    names: Mutex<NameTable>,
    resolve: Arc<dyn Resolve>,
    record: Arc<dyn Record>,
    limits: Limits,
    connections: Arc<AtomicUsize>,
    connection_limit: AtomicUsize,
    lookups: Arc<Semaphore>,
    /// The proxy through which hosts are reached.
    upstream: OnceLock<Upstream>,
    learning: Learning,
    credentials: RwLock<Option<(Arc<Credentials>, Trust)>>,
}

impl Sandbox {
    /// A sandbox that has made no connection yet.
    pub fn new(options: Options) -> Arc<Self> {
        let Options { id, policy, limits, resolve, record } = options;
        let sandbox = Self {
            id,
            policy: watch::Sender::new(Arc::new(Policy::default())),
            meter: Arc::new(Meter::default()),
            names: Mutex::new(NameTable::new(limits.names)),
            resolve,
            record,
            connections: Arc::default(),
            connection_limit: AtomicUsize::new(limits.connections),
            lookups: Arc::new(Semaphore::new(limits.lookups)),
            upstream: OnceLock::new(),
            learning: Learning::default(),
            credentials: RwLock::new(None),
            limits,
        };
        sandbox.replace_policy(policy);
        Arc::new(sandbox)
    }

    /// Replaces the policy, and the limits with it.
    fn replace_policy(&self, policy: Policy) {
        let limits = policy.limits();
        // Connections that are open stay open.
        let connections = limits.connections.map_or(self.limits.connections, usize::from);
        self.connection_limit.store(connections, Ordering::Relaxed);
        self.meter.limit(limits);
        self.policy.send_replace(Arc::new(policy));
    }

    /// Replaces the policy. Connections that it does not allow end.
    ///
    /// # Errors
    /// [`InvalidBinding`] if a credential would be bound to a host that it does not name.
    pub fn set_policy(&self, policy: Policy) -> Result<(), InvalidBinding> {
        let credentials = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((credentials, _)) = credentials.as_ref() {
            credentials.check(&policy)?;
        }
        self.replace_policy(policy);
        Ok(())
    }

    /// Replaces the policy and all credentials of the sandbox. Returns the certificate of the
    /// authority (PEM) that programs inside have to trust, for the hosts that the credentials are
    /// bound to, and which credentials have no value.
    ///
    /// # Errors
    /// Why they are refused; nothing is changed then.
    pub fn set_credentials(
        &self,
        policy: Policy,
        credentials: Vec<Credential>,
        trust: Trust,
    ) -> Result<Installed, credentials::Error> {
        let mut current = self.credentials.write().unwrap_or_else(PoisonError::into_inner);
        let credentials = match current.as_ref() {
            // Programs inside trust the authority that they received first.
            Some((old, _)) => old.with(credentials, &policy)?,
            None => Credentials::new(credentials, &policy)?,
        };
        let authorities = credentials.authority.pem();
        let installed = Installed { authorities, missing: credentials.missing() };
        *current = Some((Arc::new(credentials), trust));
        self.replace_policy(policy);
        Ok(installed)
    }

    /// What connections to a port of a host are intercepted with, if they are.
    pub(crate) fn installed_for(
        &self,
        name: &Name,
        port: u16,
    ) -> Option<(Arc<Credentials>, Arc<Policy>, Trust)> {
        let credentials = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        let (credentials, trust) = credentials.as_ref()?;
        let policy = self.current_policy();
        let is_read = credentials.apply_to(name, port) || policy.reads_requests(name, port);
        is_read.then(|| (Arc::clone(credentials), policy, trust.clone()))
    }

    /// Whether requests to a port of a host are read, because a rule is about some of them.
    pub(crate) fn reads_requests(&self, host: &Host, port: u16) -> bool {
        matches!(host, Host::Name(name) if self.current_policy().reads_requests(name, port))
    }

    /// Checks a request of HTTP without TLS, which begins with these bytes.
    pub(crate) fn check_plain_request(
        &self,
        host: &Host,
        port: u16,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let what = "a rule is about requests to this host, and this is no request of HTTP/1";
        let Host::Name(name) = host else { return Ok(()) };
        let Ok(Some((head, _))) = Head::parse(bytes) else {
            return Err(Refusal::InvalidRequest { what });
        };
        check_request(&self.current_policy(), name, port, &head)
    }

    /// The search for placeholders in what is sent to a port of a host.
    pub(crate) fn search<'a>(
        &'a self,
        transport: Transport,
        host: &'a Host,
        port: u16,
    ) -> Search<'a> {
        let credentials = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        let credentials = credentials.as_ref().map(|(credentials, _)| credentials);
        let elsewhere = credentials.map(|credentials| credentials.elsewhere(host, port));
        Search::new(elsewhere.unwrap_or_default(), host.clone(), move |placeholder| {
            let outcome = Outcome::Misdirected {
                secret: placeholder.secret.clone(),
                blocked: placeholder.strict,
            };
            self.record(transport, Some(host), Some(port), outcome);
        })
    }

    /// Makes connections through a proxy from now on. A second proxy is ignored.
    pub(crate) fn use_upstream(&self, proxy: Upstream) {
        let _ = self.upstream.set(proxy);
    }

    /// The proxy through which a host is reached: there is none for hosts of the network that this machine
    /// is in, which the policy names as such. The proxy resolves names, so no address can be checked.
    pub(crate) fn upstream(&self, host: &Host, port: Option<u16>) -> Option<&Upstream> {
        let proxy = self.upstream.get()?;
        let is_near = match host {
            Host::Name(name) => {
                is_host_loopback(name) || self.current_policy().allows_internal(name, port)
            }
            Host::Address(address) => classify(*address) != Class::Public,
        };
        (!is_near).then_some(proxy)
    }

    /// The limits.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The current policy; the receiver is notified of later ones.
    pub(crate) fn policy(&self) -> watch::Receiver<Arc<Policy>> {
        self.policy.subscribe()
    }

    /// The policy of this moment.
    pub(crate) fn current_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.borrow())
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, NameTable> {
        // A panic cannot leave an incomplete entry.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one connection.
    pub(crate) fn admit_connection(&self) -> Result<Permit, Refusal> {
        if let Some(refusal) = self.meter.refusal() {
            return Err(refusal);
        }
        let limit = self.connection_limit.load(Ordering::Relaxed);
        let one_more = |open| (open < limit).then_some(open + 1);
        let counted = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        match counted {
            Ok(_) => Ok(Permit(Arc::clone(&self.connections))),
            Err(_) => Err(Refusal::TooMany { what: "connections", limit }),
        }
    }

    /// Whether a connection is open.
    pub(crate) fn has_connections(&self) -> bool {
        self.connections.load(Ordering::Acquire) > 0
    }

    /// What counts its traffic.
    pub(crate) const fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// A permit for one DNS query.
    pub(crate) fn admit_lookup(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lookups).try_acquire_owned().ok()
    }

    /// The host of an address: the name that it stands for, or the address itself.
    ///
    /// # Errors
    /// [`Refusal::AddressNotAllowed`] for an unassigned address of the range for names.
    pub(crate) fn host_for_address(&self, address: IpAddr) -> Result<Host, Refusal> {
        let address = address.to_canonical();
        match self.names().address_use(address) {
            AddressUse::Name(name) => Ok(Host::Name(name)),
            AddressUse::Literal => Ok(Host::Address(address)),
            AddressUse::Unassigned => Err(Refusal::AddressNotAllowed { address }),
        }
    }

    /// The addresses of a name, at one port or, without one, at any, if the policy allows them.
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
        if is_host_loopback(name) {
            let addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            policy.check_resolved(name, port, &addresses)?;
            self.names().pin(name, addresses.clone(), LOOPBACK_VALID)?;
            return Ok(addresses);
        }
        if self.upstream(&Host::Name(name.clone()), port).is_some() {
            // The proxy resolves it; programs connect to the address that stands for it.
            self.names().assign(name)?;
            return Ok(Vec::new());
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

    /// Connects to a port of a host, if the policy allows it: only to an address that was checked.
    pub(crate) async fn connect(
        &self,
        host: &Host,
        port: u16,
    ) -> Result<(TcpStream, IpAddr), Refusal> {
        if let Some(proxy) = self.upstream(host, Some(port)) {
            self.current_policy().check(host, port)?;
            let connecting = upstream::connect(proxy, &self.resolve, (host, port));
            let late = |_| "the upstream proxy did not answer in time".to_owned();
            let connected = timeout(self.limits.connect, connecting).await;
            return connected
                .map_err(late)
                .and_then(|connected| connected)
                .map_err(|cause| Refusal::Unreachable { host: host.clone(), port, cause });
        }
        let addresses = match host {
            Host::Name(name) => self.lookup(name, Some(port)).await?,
            Host::Address(address) => {
                self.current_policy().check(host, port)?;
                vec![*address]
            }
        };
        for address in &addresses {
            self.check_local_address(host, *address, port).await?;
        }
        let mut cause = "it has no address".to_owned();
        for address in addresses {
            let connecting = TcpStream::connect(SocketAddr::new(address, port));
            match timeout(self.limits.connect, connecting).await {
                Ok(Ok(stream)) => {
                    // If this fails, small packets are delayed.
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, address));
                }
                Ok(Err(error)) => cause = error.to_string(),
                Err(_) => cause = "no answer in time".to_owned(),
            }
        }
        Err(Refusal::Unreachable { host: host.clone(), port, cause })
    }

    /// Refuses an address of this machine, whatever its class: services that listen there may not
    /// be meant for everyone. Only a rule for exactly that address allows it.
    async fn check_local_address(
        &self,
        host: &Host,
        address: IpAddr,
        port: u16,
    ) -> Result<(), Refusal> {
        if classify(address) == Class::Loopback
            || self.current_policy().allows_exactly(address, port)
            || matches!(host, Host::Name(name) if self.current_policy().allows_internal(name, Some(port)))
            || !is_local_address(address).await
        {
            return Ok(());
        }
        let (host, class) = (host.clone(), Class::Loopback);
        Err(Refusal::InternalAddress { host, port: Some(port), address, class })
    }

    /// Reports the requests that are read from now on.
    pub(crate) fn report_requests(&self) {
        self.learning.start();
    }

    /// Reports a request to a host, before any credential is in it.
    pub(crate) fn report_request(
        &self,
        transport: Transport,
        (name, port): (&Name, u16),
        head: &Head,
    ) {
        if self.learning.is_on() {
            self.report(transport, (name, port), learning::of_request(head));
        }
    }

    /// Reports the first bytes of a connection that is relayed as it is. Rules about requests are for
    /// names only.
    pub(crate) fn report_first_bytes(
        &self,
        transport: Transport,
        (host, port): (&Host, u16),
        (bytes, body): (&[u8], &Body),
    ) {
        if let Host::Name(name) = host
            && self.learning.is_on()
            && let Some(outcome) = learning::of_first_bytes(bytes, body)
        {
            self.report(transport, (name, port), outcome);
        }
    }

    fn report(&self, transport: Transport, (name, port): (&Name, u16), outcome: Outcome) {
        if let Some(outcome) = self.learning.report(name, port, outcome) {
            self.record(transport, Some(&Host::Name(name.clone())), Some(port), outcome);
        }
    }

    /// Records an outcome.
    pub(crate) fn record(
        &self,
        transport: Transport,
        host: Option<&Host>,
        port: Option<u16>,
        outcome: impl Into<Outcome>,
    ) {
        self.record.record(Event {
            at: Timestamp::now(),
            sandbox_id: self.id.clone(),
            way: transport,
            host: host.cloned(),
            port,
            outcome: outcome.into(),
            lost: 0,
        });
    }
}

/// Checks a request of HTTP to a port of a host that may be connected to.
///
/// # Errors
/// Why it is refused; also if its headers say that another method or path is meant, and a rule is
/// about these.
pub(crate) fn check_request(
    policy: &Policy,
    name: &Name,
    port: u16,
    head: &Head,
) -> Result<(), Refusal> {
    policy.check_request(name, port, (&head.method, &head.target))?;
    if policy.reads_requests(name, port) && head.overrides_itself() {
        let what =
            "it names another method or path in a header or its query, and a rule is about these";
        return Err(Refusal::InvalidRequest { what });
    }
    Ok(())
}

/// Whether an address belongs to this machine: for such an address the kernel chooses the same
/// address as the source. No packet is sent for that.
async fn is_local_address(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect((address, 1)).await?;
        socket.local_addr()
    };
    // If there is no route to it, connecting will fail, too.
    from.await.is_ok_and(|from| from.ip().to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use stockade_core::network::TrafficLimits;

    use super::*;

    #[tokio::test]
    async fn the_machines_own_addresses_are_known() {
        assert!(is_local_address("127.0.0.1".parse().unwrap()).await);
        assert!(!is_local_address("192.0.2.1".parse().unwrap()).await);
    }

    #[derive(Debug)]
    struct Fixed(Vec<IpAddr>);

    #[async_trait::async_trait]
    impl Resolve for Fixed {
        async fn resolve(&self, _: &Name) -> Result<crate::resolve::Resolution, NotFound> {
            let valid = std::time::Duration::from_secs(60);
            Ok(crate::resolve::Resolution { addresses: self.0.clone(), valid })
        }
    }

    fn sandbox(rules: serde_json::Value, address: &str) -> Arc<Sandbox> {
        let policy = serde_json::json!({ "default": "deny", "rules": rules });
        Sandbox::new(Options {
            id: SandboxId::new("a").unwrap(),
            policy: serde_json::from_value(policy).unwrap(),
            limits: Limits::default(),
            resolve: Arc::new(Fixed(vec![address.parse().unwrap()])),
            record: Arc::new(crate::record::Queue::new(16).0),
        })
    }

    #[tokio::test]
    async fn an_internal_name_is_resolved_and_pinned() {
        let rule = |internal| serde_json::json!([{ "action": "allow", "target": "mirror.example", "internal": internal }]);
        let name = Name::parse("mirror.example").unwrap();
        let address: IpAddr = "10.0.0.5".parse().unwrap();
        let internal = sandbox(rule(true), "10.0.0.5");
        assert_eq!(internal.lookup(&name, Some(443)).await, Ok(vec![address]));
        assert_eq!(internal.names().pinned(&name), Some(vec![address]));
        for (internal, address) in
            [(false, "10.0.0.5"), (true, "169.254.169.254"), (true, "127.0.0.1")]
        {
            let refused = sandbox(rule(internal), address).lookup(&name, Some(443)).await;
            assert!(matches!(refused, Err(Refusal::InternalAddress { .. })), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn the_loopback_of_the_host_is_not_resolved() {
        let rules = serde_json::json!([
            { "action": "allow", "target": "host.stockade.internal", "ports": [9801] },
        ]);
        let own = sandbox(rules, "93.184.216.34");
        let name = Name::parse("host.stockade.internal").unwrap();
        let found = own.lookup(&name, Some(9801)).await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && found.len() == 2, "{found:?}");
        assert!(own.lookup(&name, Some(9802)).await.is_err());
    }

    #[tokio::test]
    async fn the_number_of_connections_can_be_changed() {
        let own = sandbox(serde_json::json!([]), "93.184.216.34");
        let limit = |connections| {
            let limits =
                TrafficLimits { connections: Some(connections), ..TrafficLimits::default() };
            own.set_policy(Policy::default().with_limits(limits).unwrap()).unwrap();
        };
        limit(2);
        let mut held = vec![own.admit_connection().unwrap(), own.admit_connection().unwrap()];
        assert!(matches!(own.admit_connection(), Err(Refusal::TooMany { limit: 2, .. })));
        limit(3);
        held.push(own.admit_connection().unwrap());
        // What is open stays open, and counts.
        limit(1);
        held.pop();
        held.pop();
        assert!(matches!(own.admit_connection(), Err(Refusal::TooMany { limit: 1, .. })));
        held.pop();
        assert!(own.admit_connection().is_ok());
    }
}
