//! Operations on commands: starting them, signals, and the rest of a client's requests.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use stockade_core::ExecId;
use stockade_core::access::Level;
use stockade_core::sandbox::{Root, User};
use stockade_jail::control::{COMMANDS, Execute, Request, Target};
use stockade_jail::{WindowSize, network};
use stockade_plan::wipe::wipe_all;
use stockade_plan::{GIT_CONFIGURATION, Users, account, environment, search_path};

use super::ClientId;
use super::command::{Command, Stage};
use super::context::{Context, Reply};
use super::pipes::Pipes;
use super::record;
use super::sandbox::{Lifecycle, PendingCommand, Sandbox};
use crate::bubblewrap::{self, Launcher};
use crate::input_file::{self, InputFile};
use crate::wire::{Action, Answer, Failure, TargetHead};
use stockade_runtime::{Capability, Offsets, State};

impl Sandbox {
    /// Starts a command, or attaches to the one that was started under the same id.
    pub(super) fn execute(&mut self, context: &mut Context, pending: PendingCommand) {
        let client = pending.client;
        let key = self.key;
        if let Ok(command) = self.command(&pending.exec) {
            if let Stage::Starting(clients) = &mut command.stage {
                clients.push(client);
                return;
            }
            let (number, input) = (command.number, command.input_for_client());
            let from = Offsets::default();
            context
                .replies
                .push_back((client, Reply::Attached { sandbox: key, number, from, input }));
            return;
        }
        let is_measured = self.excess.is_none() || self.is_admitting;
        match self.usable() {
            Ok(jail) if !jail.pause.is_running() || !is_measured => {
                self.deferred.push_back(pending);
            }
            Ok(_) => {
                if let Err(failure) = self.start(context, pending) {
                    context.refuse(client, failure);
                }
            }
            Err(failure) => context.refuse(client, failure),
        }
    }

