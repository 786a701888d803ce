//! The events of a run: valid AEP events that carry their own account.
//!
//! Each bears a *mark* in its data: which run, which session, which sequence number, and when it was meant to be sent;
//! and it ends in the CRC-32 of everything before. A consumer needs nothing else to tell loss, doubles, order, damage
//! and latency, so it reads these alone and parses no JSON. Sessions are numbered; one publisher writes one session,
//! hence the order of arrival at the server is the order of sequence numbers.

use memchr::memchr;
use memchr::memmem::Finder;

use super::decode::Labels;

/// What every event begins with, up to its id.
const BEGINNING: &str = "{\"aep\":\"0.1\",\"id\":\"";
const MARK_KEY: &[u8] = b"\"mark\":\"";
/// Widths of the mark's hexadecimal fields, one full stop between each: run, session, seq, nanoseconds.
const WIDTHS: [usize; 4] = [8, 6, 10, 14];
const MARK_BYTES: usize = 8 + 1 + 6 + 1 + 10 + 1 + 14;
const BEFORE_PAD: &[u8] = b"\",\"pad\":\"";
const BEFORE_SUM: &[u8] = b"\",\"sum\":\"";
/// Width of the checksum, in hexadecimal digits.
const SUM_BYTES: usize = 8;
const END: &[u8] = b"\"}}";
/// Events a reader remembers to compare others with, and the longest of them.
const KNOWN_EVENTS: usize = 1024;
const KNOWN_BYTES_MAX: usize = 4096;
/// Longest event.
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
}

