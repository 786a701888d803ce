//! Out of file descriptors: clients are refused and not left hanging, and service goes on once some are free. It runs
//! in a process of its own, since the limit is the whole process's.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rlimit::Resource;
use socket2::{Domain, Socket, Type};

use crate::harness::{passes_alone, start};

#[test]
fn without_descriptors_clients_are_refused_until_some_are_free() {
    passes_alone("descriptors::in_a_process_of_its_own");
}

#[test]
#[ignore = "lowers the limit of its process: run by the test above"]
fn in_a_process_of_its_own() {
    let server = start(1);
    let mut before = server.client();
    before.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(before.answer().0, 200);

    // The clients have their descriptors already; from now on nobody gets another.
    let sockets: Vec<Socket> = (0..30).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect();
    let (_, hard) = rlimit::getrlimit(Resource::NOFILE).unwrap();
    let highest = File::open("/dev/null").unwrap().as_raw_fd();
    rlimit::setrlimit(Resource::NOFILE, u64::try_from(highest).unwrap(), hard).unwrap();

    let mut clients = Vec::new();
    for socket in sockets {
        socket.connect(&server.address.into()).unwrap();
        let mut client = TcpStream::from(socket);
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all(b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut head = [0; 12];
        client.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 503");
        // Its descriptor must not come free.
        clients.push(client);
    }
    before.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(before.answer().0, 200, "who was there before is served");

    rlimit::setrlimit(Resource::NOFILE, hard, hard).unwrap();
    let mut after = server.client();
    after.send("GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(after.answer().0, 200);
}