    fn start(&mut self, context: &mut Context, pending: PendingCommand) -> Result<(), Failure> {
        let PendingCommand { client, exec, head, words, input: given } = pending;
        if self.commands.len() >= COMMANDS {
            let text = "a sandbox has at most 1024 commands: acknowledge those that have ended";
            return Err(Failure::Exhausted(text.to_owned()));
        }
        if words.arguments.is_empty() {
            return Err(Failure::Invalid("a command must name a program".to_owned()));
        }
        if let Some(given) = &given {
            self.afford_input(context, given)?;
        }
        let user = self.user_of_command(context, head.user)?;
        if context.launcher == Launcher::Bubblewrap && user != self.record.user {
            return Err(Failure::Unsupported {
                capability: Capability::Users.as_str().to_owned(),
                reason: bubblewrap::ONE_USER.to_owned(),
                remedy: Some("--runtime native".to_owned()),
            });
        }
        let number = context.next_number();
        let mut command = Command::new(exec.clone(), number, head.output_limit_bytes);
        command.takes_input = head.takes_input && given.is_none();
        command.input_bytes = given.as_ref().map_or(0, |given| given.length_bytes);
        command.kills_before = self.kills();
        command.note(self.dir.as_fd()).map_err(|error| full(&error))?;
        let for_init = match head.terminal {
            Some(_) => Vec::new(),
            None => {
                let pipes = context.pipes()?;
                self.connect_pipes(context, user, &mut command, pipes, given)?
            }
        };
        let environment = if self.record.has_environment {
            record::read_environment(self.dir.as_fd()).map_err(|error| full(&error))?
        } else {
            record::Environment::new()
        };
        let execute = Execute {
            number,
            key: exec.as_str().as_bytes().to_vec(),
            arguments: words.arguments,
            environment: self.environment(context, user, environment, words.environment),
            working_directory: self.directory_inside(context, user, head.working_directory),
            user: user.user,
            group: user.group,
            groups: self.groups_of_command(context, user),
            may_become_root: self.record.spec.sudo,
            terminal: head
                .terminal
                .map(|size| WindowSize { rows: size.rows, columns: size.columns }),
            timeout: head.timeout,
        };
        command.stage = Stage::Starting(vec![client]);
        let Lifecycle::Running(jail) = &mut self.life else {
            return Err(Failure::WrongState(self.state()));
        };
        match jail.send(Request::Execute(Box::new(execute)), for_init) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let text = "the arguments and the environment are too long";
                return Err(Failure::Invalid(text.to_owned()));
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TOOMANYREFS) => {
                return Err(full(&error));
            }
            Err(_) => {
                self.distrust(context, "its init does not listen");
                return Err(Failure::WrongState(State::Ended));
            }
        }
        self.commands.insert(number, command);
        context.metrics.commands += 1;
        Ok(())
    }

    /// The user of a command. A container has a single one.
    fn user_of_command(&self, context: &Context, requested: Option<User>) -> Result<User, Failure> {
        let own = self.record.user;
        let requested = requested.unwrap_or(own);
        if self.record.subordinate {
            return Ok(Users::Range.check(requested)?);
        }
        if !self.record.is_container {
            return Ok(context.users.check(requested)?);
        }
        Users::Own(own).check(requested).map_err(|_| Failure::Unsupported {
            capability: Capability::Users.as_str().to_owned(),
            reason: format!(
                "all commands of a container run as its user {}:{}",
                own.user, own.group
            ),
            remedy: Some("create another sandbox with that user".to_owned()),
        })
    }

    /// The supplementary groups of a command: those of the sandbox's own user. Bubblewrap and a
    /// container have one group only.
    fn groups_of_command(&self, context: &Context, user: User) -> Vec<u32> {
        let has_one = self.record.is_container || context.launcher == Launcher::Bubblewrap;
        if has_one || user != self.record.user {
            return Vec::new();
        }
        self.record.spec.groups.clone()
    }

    /// Refuses an input when the inputs of running commands take too much memory: a detached
    /// descendant of a command may hold its input as long as it runs.
    fn afford_input(&self, context: &Context, input_file: &InputFile) -> Result<(), Failure> {
        context.afford_command(&input_file.file)?;
        let running = self.commands.values().filter(|command| command.is_alive());
        let total: u64 = running.map(|command| command.input_bytes).sum();
        if total.saturating_add(input_file.length_bytes) <= input_file::MAX_INPUT_BYTES {
            return Ok(());
        }
        Err(Failure::Exhausted(format!(
            "the commands of the sandbox have {total} bytes of input in memory; the maximum is {}",
            input_file::MAX_INPUT_BYTES
        )))
    }

    /// A command's working directory: the requested one, else that of the sandbox's commands, else
    /// its user's home, unless access rules forbid that or it does not exist.
    fn directory_inside(
        &self,
        context: &Context,
        user: User,
        requested: Option<Vec<u8>>,
    ) -> Vec<u8> {
        let spec = &self.record.spec;
        let own = || spec.working_directory.clone();
        let home = || {
            let home = account::home(user.user, self.home_owner(context)).as_bytes();
            let is_open = spec.access.allows(Level::Read, home).is_ok();
            if is_open && !self.lacks(home) { home.to_vec() } else { b"/".to_vec() }
        };
        requested
            .or_else(|| own().map(|path| path.into_os_string().into_encoded_bytes()))
            .unwrap_or_else(home)
    }

    fn home_owner(&self, context: &Context) -> User {
        self.record.home_owner.unwrap_or_else(|| context.users.ordinary())
    }

    /// The complete environment of a command: see [`environment`].
    fn environment(
        &self,
        context: &Context,
        user: User,
        sandbox: record::Environment,
        command: Vec<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let network =
            self.record.spec.network.is_some().then(|| network::variables(network::PROXY_PORT));
        let network = network.into_iter().flatten();
        let mut of_network: Vec<_> =
            network.map(|(name, value)| environment::line(name, value)).collect();
        let spec = &self.record.spec;
        let has_host_programs =
            !self.record.is_container && !matches!(spec.root, Root::Directory(_) | Root::Image(_));
        if spec.workspace.is_some() && has_host_programs {
            of_network.push(environment::line("GIT_CONFIG_SYSTEM", GIT_CONFIGURATION));
        }
        if spec.sudo && has_host_programs {
            of_network.push(search_path());
        }
        let of_sandbox = sandbox.into_iter().map(|(name, value)| {
            let line = environment::line(name, &value);
            wipe_all([value.0]);
            line
        });
        let account = environment::Account { user, own: self.home_owner(context) };
        environment::build(account, [of_network, of_sandbox.collect(), command])
    }

    /// Whether there is no such directory inside, as far as the keeper can see.
    fn lacks(&self, directory: &[u8]) -> bool {
        let Lifecycle::Running(jail) = &self.life else { return false };
        let Some(root) = &jail.root else { return false };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(root, directory, flags, Mode::empty(), within);
        matches!(opened, Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Gives a command its pipes. Returns the ends that init needs: the command's own ends, then
    /// the outer ends for the next keeper. The command's ends belong to its user, who may open them
    /// again, as programs do through `/dev/stdout`.
    fn connect_pipes(
        &self,
        context: &Context,
        user: User,
        command: &mut Command,
        pipes: Pipes,
        input_file: Option<InputFile>,
    ) -> Result<Vec<OwnedFd>, Failure> {
        let Pipes { nothing: [own_input, input], output, error } = pipes;
        let (own_input, input) = if command.takes_input {
            let pipe = || -> io::Result<_> {
                let (own_input, input) = pipe_with(PipeFlags::CLOEXEC)?;
                Ok((own_input, input.try_clone()?, input))
            };
            let (own_input, kept, input) = pipe().map_err(|error| full(&error))?;
            context.afford_command(&kept)?;
            command.input = Some(kept);
            (own_input, input)
        } else {
            // The next keeper has no input to write to.
            (input_file.map_or(own_input, |given| given.file), input)
        };
        if let Some(start) = self.inside_start() {
            let own = [&output.inner, &error.inner].into_iter();
            let own = own.chain(Some(&own_input).filter(|_| command.takes_input));
            let user_id = Uid::from_raw(start + user.user);
            let group_id = Gid::from_raw(start + user.group);
            for end in own {
                let given = match self.record.subordinate {
                    // The keeper cannot give it to a subordinate id. It has no path but those of its
                    // holders in `/proc`, which only their own user may follow.
                    true => rustix::fs::fchmod(end, Mode::from_raw_mode(0o666)),
                    false => rustix::fs::fchown(end, Some(user_id), Some(group_id)),
                };
                given.map_err(|errno| full(&errno.into()))?;
            }
        }
        command.set_pipes(self.key, output.outer, error.outer);
        Ok(vec![own_input, output.inner, error.inner, input, output.for_init, error.for_init])
    }

    fn inside_start(&self) -> Option<u32> {
        match &self.life {
            Lifecycle::Running(jail) => jail.record.host_start,
            _ => None,
        }
    }

    /// Acts on a command. The response is sent later if the client has to wait.
    pub(super) fn act(
        &mut self,
        context: &mut Context,
        client: ClientId,
        exec: &ExecId,
        action: Action,
    ) -> Result<(), Failure> {
        let state = self.state();
        let command = self.command(exec)?;
        let (number, alive) = (command.number, command.is_alive());
        match action {
            Action::Signal(signal) => {
                if !(1..=64).contains(&signal) {
                    return Err(Failure::Invalid(format!("there is no signal {signal}")));
                }
                if !matches!(command.stage, Stage::Ended(_)) {
                    self.send(context, Request::Signal { number, signal }, Vec::new());
                }
            }
            Action::Kill if alive && matches!(state, State::Running | State::Paused) => {
                command.killers.push(client);
                self.send(context, Request::Kill { number }, Vec::new());
                return Ok(());
            }
            Action::Kill => {}
            Action::Resize(size) => {
                let none = || Failure::Invalid("the command has no terminal".to_owned());
                if let Stage::Ended(_) = command.stage {
                    context.answer(client, Answer::Done);
                    return Ok(());
                }
                let terminal = command.terminal.as_ref().ok_or_else(none)?;
                let size = rustix::termios::Winsize {
                    ws_row: size.rows,
                    ws_col: size.columns,
                    ws_xpixel: 0,
                    ws_ypixel: 0,
                };
                rustix::termios::tcsetwinsize(terminal, size).map_err(|_| none())?;
            }
            Action::CloseInput => {
                if command.terminal.is_none() {
                    command.input = None;
                    command.takes_input = false;
                    self.send(context, Request::CloseInput { number }, Vec::new());
                }
            }
            Action::Acknowledge => {
                let Stage::Ended(ending) = command.stage.clone() else {
                    return Err(Failure::Invalid(format!("the command {exec} is still running")));
                };
                if let Some(mut command) = self.commands.remove(&number) {
                    for (client, unheard) in command.drop_subscribers() {
                        context.replies.push_back((client, Reply::Gone(unheard, ending.clone())));
                    }
                    let killers = std::mem::take(&mut command.killers);
                    if !killers.is_empty() {
                        // Its end was reported, but not yet that no process of it is left.
                        self.killers_of_acknowledged.insert(number, killers);
                    }
                    command.remove(self.dir.as_fd());
                }
                self.send(context, Request::Forget { number }, Vec::new());
            }
        }
        context.answer(client, Answer::Done);
        Ok(())
    }

    /// Connects to a port or socket inside.
    pub(super) fn connect(
        &mut self,
        context: &mut Context,
        client: ClientId,
        target: TargetHead,
        path: Vec<u8>,
    ) -> Result<(), Failure> {
        let (target, shown) = match target {
            TargetHead::Tcp(port) => (Target::Tcp(port), format!("port {port}")),
            TargetHead::Unix if path.contains(&0) => {
                return Err(Failure::Invalid(
                    "the path of a socket contains a NUL byte".to_owned(),
                ));
            }
            TargetHead::Unix => {
                let shown = format!("the socket {}", String::from_utf8_lossy(&path));
                (Target::Unix(path), shown)
            }
        };
        self.usable()?;
        let number = context.next_number();
        let User { user, group } = self.record.user;
        self.connections.insert(number, (client, shown));
        self.send(context, Request::Connect { number, target, user, group }, Vec::new());
        Ok(())
    }

    /// Sends a descriptor of the root directory.
    pub(super) fn root(&mut self, context: &mut Context, client: ClientId) -> Result<(), Failure> {
        let state = self.state();
        let user = self.record.user;
        let access = self.record.spec.access.clone();
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        let root = jail.root.as_ref().ok_or(Failure::WrongState(state))?;
        let root = root.try_clone().map_err(|error| full(&error))?;
        context.afford_command(&root)?;
        let answer = Answer::Root { host_start: jail.record.host_start, user, access };
        context.replies.push_back((client, Reply::Answer(Box::new(answer), vec![root])));
        Ok(())
    }
}

fn full(error: &io::Error) -> Failure {
    Failure::Exhausted(format!("cannot create the command's pipes: {error}"))
}
