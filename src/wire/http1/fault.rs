//! What a request head shows before anything is made of it: its version, or why it is none.

/// HTTP versions the relay speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunked responses, closed after the answer unless kept alive by request.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// Why bytes are no request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// A rule of HTTP/1.1 is broken; the text names it. 400.
    Malformed(&'static str),
    /// A well-formed request line of another HTTP version. 505.
    Version,
    /// The request line alone is over the limit. 414.
    UriTooLong,
    /// The head is over the limit of bytes. 431.
    HeadTooLarge,
    /// The head has more than [`HEADER_FIELDS_MAX`](crate::limits::HEADER_FIELDS_MAX) fields. 431.
    TooManyFields,
}
