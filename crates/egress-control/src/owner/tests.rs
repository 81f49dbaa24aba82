//! The owner with a process that this test program plays: what a restarted process is sent, and
//! what is reported of one that fails.

use std::os::fd::AsFd as _;
use std::sync::Mutex;

use stockade_core::network::binding::{Binding, CredentialSlot};
use stockade_core::network::{AllowedHost, Policy, Rule};
use stockade_core::{Code, Problem};

use super::*;
use crate::authorities::Authorities;
use crate::credential::Credential;
use crate::message::{Envelope, Installed, VERSION};
use crate::running::PATIENCE;
use crate::socket::{receive, send};

/// The argument by which this program plays the process.
const MARK: &str = "STOCKADE_TEST_EGRESS_CONTROL";

/// Plays the process, if this program was started as such. It refuses each listener and reports
/// what the sandbox was added with, so that the owner's side can check it, and behaves as the last
/// argument says.
#[test]
fn the_process() {
    let arguments: Vec<_> = std::env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == MARK) else { return };
    let silent = arguments[at + 1] == "silent";
    let socket = std::io::stdin();
    let mut known = String::new();
    while let Some((envelope, _)) = receive::<Envelope>(socket.as_fd()).unwrap() {
        let Envelope { version, number, request } = envelope;
        assert_eq!(version, VERSION);
        let mut installed = None;
        let mut problem = None;
        match request {
            Request::Add { policy, .. } => known = policy.rules().len().to_string(),
            Request::Credentials { credentials, .. } => {
                known = format!("{known} {}", credentials[0].value.as_ref().unwrap().as_str());
                let authorities = "the authority\n".to_owned();
                installed = Some(Installed { authorities, missing: Vec::new() });
            }
            Request::Listen { .. } => problem = Some(Problem::new(Code::Conflict, known.clone())),
            Request::Change { policy, .. } if policy.rules().is_empty() => return,
            _ => {}
        }
        if !silent {
            let response = Message::Response { number, problem, installed };
            send(socket.as_fd(), &response, &[]).unwrap();
        }
    }
}

fn program(mode: &str) -> Program {
    let arguments = ["owner::tests::the_process", "--exact", "--nocapture", MARK, mode];
    let path = std::env::current_exe().unwrap();
    Program { path, arguments: arguments.map(Into::into).into() }
}

/// A source that a test can change.
#[derive(Debug)]
struct Fixed {
    policy: Mutex<Option<Policy>>,
    secret: Mutex<Option<&'static str>>,
}

impl Fixed {
    fn new(hosts: &[&str]) -> Arc<Self> {
        Arc::new(Self { policy: Mutex::new(Some(policy(hosts))), secret: Mutex::new(None) })
    }

    fn set(&self, hosts: Option<&[&str]>) {
        *self.policy.lock().unwrap() = hosts.map(policy);
    }
}

impl Source for Fixed {
    fn sandboxes(&self) -> Vec<SandboxId> {
        self.policy.lock().unwrap().iter().map(|_| id()).collect()
    }

    fn policy(&self, _: &SandboxId) -> Option<Policy> {
        self.policy.lock().unwrap().clone()
    }

    fn credentials(&self, _: &SandboxId) -> Result<Vec<Credential>, Problem> {
        let binding = Binding {
            credential: "key".to_owned(),
            hosts: vec!["a.example".parse().unwrap()],
            ports: Vec::new(),
            place: CredentialSlot::Placeholder("placeholder-000001".to_owned()),
            requests: Default::default(),
            strict: false,
        };
        let secret = self.secret.lock().unwrap();
        let credential = |value: &&str| Credential::new(binding.clone(), (*value).to_owned());
        Ok(secret.iter().map(credential).collect())
    }
}

fn policy(hosts: &[&str]) -> Policy {
    let rule = |host: &&str| Rule::from(host.parse::<AllowedHost>().unwrap());
    Policy::new(stockade_core::access::Effect::Deny, hosts.iter().map(rule).collect()).unwrap()
}

fn id() -> SandboxId {
    SandboxId::new("a").unwrap()
}

/// The reports until every request has its outcome.
fn reports<T>(owner: &mut Owner<T>) -> Vec<Report<T>> {
    owner.wait();
    std::iter::from_fn(|| owner.next_report()).collect()
}