/// What an event that came turns out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// One of the run, as it was sent.
    Whole(Mark),
    /// One of the run, and not as it was sent: what is wrong with it.
    Damaged(&'static str),
    /// Somebody else's: a relay may carry other events meanwhile.
    Foreign,
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
        let bare = out.len() - start + MARK_BYTES + BEFORE_PAD.len() + BEFORE_SUM.len() + SUM_BYTES + END.len();
        let fill = self.size.saturating_sub(bare);
        let fields = [u64::from(self.run), u64::from(session), seq, at];
        for (index, (value, width)) in fields.into_iter().zip(WIDTHS).enumerate() {
            if index > 0 {
                out.push(b'.');
            }
            push_hex(out, value, width);
        }
        out.extend_from_slice(BEFORE_PAD);
        out.extend_from_slice(self.filler.get(..fill).unwrap_or_default());
        out.extend_from_slice(BEFORE_SUM);
        let sum = crc32fast::hash(out.get(start..).unwrap_or_default());
        push_hex(out, sum.into(), SUM_BYTES);
        out.extend_from_slice(END);
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
        format!("{BEGINNING}{run:08x}-{session}-").into_bytes(),
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

/// Reads the events of one run.
#[derive(Debug)]
pub(crate) struct Reader {
    run: u32,
    mark: Finder<'static>,
    /// The run's number, which every event of it bears several times.
    name: Finder<'static>,
    /// What the names of its sessions begin with.
    session: String,
    /// Events found whole, by their checksum: what one consumer received, the next ones receive as well, and comparing
    /// with it costs less than reading it anew.
    known: Vec<Known>,
}

/// An event that was found whole, and the labels it had, if any.
#[derive(Debug, Clone, Default)]
struct Known {
    event: Vec<u8>,
    id: Vec<u8>,
    name: Vec<u8>,
    mark: Option<Mark>,
}

impl Known {
    /// The mark, if that is the same event with the same labels.
    fn read(&self, event: &[u8], labels: Option<&Labels<'_>>) -> Option<Mark> {
        let is_same =
            self.event == event && labels.is_none_or(|labels| self.id == labels.id && self.name == labels.name);
        self.mark.filter(|_| is_same)
    }

    fn set(&mut self, event: &[u8], labels: Option<&Labels<'_>>, mark: Mark) {
        let (id, name): (&[u8], &[u8]) = labels.map_or((b"", b""), |labels| (labels.id, labels.name));
        for (known, new) in [(&mut self.event, event), (&mut self.id, id), (&mut self.name, name)] {
            known.clear();
            known.extend_from_slice(new);
        }
        self.mark = Some(mark);
    }
}

impl Reader {
    pub(crate) fn new(run: u32) -> Self {
        Self {
            run,
            mark: Finder::new(MARK_KEY),
            name: Finder::new(format!("{run:08x}").as_bytes()).into_owned(),
            session: format!("load-{run:08x}-"),
            known: vec![Known::default(); KNOWN_EVENTS],
        }
    }

    /// Compares an event, and the labels its stream gave it, with what was sent, to the last bit.
    pub(crate) fn read(&mut self, event: &[u8], labels: Option<&Labels<'_>>) -> Received {
        let place = place(event);
        if let Some(mark) = self.known.get(place).and_then(|known| known.read(event, labels)) {
            return Received::Whole(mark);
        }
        let received = self.read_anew(event, labels);
        if let (Received::Whole(mark), Some(known)) = (received, self.known.get_mut(place))
            && event.len() <= KNOWN_BYTES_MAX
        {
            known.set(event, labels, mark);
        }
        received
    }

    fn read_anew(&self, event: &[u8], labels: Option<&Labels<'_>>) -> Received {
        let Some(mark) = self.mark(event).filter(|mark| mark.run == self.run) else {
            let is_ours = self.name.find(event).is_some();
            return if is_ours { Received::Damaged("its mark is not as it was sent") } else { Received::Foreign };
        };
        if sum(event) != Some(u64::from(crc32fast::hash(summed(event)))) {
            return Received::Damaged("its checksum is wrong");
        }
        if labels.is_some_and(|labels| !self.is_labelled(event, mark, labels)) {
            return Received::Damaged("its id or event field is not of this event");
        }
        Received::Whole(mark)
    }

    fn mark(&self, event: &[u8]) -> Option<Mark> {
        let start = self.mark.find(event)? + MARK_KEY.len();
        let mut rest = event.get(start..start + MARK_BYTES)?;
        let mut fields = [0; WIDTHS.len()];
        for (index, (field, width)) in fields.iter_mut().zip(WIDTHS).enumerate() {
            if index > 0 {
                rest = rest.strip_prefix(b".")?;
            }
            let (text, behind) = rest.split_at_checked(width)?;
            *field = hex(text)?;
            rest = behind;
        }
        let [run, session, seq, at] = fields;
        Some(Mark { run: u32::try_from(run).ok()?, session: u32::try_from(session).ok()?, seq, at })
    }

    /// Whether the labels are the position and the type of that event.
    fn is_labelled(&self, event: &[u8], mark: Mark, labels: &Labels<'_>) -> bool {
        let (mut session, mut seq) = ([0; 20], [0; 20]);
        let mut number = |id: &[u8]| {
            let id = id.strip_prefix(self.session.as_bytes())?;
            let id = id.strip_prefix(decimal(&mut session, mark.session.into()))?;
            Some(id.strip_prefix(b":0:")? == decimal(&mut seq, mark.seq))
        };
        number(labels.id) == Some(true) && is_of_type(event, labels.name) == Some(true)
    }
}

fn is_of_type(event: &[u8], name: &[u8]) -> Option<bool> {
    let id = event.get(BEGINNING.len()..)?;
    let behind = id.get(memchr(b'"', id)?..)?;
    Some(behind.strip_prefix(b"\",\"type\":\"")?.strip_prefix(name)?.starts_with(b"\""))
}

/// Where an event is found among the known ones: its checksum decides.
fn place(event: &[u8]) -> usize {
    let digits = event.get(summed(event).len()..).unwrap_or_default();
    let digits = digits.first_chunk().map_or(0, |digits| u64::from_le_bytes(*digits));
    // The four low bits of each digit, which tell most digits apart, go to the top by one multiplication.
    ((digits & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % KNOWN_EVENTS
}

/// What the checksum of an event is made of.
fn summed(event: &[u8]) -> &[u8] {
    event.get(..event.len().saturating_sub(SUM_BYTES + END.len())).unwrap_or_default()
}

/// The checksum an event bears.
fn sum(event: &[u8]) -> Option<u64> {
    hex(event.get(summed(event).len()..)?.strip_suffix(END)?)
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

    fn read(event: &[u8]) -> Received {
        Reader::new(0xfeed).read(event, None)
    }

    #[test]
    fn an_event_is_as_long_as_asked_and_its_mark_tells_it_from_others() {
        for seq in [1, 9, 10, 123_456_789] {
            let event = event(400, seq);
            assert_eq!(event.len(), 400);
            assert_eq!(read(&event), Received::Whole(Mark { run: 0xfeed, session: 2, seq, at: 123_456_789 }));
        }
    }

    #[test]
    fn every_bit_counts() {
        let event = event(400, 42);
        for bit in 0..8 * event.len() {
            let mut flipped = event.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(&flipped), Received::Damaged(_)), "{}", String::from_utf8_lossy(&flipped));
        }
        for cut in 1..event.len() {
            assert!(!matches!(read(&event[cut..]), Received::Whole(_)));
            assert!(!matches!(read(&event[..event.len() - cut]), Received::Whole(_)));
        }
    }

    #[test]
    fn a_known_event_is_compared_as_strictly() {
        let mut reader = Reader::new(0xfeed);
        let event = event(400, 42);
        let labels = Labels { id: b"load-0000feed-2:0:42", name: b"tool.output" };
        for _ in 0..2 {
            assert!(matches!(reader.read(&event, None), Received::Whole(_)));
            assert!(matches!(reader.read(&event, Some(&labels)), Received::Whole(_)));
            for bit in 0..8 * event.len() {
                let mut flipped = event.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(matches!(reader.read(&flipped, None), Received::Damaged(_)));
            }
            let other = Labels { id: b"load-0000feed-2:0:43", ..labels };
            assert!(matches!(reader.read(&event, Some(&other)), Received::Damaged(_)));
        }
    }

    #[test]
    fn labels_are_of_the_event_or_it_is_damaged() {
        let event = event(400, 42);
        let labelled = |id: &str, name: &str| {
            let labels = Labels { id: id.as_bytes(), name: name.as_bytes() };
            matches!(Reader::new(0xfeed).read(&event, Some(&labels)), Received::Whole(_))
        };
        assert!(labelled("load-0000feed-2:0:42", "tool.output"));
        for (id, name) in [
            ("load-0000feed-2:0:43", "tool.output"),
            ("load-0000feed-2:0:042", "tool.output"),
            ("load-0000feed-2:1:42", "tool.output"),
            ("load-0000feed-1:0:42", "tool.output"),
            ("", "tool.output"),
            ("load-0000feed-2:0:42", "tool.outpu"),
            ("load-0000feed-2:0:42", "tool.outputs"),
            ("load-0000feed-2:0:42", ""),
        ] {
            assert!(!labelled(id, name), "{id} {name}");
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
        assert!(memchr::memmem::find(&event, b"\"pad\":\"\",").is_some());
        assert!(matches!(read(&event), Received::Whole(_)));
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
    fn an_event_of_somebody_else_is_foreign() {
        assert_eq!(read(b"{\"aep\":\"0.1\"}"), Received::Foreign);
        assert_eq!(read(b"{\"data\":{\"mark\":\"short\"}}"), Received::Foreign);
        assert_eq!(Reader::new(0xbeef).read(&event(400, 1), None), Received::Foreign);
    }
}
