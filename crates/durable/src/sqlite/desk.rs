//! The connection pool: jobs wait here for a connection. While a connection is free, the caller
//! does the work itself and has the result immediately, because waking a thread and being woken by
//! it takes as long as most of the work. Threads do the work when no connection is free or the
//! calling thread must not be blocked. There is no SQL here, and no knowledge of what a connection
//! does ([`Clerk`]).

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::sync::lock;
use crate::{Error, Pending, Result};

/// A connection and its work.
pub(super) trait Clerk: Send + 'static {
    /// A job that waits for the connection. A job that is dropped has not been done.
    type Job: Send;

    /// Takes from the waiting jobs, of which there is at least one, those that are done together.
    fn take(waiting: &mut VecDeque<Self::Job>) -> Vec<Self::Job>;
    /// Does the jobs and sends their results.
    fn work(&mut self, jobs: Vec<Self::Job>);

    /// Whether there is maintenance work, for which no caller waits.
    fn is_due(&self) -> bool {
        false
    }
    /// Does the maintenance work.
    fn tend(&mut self) {}
}

/// How many threads of a runtime are blocked by work of this store. At least one stays free.
#[derive(Debug, Default)]
pub(super) struct Kept(AtomicUsize);

/// Connections of one kind, their threads, and the jobs that wait for them. Dropping this closes
/// the pool.
#[derive(Debug)]
pub(super) struct Desk<C: Clerk> {
    shared: Arc<Shared<C>>,
    /// The name of the threads.
    thread: &'static str,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared<C: Clerk> {
    state: Mutex<State<C>>,
    is_changed: Condvar,
    kept: Arc<Kept>,
}

struct State<C: Clerk> {
    waiting: VecDeque<C::Job>,
    free: Vec<C>,
    /// The number of free and busy connections.
    clerks: usize,
    /// Whether a free connection has maintenance work.
    is_due: bool,
    is_closed: bool,
}

impl<C: Clerk> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<C: Clerk> Desk<C> {
    /// A pool of one connection, with a thread of this name.
    ///
    /// # Errors
    /// [`Error::Storage`] if the thread cannot be started.
    pub(super) fn open(clerk: C, thread: &'static str, kept: Arc<Kept>) -> Result<Self> {
        let state = State {
            waiting: VecDeque::new(),
            free: vec![clerk],
            clerks: 1,
            is_due: false,
            is_closed: false,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), is_changed: Condvar::new(), kept });
        let serving = Arc::clone(&shared);
        let first = std::thread::Builder::new().name(thread.to_owned());
        let first = first.spawn(move || serving.serve());
        let first = first.map_err(|error| Error::Storage { message: error.to_string() })?;
        Ok(Self { shared, thread, threads: Mutex::new(vec![first]) })
    }

    /// Starts a thread that opens another connection, unless one is free or there are `most`
    /// already. If that fails, the existing connections do the work.
    pub(super) fn grow(&self, most: usize, open: impl FnOnce() -> Option<C> + Send + 'static) {
        let mut threads = lock(&self.threads);
        if !self.shared.lock().free.is_empty() || threads.is_empty() || threads.len() >= most {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let more = std::thread::Builder::new().name(self.thread.to_owned());
        let more = more.spawn(move || {
            if let Some(clerk) = open() {
                shared.employ(clerk);
                shared.serve();
            }
        });
        threads.extend(more);
    }

    /// Appends a job to the queue; `answer` receives its result. The job is done at the latest
    /// after the returned future is first polled or dropped.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: C::Job,
        answer: oneshot::Receiver<Result<T>>,
    ) -> Pending<T> {
        let mut state = self.shared.lock();
        // If the pool is closed, the job is dropped and the result is "closed".
        if !state.is_closed {
            state.waiting.push_back(job);
        }
        drop(state);
        Box::pin(Submitted { shared: Some(Arc::clone(&self.shared)), answer })
    }

    /// Accepts no more jobs. The returned function waits until the submitted jobs are done, and
    /// closes the connections.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        self.shared.lock().is_closed = true;
        self.shared.is_changed.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        let shared = Arc::clone(&self.shared);
        move || {
            for thread in threads {
                thread.join().ok();
            }
            drop(shared.all());
        }
    }
}

impl<C: Clerk> Drop for Desk<C> {
    fn drop(&mut self) {
        self.close()();
    }
}

