//! Why a run could not be made: one line that says what to do about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a run has no figures, or only those of its beginning.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments do not fit together.
    Usage(String),
    /// Nobody listens there, or not for long.
    Absent(SocketAddr, io::Error),
    /// The server answered, but not to be measured: its status and words.
    Refused {
        /// What was asked of it.
        request: &'static str,
        /// Status code.
        status: u16,
        /// Beginning of its answer.
        answer: String,
    },
    /// The server lets nobody in without its token: what was asked, and whether a token was shown.
    Unauthorized {
        /// What was asked of it.
        request: &'static str,
        /// AEP_TOKEN is set.
        with_token: bool,
    },
    /// What listens there does not speak this protocol.
    Stranger(String),
    /// Something on our side: descriptors, files, threads.
    Local(&'static str, io::Error),
    /// The page of `--report` cannot be written.
    Page(PathBuf, io::Error),
    /// The server stopped answering within the time allowed.
    Stuck(String),
    /// A signal came.
    Interrupted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => f.write_str(what),
            Self::Absent(address, error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                write!(f, "nothing listens on {address}: is the server running?")
            }
            Self::Absent(address, error) => write!(f, "no connection to {address}: {error}"),
            Self::Unauthorized { request, with_token: false } => {
                write!(f, "{request} was refused with 401: the server wants a token, set AEP_TOKEN")
            }
            Self::Unauthorized { request, with_token: true } => {
                write!(f, "{request} was refused with 401: the token was refused, see AEP_TOKEN")
            }
            Self::Refused { request, status: 503, .. } => {
                write!(f, "{request} was refused with 503: the server is at its connection limit or shutting down")
            }
            Self::Refused { request, status, answer } => write!(f, "{request} was refused with {status}: {answer}"),
            Self::Stranger(what) => write!(f, "{what}: wrong --kind, or no relay at all?"),
            Self::Local(what, error) => write!(f, "{what}: {error}"),
            Self::Page(path, error) => write!(f, "--report {}: {error}", path.display()),
            Self::Stuck(what) => f.write_str(what),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
