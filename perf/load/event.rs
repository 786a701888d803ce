//! The events of a run: valid AEP events that carry their own account.
//!
//! Each bears a *mark* in its data: which run, which session, which sequence number, when it was meant to be sent, and
//! how long the whole event is. A consumer needs nothing else to tell loss, doubles, order, damage and latency, so it
//! reads the mark alone and parses no JSON. Sessions are numbered; one publisher writes one session, hence the order of
//! arrival at the server is the order of sequence numbers.

use memchr::memmem::Finder;

const MARK_KEY: &[u8] = b"\"mark\":\"";
/// Widths of the mark's hexadecimal fields, one full stop between each: run, session, seq, nanoseconds, bytes.
const WIDTHS: [usize; 5] = [8, 6, 10, 14, 6];
const MARK_BYTES: usize = 8 + 1 + 6 + 1 + 10 + 1 + 14 + 1 + 6;
/// Longest event: what the mark's last field can say.
pub(crate) const EVENT_BYTES_MAX: usize = 0xff_ffff;
/// A sequence number as long as any that an event of the least size has room for.
const LONGEST_SEQ: u64 = 999_999_999;
/// As long as the time of any run.
const SOME_TIME: &str = "2026-01-01T00:00:00.000Z";

/// What an event says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The run that made it: a relay may carry other events meanwhile.
    pub(crate) run: u32,
    /// Number of its session.
    pub(crate) session: u32,
    /// Sequence number, from 1.
    pub(crate) seq: u64,
    /// When it was meant to be sent, in nanoseconds of the run.
    pub(crate) at: u64,
    /// Length of the whole event in bytes.
    pub(crate) bytes: usize,
}

/// Writes the events of one run.
#[derive(Debug)]
pub(crate) struct Author {
    run: u32,
    /// Per session: what precedes the id's number, what follows it, and what lies between `seq` and the mark.
    sessions: Vec<[Vec<u8>; 3]>,
    /// Length every event is filled up to.
    size: usize,
    /// Bytes to fill with.
    filler: Vec<u8>,
}

impl Author {
    /// An author of `sessions` sessions whose events are `size` bytes long, or as short as they can be above that.
    pub(crate) fn new(run: u32, sessions: u32, size: usize, kind: &str, severity: Option<&str>, time: &str) -> Self {
        let sessions = (0..sessions).map(|number| frame(run, number, kind, severity, time)).collect();
        Self { run, sessions, size, filler: vec![b'x'; size] }
    }

    /// Appends one event.
    pub(crate) fn write(&self, out: &mut Vec<u8>, session: u32, seq: u64, at: u64) {
        let Some([before_id, after_id, before_mark]) = self.sessions.get(session as usize) else { return };
        let start = out.len();
        let mut digits = [0; 20];
        let digits = decimal(&mut digits, seq);
        out.extend_from_slice(before_id);
        out.extend_from_slice(digits);
        out.extend_from_slice(after_id);
        out.extend_from_slice(digits);
        out.extend_from_slice(before_mark);
        let bare = out.len() - start + MARK_BYTES + "\",\"pad\":\"\"}}".len();
        let fill = self.size.saturating_sub(bare);
        let bytes = (bare + fill) as u64;
        let fields = [u64::from(self.run), u64::from(session), seq, at, bytes];
        for (index, (value, width)) in fields.into_iter().zip(WIDTHS).enumerate() {
            if index > 0 {
                out.push(b'.');
            }
            push_hex(out, value, width);
        }
        out.extend_from_slice(b"\",\"pad\":\"");
        out.extend_from_slice(self.filler.get(..fill).unwrap_or_default());
        out.extend_from_slice(b"\"}}");
    }
}

/// What stands around an event's numbers and its mark, in a session.
fn frame(run: u32, session: u32, kind: &str, severity: Option<&str>, time: &str) -> [Vec<u8>; 3] {
    let severity = severity.map_or(String::new(), |level| format!(",\"severity\":\"{level}\""));
    let after_id = format!(
        "\",\"type\":\"{kind}\",\"time\":\"{time}\",\"source\":\"aep-load\",\"agent\":\"load\",\
         \"session\":\"{}\",\"seq\":",
        session_name(run, session)
    );
    [
        format!("{{\"aep\":\"0.1\",\"id\":\"{run:08x}-{session}-").into_bytes(),
        after_id.into_bytes(),
        format!("{severity},\"data\":{{\"mark\":\"").into_bytes(),
    ]
}

