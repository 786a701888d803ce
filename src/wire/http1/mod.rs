//! HTTP/1.1 of the server's side: request heads and bodies in, responses out. Sans-IO.

pub mod chunk;
pub mod head;
pub mod response;
pub mod status;

pub use chunk::StreamFraming;
pub use head::RequestHead;
