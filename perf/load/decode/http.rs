//! The little of HTTP/1.1 a load generator reads: a response's head, and a body by length, by chunks or until close.

use memchr::{memchr, memmem};

use super::Fault;

/// Longest head taken.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest chunk-size line taken.
const SIZE_LINE_BYTES_MAX: usize = 256;

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Field lines, names in lower case.
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(bytes).map_err(|_| Fault::new("a response head that is no text"))?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1."))
            .and_then(|line| line.get(2..5))
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| Fault::new("an answer that is not HTTP"))?;
        let fields = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Self { status, fields })
    }

    /// Value of a field, its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// How the body is framed.
    pub(crate) fn body(&self) -> Result<Body, Fault> {
        if self.field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return Ok(Body::Chunked(Chunked { line: Vec::new(), left: 0, place: Place::Size }));
        }
        match self.field("content-length") {
            Some(length) => length.parse().map(Body::Length).map_err(|_| Fault::new("a bad Content-Length")),
            None => Ok(Body::UntilClose),
        }
    }
}

/// Collects a head that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct HeadReader(Vec<u8>);

impl HeadReader {
    /// Takes more bytes. With the head complete: the head, and what of `input` follows it.
    pub(crate) fn feed<'a>(&mut self, input: &'a [u8]) -> Result<Option<(Head, &'a [u8])>, Fault> {
        let known = self.0.len();
        self.0.extend_from_slice(input);
        let Some(end) = memmem::find(&self.0, b"\r\n\r\n") else {
            if self.0.len() > HEAD_BYTES_MAX {
                return Err(Fault::new("a response head without end"));
            }
            return Ok(None);
        };
        let head = Head::parse(self.0.get(..end).unwrap_or_default())?;
        self.0.clear();
        Ok(Some((head, input.get((end + 4).saturating_sub(known)..).unwrap_or_default())))
    }
}

/// A body, as it is read.
#[derive(Debug)]
pub(crate) enum Body {
    /// That many bytes are still to come.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
    /// Everything up to the end of the connection.
    UntilClose,
}

/// Where in the chunks.
#[derive(Debug)]
pub(crate) struct Chunked {
    /// Beginning of an unfinished size line.
    line: Vec<u8>,
    /// Bytes left of the chunk, its CRLF included; of the trailer, unused.
    left: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Size,
    Data,
    Trailer,
    End,
}

impl Body {
    /// Takes from the front of `input` and returns the next piece of content, empty if `input` holds no more of it.
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<&'a [u8], Fault> {
        match self {
            Self::Length(left) => {
                let (piece, rest) = input.split_at(clamp(*left, input.len()));
                *left -= piece.len() as u64;
                *input = rest;
                Ok(piece)
            }
            Self::UntilClose => Ok(std::mem::take(input)),
            Self::Chunked(chunked) => chunked.next(input),
        }
    }

    /// Whether something of the framing was begun and has not ended.
    pub(crate) fn is_within(&self) -> bool {
        match self {
            Self::Chunked(chunked) => match chunked.place {
                Place::Size => !chunked.line.is_empty(),
                Place::Data | Place::Trailer => true,
                Place::End => false,
            },
            Self::Length(_) | Self::UntilClose => false,
        }
    }

    /// Whether the body is complete.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.place == Place::End,
            Self::UntilClose => false,
        }
    }
}

impl Chunked {
    fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<&'a [u8], Fault> {
        loop {
            match self.place {
                Place::End => return Ok(&[]),
                Place::Data => {
                    // The last two bytes of what is left are the chunk's CRLF.
                    let (taken, rest) = input.split_at(clamp(self.left, input.len()));
                    let content = clamp(self.left.saturating_sub(2), taken.len());
                    let (piece, end) = taken.split_at(content);
                    if !is_end(end, self.left - content as u64) {
                        return Err(Fault::new("a chunk that is not as long as it says"));
                    }
                    self.left -= taken.len() as u64;
                    if self.left == 0 {
                        self.place = Place::Size;
                    }
                    *input = rest;
                    if !piece.is_empty() || rest.is_empty() {
                        return Ok(piece);
                    }
                }
                Place::Size | Place::Trailer => {
                    let Some(end) = memchr(b'\n', input) else {
                        self.line.extend_from_slice(input);
                        *input = &[];
                        if self.line.len() > SIZE_LINE_BYTES_MAX {
                            return Err(Fault::new("a chunk size without end"));
                        }
                        return Ok(&[]);
                    };
                    let (line, rest) = input.split_at(end + 1);
                    *input = rest;
                    if self.line.is_empty() {
                        self.on_line(line)?;
                    } else {
                        let mut whole = std::mem::take(&mut self.line);
                        whole.extend_from_slice(line);
                        self.on_line(&whole)?;
                        whole.clear();
                        self.line = whole;
                    }
                }
            }
        }
    }

    fn on_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let line = line.strip_suffix(b"\r\n").ok_or_else(|| Fault::new("a line of the framing without its end"))?;
        if self.place == Place::Trailer {
            if line.is_empty() {
                self.place = Place::End;
            }
            return Ok(());
        }
        let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .filter(|&size| size < u64::MAX - 2)
            .ok_or_else(|| Fault::new("a bad chunk size"))?;
        (self.place, self.left) = if size == 0 { (Place::Trailer, 0) } else { (Place::Data, size + 2) };
        Ok(())
    }
}

/// Whether `bytes` are the next ones of the CRLF behind a chunk of which so many bytes are left.
fn is_end(bytes: &[u8], left: u64) -> bool {
    bytes.is_empty() || (2 - clamp(left, 2)..).zip(bytes).all(|(place, byte)| b"\r\n".get(place) == Some(byte))
}

fn clamp(left: u64, have: usize) -> usize {
    usize::try_from(left).map_or(have, |left| left.min(have))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content of a response cut into pieces, and whether it was complete.
    fn content(response: &[u8], piece: usize) -> Result<(Vec<u8>, bool), Fault> {
        let (mut reader, mut body, mut all) = (HeadReader::default(), None, Vec::new());
        for cut in response.chunks(piece) {
            let mut rest = cut;
            if body.is_none() {
                let Some((head, behind)) = reader.feed(cut)? else { continue };
                body = Some(head.body()?);
                rest = behind;
            }
            let body = body.as_mut().unwrap();
            while !rest.is_empty() && !body.is_done() {
                all.extend_from_slice(body.next(&mut rest)?);
            }
        }
        Ok((all, body.is_some_and(|body| body.is_done())))
    }

    #[test]
    fn bodies_read_the_same_however_they_are_cut() {
        let cases: [(&[u8], &[u8], bool); 4] = [
            (b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhello", b"hello", true),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n",
                b"abc0123456789",
                false,
            ),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n", b"a", true),
            (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end", false),
        ];
        for (response, expected, done) in cases {
            for piece in 1..=response.len() {
                assert_eq!(content(response, piece).unwrap(), (expected.to_vec(), done), "pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_not_http_is_a_fault() {
        for bad in ["+OK hello\r\n\r\n", "HTTP/1.1 two hundred\r\n\r\n"] {
            assert!(HeadReader::default().feed(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(HeadReader::default().feed(&[b'x'; HEAD_BYTES_MAX + 1]).is_err());
        for body in ["xyz\r\n", "+1\r\na\r\n", "1\na\r\n", "1\r\naa\r\n", "1\r\na\rx", "2\r\na\r\n0\r\n"] {
            let response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            for piece in 1..=response.len() {
                assert!(content(response.as_bytes(), piece).is_err(), "{body:?}");
            }
        }
    }
}
