//! The life cycle of one sandbox, with a client that uses the socket.

use std::collections::BTreeMap;
use std::io::Cursor;

use stockade_api::{
    ById, CommandLine, CreateSandbox, Ending, Execute, FileContent, GetSandbox, Network,
    OutputChunk, ReadFile, ReadOutput, Renew, Restore, Sandboxes as _, TakeSnapshot, WriteFile,
};
use stockade_core::{Code, SandboxId, SnapshotId, State};
use tokio::io::AsyncReadExt as _;

use crate::Failure;
use crate::ledger::{Token, compare};
use crate::random::Random;
use crate::world::{ProblemError, World, is_unanswered, unanswered};

/// The file to which commands add their lines.
pub(crate) const LINES: &str = "/tmp/lines";

/// A sandbox, and what ran in it.
#[derive(Debug)]
pub(crate) struct SocketClient<'a> {
    world: &'a World,
    pub(crate) id: SandboxId,
    /// The other sandboxes that were created from it.
    pub(crate) others: Vec<SandboxId>,
    pub(crate) tokens: Vec<Token>,
    /// Whether it has a network.
    has_network: bool,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

impl<'a> SocketClient<'a> {
    /// A turn that has created nothing yet.
    pub(crate) fn new(world: &'a World, client: &str) -> Result<Self, Failure> {
        let id = SandboxId::new(world.unique_name(client))?;
        Ok(Self { world, id, others: Vec::new(), tokens: Vec::new(), has_network: false })
    }

    /// Creates the sandbox and works with it.
    pub(crate) async fn work(&mut self, random: &mut Random) -> Result<(), Failure> {
        self.has_network = random.below(2) == 0;
        self.create().await.map_err(|fault| format!("create: {fault}"))?;
        for _ in 0..2 + random.below(5) {
            let (act, done) = match random.below(13) {
                12 => ("reach", self.connect().await),
                0 => ("pause", self.pause().await),
                1 => ("stop and start", self.stop_and_start().await),
                2 => ("renew", self.renew().await),
                3 => ("snapshot", self.snapshot().await),
                4 | 5 => ("write", self.write(random).await),
                6 | 7 => ("stream", self.stream(random).await),
                8 => ("read input", self.read_input(random).await),
                _ => ("execute", self.execute(random).await),
            };
            done.map_err(|fault| format!("{act}: {fault}"))?;
        }
        self.check().await
    }

    async fn create(&mut self) -> Result<(), Failure> {
        let labels = BTreeMap::from([("turn".to_owned(), self.id.to_string())]);
        let allow = vec![self.world.echo_server.to_string().parse()?];
        let network = self.has_network.then(|| Network { allow, ..Network::default() });
        let id = Some(self.id.clone());
        let mut request = CreateSandbox { id, metadata: labels, network, ..Default::default() };
        let server = &self.world.server;
        let make = async |request: &CreateSandbox| {
            self.world.call(async |me| server.create(me, request.clone()).await).await
        };
        let made = match make(&request).await {
            Err(ProblemError(problem)) if problem.code == Code::Unsupported && self.has_network => {
                println!("SKIPPED: a network by policy: {}", ProblemError(problem));
                (self.has_network, request.network) = (false, None);
                make(&request).await?
            }
            made => made?,
        };
        self.world.update_ledger(|ledger| ledger.sandboxes += 1);
        if made.id != self.id || made.state != State::Running {
            return Err(format!("it was made otherwise: {made:?}").into());
        }
        Ok(())
    }

    /// A command that writes a line before it does anything else.
    fn command(&self, rest: &str) -> (String, Execute) {
        let token = self.world.unique_name("token");
        let line = format!("echo {token} >>{LINES}; echo {token}; {rest} exit 7");
        (token, Execute::new(self.id.clone(), CommandLine::Shell(line)))
    }

    async fn execute(&mut self, random: &mut Random) -> Result<(), Failure> {
        let (token, request) = self.command(if random.below(2) == 0 { "sleep 0.1;" } else { "" });
        let server = &self.world.server;
        let done = self.world.call(async |me| server.execute(me, request.clone()).await).await?;
        if (done.end.ending, done.end.exit_code) != (Ending::Exited, Some(7))
            || done.stdout.lossy() != format!("{token}\n")
        {
            return Err(format!("{token} ended as {done:?}").into());
        }
        self.record_token(token);
        Ok(())
    }

    fn record_token(&mut self, text: String) {
        self.world.update_ledger(|ledger| ledger.commands += 1);
        self.tokens.push(Token { text, answered: true });
    }

