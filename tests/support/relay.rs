//! The relay under test: a child process on a free port.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde_json::Value;

use super::http::{Http, Response, request};
use super::wait::{DEADLINE, wait_until};

/// Settings of one relay. Nothing of the environment's own `AEP_*` reaches it.
#[derive(Debug, Default)]
pub struct Options {
    environment: Vec<(String, String)>,
    token: Option<String>,
    /// What a shell does before it becomes the relay.
    before: Vec<String>,
    unread: bool,
}

impl Options {
    pub fn env(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Sets the token, which the clients then send unless told otherwise.
    pub fn token(&mut self, token: &str) -> &mut Self {
        self.token = Some(token.to_owned());
        self.env("AEP_TOKEN", token)
    }

    /// Lowers the process's limit of file descriptors, soft and hard.
    pub fn descriptors(&mut self, count: u32) -> &mut Self {
        self.before.push(format!("ulimit -n {count}"));
        self
    }

    /// SIGHUP is ignored at the start, as under `nohup`.
    pub fn nohup(&mut self) -> &mut Self {
        self.before.push("trap '' HUP".to_owned());
        self
    }

    /// Nobody reads stderr until [`Relay::read_stderr`].
    pub fn unread(&mut self) -> &mut Self {
        self.unread = true;
        self
    }

    /// The command that starts the relay. It runs on two cores (or `TEST_CORES`), so that the ways between cores are
    /// taken on every machine.
    pub fn command(&self) -> Command {
        let binary = env!("CARGO_BIN_EXE_aep-relay");
        let mut command = if self.before.is_empty() {
            Command::new(binary)
        } else {
            // The shell replaces itself by the relay: one process, which signals reach.
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("{}; exec \"$0\" \"$@\"", self.before.join("; "))).arg(binary);
            shell
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name)) {
            command.env_remove(name);
        }
        let cores = std::env::var("TEST_CORES").unwrap_or_else(|_| "2".to_owned());
        command.env("AEP_PORT", "0").env("AEP_CORES", cores);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A running relay, killed when dropped.
#[derive(Debug)]
pub struct Relay {
    child: Child,
    boot_line: String,
    address: SocketAddr,
    token: Option<String>,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    unread: Option<ChildStderr>,
}

impl Relay {
    /// Starts a relay on a free port of the loopback and waits for its boot line.
    #[track_caller]
    pub fn start(configure: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::default();
        configure(&mut options);
        let mut command = options.command();
        let mut child = command.spawn().expect("the relay's binary starts");

        let stderr = Arc::default();
        let mut unread = child.stderr.take();
        if !options.unread {
            collect(unread.take().unwrap(), &stderr);
        }
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let stdout = Arc::new(Mutex::new(Vec::new()));
        let (boot, booted) = mpsc::channel();
        let rest = Arc::clone(&stdout);
        thread::spawn(move || {
            let mut line = String::new();
            let _ = output.read_line(&mut line);
            let _ = boot.send(line);
            copy(output, &rest);
        });
        let boot_line = booted.recv_timeout(DEADLINE).unwrap_or_default();
        let address = boot_line
            .strip_prefix("aep-relay on http://")
            .and_then(|rest| rest.split(' ').next())
            .and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("no boot line: {boot_line:?}; stderr: {}", text(&stderr));
        };
        Self { child, boot_line, address, token: options.token, stdout, stderr, unread }
    }

    /// A relay with nothing set.
    #[track_caller]
    pub fn plain() -> Self {
        Self::start(|_| {})
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn boot_line(&self) -> &str {
        &self.boot_line
    }

    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stdout after the boot line.
    pub fn stdout(&self) -> String {
        text(&self.stdout)
    }

    pub fn stderr(&self) -> String {
        text(&self.stderr)
    }

    /// Begins to read stderr, which was started [`Options::unread`].
    pub fn read_stderr(&mut self) {
        collect(self.unread.take().expect("nobody reads it"), &self.stderr);
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// The most resident memory there ever was, in KiB.
    pub fn resident_most_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the relay lives");
        let line = status.lines().find(|line| line.starts_with(name)).expect("resident memory is listed");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB")
    }

    /// Sends a signal by name (`TERM`, `INT`, `STOP`, …). The shell's own `kill` is on every machine.
    pub fn signal(&self, name: &str) {
        let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.pid())).status();
        assert!(status.expect("a shell").success(), "the signal could not be sent");
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn exit_status(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = None;
        wait_until("the relay exits", || {
            status = child.try_wait().expect("the child can be waited for");
            status.is_some()
        });
        status.unwrap()
    }

