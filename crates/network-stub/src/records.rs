//! How the process reports what was wanted: one message for each new host, over the socket that it
//! was started with. The receiver trusts none of it, because the sender parses untrusted bytes.

use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};
use stockade_core::network::{MAX_WANTED, WantedHost, WantedHosts};

/// The longest message: a host name has at most 253 bytes.
const MESSAGE_BYTES: usize = 512;
/// The most messages that are read.
const MAX_MESSAGES: usize = MAX_WANTED + 1;

/// A message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Message {
    /// A host that is listed.
    Wanted(WantedHost),
    /// The number of requests that are not listed, sent when it first is not zero.
    Unlisted,
}

/// What was wanted so far, and the socket to report it to.
#[derive(Debug)]
pub struct Records<S> {
    socket: S,
    hosts: WantedHosts,
}

impl<S: AsFd> Records<S> {
    /// Nothing yet.
    pub fn new(socket: S) -> Self {
        Self { socket, hosts: WantedHosts::default() }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Records a host, and reports it if it is new.
    pub(crate) fn add(&mut self, wanted: WantedHost) {
        let was_complete = self.hosts.unlisted() == 0;
        if self.hosts.add(wanted.clone()) {
            self.report(&Message::Wanted(wanted));
        } else if was_complete && self.hosts.unlisted() > 0 {
            self.report(&Message::Unlisted);
        }
    }

    /// A message that cannot be sent is lost: no request waits for the receiver.
    fn report(&self, message: &Message) {
        let Ok(bytes) = serde_json::to_vec(message) else { return };
        let _ = send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// Reads all reports that have arrived, and does not wait. Each host is checked again.
pub fn receive(socket: impl AsFd) -> WantedHosts {
    let mut hosts = WantedHosts::default();
    let mut bytes = [0; MESSAGE_BYTES];
    for _ in 0..MAX_MESSAGES {
        let Ok((length, _)) = recv(&socket, &mut bytes, RecvFlags::DONTWAIT) else { break };
        if length == 0 {
            break;
        }
        match serde_json::from_slice(bytes.get(..length).unwrap_or_default()) {
            Ok(Message::Wanted(WantedHost { host, port })) => {
                if let Some(wanted) = WantedHost::new(host, port.filter(|port| *port > 0)) {
                    hosts.add(wanted);
                }
            }
            Ok(Message::Unlisted) => hosts.add_unlisted(1),
            Err(_) => break,
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use stockade_core::network::Host;

    use super::*;

    #[test]
    fn what_was_reported_is_received_and_checked() {
        let pair = || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let (ours, theirs) = pair();
        let mut records = Records::new(theirs);
        for number in 0..100 {
            let host = Host::parse(&format!("n{number}.example.com")).unwrap();
            records.add(WantedHost::new(host, None).unwrap());
        }
        let received = receive(&ours);
        assert_eq!((received.listed().count(), received.unlisted()), (MAX_WANTED, 1));
        // A sender that was taken over can only repeat what it could have reported.
        let (ours, theirs) = pair();
        for text in [
            r#"{"wanted":{"host":"127.0.0.1","port":22}}"#,
            r#"{"wanted":{"host":"a.example.com","port":0}}"#,
            r#"{"wanted":{"host":"a.example.com\u001b[2J","port":1}}"#,
            r#"{"wanted":{"host":"b.example.com","port":1}}"#,
        ] {
            send(&theirs, text.as_bytes(), SendFlags::empty()).unwrap();
        }
        let received: Vec<_> = receive(&ours).listed().filter_map(WantedHost::allow).collect();
        assert_eq!(received, ["--allow a.example.com"]);
    }
}
