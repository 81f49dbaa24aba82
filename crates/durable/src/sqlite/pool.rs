//! The connection pool: jobs wait here for a connection. While a connection is free, the caller
//! does the work itself and has the result immediately, because waking a thread and being woken by
//! it takes as long as most of the work. Threads do the work when no connection is free or the
//! calling thread must not be blocked. There is no SQL here, and no knowledge of what a connection
//! does ([`Worker`]).

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
use crate::{BoxFuture, Error, Result};

/// A connection and its work.
pub(super) trait Worker: Send + 'static {
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
    fn maintain(&mut self) {}
}

/// How many threads of a runtime are blocked by work of this store. At least one stays free.
#[derive(Debug, Default)]
pub(super) struct BusyWorkers(AtomicUsize);

/// Connections of one kind, their threads, and the jobs that wait for them. Dropping this closes
/// the pool.
#[derive(Debug)]
pub(super) struct ConnectionPool<C: Worker> {
    shared: Arc<Shared<C>>,
    /// The name of the threads.
    thread: &'static str,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared<C: Worker> {
    state: Mutex<State<C>>,
    is_changed: Condvar,
    busy: Arc<BusyWorkers>,
}

struct State<C: Worker> {
    waiting: VecDeque<C::Job>,
    free: Vec<C>,
    /// The number of free and busy connections.
    workers: usize,
    /// Whether a free connection has maintenance work.
    is_due: bool,
    is_closed: bool,
}

impl<C: Worker> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<C: Worker> ConnectionPool<C> {
    /// A pool of one connection, with a thread of this name.
    ///
    /// # Errors
    /// [`Error::Storage`] if the thread cannot be started.
    pub(super) fn open(worker: C, thread: &'static str, busy: Arc<BusyWorkers>) -> Result<Self> {
        let state = State {
            waiting: VecDeque::new(),
            free: vec![worker],
            workers: 1,
            is_due: false,
            is_closed: false,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), is_changed: Condvar::new(), busy });
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
            if let Some(worker) = open() {
                shared.add_worker(worker);
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
    ) -> BoxFuture<T> {
        let mut state = self.shared.lock();
        // If the pool is closed, the job is dropped and the result is "closed".
        if !state.is_closed {
            state.waiting.push_back(job);
        }
        drop(state);
        Box::pin(SubmittedJob { shared: Some(Arc::clone(&self.shared)), answer })
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
            drop(shared.take_all());
        }
    }
}

impl<C: Worker> Drop for ConnectionPool<C> {
    fn drop(&mut self) {
        self.close()();
    }
}

impl<C: Worker> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        lock(&self.state)
    }

    fn wait_changed<'a>(&self, state: MutexGuard<'a, State<C>>) -> MutexGuard<'a, State<C>> {
        self.is_changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn add_worker(&self, worker: C) {
        let mut state = self.lock();
        state.workers += 1;
        state.free.push(worker);
    }

    /// The loop of a thread: works until the pool is closed and no job waits.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            let has_work = !state.waiting.is_empty() || state.is_due;
            match ActiveWorker::take(self, &mut state, has_work) {
                Some(mut work) => {
                    let is_due = std::mem::take(&mut state.is_due);
                    drop(state);
                    work.run();
                    if is_due || work.is_due {
                        work.maintain();
                    }
                    drop(work);
                    state = self.lock();
                }
                None if state.is_closed && state.waiting.is_empty() => return,
                None => state = self.wait_changed(state),
            }
        }
    }

    /// Does the waiting jobs if a connection is free and the calling thread may be blocked; else
    /// wakes a thread to do them.
    fn run_here(&self) {
        let guard = self.busy.enter();
        let mut state = self.lock();
        let has_work = guard.is_some() && !state.waiting.is_empty();
        if let Some(mut work) = ActiveWorker::take(self, &mut state, has_work) {
            drop(state);
            work.run();
        } else if !state.free.is_empty() && !state.waiting.is_empty() {
            drop(state);
            self.is_changed.notify_one();
        }
        // If no connection is free, the thread that uses one checks for more jobs when it is done.
    }

    /// Waits until no connection is busy, and takes all of them.
    fn take_all(&self) -> Vec<C> {
        let mut state = self.lock();
        while state.free.len() < state.workers {
            state = self.wait_changed(state);
        }
        state.workers = 0;
        std::mem::take(&mut state.free)
    }
}

/// A busy connection. Dropping this returns it to the pool.
struct ActiveWorker<'a, C: Worker> {
    shared: &'a Shared<C>,
    /// `None` once its work has panicked: its state is unknown then.
    worker: Option<C>,
    jobs: Vec<C::Job>,
    /// Whether it leaves maintenance work.
    is_due: bool,
}

impl<'a, C: Worker> ActiveWorker<'a, C> {
    /// Takes a free connection and its waiting jobs, if there is work and a free connection.
    fn take(shared: &'a Shared<C>, state: &mut State<C>, has_work: bool) -> Option<Self> {
        let worker = if has_work { state.free.pop()? } else { return None };
        let waiting = &mut state.waiting;
        let jobs = if waiting.is_empty() { Vec::new() } else { C::take(waiting) };
        Some(Self { shared, worker: Some(worker), jobs, is_due: false })
    }

    fn run(&mut self) {
        let jobs = std::mem::take(&mut self.jobs);
        if !jobs.is_empty() {
            self.catch_panic(|clerk| clerk.work(jobs));
            self.is_due = self.worker.as_ref().is_some_and(Worker::is_due);
        }
    }

    fn maintain(&mut self) {
        self.catch_panic(Worker::maintain);
        self.is_due = false;
    }

