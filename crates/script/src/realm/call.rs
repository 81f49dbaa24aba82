//! Calls into a persistent realm: several functions may run concurrently, and the owner of the
//! realm drives them.

use std::time::Duration;

use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt as _, Function, Object, Persistent, Promise};

use super::{Failure, Realm};

/// A started call. It must be dropped before its realm.
pub struct Call(Result<Persistent<Promise<'static>>, Failure>);

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Realm {
    /// Defines a global function with which programs output texts while they run.
    ///
    /// # Errors
    /// If there is not enough memory for it.
    pub fn set_global_function(
        &self,
        name: &str,
        take: impl Fn(String) + 'static,
    ) -> Result<(), Failure> {
        self.context.with(|ctx| {
            let defined = Function::new(ctx.clone(), take)
                .and_then(|function| ctx.globals().set(name, function))
                .catch(&ctx);
            defined.map_err(|error| self.failure(&ctx, error))
        })
    }

    /// Starts a call of an exported async function with a text argument and a text result. The
    /// module must have run. There is no time limit from here on: the caller can only kill the
    /// process.
    pub fn start(&self, module: &str, function: &str, argument: &str) -> Call {
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

    /// Runs all jobs and timers that are due. Returns the time until the next timer, if only time
    /// is waited for, and the exception of a timer.
    pub fn proceed(&self) -> (Option<Duration>, Option<Failure>) {
        let mut thrown = None;
        loop {
            while self.runtime.is_job_pending() {
                // A failed job has rejected its promise.
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

    /// The result of a call, once it has settled.
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

    /// The unhandled rejections since the last call.
    pub fn take_unhandled(&self) -> Vec<Failure> {
        self.state.rejections.take().into_iter().map(|(_, failure)| failure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Program};
    use super::*;
    use crate::realm_host::Console;
    use crate::{LibrarySet, Module};

    fn realm(code: &str) -> Realm {
        let mut program = Program::default();
        program.modules.insert("main".to_owned(), Module::plain("main", code.to_owned()));
        let realm = Realm::new(&LibrarySet::default(), &Limits::default()).unwrap();
        let outside = Box::new(Console(|_: &str, _: &str| {}));
        realm.run(program, "main", Duration::from_secs(60), outside);
        realm
    }

    fn run_to_end(realm: &Realm, call: &Call) -> Result<String, Failure> {
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
        let (late, soon) = (realm.start("main", "late", "a"), realm.start("main", "soon", "b"));
        assert_eq!(run_to_end(&realm, &soon), Ok("b".to_owned()));
        assert_eq!(realm.settled(&late), None);
        assert_eq!(run_to_end(&realm, &late), Ok("ab".to_owned()));
        let failure = run_to_end(&realm, &realm.start("main", "wrong", "")).unwrap_err();
        assert_eq!(failure.name.as_deref(), Some("TypeError"));
        assert!(run_to_end(&realm, &realm.start("main", "missing", "")).is_err());
    }
}
