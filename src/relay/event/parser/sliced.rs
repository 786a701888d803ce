//! Parsing an event of a size that would hold up everybody else, a slice at a time: what [`Parser::parse`] does in one
//! go, as far as its time grows with the bytes of the event. What is left for [`Parser::finish`] grows with its
//! members.
//!
//! Invariant: the outcome is that of [`Parser::parse`], whatever the slices.

use memchr::memchr2;

use super::{EventFault, Parser};
use crate::relay::event::Event;
use crate::wire::json::{self, Kind, SlicedScan};

/// Bytes looked through for line breaks at the price of one that is scanned.
const SEARCH_BYTES_PER_COST: usize = 8;

/// An event being parsed in slices.
#[derive(Debug, Default)]
pub struct SlicedParse {
    stage: ParseStage,
    scan: SlicedScan,
    /// The event without white space, if it came with line breaks.
    compacted: Vec<u8>,
    /// Why it is no event, once that is known.
    fault: Option<EventFault>,
}

/// Positions count from the beginning of the source.
#[derive(Debug, Clone, Copy, Default)]
enum ParseStage {
    #[default]
    Scanning,
    SeekingBreaks(usize),
    Compacting(usize),
    ScanningCompacted,
    Through,
    CompactedThrough,
}

impl SlicedParse {
    /// Goes on with these bytes, the same each time, as far as the budget lasts. Answers whether all is read.
    ///
    /// # Errors
    /// It is no JSON the relay takes, or no object.
    pub fn walk(&mut self, source: &[u8], budget: &mut usize) -> Result<bool, EventFault> {
        let walked = self.go_on(source, budget);
        if let Err(fault) = &walked {
            self.fault = Some(fault.clone());
        }
        walked
    }

    fn go_on(&mut self, source: &[u8], budget: &mut usize) -> Result<bool, EventFault> {
        loop {
            self.stage = match self.stage {
                ParseStage::Through | ParseStage::CompactedThrough => return Ok(true),
                _ if *budget == 0 => return Ok(false),
                ParseStage::Scanning => {
                    if !self.scan.walk(source, budget)? {
                        return Ok(false);
                    }
                    if self.scan.kind() != Kind::Object {
                        return Err(EventFault::NotAnObject);
                    }
                    ParseStage::SeekingBreaks(self.scan.range().start)
                }
                ParseStage::SeekingBreaks(at) => self.seek_breaks(source, at, budget),
                ParseStage::Compacting(at) => {
                    let object = source.get(..self.scan.range().end).unwrap_or_default();
                    let next = json::compact_some(object, at, *budget, &mut self.compacted);
                    *budget = budget.saturating_sub(next - at);
                    if next < object.len() {
                        ParseStage::Compacting(next)
                    } else {
                        self.scan = SlicedScan::default();
                        ParseStage::ScanningCompacted
                    }
                }
                ParseStage::ScanningCompacted => {
                    if !self.scan.walk(&self.compacted, budget)? {
                        return Ok(false);
                    }
                    ParseStage::CompactedThrough
                }
            };
        }
    }

    fn seek_breaks(&self, source: &[u8], at: usize, budget: &mut usize) -> ParseStage {
        let object = self.scan.range();
        let end = at.saturating_add(budget.saturating_mul(SEARCH_BYTES_PER_COST)).min(object.end);
        let piece = source.get(at..end).unwrap_or_default();
        *budget = budget.saturating_sub(1 + piece.len() / SEARCH_BYTES_PER_COST);
        if memchr2(b'\r', b'\n', piece).is_some() {
            ParseStage::Compacting(object.start)
        } else if end == object.end {
            ParseStage::Through
        } else {
            ParseStage::SeekingBreaks(end)
        }
    }
}

impl Parser {
    /// The event that these bytes are, of which `sliced` has read all, or up to a fault.
    ///
    /// # Errors
    /// That fault, or the first rule of §2 that is broken.
    pub fn finish<'a>(&'a mut self, source: &'a [u8], sliced: &'a SlicedParse) -> Result<Event<'a>, EventFault> {
        if let Some(fault) = &sliced.fault {
            return Err(fault.clone());
        }
        let text = if matches!(sliced.stage, ParseStage::CompactedThrough) { &sliced.compacted } else { source };
        let (document, members) = sliced.scan.finish(text)?;
        self.reset();
        self.judge.members.extend_from_slice(members);
        self.judge.read(document.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::event::Fingerprinter;

    /// What an event is seen to be, or why it is none.
    fn seen(event: Result<Event<'_>, EventFault>) -> Result<String, EventFault> {
        event.map(|event| format!("{event:?} {:?}", event.extensions().collect::<Vec<_>>()))
    }

    #[test]
    fn slices_come_to_what_one_go_comes_to() {
        let rest = r#""type":"run.started","time":"2026-01-01T00:00:00Z","source":"s","agent":"a","session":"ü","seq":12345678"#;
        let data =
            r#"{"a b":[ 1 , " \" " , {"c":-1.5e10}, [[],{}] ],"text":"long enough for a few slices","u":"\ud800"}"#;
        let texts = [
            format!(r#"{{"aep":"0.1","id":"1",{rest},"data":{data},"z":true,"b":"\u00e9"}}"#),
            format!("  {{\"aep\" :\r\n\t\"0.1\",\n\n\n\"id\":   \"1\",{rest},\n\"data\":{data}      }}  \n"),
            format!(r#"{{"aep":"0.1","id":"1",{rest},"data":{data}}} x"#),
            format!(r#"{{"aep":"0.1","id":"1",{rest},"data":{data}}}"#).replace("slices", "sli\u{1}ces"),
            format!(r#"{{"aep":"0.1","id":"1",{rest},"seq":1}}"#),
            format!(r#"{{"aep":"0.1","id":"1",{rest}}}"#).replace("run.started", "started"),
            "              [1,2]".to_owned(),
            "               ".to_owned(),
        ];
        let fingerprinter = Fingerprinter::new();
        let (mut parser, mut whole) = (Parser::new(fingerprinter.clone()), Parser::new(fingerprinter));
        let mut check = |source: &[u8]| {
            for slice in (1..30).chain([1000]) {
                let mut sliced = SlicedParse::default();
                let result = loop {
                    let mut budget = slice;
                    match sliced.walk(source, &mut budget) {
                        Ok(true) => break parser.finish(source, &sliced),
                        Ok(false) => assert_eq!(budget, 0),
                        Err(fault) => {
                            assert_eq!(seen(parser.finish(source, &sliced)), Err(fault.clone()));
                            break Err(fault);
                        }
                    }
                };
                assert_eq!(seen(result), seen(whole.parse(source)), "{} by {slice}", source.escape_ascii());
            }
        };
        for text in &texts {
            check(text.as_bytes());
        }
        check(&[b"{\"a\":\"", &[0xC3; 40][..], b"\"}"].concat());
        check(texts[0].as_bytes().split_last().unwrap().1);
    }
}