/// The policy and credentials of the sandbox that the process has received.
fn served(owner: &mut Owner<u8>) -> String {
    owner.serve(id(), Vec::new(), Values::default(), 1);
    match reports(owner).pop() {
        Some(Report::Answered { token: 1, outcome: Err(Error::Refused(problem)), .. }) => {
            problem.message
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_process_is_given_what_holds_then() {
    let source = Fixed::new(&["a.example"]);
    let mut owner = Owner::new(program("answers"), source.clone());
    assert_eq!(served(&mut owner), "1");
    owner.change_policy(id(), 2);
    let changed = reports(&mut owner);
    assert!(
        matches!(&changed[..], [Report::Answered { token: 2, outcome: Ok(None), .. }]),
        "{changed:?}"
    );

    // The process ends when it receives a policy without rules.
    source.set(Some(&[]));
    owner.change_policy(id(), 3);
    let ended = reports(&mut owner);
    let [Report::Ended(Error::Ended(_)), Report::Answered { token: 3, outcome, .. }] = &ended[..]
    else {
        panic!("{ended:?}")
    };
    let problem = outcome.as_ref().unwrap_err().problem();
    assert_eq!(problem.code, Code::Unreachable);
    assert!(owner.socket().is_none());
    owner.change_policy(id(), 4);
    let refused = reports(&mut owner);
    assert!(matches!(&refused[..], [Report::Answered { outcome: Err(Error::Ended(_)), .. }]));

    source.set(Some(&["a.example", "b.example"]));
    let has_authorities = Authorities::of_caller().file().is_ok();
    *source.secret.lock().unwrap() = has_authorities.then_some("value");
    owner.tick(owner.deadline().unwrap());
    assert!(matches!(owner.next_report(), Some(Report::Started)));
    let expected = if has_authorities { "2 value" } else { "2" };
    assert_eq!(served(&mut owner), expected);
    if has_authorities {
        owner.change_credentials(id(), 5);
        let received_reports = reports(&mut owner);
        let [Report::Answered { token: 5, outcome: Ok(Some(installed)), .. }] =
            &received_reports[..]
        else {
            panic!("{received_reports:?}")
        };
        let authorities = &installed.authorities;
        assert!(authorities.contains("-----BEGIN CERTIFICATE-----\n"));
        assert!(authorities.ends_with("\nthe authority\n"));
    }
}

#[test]
fn one_that_nobody_needs_is_not_started_again() {
    let source = Fixed::new(&["a.example"]);
    let mut owner = Owner::new(program("answers"), source.clone());
    assert_eq!(served(&mut owner), "1");
    source.set(Some(&[]));
    owner.change_policy(id(), 1);
    reports(&mut owner);
    source.set(None);
    owner.tick(owner.deadline().unwrap());
    assert!(owner.next_report().is_none() && owner.deadline().is_none());
    owner.serve(id(), Vec::new(), Values::default(), 2);
    let refused = reports(&mut owner);
    assert!(
        matches!(
            &refused[..],
            [Report::Started, Report::Answered { outcome: Err(Error::Withdrawn), .. }]
        ),
        "{refused:?}"
    );
}

#[test]
fn one_that_does_not_answer_is_ended() {
    let source = Fixed::new(&["a.example"]);
    let mut owner = Owner::new(program("silent"), source);
    owner.serve(id(), Vec::new(), Values::default(), 1);
    owner.flush().unwrap();
    assert!(matches!(owner.next_report(), Some(Report::Started)));
    owner.tick(Instant::now());
    assert!(owner.is_pending(&id()) && owner.next_report().is_none());
    owner.tick(Instant::now() + PATIENCE);
    // After the first failure it is restarted immediately.
    let reports: Vec<_> = std::iter::from_fn(|| owner.next_report()).collect();
    let [Report::Ended(reason), Report::Answered { token: 1, outcome, .. }, Report::Started] =
        &reports[..]
    else {
        panic!("{reports:?}")
    };
    assert_eq!(outcome.as_ref().unwrap_err(), reason);
    assert!(!owner.is_pending(&id()));
}

#[test]
fn what_cannot_be_sent_or_started_is_refused() {
    let long =
        format!("{}.example", ["a", "b", "c", "d"].map(|letter| letter.repeat(58)).join("."));
    let many = vec![long.as_str(); 512];
    let source = Fixed::new(&many);
    source.set(Some(&["a.example"]));
    let mut owner = Owner::new(program("answers"), source.clone());
    assert_eq!(served(&mut owner), "1");
    source.set(Some(&many));
    owner.change_policy(id(), 1);
    let refused = reports(&mut owner);
    assert!(
        matches!(&refused[..], [Report::Answered { outcome: Err(Error::TooLong), .. }]),
        "{refused:?}"
    );
    source.set(Some(&["a.example"]));
    assert_eq!(served(&mut owner), "1");

    let nowhere = Program { path: "/nowhere/at/all".into(), arguments: Vec::new() };
    let mut owner = Owner::new(nowhere, source);
    owner.add(id(), 1);
    let refused = reports(&mut owner);
    let [Report::Ended(_), Report::Answered { outcome: Err(error), .. }] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert!(matches!(error, Error::Start(_)), "{error:?}");
    assert_eq!(error.problem().code, Code::WallUnavailable);
    // Retried immediately, then after pauses.
    owner.tick(owner.deadline().unwrap());
    assert!(owner.deadline().unwrap() > Instant::now());
}

#[test]
fn what_it_writes_at_its_end_is_the_reason() {
    let script = "echo no memory >&2; exit 1";
    let arguments = ["-c", script].map(Into::into).into();
    let program = Program { path: "/bin/sh".into(), arguments };
    let mut owner = Owner::new(program, Fixed::new(&[]));
    owner.add(id(), 1);
    let refused = reports(&mut owner);
    let Some(Report::Answered { outcome: Err(Error::Ended(reason)), .. }) = refused.last() else {
        panic!("{refused:?}")
    };
    assert_eq!(reason, "no memory\n");
}