    /// Asks for the shutdown and waits for its end.
    #[track_caller]
    pub fn term(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.exit_status()
    }

    /// Ends the process without a chance to say anything.
    pub fn kill(&mut self) {
        self.child.kill().expect("the relay can be killed");
        self.child.wait().expect("the child can be waited for");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child can be waited for").is_none()
    }

    /// The field that bears the token, if there is one.
    pub fn authorization(&self) -> Option<(&'static str, String)> {
        self.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}")))
    }

    /// One request on a connection of its own, with the token if there is one.
    #[track_caller]
    pub fn request(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Response {
        let authorization = self.authorization();
        let mut all = fields.to_vec();
        all.extend(authorization.as_ref().map(|(name, value)| (*name, value.as_str())));
        let mut http = Http::connect(self);
        http.send(request(method, target, &all, body));
        if method == "HEAD" { http.response_to_head() } else { http.response() }
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.request("GET", target, &[], b"")
    }

    /// Posts one event.
    #[track_caller]
    pub fn post(&self, body: impl AsRef<[u8]>) -> Response {
        self.request("POST", "/events", &[("Content-Type", "application/json")], body.as_ref())
    }

    /// Posts NDJSON as it is given.
    #[track_caller]
    pub fn post_lines(&self, body: impl AsRef<[u8]>) -> Response {
        self.request("POST", "/events", &[("Content-Type", "application/x-ndjson")], body.as_ref())
    }

    /// Publishes events in one batch that must be accepted.
    #[track_caller]
    pub fn publish(&self, events: &[impl AsRef<str>]) {
        let lines: Vec<&str> = events.iter().map(AsRef::as_ref).collect();
        let response = self.post_lines(lines.join("\n"));
        let accepted = format!("{{\"accepted\":{}}}", events.len());
        assert_eq!((response.status, response.text()), (202, accepted), "the batch is accepted");
    }

    /// The authorized answer of `/healthz`.
    #[track_caller]
    pub fn health(&self) -> Value {
        let response = self.get("/healthz");
        assert_eq!(response.status, 200);
        response.json()
    }

    /// One count of `/healthz`.
    #[track_caller]
    pub fn count(&self, member: &str) -> u64 {
        self.health()[member].as_u64().unwrap_or_else(|| panic!("/healthz tells {member}"))
    }
}

impl Relay {
    /// The metrics as text.
    #[track_caller]
    pub fn metrics(&self) -> String {
        let response = self.get("/metrics");
        assert_eq!(response.status, 200, "metrics are served");
        response.text()
    }

    /// The sum of all samples of `aep_relay_{name}` whose labels hold `label`.
    #[track_caller]
    pub fn metric(&self, name: &str, label: &str) -> u64 {
        let metrics = self.metrics();
        let samples: Vec<u64> = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("aep_relay_")?.strip_prefix(name))
            .map(|rest| rest.strip_prefix("_total").unwrap_or(rest))
            .filter(|rest| rest.starts_with([' ', '{']) && rest.contains(label))
            .map(|rest| rest.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number"))
            .collect();
        assert!(!samples.is_empty(), "no sample of {name} with {label:?} in\n{metrics}");
        samples.iter().sum()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            // Captured by the test harness and shown with the failure.
            #[allow(clippy::print_stderr, reason = "the relay's own log explains a failed test")]
            {
                eprintln!("── stderr of the relay ──\n{}", self.stderr());
            }
        }
    }
}

/// The directory of the protocol's public conformance data, if the environment names one.
pub fn data_directory() -> Option<PathBuf> {
    std::env::var_os("AEP_TEST_DATA").filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_setting(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("AEP_")
}

fn collect(output: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) {
    let sink = Arc::clone(to);
    thread::spawn(move || copy(output, &sink));
}

fn copy(mut from: impl Read, to: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        to.lock().unwrap().extend_from_slice(&chunk[..count]);
    }
}

fn text(collected: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&collected.lock().unwrap()).into_owned()
}
