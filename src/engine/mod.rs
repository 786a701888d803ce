//! The event loop: the only code that knows `mio`.
//!
//! One core is one thread with a poll, a listener, connections, a timer wheel, a mailbox and a [`Service`]. Cores share
//! a few counts (`process.rs`) and send each other mail (`mailbox/`); there is no lock. What stands above sees
//! [`service`] alone.
//!
//! # A turn
//!
//! 1. *Poll*, and read the clock before and behind it. Edges are remembered in the connections they belong to.
//! 2. *Accept*, within a budget; a core that has many more connections than another hands them over.
//! 3. *Expire*: find the deadlines and alarms that have come.
//! 4. *Read* connections with input, within a budget each and together; decoded requests and messages go to the
//!    service.
//! 5. *Mail*: bags filled so far leave; the fan-out lane is emptied, the ingest lane within a budget.
//! 6. *Work*: [`Service::on_turn`]. Where it sent its own core mail and has no work left, 5 and 6 happen again, so
//!    that with one core an event goes from its socket to all write queues within one turn.
//! 7. *Flush*: answers first, then consumers in turn, within a budget; each takes all that is ready for it. Only now
//!    are those judged whose deadline has come, by what they have brought and taken.
//! 8. *Bounds*: backlogs, delivery blocks, whether publishers have to wait; then blocks nobody refers to are free
//!    again.
//!
//! No step holds the core for more than some milliseconds, whatever a peer sent: each has a budget of what it looks at,
//! and so has the service. `turn_seconds` of the metrics tells how long turns take.
//!
//! What a budget leaves over stays on a list, and then the next poll does not sleep. So an idle core adds no delay, and
//! a busy one coalesces by itself.
//!
//! # Where to read on
//!
//! `core/` has the turn; `core/input.rs` and `io/flush.rs` the two directions; `connection/http.rs`,
//! `connection/websocket.rs` and `connection/event_stream.rs` what connections speak, without sockets; `blocks.rs` and
//! `write_queue.rs` how one copy of an event reaches a thousand consumers; `mailbox/post.rs` how other threads send
//! mail; `io/receiving.rs` who may send how much, and how slowly; `io/pacing.rs` who has to wait for whom;
//! `core/drain.rs` the end.

mod blocks;
mod connection;
mod core;
mod io;
mod listener;
mod mailbox;
mod pace;
mod process;
mod reached;
pub mod service;
mod socket;
mod thread;
mod token;
mod write_queue;

use std::fmt;
use std::io::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::mio::net::TcpListener;
use ::mio::{Poll, Waker};
use crossbeam_channel::unbounded;

pub use self::core::drain::Outcome;
pub use mailbox::post::Poster;
pub use thread::spawn;

use self::core::accept::Migration;
use self::core::{Clock, Core, Parts};
use self::io::pacing;
use self::mailbox::{Inbox, Mailbox};
use self::process::Process;
use self::service::{CoreId, Mail, Service};
use crate::limits::Limits;
use crate::ops::metrics::Metrics;

/// What an engine is started with.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where to listen; port 0 stands for any free one.
    pub address: SocketAddr,
    /// How many cores, 1 to [`crate::limits::CORES_MAX`].
    pub cores: usize,
    /// Every bound.
    pub limits: Limits,
}

/// The running cores.
#[derive(Debug)]
pub struct Engine {
    address: SocketAddr,
    process: Arc<Process>,
    threads: Vec<JoinHandle<Outcome>>,
}

/// Asks the engine to drain; may be cloned and sent anywhere.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Process>);

impl Stopper {
    /// Begins the drain, once.
    pub fn stop(&self) {
        self.0.drain();
    }
}

