//! The socket of an agent: a thread that accepts, and one for each connection. All end with the agent.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::error::Error;
use crate::policy::Policy;
use crate::record::{Decision, Record, Records};
use crate::session::{Session, Shared};
use crate::signer::Signer;
use crate::wire;

/// How many connections there may be at a time.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may be quiet.
const IDLE: Duration = Duration::from_secs(600);
/// How long the rest of a message, or the reading of an answer, may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An agent that serves its socket. It ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    /// Becomes readable, and stays so, when the agent ends.
    stop: Arc<OwnedFd>,
    accepting: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves a socket. Each key of the policy must be there.
    ///
    /// # Errors
    /// An invalid policy, a key that is missing, or that there is no thread.
    pub fn start(
        listener: UnixListener,
        policy: &Policy,
        signer: Box<dyn Signer>,
        records: Records,
    ) -> Result<Self, Error> {
        policy.check_keys(&*signer)?;
        let policy = policy.checked()?;
        let shared = Arc::new(Shared { policy, signer, records });
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|errno| Error::Socket(errno.into()))?);
        let (own, stopped) = (Arc::clone(&shared), Arc::clone(&stop));
        let accepting = std::thread::Builder::new()
            .name("ssh-agent".to_owned())
            .spawn(move || accept(&listener, &own, &stopped))
            .map_err(Error::Socket)?;
        Ok(Self { shared, stop, accepting: Some(accepting) })
    }

    /// What was signed and refused.
    pub fn records(&self) -> &Records {
        &self.shared.records
    }

    /// Makes the agent end without waiting for it: from now on no answer leaves it.
    pub fn stop(&self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }

    /// Ends the agent: nothing is signed afterwards.
    pub fn end(&mut self) {
        self.stop();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until a descriptor is readable; false if the agent ends, or time is over.
fn is_readable(of: &impl std::os::fd::AsFd, stop: &OwnedFd, time: Option<Duration>) -> bool {
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    loop {
        let mut all = [PollFd::new(of, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut all, time.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return all[1].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether the agent has ended.
fn has_ended(stop: &OwnedFd) -> bool {
    let mut stop = [PollFd::new(stop, PollFlags::IN)];
    poll(&mut stop, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, stop: &Arc<OwnedFd>) {
    let count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        while is_readable(&listener.as_fd(), stop, None) {
            let Ok((stream, _)) = listener.accept() else { continue };
            if count.load(Ordering::Acquire) >= MAX_CONNECTIONS {
                let decision = Decision::Refused("there are too many connections");
                let request = "connect".to_owned();
                shared.records.add(Record { request, key: None, decision });
                continue;
            }
            count.fetch_add(1, Ordering::AcqRel);
            let session = Session::new(Arc::clone(shared));
            let count = &count;
            let serving = std::thread::Builder::new().name("ssh-agent".to_owned());
            let started = serving.spawn_scoped(scope, move || {
                // The other end decides how a connection ends.
                let _ = serve(stream, session, stop);
                count.fetch_sub(1, Ordering::AcqRel);
            });
            if started.is_err() {
                count.fetch_sub(1, Ordering::AcqRel);
            }
        }
    });
}

fn serve(mut stream: UnixStream, mut session: Session, stop: &OwnedFd) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    while is_readable(&stream.as_fd(), stop, Some(IDLE)) {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > wire::MAX_BYTES {
            return Ok(());
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message)?;
        let answer = session.answer(&message);
        // The signer may have waited for its user, and the agent may have ended meanwhile.
        if has_ended(stop) {
            return Ok(());
        }
        stream.write_all(&wire::framed(&answer))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::policy::Allowed;
    use crate::signer::SignError;

    #[derive(Debug, Default)]
    struct None(Mutex<u32>);

    impl Signer for None {
        fn keys(&self) -> Result<Vec<Vec<u8>>, SignError> {
            *self.0.lock().unwrap() += 1;
            Ok(Vec::new())
        }

        fn sign(&self, _: &[u8], _: &[u8], _: u32) -> Result<Vec<u8>, SignError> {
            Err(SignError("no".to_owned()))
        }
    }

    #[test]
    fn an_agent_answers_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let mut running = Running::start(
            listener,
            &Policy::default(),
            Box::new(None::default()),
            Records::default(),
        )
        .unwrap();
        let mut first = UnixStream::connect(&path).unwrap();
        let mut ask = |message: &[u8]| {
            first.write_all(&wire::framed(message)).unwrap();
            let mut answer = [0; 9];
            first.read_exact(&mut answer[..5]).unwrap();
            answer[4]
        };
        assert_eq!(ask(&[22]), wire::FAILURE);
        // A length that is too large ends the connection, and no other one.
        let mut large = UnixStream::connect(&path).unwrap();
        large.write_all(&[0xff; 4]).unwrap();
        assert_eq!(large.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(ask(&[19]), wire::FAILURE);
        let mut many: Vec<_> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
        // The last one is closed when the agent has seen them all.
        assert_eq!(many.last_mut().unwrap().read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(ask(&[18]), wire::FAILURE);
        drop(many);
        running.end();
        assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
        let (records, _) = running.records().take();
        assert!(records.iter().any(|record| record.request == "lock"));
        assert!(records.iter().any(|record| record.request == "connect"));
    }

    #[test]
    fn a_key_that_is_missing_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("agent")).unwrap();
        let allowed = Allowed {
            key: "SHA256:Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE".to_owned(),
            namespaces: vec!["git".to_owned()],
            ..Allowed::default()
        };
        let policy = Policy { allow: vec![allowed], ..Policy::default() };
        let refused =
            Running::start(listener, &policy, Box::new(None::default()), Records::default());
        assert!(matches!(refused, Err(Error::NoKey(_))));
    }
}
