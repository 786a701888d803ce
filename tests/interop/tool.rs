//! Programs of the machine: finding them, and running them with a deadline.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::support::{Relay, wait_until};

/// How long a program may be silent when a line is expected: interpreters and browsers start slowly on a busy machine.
const LINE_DEADLINE: Duration = Duration::from_secs(60);

/// The program of one of these names on the search path.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names
        .iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)))
        .find(|file| file.is_file())
}

/// Tells that a test is skipped for want of a tool; fails it where all tools are required.
#[track_caller]
pub fn skip(tool: &str) {
    assert!(std::env::var("AEP_INTEROP").as_deref() != Ok("require"), "{tool} is missing, and AEP_INTEROP=require");
    // Written past the harness, which would swallow it in a test that passes.
    let _ = writeln!(std::io::stderr(), "skipped: no {tool}");
}

/// A command that knows where the relay is, and nothing of proxies.
pub fn command(program: impl AsRef<std::ffi::OsStr>, relay: &Relay) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command.env("RELAY_URL", format!("http://{}", relay.address()));
    if let Some(token) = relay.token() {
        command.env("RELAY_TOKEN", token);
    }
    command
}

/// A running program whose standard output is read line by line; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line; nothing at the end of the output.
    #[track_caller]
    pub fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(LINE_DEADLINE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line within {LINE_DEADLINE:?}"),
        }
    }

    #[track_caller]
    pub fn line(&mut self) -> String {
        self.next_line().expect("a line before the program ends")
    }

    /// Everything to the end of a program that succeeds.
    #[track_caller]
    pub fn rest(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.next_line() {
            lines.push(line);
        }
        let mut status: Option<ExitStatus> = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().expect("the child can be waited for");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{status:?} after {lines:?}");
        lines
    }

    /// Ends it without a chance to tidy up.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
