//! Calls into a realm that lives on: several functions may be under way at once, and what they wait
//! for is driven by whoever holds the realm.

use std::time::Duration;

use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt as _, Function, Object, Persistent, Promise};

use super::{Failure, Realm};

/// A call that was begun. It must go before its realm does.
pub struct Call(Result<Persistent<Promise<'static>>, Failure>);

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Realm {
    /// Gives programs a global function by which they hand texts out while they run.
    ///
    /// # Errors
    /// When there is not enough memory for it.
    pub fn offer(&self, name: &str, take: impl Fn(String) + 'static) -> Result<(), Failure> {
        self.context.with(|ctx| {
            let offered = Function::new(ctx.clone(), take)
                .and_then(|function| ctx.globals().set(name, function))
                .catch(&ctx);
            offered.map_err(|error| self.failure(&ctx, error))
        })
    }

    /// Begins a call of an async function that a module exports, from a text to a text. The module
    /// has been run. Time has no limit from here on: whoever waits ends the process.
    pub fn begin(&self, module: &str, function: &str, argument: &str) -> Call {
        self.state.expired.set(false);
        self.state.deadline.set(None);
        Call(self.context.with(|ctx| {
            let promise = rquickjs::Module::import(&ctx, module)
                .and_then(|promise| promise.finish::<Object<'_>>())
                .and_then(|exports| exports.get::<_, Function<'_>>(function))
                .and_then(|function| function.call::<_, Promise<'_>>((argument,)))
                .catch(&ctx);
            match promise {
                Ok(promise) => Ok(Persistent::save(&ctx, promise)),
                Err(error) => Err(self.failure(&ctx, error)),
            }
        }))
    }

    /// Does what can be done now; how long until there is more, where only time is waited for. What
    /// a timer throws is answered.
    pub fn proceed(&self) -> (Option<Duration>, Option<Failure>) {
        let mut thrown = None;
        loop {
            while self.runtime.is_job_pending() {
                // A job that fails has told its promise.
                drop(self.runtime.execute_pending_job());
            }
            match self.context.with(|ctx| self.due(&ctx)) {
                Some(wait) if wait.is_zero() => {
                    if let Some(Err(failure)) = self.fire() {
                        thrown = Some(failure);
                    }
                }
                wait => return (wait, thrown),
            }
        }
    }

    /// What came of a call, once something has.
    pub fn settled(&self, call: &Call) -> Option<Result<String, Failure>> {
        let promise = match &call.0 {
            Ok(promise) => promise.clone(),
            Err(failure) => return Some(Err(failure.clone())),
        };
        self.context.with(|ctx| {
            let promise = promise.restore(&ctx).ok()?;
            if promise.state() == PromiseState::Pending {
                return None;
            }
            let answer = promise.finish::<String>().catch(&ctx);
            Some(answer.map_err(|error| self.failure(&ctx, error)))
        })
    }

    /// The rejections that nobody has looked at since this was last asked.
    pub fn take_unhandled(&self) -> Vec<Failure> {
        self.state.rejections.take().into_iter().map(|(_, failure)| failure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Program};
    use super::*;
    use crate::outside::Console;
    use crate::{LibrarySet, Module};

    fn realm(code: &str) -> Realm {
        let mut program = Program::default();
        program.modules.insert("main".to_owned(), Module::plain("main", code.to_owned()));
        let realm = Realm::new(&LibrarySet::default(), &Limits::default()).unwrap();
        let outside = Box::new(Console(|_: &str, _: &str| {}));
        realm.run(program, "main", Duration::from_secs(60), outside);
        realm
    }

    fn driven(realm: &Realm, call: &Call) -> Result<String, Failure> {
        loop {
            let (wait, _) = realm.proceed();
            if let Some(answer) = realm.settled(call) {
                return answer;
            }
            std::thread::sleep(wait.expect("it waits for time"));
        }
    }

    #[test]
    fn calls_are_under_way_at_once_and_end_in_their_own_order() {
        let realm = realm(
            "export const late = async (text) => { await new Promise((done) => setTimeout(done, 30)); \
               return text + first; };\n\
             let first = '';\n\
             export const soon = async (text) => { first = text; return text; };\n\
             export const wrong = async () => { null.x; };",
        );
        let (late, soon) = (realm.begin("main", "late", "a"), realm.begin("main", "soon", "b"));
        assert_eq!(driven(&realm, &soon), Ok("b".to_owned()));
        assert_eq!(realm.settled(&late), None);
        assert_eq!(driven(&realm, &late), Ok("ab".to_owned()));
        let failure = driven(&realm, &realm.begin("main", "wrong", "")).unwrap_err();
        assert_eq!(failure.name.as_deref(), Some("TypeError"));
        assert!(driven(&realm, &realm.begin("main", "missing", "")).is_err());
    }
}