impl<C: Clerk> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        lock(&self.state)
    }

    fn changed<'a>(&self, state: MutexGuard<'a, State<C>>) -> MutexGuard<'a, State<C>> {
        self.is_changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn employ(&self, clerk: C) {
        let mut state = self.lock();
        state.clerks += 1;
        state.free.push(clerk);
    }

    /// The loop of a thread: works until the pool is closed and no job waits.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            let has_work = !state.waiting.is_empty() || state.is_due;
            match At::take(self, &mut state, has_work) {
                Some(mut work) => {
                    let is_due = std::mem::take(&mut state.is_due);
                    drop(state);
                    work.run();
                    if is_due || work.is_due {
                        work.tend();
                    }
                    drop(work);
                    state = self.lock();
                }
                None if state.is_closed && state.waiting.is_empty() => return,
                None => state = self.changed(state),
            }
        }
    }

    /// Does the waiting jobs if a connection is free and the calling thread may be blocked; else
    /// wakes a thread to do them.
    fn help(&self) {
        let keeping = self.kept.keep();
        let mut state = self.lock();
        let has_work = keeping.is_some() && !state.waiting.is_empty();
        if let Some(mut work) = At::take(self, &mut state, has_work) {
            drop(state);
            work.run();
        } else if !state.free.is_empty() && !state.waiting.is_empty() {
            drop(state);
            self.is_changed.notify_one();
        }
        // If no connection is free, the thread that uses one checks for more jobs when it is done.
    }

    /// Waits until no connection is busy, and takes all of them.
    fn all(&self) -> Vec<C> {
        let mut state = self.lock();
        while state.free.len() < state.clerks {
            state = self.changed(state);
        }
        state.clerks = 0;
        std::mem::take(&mut state.free)
    }
}

/// A busy connection. Dropping this returns it to the pool.
struct At<'a, C: Clerk> {
    shared: &'a Shared<C>,
    /// `None` once its work has panicked: its state is unknown then.
    clerk: Option<C>,
    jobs: Vec<C::Job>,
    /// Whether it leaves maintenance work.
    is_due: bool,
}

impl<'a, C: Clerk> At<'a, C> {
    /// Takes a free connection and its waiting jobs, if there is work and a free connection.
    fn take(shared: &'a Shared<C>, state: &mut State<C>, has_work: bool) -> Option<Self> {
        let clerk = if has_work { state.free.pop()? } else { return None };
        let waiting = &mut state.waiting;
        let jobs = if waiting.is_empty() { Vec::new() } else { C::take(waiting) };
        Some(Self { shared, clerk: Some(clerk), jobs, is_due: false })
    }

    fn run(&mut self) {
        let jobs = std::mem::take(&mut self.jobs);
        if !jobs.is_empty() {
            self.catching(|clerk| clerk.work(jobs));
            self.is_due = self.clerk.as_ref().is_some_and(Clerk::is_due);
        }
    }

    fn tend(&mut self) {
        self.catching(Clerk::tend);
        self.is_due = false;
    }

    fn catching(&mut self, work: impl FnOnce(&mut C)) {
        if let Some(mut clerk) = self.clerk.take() {
            let worked = catch_unwind(AssertUnwindSafe(|| work(&mut clerk)));
            self.clerk = worked.is_ok().then_some(clerk);
        }
    }
}

impl<C: Clerk> Drop for At<'_, C> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        match self.clerk.take() {
            Some(clerk) => state.free.push(clerk),
            None => state.clerks -= 1,
        }
        state.is_due |= self.is_due;
        if state.clerks == 0 {
            state.is_closed = true;
            state.waiting.clear();
        }
        if state.is_closed {
            self.shared.is_changed.notify_all();
        } else if !state.waiting.is_empty() || state.is_due {
            self.shared.is_changed.notify_one();
        }
    }
}

/// The result of a submitted job. If this is dropped before it is polled, a thread does the job.
struct Submitted<C: Clerk, T> {
    /// `None` after the first poll.
    shared: Option<Arc<Shared<C>>>,
    answer: oneshot::Receiver<Result<T>>,
}

impl<C: Clerk, T> Future for Submitted<C, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(shared) = this.shared.take() {
            shared.help();
        }
        Pin::new(&mut this.answer).poll(context).map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}

impl<C: Clerk, T> Drop for Submitted<C, T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.is_changed.notify_one();
        }
    }
}

impl Kept {
    /// Marks the calling thread as blocked for as long as the returned guard lives, if it is a
    /// thread of a multi-threaded runtime and another one of it stays free.
    fn keep(&self) -> Option<Keeping<'_>> {
        let runtime = Handle::try_current().ok()?;
        if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let keeping = Keeping(self);
        (before + 1 < runtime.metrics().num_workers()).then_some(keeping)
    }
}