    fn catch_panic(&mut self, work: impl FnOnce(&mut C)) {
        if let Some(mut worker) = self.worker.take() {
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut worker)));
            self.worker = result.is_ok().then_some(worker);
        }
    }
}

impl<C: Worker> Drop for ActiveWorker<'_, C> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        match self.worker.take() {
            Some(clerk) => state.free.push(clerk),
            None => state.workers -= 1,
        }
        state.is_due |= self.is_due;
        if state.workers == 0 {
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
struct SubmittedJob<C: Worker, T> {
    /// `None` after the first poll.
    shared: Option<Arc<Shared<C>>>,
    answer: oneshot::Receiver<Result<T>>,
}

impl<C: Worker, T> Future for SubmittedJob<C, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(shared) = this.shared.take() {
            shared.run_here();
        }
        Pin::new(&mut this.answer).poll(context).map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}

impl<C: Worker, T> Drop for SubmittedJob<C, T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.is_changed.notify_one();
        }
    }
}

impl BusyWorkers {
    /// Marks the calling thread as blocked for as long as the returned guard lives, if it is a
    /// thread of a multi-threaded runtime and another one of it stays free.
    fn enter(&self) -> Option<BusyGuard<'_>> {
        let runtime = Handle::try_current().ok()?;
        if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let guard = BusyGuard(self);
        (before + 1 < runtime.metrics().num_workers()).then_some(guard)
    }
}

struct BusyGuard<'a>(&'a BusyWorkers);

impl Drop for BusyGuard<'_> {
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
    struct TestWorker(Option<mpsc::Sender<ThreadId>>);

    impl Worker for TestWorker {
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

        fn maintain(&mut self) {
            if let Some(sender) = &self.0 {
                sender.send(std::thread::current().id()).ok();
            }
        }
    }

    fn pool() -> ConnectionPool<TestWorker> {
        ConnectionPool::open(TestWorker(None), "desk", Arc::default()).unwrap()
    }

    /// A job that reports the thread that did it.
    fn submit(
        pool: &ConnectionPool<TestWorker>,
        work: impl FnOnce() + Send + 'static,
    ) -> BoxFuture<ThreadId> {
        let (reply, answer) = oneshot::channel();
        let job = move || {
            work();
            reply.send(Ok(std::thread::current().id())).ok();
        };
        pool.submit(Box::new(job), answer)
    }

    fn poll_once<T>(pending: &mut BoxFuture<T>) -> Poll<Result<T>> {
        pending.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    /// Runs jobs until the caller does one itself: the pool's thread may still be looking for more
    /// after the previous one.
    async fn do_one_here(pool: &ConnectionPool<TestWorker>) {
        let own = std::thread::current().id();
        for _ in 0..10_000 {
            let mut pending = submit(pool, || ());
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
        do_one_here(&pool()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_kept_by_what_nobody_waits_for() {
        let (maintained, is_tended) = mpsc::channel();
        let pool =
            ConnectionPool::open(TestWorker(Some(maintained)), "desk", Arc::default()).unwrap();
        do_one_here(&pool).await;
        pool.close()();
        let own = std::thread::current().id();
        let threads: Vec<_> = is_tended.try_iter().collect();
        assert!(!threads.is_empty() && !threads.contains(&own), "{threads:?}");
    }

    #[tokio::test]
    async fn the_only_thread_of_a_runtime_is_not_kept() {
        let pool = pool();
        assert_ne!(submit(&pool, || ()).await.unwrap(), std::thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn nor_is_the_only_worker() {
        let pool = pool();
        assert_ne!(submit(&pool, || ()).await.unwrap(), std::thread::current().id());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_two_workers_one_stays_free() {
        let busy = Arc::new(BusyWorkers::default());
        let pool = ConnectionPool::open(TestWorker(None), "desk", Arc::clone(&busy)).unwrap();
        let guard = busy.enter();
        assert!(guard.is_some() && busy.enter().is_none());
        assert_ne!(submit(&pool, || ()).await.unwrap(), std::thread::current().id());
        drop(guard);
        do_one_here(&pool).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_comes_while_the_connection_is_at_work_is_done_after_it() {
        let pool = Arc::new(pool());
        let (started, is_begun) = mpsc::channel();
        let (end, is_to_end) = mpsc::channel();
        let slow = tokio::spawn(submit(&pool, move || {
            started.send(()).unwrap();
            is_to_end.recv().unwrap();
        }));
        tokio::task::spawn_blocking(move || is_begun.recv().unwrap()).await.unwrap();
        let mut pending = submit(&pool, || ());
        assert!(poll_once(&mut pending).is_pending());
        end.send(()).unwrap();
        pending.await.unwrap();
        slow.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_nobody_asks_for_is_done_too() {
        let pool = pool();
        let (done, is_done) = mpsc::channel();
        drop(submit(&pool, move || done.send(()).unwrap()));
        tokio::task::spawn_blocking(move || is_done.recv().unwrap()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_ends_its_connection_and_with_the_last_one_the_desk() {
        let pool = pool();
        let panics = submit(&pool, || panic!("in vain"));
        assert!(matches!(panics.await, Err(Error::Closed)));
        assert!(matches!(submit(&pool, || ()).await, Err(Error::Closed)));
        pool.close()();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_submitted_before_the_close_is_done() {
        let pool = pool();
        let pending = submit(&pool, || ());
        tokio::task::spawn_blocking(pool.close()).await.unwrap();
        pending.await.unwrap();
        assert!(matches!(submit(&pool, || ()).await, Err(Error::Closed)));
    }
}
