//! HTTP/1.1 of the server's side: request heads and bodies in, responses out. Sans-IO.

pub mod answer;
pub mod body;
pub mod chunk;
pub mod date;
pub mod fault;
mod framing;
pub mod head;
pub mod response;
pub mod status;

pub use body::BodyDecoder;
pub use chunk::StreamFraming;
pub use date::Date;
pub use fault::Version;
pub use framing::Framing;
pub use head::RequestHead;
