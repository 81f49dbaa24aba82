//! Wake-ups after commits. Waiters subscribe, read the store, then wait: a commit in between wakes
//! them. A store wakes after each commit; a store that other processes write to as well forwards
//! their notifications.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::watch;

use crate::WorkflowId;
use crate::sync::lock;

/// What a waiter waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The status of a workflow changed.
    Workflow(WorkflowId),
    /// A stream of the workflow grew or was closed.
    Stream(WorkflowId),
    /// An event of the workflow was set.
    Events(WorkflowId),
    /// A message arrived for the workflow.
    Messages(WorkflowId),
    /// A workflow entered a queue, or freed a slot in one.
    Queues,
    /// A workflow of another process freed a slot in a queue, for which workflows of others wait.
    Slots,
    /// Rows of the application changed.
    Topic(&'static str),
}

/// The waiters of one store.
#[derive(Debug, Default)]
pub struct Wakes {
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    senders: HashMap<Channel, watch::Sender<u64>>,
    sweep_at: usize,
}

/// The number of channels at which those without waiters are removed.
const SWEEP_EVERY: usize = 1024;

impl Wakes {
    /// A counter that changes after each commit that concerns the channel.
    pub fn subscribe(&self, channel: Channel) -> watch::Receiver<u64> {
        let mut channels = lock(&self.channels);
        if channels.senders.len() >= channels.sweep_at {
            channels.senders.retain(|_, sender| sender.receiver_count() > 0);
            channels.sweep_at = channels.senders.len() * 2 + SWEEP_EVERY;
        }
        channels.senders.entry(channel).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Wakes all waiters of the channel.
    pub fn wake(&self, channel: &Channel) {
        if let Some(sender) = lock(&self.channels).senders.get(channel) {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Wakes all waiters of the topic with that name.
    pub fn wake_topic(&self, name: &str) {
        self.wake_matching(|channel| matches!(channel, Channel::Topic(topic) if *topic == name));
    }

    /// Wakes all waiters.
    pub fn wake_everything(&self) {
        self.wake_matching(|_| true);
    }

    fn wake_matching(&self, matches: impl Fn(&Channel) -> bool) {
        for (channel, sender) in &lock(&self.channels).senders {
            if matches(channel) {
                sender.send_modify(|count| *count = count.wrapping_add(1));
            }
        }
    }

    /// Wakes all that wait for anything of a workflow that has ended.
    pub fn wake_all_of(&self, id: &WorkflowId) {
        for of in [Channel::Workflow, Channel::Stream, Channel::Events, Channel::Messages] {
            self.wake(&of(id.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_after_the_subscription_is_seen() {
        let wakes = Wakes::default();
        wakes.wake(&Channel::Queues);
        let mut first = wakes.subscribe(Channel::Queues);
        let second = wakes.subscribe(Channel::Topic("rows"));
        assert!(!first.has_changed().unwrap());
        wakes.wake(&Channel::Queues);
        first.changed().await.unwrap();
        assert!(!second.has_changed().unwrap());
    }

    #[test]
    fn channels_without_waiters_are_swept() {
        let wakes = Wakes::default();
        for number in 0..10 * SWEEP_EVERY {
            let id = WorkflowId::new(number.to_string()).unwrap();
            drop(wakes.subscribe(Channel::Workflow(id)));
        }
        assert!(lock(&wakes.channels).senders.len() <= SWEEP_EVERY);
    }
}
