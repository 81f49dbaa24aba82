//! The refused system calls of a jail: the keeper fails them, and records them for the commands that
//! run.
//!
//! A jail could make nothing but such calls, and the keeper works outside of its limits. So after a
//! number of calls its listener rests, and the longer the more listeners rest already: all together
//! take a bounded part of the keeper's time.

use stockade_jail::{CallsState, REFUSED_CALLS_REST};

use super::context::Context;
use super::reactor::Interest;
use super::sandbox::{Lifecycle, Sandbox};
use super::timers::Timer;

impl Sandbox {
    /// Fails the calls that wait, and records them.
    pub(super) fn answer_refused_calls(&mut self, context: &mut Context) {
        let (key, commands) = (self.key, &mut self.commands);
        let (Lifecycle::Connecting(jail) | Lifecycle::Running(jail) | Lifecycle::Dying(jail)) =
            &mut self.life
        else {
            return;
        };
        let Some(listener) = &mut jail.call_listener else { return };
        let heard = listener.answer(|call| {
            commands.values_mut().for_each(|command| command.refused(call));
        });
        match heard {
            CallsState::All => {}
            CallsState::Flood if listener.set_interest(Interest::empty()).is_ok() => {
                context.resting_listeners = context.resting_listeners.saturating_add(1);
                let rest = REFUSED_CALLS_REST.saturating_mul(context.resting_listeners);
                context.timers.after(rest, Timer::RefusedCalls(key));
            }
            CallsState::Flood | CallsState::Over => jail.call_listener = None,
        }
    }

    /// Listens again after a rest.
    pub(super) fn listen_again(&mut self, _: &mut Context) {
        let (Lifecycle::Connecting(jail) | Lifecycle::Running(jail) | Lifecycle::Dying(jail)) =
            &mut self.life
        else {
            return;
        };
        let Some(listener) = &mut jail.call_listener else { return };
        if listener.set_interest(Interest::IN).is_err() {
            // The kernel fails the calls instead.
            jail.call_listener = None;
        }
    }
}