/// Why an engine did not start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened on: the port is taken, or the address is not of this machine.
    Listen(SocketAddr, Error),
    /// A core could not be set up, mostly for want of descriptors.
    Core(Error),
    /// There is no thread for a core, of so many: too little memory, or a limit of processes.
    Thread(usize, Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Core(error) => write!(f, "cannot set up a core: {error}"),
            Self::Thread(cores, error) => {
                write!(
                    f,
                    "cannot start a thread for each of AEP_CORES={cores} cores: {error} (limits of threads and memory)"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

/// An engine that has its port and no services yet: nobody is accepted, but its mailboxes take mail.
#[derive(Debug)]
pub struct Bound<M> {
    address: SocketAddr,
    process: Arc<Process>,
    resources: Vec<Resources<M>>,
    poster: Poster<M>,
    metrics: Metrics,
}

/// What one core is made of.
#[derive(Debug)]
struct Resources<M> {
    poll: Poll,
    listener: TcpListener,
    mailbox: Mailbox<M>,
}

impl<M: Mail> Bound<M> {
    /// Where it will serve clients. The kernel lets them wait from now on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What threads that are no cores send mail with, before the start and after it. What comes before waits for it.
    #[must_use]
    pub fn poster(&self) -> Poster<M> {
        self.poster.clone()
    }

    /// Starts a thread per core, each with a service of its own. When this returns, clients are served.
    ///
    /// # Errors
    /// See [`StartError`]. Cores that have started by then go on until the process ends.
    pub fn start<S: Service<Mail = M> + Send + 'static>(
        self,
        mut service: impl FnMut(CoreId) -> S,
    ) -> Result<Engine, StartError> {
        let Self { address, process, resources, metrics, .. } = self;
        let cores = resources.len();
        let (to, incoming): (Vec<_>, Vec<_>) = (0..cores).map(|_| unbounded()).unzip();
        let clock = Clock::start();
        let mut ready = Vec::with_capacity(cores);
        for (core, (resources, incoming)) in (0..).map(CoreId).zip(resources.into_iter().zip(incoming)) {
            let Resources { poll, listener, mailbox } = resources;
            let migration = Migration { to: to.clone(), incoming };
            let metrics = metrics.core(usize::from(core.0));
            let process = process.clone();
            let parts = Parts { core, poll, listener, process, mailbox, migration, metrics, clock };
            ready.push(Core::new(parts, service(core)).map_err(StartError::Core)?);
        }
        let spawn = |(index, core)| thread::spawn(format!("core-{index}"), move || run(core));
        let threads = ready.into_iter().enumerate().map(spawn).collect::<Result<Vec<_>, Error>>();
        let threads = threads.map_err(|error| StartError::Thread(cores, error))?;
        Ok(Engine { address, process, threads })
    }
}

impl Engine {
    /// Takes the port, and what every core needs.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Panics
    /// With no core, or more than [`crate::limits::CORES_MAX`].
    pub fn bind<M: Mail>(config: EngineConfig, metrics: &Metrics) -> Result<Bound<M>, StartError> {
        let cores = config.cores;
        let (address, listeners) =
            listener::bind(config.address, cores).map_err(|error| StartError::Listen(config.address, error))?;
        let polls = (0..cores).map(|_| Poll::new()).collect::<Result<Vec<_>, Error>>().map_err(StartError::Core)?;
        let inboxes = polls.iter().map(|poll| Ok(Inbox::new(Waker::new(poll.registry(), token::WAKER)?)));
        let inboxes: Arc<[Inbox]> = inboxes.collect::<Result<Vec<_>, Error>>().map_err(StartError::Core)?.into();
        let limits = config.limits;
        let process = Arc::new(Process::new(limits.clone(), inboxes.clone(), || pacing::throttle(&limits)));
        let (mailboxes, poster) = mailbox::mailboxes(&inboxes, process.limits.stage_bytes());
        let resources = polls.into_iter().zip(listeners).zip(mailboxes);
        let resources = resources.map(|((poll, listener), mailbox)| Resources { poll, listener, mailbox }).collect();
        Ok(Bound { address, process, resources, poster, metrics: metrics.clone() })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.process.clone())
    }

    /// Waits for the end of all cores.
    #[must_use]
    pub fn join(self) -> Outcome {
        let outcomes = self.threads.into_iter().map(|thread| thread.join().unwrap_or(Outcome::TimedOut));
        let timed_out = outcomes.filter(|outcome| *outcome == Outcome::TimedOut).count();
        if timed_out == 0 { Outcome::Drained } else { Outcome::TimedOut }
    }
}

/// A core's thread.
fn run<S: Service>(core: Core<S>) -> Outcome {
    // As a panic, since its message is waited for before the end; the log's lines are not.
    core.run().unwrap_or_else(|error| panic!("the poll of a core failed: {error}"))
}
