//! HTTP/1.1 of the server's side: request heads and bodies in, responses out. Sans-IO.

pub mod head;

pub use head::RequestHead;
