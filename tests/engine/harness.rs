//! An engine on a free port, and blocking clients that write literal bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aep_relay::engine::service::{CoreId, Mail, Service};
use aep_relay::engine::{Bound, Engine, EngineConfig, Outcome};
use aep_relay::limits::Limits;
use aep_relay::ops::metrics::{CoreMetrics, Metrics};

use crate::service::{Demo, Settings};
pub use crate::wait::wait_until;

/// No condition that is waited for takes longer than this, on a machine however slow.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Server {
    engine: Option<Engine>,
    pub address: SocketAddr,
    pub metrics: Metrics,
    cuts: Arc<AtomicUsize>,
}

pub fn start(cores: usize) -> Server {
    start_with(cores, |_, _| {})
}

pub fn start_with(cores: usize, change: impl FnOnce(&mut Limits, &mut Settings)) -> Server {
    let (mut limits, mut settings) = (Limits::default(), Settings::default());
    change(&mut limits, &mut settings);
    let cuts = settings.cuts.clone();
    let server = serve(cores, limits, &Metrics::new(cores), |_| Demo::new(settings.clone()));
    server.counting(cuts)
}

/// An engine with services of one's own.
pub fn serve<S: Service + Send + 'static>(
    cores: usize,
    limits: Limits,
    metrics: &Metrics,
    service: impl FnMut(CoreId) -> S,
) -> Server {
    run(bind(cores, limits, metrics), metrics, service)
}

/// An engine that has its port and no services.
pub fn bind<M: Mail>(cores: usize, limits: Limits, metrics: &Metrics) -> Bound<M> {
    Engine::bind(EngineConfig { address: "127.0.0.1:0".parse().unwrap(), cores, limits }, metrics).unwrap()
}

/// Starts it.
pub fn run<S: Service + Send + 'static>(
    bound: Bound<S::Mail>,
    metrics: &Metrics,
    service: impl FnMut(CoreId) -> S,
) -> Server {
    let engine = bound.start(service).unwrap();
    let address = engine.address();
    Server { address, engine: Some(engine), metrics: metrics.clone(), cuts: Arc::default() }
}

impl Server {
    /// The same with that count of consumers cut.
    fn counting(mut self, cuts: Arc<AtomicUsize>) -> Self {
        self.cuts = cuts;
        self
    }

    pub fn client(&self) -> Client {
        Client::to(self.address)
    }

    /// A client whose event stream is open.
    pub fn stream(&self) -> Client {
        let mut client = self.client();
        client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        client.read_through("\r\n\r\n");
        client.read_through(": open\n\n\r\n");
        client
    }

    /// A client whose WebSocket is open.
    pub fn websocket(&self) -> Client {
        let mut client = self.client();
        client.send(
            "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let head = client.read_through("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        client
    }

    pub fn publish(&self, event: &str) {
        let mut client = self.client();
        client.publish(event);
    }

    /// Consumers that were cut for being too slow, or are being cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Turns of all cores, with the present ones.
    pub fn turns(&self) -> u64 {
        self.metrics.sum(|core| core.turns.value())
    }

    pub fn stop(&self) {
        self.engine.as_ref().unwrap().stopper().stop();
    }

    pub fn join(&mut self) -> Outcome {
        self.engine.take().unwrap().join()
    }

    /// Waits until a sum over all cores is as wanted.
    pub fn wait_until(&self, what: &str, value: impl Fn(&CoreMetrics) -> u64, wanted: impl Fn(u64) -> bool) {
        wait_until(what, || wanted(self.metrics.sum(&value)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stopper().stop();
            let _outcome = engine.join();
        }
    }
}

/// Runs an ignored test in a process of its own, which has to die with that message.
pub fn dies_of(test: &str, message: &str) {
    let output = alone(test);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(message), "{}: {said}", output.status);
}

/// Runs an ignored test in a process of its own, where it has to pass.
pub fn passes_alone(test: &str) {
    let output = alone(test);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

fn alone(test: &str) -> std::process::Output {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap()
}

pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn publish(&mut self, event: &str) {
        self.send(format!("POST /publish HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{event}", event.len()));
        let (status, _) = self.answer();
        assert_eq!(status, 202);
    }

    pub fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// One read into the buffer; false at the end of the connection, which must not be a reset.
    fn fill(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        let count = self.stream.read(&mut bytes).unwrap();
        self.buffer.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// Whether an answer, or the end, comes within that time.
    pub fn has_answer_within(&self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let answered = self.stream.peek(&mut [0]).is_ok();
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        answered
    }

    /// Everything up to and with that text.
    #[track_caller]
    pub fn read_through(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, text.as_bytes()) {
                let rest = self.buffer.split_off(at + text.len());
                return String::from_utf8(std::mem::replace(&mut self.buffer, rest)).unwrap();
            }
            assert!(self.fill(), "ended before {text:?}; got {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    #[track_caller]
    pub fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.fill(), "ended after {} of {count} bytes", self.buffer.len());
        }
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// An answer with its body, by its length.
    #[track_caller]
    pub fn answer(&mut self) -> (u16, Vec<u8>) {
        let head = self.read_through("\r\n\r\n");
        let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        (status, self.read_exactly(length.map_or(0, |length| length.parse().unwrap())))
    }

    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    /// The content of the next chunk of an event stream; none for the last.
    #[track_caller]
    pub fn chunk(&mut self) -> Option<String> {
        let size = self.read_through("\r\n");
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut content = self.read_exactly(size + 2);
        content.truncate(size);
        (size > 0).then(|| String::from_utf8(content).unwrap())
    }

    /// The next event of an event stream, heartbeats passed over.
    #[track_caller]
    pub fn event(&mut self) -> Option<String> {
        loop {
            let chunk = self.chunk()?;
            if let Some(data) = chunk.strip_prefix("data: ") {
                return Some(data.trim_end().to_owned());
            }
        }
    }

    /// Sends a client frame, masked with zeros.
    pub fn send_frame(&mut self, first: u8, payload: &[u8]) {
        self.send(client_frame(first, payload));
    }

    /// The next frame of the server: its first byte and payload.
    #[track_caller]
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.read_exactly(2);
        let length = match head[1] {
            126 => u16::from_be_bytes(self.read_exactly(2).try_into().unwrap()) as usize,
            127 => u64::from_be_bytes(self.read_exactly(8).try_into().unwrap()) as usize,
            short => usize::from(short),
        };
        (head[0], self.read_exactly(length))
    }
}

pub fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        medium @ ..65_536 => {
            frame.push(0x80 | 126);
            frame.extend((medium as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}
