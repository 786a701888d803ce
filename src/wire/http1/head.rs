//! Request heads.

/// HTTP versions the relay speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunked responses, closed after the answer unless kept alive by request.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How the request's content is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No content.
    None,
    /// `Content-Length`, more than 0 bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A request head, borrowed from the bytes it came in.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// Method, case-sensitive.
    pub method: &'a str,
    /// Request target as sent.
    pub target: &'a str,
    /// Version.
    pub version: Version,
    /// How its content is delimited.
    pub framing: Framing,
    /// Whether the connection may be kept after the answer.
    pub keep_alive: bool,
    /// `Expect: 100-continue` was sent.
    pub expect_continue: bool,
    fields: Vec<(&'a str, &'a [u8])>,
}

impl<'a> RequestHead<'a> {
    /// The first field of that name (any case), without surrounding white space.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields_named(name).next()
    }

    /// All fields of that name (any case), in order.
    pub fn fields_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a [u8]> + 's {
        self.fields
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| *v)
    }
}