struct Keeping<'a>(&'a Kept);

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    type Job = Box<dyn FnOnce() + Send>;

    /// Reports the thread that does the maintenance work, where there is some.
    struct Hand(Option<mpsc::Sender<ThreadId>>);

    impl Clerk for Hand {
        type Job = Job;

        fn take(waiting: &mut VecDeque<Job>) -> Vec<Job> {
            waiting.drain(..).collect()
        }

        fn work(&mut self, jobs: Vec<Job>) {
            for job in jobs {
                job();
            }
        }

        fn is_due(&self) -> bool {
            self.0.is_some()
        }

        fn tend(&mut self) {
            if let Some(tended) = &self.0 {
                tended.send(std::thread::current().id()).ok();
            }
        }
    }

    fn desk() -> Desk<Hand> {
        Desk::open(Hand(None), "desk", Arc::default()).unwrap()
    }

    /// A job that reports the thread that did it.
    fn who(desk: &Desk<Hand>, work: impl FnOnce() + Send + 'static) -> Pending<ThreadId> {
        let (reply, answer) = oneshot::channel();
        let job = move || {
            work();
            reply.send(Ok(std::thread::current().id())).ok();
        };
        desk.submit(Box::new(job), answer)
    }

    fn poll_once<T>(pending: &mut Pending<T>) -> Poll<Result<T>> {
        pending.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    /// Runs jobs until the caller does one itself: the pool's thread may still be looking for more
    /// after the previous one.
    async fn do_one_here(desk: &Desk<Hand>) {
        let own = std::thread::current().id();
        for _ in 0..10_000 {
            let mut pending = who(desk, || ());
            match poll_once(&mut pending) {
                Poll::Ready(Ok(thread)) if thread == own => return,
                Poll::Ready(done) => drop(done.unwrap()),
                Poll::Pending => drop(pending.await.unwrap()),
            }
        }
        panic!("it is always left to the desk's thread");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_asks_while_a_connection_is_free_does_it_at_once() {
        do_one_here(&desk()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_kept_by_what_nobody_waits_for() {
        let (tended, is_tended) = mpsc::channel();
        let desk = Desk::open(Hand(Some(tended)), "desk", Arc::default()).unwrap();
        do_one_here(&desk).await;
        desk.close()();
        let own = std::thread::current().id();
        let tended: Vec<_> = is_tended.try_iter().collect();
        assert!(!tended.is_empty() && !tended.contains(&own), "{tended:?}");
    }

    #[tokio::test]
    async fn the_only_thread_of_a_runtime_is_not_kept() {
        let desk = desk();
        assert_ne!(who(&desk, || ()).await.unwrap(), std::thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn nor_is_the_only_worker() {
        let desk = desk();
        assert_ne!(who(&desk, || ()).await.unwrap(), std::thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_two_workers_one_stays_free() {
        let kept = Arc::new(Kept::default());
        let desk = Desk::open(Hand(None), "desk", Arc::clone(&kept)).unwrap();
        let keeping = kept.keep();
        assert!(keeping.is_some() && kept.keep().is_none());
        assert_ne!(who(&desk, || ()).await.unwrap(), std::thread::current().id());
        drop(keeping);
        do_one_here(&desk).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_comes_while_the_connection_is_at_work_is_done_after_it() {
        let desk = Arc::new(desk());
        let (begun, is_begun) = mpsc::channel();
        let (end, is_to_end) = mpsc::channel();
        let slow = tokio::spawn(who(&desk, move || {
            begun.send(()).unwrap();
            is_to_end.recv().unwrap();
        }));
        tokio::task::spawn_blocking(move || is_begun.recv().unwrap()).await.unwrap();
        let mut pending = who(&desk, || ());
        assert!(poll_once(&mut pending).is_pending());
        end.send(()).unwrap();
        pending.await.unwrap();
        slow.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_nobody_asks_for_is_done_too() {
        let desk = desk();
        let (done, is_done) = mpsc::channel();
        drop(who(&desk, move || done.send(()).unwrap()));
        tokio::task::spawn_blocking(move || is_done.recv().unwrap()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_ends_its_connection_and_with_the_last_one_the_desk() {
        let desk = desk();
        let panics = who(&desk, || panic!("in vain"));
        assert!(matches!(panics.await, Err(Error::Closed)));
        assert!(matches!(who(&desk, || ()).await, Err(Error::Closed)));
        desk.close()();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_submitted_before_the_close_is_done() {
        let desk = desk();
        let pending = who(&desk, || ());
        tokio::task::spawn_blocking(desk.close()).await.unwrap();
        pending.await.unwrap();
        assert!(matches!(who(&desk, || ()).await, Err(Error::Closed)));
    }
}
