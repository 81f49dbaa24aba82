//! The inner half of a launch: what the first process of the jail does, from its first instruction until
//! it is init, of one command or of many.
//!
//! It runs in a copy of the caller with a single thread, and never returns. The phases, in this order:
//! `prepare` and `network` are here, [`identity`], [`filesystem`], [`privileges`] and [`exec`] have files
//! of their own. Each names the wall and the step that failed.

mod bubblewrap;
mod exec;
mod filesystem;
mod group_view;
mod identity;
mod privileges;

use std::os::fd::OwnedFd;

use crate::address_space::AddressSpace;
use crate::cgroup::View;
use crate::channel::{Channel, FromInit};
use crate::dev_proc;
use crate::mounts::{self, At as _, Failure};
use crate::spec::JailSpec;
use crate::vm_helper::{RootPlan, VmHelper};
use crate::walls::Wall;
use crate::{init, init_allocator, sys};

/// The inner ends of the command's streams.
#[derive(Debug)]
pub(crate) enum InnerStreams {
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
    /// A terminal that will be opened inside.
    Terminal,
    /// Each command will have its own.
    None,
}

/// Enables every wall, and continues as init: of one command, which is started, or of those that
/// are requested later. `groups` is what is shown of the jail's control groups.
pub(crate) fn run(
    spec: JailSpec,
    channel: Channel,
    streams: InnerStreams,
    plan: Option<RootPlan>,
    groups: &View,
) -> ! {
    let code = match start(spec, &channel, streams, plan, groups) {
        Ok(init) => init.run(channel),
        Err(failure) => {
            report(&channel, failure);
            1
        }
    };
    sys::exit_now(code)
}

fn report(channel: &Channel, failure: Failure) {
    let Failure { wall, step, errno } = failure;
    // If this fails, the supervisor sees the end of the socket.
    let _ = channel.send(&FromInit::Failed { wall, errno, step }.encode(), &[]);
}

fn start(
    mut spec: JailSpec,
    channel: &Channel,
    streams: InnerStreams,
    plan: Option<RootPlan>,
    groups: &View,
) -> Result<Init, Failure> {
    let Prepared { helper, addresses, mount_points, upper_group } = prepare(&spec, plan, groups)?;
    let bubblewrap = bubblewrap::HostRoot::open(&mut spec.task)?;
    let trees = identity::assume(&spec, channel, &helper)?;
    let files = filesystem::assemble(&mut spec, &helper, mount_points, trees)?;
    network(&spec, &helper)?;
    if let Some(host) = bubblewrap {
        return Err(bubblewrap::execute(spec, channel, &helper, files, host));
    }
    let streams = exec::open_streams(&spec.task, streams)?;
    let access = privileges::give_up(&spec, channel, &files, (groups, upper_group))?;
    helper.finish()?;
    mounts::check_root()?;
    exec::start(spec, channel, helper, files, streams, access, addresses)
}

/// The results of the first phase.
struct Prepared {
    helper: VmHelper,
    addresses: AddressSpace,
    /// For each mount, whether its mount point is in the root that the helper makes; `None` where
    /// the helper makes no root.
    mount_points: Option<Vec<bool>>,
    /// The mount of the control group above the own one, where that is shown.
    upper_group: Option<OwnedFd>,
}

/// Separates the mounts from the host's, erases the arguments and starts the helper.
fn prepare(spec: &JailSpec, plan: Option<RootPlan>, groups: &View) -> Result<Prepared, Failure> {
    mounts::separate()?;
    // While this process has the ids that own the groups, and no helper shares its memory.
    let upper_group = group_view::mount_of_upper_group(groups);
    let step = || "find the arguments".to_owned();
    let addresses = AddressSpace::read().at(Wall::Inheritance, step)?;
    // Before the helper shares this memory: a first write to a page then interrupts both processes.
    // SAFETY: this process has had a single thread since it was made, and reads neither arguments nor
    // environment.
    unsafe { addresses.erase_arguments() };
    sys::set_process_name(c"stockade-init");
    let root = match (spec.root_writable, &plan) {
        (true, _) => dev_proc::Root::Writable,
        (false, None) => dev_proc::Root::ReadOnly,
        (false, Some(_)) => dev_proc::Root::Populated,
    };
    let (content, mount_points) = plan.map(|plan| (plan.content, plan.have_mount_points)).unzip();
    let helper = VmHelper::start(spec.network, root, content)
        .at(Wall::Network, || "start making the network".to_owned())?;
    // This needs no ids, which the supervisor maps meanwhile.
    helper.open_dev_proc()?;
    Ok(Prepared { helper, addresses, mount_points, upper_group })
}

/// Sets the host name and enters the network that the helper makes.
fn network(spec: &JailSpec, helper: &VmHelper) -> Result<(), Failure> {
    sys::set_host_name(&spec.hostname).at(Wall::HostName, || "set the host name".to_owned())?;
    helper.enter_network()
}

/// Ensures that this process ends with its supervisor, and protects its memory from all other
/// processes.
fn bind_to_supervisor() -> Result<(), Failure> {
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
        .at(Wall::Pid, || "set the parent-death signal".to_owned())?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, || "become undumpable".to_owned())
}

/// The kind of init that this process has become.
enum Init {
    Once(libc::pid_t, Option<init::calls::Calls>),
    Serve(Box<init::serve::Init>, AddressSpace),
    Fork(Box<init::fork::Zygote>),
}

impl Init {
    fn run(self, channel: Channel) -> i32 {
        match self {
            Self::Once(command, calls) => init::once::run(&channel, command, calls),
            Self::Serve(init, addresses) => {
                // The launcher knows that the walls are enabled, and connects from now on.
                drop(channel);
                // SAFETY: init was made after the switch to fresh memory, and all earlier
                // allocations were dropped.
                unsafe { init_allocator::release_inherited_heap(addresses.heap_start) };
                init.run()
            }
            Self::Fork(zygote) => {
                drop(channel);
                zygote.run()
            }
        }
    }
}