/// The least size that every event of such a run can have.
pub(crate) fn event_bytes_min(sessions: u32, kind: &str, severity: Option<&str>) -> usize {
    let longest = frame(0, sessions.saturating_sub(1), kind, severity, SOME_TIME);
    let author = Author { run: 0, sessions: vec![longest], size: 0, filler: Vec::new() };
    let mut event = Vec::new();
    author.write(&mut event, 0, LONGEST_SEQ, 0);
    event.len()
}

/// Name of a session of a run.
pub(crate) fn session_name(run: u32, session: u32) -> String {
    format!("load-{run:08x}-{session}")
}

/// Finds marks in events.
#[derive(Debug)]
pub(crate) struct MarkReader(Finder<'static>);

impl MarkReader {
    pub(crate) fn new() -> Self {
        Self(Finder::new(MARK_KEY))
    }

    /// The event's mark, or nothing if it is none of ours.
    pub(crate) fn read(&self, event: &[u8]) -> Option<Mark> {
        let start = self.0.find(event)? + MARK_KEY.len();
        let mut rest = event.get(start..start + MARK_BYTES)?;
        let mut fields = [0; WIDTHS.len()];
        for (field, width) in fields.iter_mut().zip(WIDTHS) {
            let (text, behind) = rest.split_at_checked(width)?;
            *field = hex(text)?;
            rest = behind.strip_prefix(b".").unwrap_or(behind);
        }
        let [run, session, seq, at, bytes] = fields;
        Some(Mark {
            run: u32::try_from(run).ok()?,
            session: u32::try_from(session).ok()?,
            seq,
            at,
            bytes: usize::try_from(bytes).ok()?,
        })
    }
}

fn push_hex(out: &mut Vec<u8>, value: u64, width: usize) {
    for place in (0..width).rev() {
        let digit = (value >> (4 * place)) as u8 & 0xf;
        out.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value: u64, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

fn decimal(digits: &mut [u8; 20], mut value: u64) -> &[u8] {
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
        start -= 1;
        if value == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(size: usize, seq: u64) -> Vec<u8> {
        let author = Author::new(0xfeed, 3, size, "tool.output", Some("notice"), "2026-01-01T00:00:00Z");
        let mut out = b"before".to_vec();
        author.write(&mut out, 2, seq, 123_456_789);
        out.split_off("before".len())
    }

    #[test]
    fn an_event_is_as_long_as_asked_and_its_mark_says_so() {
        for seq in [1, 9, 10, 123_456_789] {
            let event = event(400, seq);
            assert_eq!(event.len(), 400);
            let mark = MarkReader::new().read(&event).unwrap();
            assert_eq!(mark, Mark { run: 0xfeed, session: 2, seq, at: 123_456_789, bytes: 400 });
        }
    }

    #[test]
    fn an_event_is_json_with_what_the_protocol_requires() {
        let value: serde_json::Value = serde_json::from_slice(&event(1000, 42)).unwrap();
        for (name, expected) in [
            ("aep", "0.1"),
            ("id", "0000feed-2-42"),
            ("type", "tool.output"),
            ("session", "load-0000feed-2"),
            ("severity", "notice"),
        ] {
            assert_eq!(value[name], expected, "{name}");
        }
        assert_eq!(value["seq"], 42);
    }

    #[test]
    fn a_size_below_the_least_gives_the_least() {
        let event = event(1, 7);
        assert_eq!(MarkReader::new().read(&event).unwrap().bytes, event.len());
        assert!(event.ends_with(b"\"pad\":\"\"}}"));
    }

    #[test]
    fn the_least_size_holds_up_to_the_longest_number() {
        let least = event_bytes_min(12, "tool.output", None);
        let author = Author::new(u32::MAX, 12, least, "tool.output", None, SOME_TIME);
        for (session, seq) in [(0, 1), (11, 1), (11, LONGEST_SEQ)] {
            let mut event = Vec::new();
            author.write(&mut event, session, seq, u64::MAX >> 8);
            assert_eq!(event.len(), least, "session {session}, seq {seq}");
        }
    }

    #[test]
    fn an_event_of_somebody_else_has_no_mark() {
        let reader = MarkReader::new();
        assert_eq!(reader.read(b"{\"aep\":\"0.1\"}"), None);
        assert_eq!(reader.read(b"{\"data\":{\"mark\":\"short\"}}"), None);
        let event = event(400, 1);
        let mark = memchr::memmem::find(&event, MARK_KEY).unwrap() + MARK_KEY.len();
        assert_eq!(reader.read(&event[..mark + MARK_BYTES - 1]), None);
        assert!(reader.read(&event[..mark + MARK_BYTES]).is_some());
    }
}