    /// A command that connects to the allowed host, and to no other, however often the egress
    /// process is killed.
    async fn connect(&mut self) -> Result<(), Failure> {
        if !self.has_network {
            return Ok(());
        }
        let script = format!(
            "bash -c 'ask() {{ for n in $(seq 400); do \
               heard=$(exec 3<>/dev/tcp/127.0.0.1/1023 && printf \"CONNECT $1 HTTP/1.1\\r\\n\\r\\n\" >&3 && head -c 12 <&3); \
               [ -n \"$heard\" ] && break; sleep 0.05; done; echo $heard; }}; \
             ask {}; ask nobody.example:443';",
            self.world.echo_server
        );
        let (token, request) = self.command(&script);
        let server = &self.world.server;
        let done = self.world.call(async |me| server.execute(me, request.clone()).await).await?;
        if done.stdout.lossy() != format!("{token}\nHTTP/1.1 200\nHTTP/1.1 403\n") {
            return Err(format!("{token} reached as {done:?}").into());
        }
        self.world.update_ledger(|ledger| ledger.reached += 1);
        self.record_token(token);
        Ok(())
    }

    /// A command that reads input, which is not recorded: if the server ended before the command
    /// was started, it must report that, and not run the command. If it was started, it reads all
    /// of the input.
    async fn read_input(&mut self, random: &mut Random) -> Result<(), Failure> {
        loop {
            let (token, mut request) = self.command("cat;");
            let text = "x".repeat(usize::try_from(random.below(100_000))?);
            request.stdin = Some(text.clone().into());
            let server = &self.world.server;
            match self.world.call(async |me| server.execute(me, request.clone()).await).await {
                Ok(done) if done.end.exit_code == Some(7) => {
                    let whole = format!("{token}\n{text}");
                    if done.stdout.0 != whole.as_bytes() {
                        let (read, all) = (done.stdout.0.len(), whole.len());
                        return Err(format!("{token} read {read} bytes of {all}").into());
                    }
                    self.record_token(token);
                    return Ok(());
                }
                Err(ProblemError(problem)) if problem.code == Code::Cancelled => {}
                other => return Err(format!("{token} ended as {other:?}").into()),
            }
        }
    }

    /// A command whose output is read while it is written, across servers.
    async fn stream(&mut self, random: &mut Random) -> Result<(), Failure> {
        let lines = 1 + random.below(100);
        let loop_ = format!(
            "i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); \
             [ $((i % 25)) = 0 ] && sleep 0.05; done;"
        );
        let (token, request) = self.command(&loop_);
        let server = &self.world.server;
        let ask = self.world.call(async |me| server.execute_stream(me, request.clone()).await);
        let workflow_id = ask.await?.workflow_id;
        let (mut from, mut seen, mut end) = (0, Vec::new(), None);
        loop {
            let request = ReadOutput {
                workflow_id: workflow_id.clone(),
                from,
                follow: true,
                from_sandbox: false,
            };
            let ask = self.world.call(async |me| server.read_output(me, request.clone()).await);
            let mut items = ask.await?;
            let broken = loop {
                match items.next().await {
                    Some(Ok(item)) => {
                        if item.sequence != from || end.is_some() {
                            let at = item.sequence;
                            return Err(format!("{token}: item {at} instead of {from}").into());
                        }
                        from += 1;
                        match item.chunk {
                            OutputChunk::Stdout { data } => seen.extend(data.0),
                            OutputChunk::Exit(exit) => end = Some(exit),
                            other => return Err(format!("{token} wrote {other:?}").into()),
                        }
                    }
                    Some(Err(problem)) if is_unanswered(&problem) => break true,
                    Some(Err(problem)) => return Err(ProblemError(problem).into()),
                    None => break false,
                }
            };
            if !broken {
                break;
            }
        }
        let mut whole = format!("{token}\n");
        whole.extend((0..lines).map(|line| format!("line {line}\n")));
        if end.as_ref().is_none_or(|end| end.exit_code != Some(7)) || seen != whole.as_bytes() {
            let text = String::from_utf8_lossy(&seen);
            return Err(format!("{token} of {lines} lines ended as {end:?}: {text:?}").into());
        }
        self.record_token(token);
        Ok(())
    }

    async fn write(&self, random: &mut Random) -> Result<(), Failure> {
        let path = format!("/tmp/file-{}", random.below(3));
        let byte = u8::try_from(random.below(256))?;
        let bytes = vec![byte; usize::try_from(random.below(300_000))?];
        let request = WriteFile {
            sandbox_id: self.id.clone(),
            path: path.clone().into(),
            mode: None,
            uid: None,
            gid: None,
        };
        let server = &self.world.server;
        loop {
            let ask = self.world.call(async |me| {
                let content = FileContent(Box::pin(Cursor::new(bytes.clone())));
                server.write_file(me, request.clone(), content).await
            });
            match ask.await {
                Ok(written) if written.size_bytes == bytes.len() as u64 => break,
                // Its content was lost with a server.
                Err(ProblemError(problem)) if problem.code == Code::Cancelled => {}
                other => return Err(format!("{path} was written as {other:?}").into()),
            }
        }
        if self.read(&self.id, &path).await? == bytes {
            Ok(())
        } else {
            Err(format!("{path} was written and is something else").into())
        }
    }

