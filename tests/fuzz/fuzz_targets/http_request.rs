//! Requests, heads and bodies, in arbitrary pieces: what is decoded, faults included, must not depend on the pieces.
//!
//! The first bytes of the input choose the pieces, the rest is what the peer sends. Found harm would be a panic, a head
//! or body that two cuttings frame differently (request smuggling), or a decoder that reads past its bounds.

#![no_main]

use aep_relay::wire::Decoded;
use aep_relay::wire::http1::body::{BodyDecoder, BodyFault};
use aep_relay::wire::http1::fault::HeadFault;
use aep_relay::wire::http1::head::{HeadLimits, HeadSearch};
use aep_relay::wire::url::Target;
use libfuzzer_sys::fuzz_target;

const HEAD_LIMITS: HeadLimits = HeadLimits { head_bytes_max: 2048 };
const BODY_BYTES_MAX: usize = 512;
const PIECE_LENGTHS: usize = 4;

/// What became of the input, in order.
#[derive(Debug, PartialEq)]
enum Seen {
    /// A head: its parts, and the target as it is taken apart.
    Head(String),
    Body(Vec<u8>),
    HeadFault(HeadFault),
    BodyFault(BodyFault),
}

enum Reading {
    Head(HeadSearch),
    Body(BodyDecoder, Vec<u8>),
    Over,
}

/// Serves `input` as a connection would, given pieces of these lengths in turn.
fn serve(input: &[u8], lengths: &[usize]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut reading = Reading::Head(HeadSearch::default());
    let (mut start, mut end) = (0, 0);
    let mut lengths = lengths.iter().cycle();
    loop {
        let piece = &input[start..end];
        let more = match &mut reading {
            Reading::Head(search) => match search.decode(piece, &HEAD_LIMITS) {
                Decoded::Done { value: head, consumed } => {
                    assert!(consumed <= piece.len() && consumed <= HEAD_LIMITS.head_bytes_max);
                    let target = Target::parse(head.target);
                    seen.push(Seen::Head(format!("{head:?} {target:?} {:?}", target.pairs().collect::<Vec<_>>())));
                    reading = Reading::Body(BodyDecoder::new(head.framing), Vec::new());
                    start += consumed;
                    false
                }
                Decoded::Need => {
                    assert!(piece.len() < HEAD_LIMITS.head_bytes_max, "a head that never ends");
                    true
                }
                Decoded::Invalid(fault) => {
                    seen.push(Seen::HeadFault(fault));
                    reading = Reading::Over;
                    false
                }
            },
            Reading::Body(decoder, content) => match decoder.decode(piece, BODY_BYTES_MAX, content) {
                Ok(progress) => {
                    assert!(progress.consumed <= piece.len() && content.len() <= BODY_BYTES_MAX);
                    assert!(progress.done || progress.consumed == piece.len());
                    start += progress.consumed;
                    if progress.done {
                        seen.push(Seen::Body(std::mem::take(content)));
                        reading = Reading::Head(HeadSearch::default());
                    }
                    !progress.done
                }
                Err(fault) => {
                    seen.push(Seen::BodyFault(fault));
                    reading = Reading::Over;
                    false
                }
            },
            Reading::Over => return seen,
        };
        if more {
            if end == input.len() {
                return seen;
            }
            let length = lengths.next().copied().unwrap_or(usize::MAX);
            end = end.saturating_add(length).min(input.len());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((lengths, input)) = data.split_at_checked(PIECE_LENGTHS) else { return };
    let whole = serve(input, &[usize::MAX]);
    assert_eq!(serve(input, &[1]), whole);
    let lengths: Vec<usize> = lengths.iter().map(|&n| usize::from(n).max(1)).collect();
    assert_eq!(serve(input, &lengths), whole);
});
