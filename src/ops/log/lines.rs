//! Lines on their way to a stream that perhaps nobody reads: a bounded buffer, and one thread that writes.
//!
//! Nobody but that thread ever waits for the stream, so that a full pipe stops no core, no signal and no drain. Lines
//! that do not fit are left out and counted, and where they are missing the stream says so once it takes bytes again.
//!
//! Invariants: at most [`LOG_BYTES_MAX`] wait, and as much again is being written; lines keep their order; once one was
//! left out, so is what follows, until the buffer is taken: a stream has one gap, and the notice stands in it. The lock
//! is held for copying a line and never while writing.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::{LOG_BYTES_MAX, LOG_EXIT_TIME};

/// How soon a stream that refuses bytes for the moment, as one without blocking may, is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A stream's lines. Clones lead to the same stream, whose thread ends with the process.
#[derive(Debug, Clone)]
pub struct Lines(Arc<SharedLines>);

#[derive(Debug, Default)]
struct SharedLines {
    state: Mutex<LinesState>,
    /// Something waits to be written.
    more: Condvar,
    /// Something was written.
    less: Condvar,
}

#[derive(Debug, Default)]
struct LinesState {
    /// Whole lines.
    waiting: Vec<u8>,
    /// Lines left out since the buffer was last taken.
    gap: u64,
    /// Lines left out in all.
    left_out: u64,
    /// What was taken is not all written.
    is_writing: bool,
    /// Since when the stream has taken nothing of it.
    stuck_since: Option<Instant>,
}

impl Lines {
    /// Starts the thread that writes to `stream`.
    ///
    /// # Errors
    /// The process may have no further thread.
    pub fn to(stream: impl Write + Send + 'static, thread: &str) -> io::Result<Self> {
        let lines = Self(Arc::default());
        let shared = Arc::clone(&lines.0);
        thread::Builder::new().name(thread.to_owned()).spawn(move || shared.write_all(stream))?;
        Ok(lines)
    }

    /// Adds a line, which ends in a line feed, or leaves it out.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.gap > 0 || state.waiting.len() + line.len() > LOG_BYTES_MAX {
            state.leave_out(1);
        } else {
            state.waiting.extend_from_slice(line);
        }
        drop(state);
        self.0.more.notify_one();
    }

    /// How many lines were left out so far, those that the stream refused for good included.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.0.lock().left_out
    }

    /// Waits until everything is written: [`LOG_EXIT_TIME`] at most, and no longer at a stream that has taken nothing
    /// for as long already.
    pub fn flush(&self) {
        let asked = Instant::now();
        let mut state = self.0.lock();
        while state.is_writing || !state.waiting.is_empty() {
            let since = state.stuck_since.map_or(asked, |since| since.min(asked));
            let left = LOG_EXIT_TIME.saturating_sub(since.elapsed());
            if left.is_zero() {
                return;
            }
            state = self.0.less.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl LinesState {
    fn leave_out(&mut self, count: u64) {
        self.gap += count;
        self.left_out += count;
    }
}

impl SharedLines {
    /// The state is whole after every statement that changes it, whoever panicked meanwhile.
    fn lock(&self) -> MutexGuard<'_, LinesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut stream: impl Write) {
        let mut taken = Vec::new();
        loop {
            self.take(&mut taken);
            let unwritten = self.write(&taken, &mut stream);
            taken.clear();
            let mut state = self.lock();
            state.leave_out(unwritten);
            state.is_writing = false;
            state.stuck_since = None;
            drop(state);
            self.less.notify_all();
        }
    }

    /// Waits for lines and takes them all; what was left out behind them is noted where it is missing.
    fn take(&self, taken: &mut Vec<u8>) {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        mem::swap(&mut state.waiting, taken);
        let gap = mem::take(&mut state.gap);
        state.is_writing = true;
        state.stuck_since = Some(Instant::now());
        drop(state);
        if gap > 0 {
            let lines = if gap == 1 { "1 line was".to_owned() } else { format!("{gap} lines were") };
            taken.extend_from_slice(format!("{lines} left out of the log: it was not read fast enough\n").as_bytes());
        }
    }

    /// Writes all of it, however long that takes. Returns how many lines the stream has refused for good.
    fn write(&self, mut rest: &[u8], stream: &mut impl Write) -> u64 {
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(count @ 1..) => {
                    rest = rest.get(count..).unwrap_or_default();
                    self.lock().stuck_since = Some(Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(ASK_AGAIN),
                Ok(_) | Err(_) => return memchr::memchr_iter(b'\n', rest).count() as u64,
            }
        }
        // Whoever cannot be flushed now is flushed with the next lines.
        let _later = stream.flush();
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver, SyncSender};

    /// Tells what is written, and takes it when it is told to.
    struct Stream {
        written: SyncSender<Vec<u8>>,
    }

    impl Write for Stream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.send(bytes.to_vec()).map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Lines to a stream that takes each write when the test receives it.
    fn stream() -> (Lines, Receiver<Vec<u8>>) {
        let (written, receiver) = mpsc::sync_channel(0);
        (Lines::to(Stream { written }, "lines").unwrap(), receiver)
    }

    #[test]
    fn who_writes_never_waits_and_what_is_missing_is_told_where_it_is_missing() {
        let (lines, receiver) = stream();
        lines.push(b"first\n");
        // It is being written from now on, and the rest waits behind it.
        while !lines.0.lock().waiting.is_empty() {
            thread::yield_now();
        }
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        let fit = LOG_BYTES_MAX / line.len();
        for _ in 0..fit + 7 {
            lines.push(&line);
        }
        lines.push(b"short\n");
        let left_out = lines.left_out();
        assert_eq!(left_out, 8, "nothing comes behind a gap before it is told");
        assert_eq!(receiver.recv().unwrap(), b"first\n");
        let notice = format!("{left_out} lines were left out of the log: it was not read fast enough\n");
        assert_eq!(receiver.recv().unwrap(), [line.repeat(fit), notice.into_bytes()].concat());
        lines.push(b"again\n");
        assert_eq!(receiver.recv().unwrap(), b"again\n");
        assert_eq!(lines.left_out(), left_out);
    }

    #[test]
    fn a_flush_waits_for_a_stream_that_takes_and_not_for_one_that_does_not() {
        let (lines, receiver) = stream();
        lines.push(b"a\n");
        // Nobody receives: it comes back all the same.
        lines.flush();
        assert_eq!(receiver.recv().unwrap(), b"a\n");
        while lines.0.lock().is_writing {
            thread::yield_now();
        }
        let reader = thread::spawn(move || receiver.into_iter().take(2).collect::<Vec<_>>());
        for line in [b"b\n", b"c\n"] {
            lines.push(line);
            lines.flush();
            let state = lines.0.lock();
            assert!(state.waiting.is_empty() && !state.is_writing);
        }
        assert_eq!(reader.join().unwrap().concat(), b"b\nc\n");
    }

    #[test]
    fn lines_that_a_stream_refuses_for_good_are_counted() {
        let (lines, receiver) = stream();
        drop(receiver);
        lines.push(b"a\n");
        lines.flush();
        lines.push(b"b\n");
        lines.flush();
        assert_eq!(lines.left_out(), 2);
    }
}