    async fn read(&self, id: &SandboxId, path: &str) -> Result<Vec<u8>, Failure> {
        let request =
            ReadFile { sandbox_id: id.clone(), path: path.into(), offset: 0, length: None };
        let server = &self.world.server;
        let ask = self.world.call(async |me| {
            let mut content = server.read_file(me, request.clone()).await?;
            let mut bytes = Vec::new();
            content.0.read_to_end(&mut bytes).await.map_err(unanswered)?;
            Ok(bytes)
        });
        Ok(ask.await?)
    }

    async fn pause(&self) -> Result<(), Failure> {
        let (server, by_id) = (&self.world.server, ById { id: self.id.clone() });
        let paused = self.world.call(async |me| server.pause(me, by_id.clone()).await).await?;
        let resumed = self.world.call(async |me| server.resume(me, by_id.clone()).await).await?;
        match (paused.state, resumed.state) {
            (State::Paused, State::Running) => Ok(()),
            states => Err(format!("paused and resumed, it is {states:?}").into()),
        }
    }

    async fn stop_and_start(&self) -> Result<(), Failure> {
        let (server, by_id) = (&self.world.server, ById { id: self.id.clone() });
        let stopped = self.world.call(async |me| server.stop(me, by_id.clone()).await).await?;
        let started = self.world.call(async |me| server.start(me, by_id.clone()).await).await?;
        match (stopped.state, started.state) {
            (State::Stopped, State::Running) => self.check().await,
            states => Err(format!("stopped and started, it is {states:?}").into()),
        }
    }

    async fn renew(&self) -> Result<(), Failure> {
        let request = Renew { id: self.id.clone(), ttl_seconds: Some(7200.0), shorten: false };
        let server = &self.world.server;
        self.world.call(async |me| server.renew(me, request.clone()).await).await?;
        Ok(())
    }

    /// A sandbox created from a snapshot contains the files of this one.
    async fn snapshot(&mut self) -> Result<(), Failure> {
        let server = &self.world.server;
        let request = TakeSnapshot {
            sandbox_id: self.id.clone(),
            id: Some(SnapshotId::new(self.world.unique_name("kept"))?),
            name: None,
        };
        let kept = self.world.call(async |me| server.snapshot(me, request.clone()).await).await?;
        let id = SandboxId::new(self.world.unique_name(self.id.as_str()))?;
        self.others.push(id.clone());
        let request = Restore {
            snapshot_id: kept.id.clone(),
            sandbox: CreateSandbox { id: Some(id.clone()), ..Default::default() },
        };
        self.world.call(async |me| server.restore(me, request.clone()).await).await?;
        self.world.update_ledger(|ledger| ledger.sandboxes += 1);
        self.check_in(&id).await?;
        self.kill(&id).await?;
        let ask = self.world.call(async |me| server.remove_snapshot(me, kept.id.clone()).await);
        ask.await?;
        Ok(())
    }

    /// Every requested command ran once.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        self.check_in(&self.id).await
    }

    async fn check_in(&self, id: &SandboxId) -> Result<(), Failure> {
        if self.tokens.is_empty() {
            return Ok(());
        }
        let written = self.read(id, LINES).await?;
        compare(&String::from_utf8_lossy(&written), &self.tokens).map_err(Failure::from)
    }

    /// Ends a sandbox.
    pub(crate) async fn kill(&self, id: &SandboxId) -> Result<(), Failure> {
        let (server, by_id) = (&self.world.server, ById { id: id.clone() });
        let killed =
            self.world.call(async |me| server.kill(me, by_id.clone().into()).await).await?;
        if killed.state != State::Terminated {
            return Err(format!("{id} was killed and is {}", killed.state).into());
        }
        Ok(())
    }

    /// The state of a sandbox, and its reason.
    pub(crate) async fn status(&self) -> Result<(State, Option<String>), Failure> {
        let request = GetSandbox { id: self.id.clone(), metrics: false };
        let server = &self.world.server;
        let found =
            self.world.call(async |me| server.get_status(me, request.clone()).await).await?;
        Ok((found.state, found.reason))
    }

    /// Whether an init that it needed was killed.
    pub(crate) fn is_lost(&self) -> bool {
        self.others.iter().chain([&self.id]).any(|id| self.world.is_lost(id))
    }
}
