//! Listening sockets, asked of the kernel (`NETLINK_SOCK_DIAG`). Its tables under `/proc` are of all sockets: to read one,
//! the kernel goes through the connections of the whole machine, which takes milliseconds on a large one, in every pod.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Everything of this protocol is in the machine's byte order, but for addresses and ports.
const FAMILIES: [AddressFamily; 2] = [AddressFamily::INET, AddressFamily::INET6];
const TCP: u8 = 6;
/// The kernel's number of the state, in requests as a bit.
const LISTEN: u8 = 10;
/// The kinds of messages.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// A request (1) for all there are (0x300).
const REQUEST_ALL: u16 = 0x301;
/// The sizes of a message's header, and of what is behind it: family, state, two more bytes, the ports, the addresses, a
/// time, two queues, the user, the inode.
const HEADER: usize = 16;
const ENTRY: usize = HEADER + 72;
/// Where the user is in it.
const UID: usize = 64;
/// The size of a request: its header, four bytes, the states, and a socket's identity that is left empty.
const REQUEST: usize = HEADER + 8 + 48;
/// More than the kernel puts into one answer.
const ANSWER: usize = 64 * 1024;
/// How many answers are read: far more than there can be sockets worth a report.
const MAX_ANSWERS: usize = 64;

/// Something that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) uid: u32,
}

/// Everything that listens.
pub(super) fn listening() -> io::Result<Vec<Listener>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let mut found = Vec::new();
    let mut answer = vec![0; ANSWER];
    for family in FAMILIES {
        send(&socket, &request(family), SendFlags::empty())?;
        let mut complete = false;
        for _ in 0..MAX_ANSWERS {
            // The kernel has answered when the request is sent, and goes on when that is read: there is no waiting.
            let (_, length) = recv(&socket, answer.as_mut_slice(), RecvFlags::DONTWAIT)?;
            complete = read(answer.get(..length).ok_or_else(malformed)?, &mut found)?;
            if complete {
                break;
            }
        }
        if !complete {
            return Err(io::Error::other("the kernel lists sockets without end"));
        }
    }
    Ok(found)
}

fn request(family: AddressFamily) -> Vec<u8> {
    let mut request = Vec::with_capacity(REQUEST);
    request.extend((REQUEST as u32).to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST_ALL.to_ne_bytes());
    // Number and sender are for those who ask several things at once.
    request.extend([0; 8]);
    request.extend([family.as_raw() as u8, TCP, 0, 0]);
    request.extend((1_u32 << LISTEN).to_ne_bytes());
    request.resize(REQUEST, 0);
    request
}

/// Takes in one answer. Whether it was the last.
fn read(mut answer: &[u8], found: &mut Vec<Listener>) -> io::Result<bool> {
    while !answer.is_empty() {
        let length = bytes(answer, 0).map(u32::from_ne_bytes)? as usize;
        let kind = bytes(answer, 4).map(u16::from_ne_bytes)?;
        let message = answer.get(..length).filter(|_| length >= HEADER).ok_or_else(malformed)?;
        match kind {
            DONE | ERROR => {
                // Without a number, or with 0, nothing has failed.
                let code = bytes(message, HEADER).map_or(0, i32::from_ne_bytes);
                return if code < 0 {
                    Err(io::Error::from_raw_os_error(code.saturating_neg()))
                } else {
                    Ok(true)
                };
            }
            BY_FAMILY => found.extend(entry(message)?),
            _ => {}
        }
        // Each begins at a multiple of four.
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// A listening socket.
fn entry(message: &[u8]) -> io::Result<Option<Listener>> {
    let entry = message.get(HEADER..ENTRY).ok_or_else(malformed)?;
    let [family, state] = bytes(entry, 0)?;
    let port = bytes(entry, 4).map(u16::from_be_bytes)?;
    let address = match AddressFamily::from_raw(u16::from(family)) {
        AddressFamily::INET => Ipv4Addr::from(bytes::<4>(entry, 8)?).into(),
        AddressFamily::INET6 => Ipv6Addr::from(bytes::<16>(entry, 8)?).into(),
        _ => return Ok(None),
    };
    let uid = bytes(entry, UID).map(u32::from_ne_bytes)?;
    Ok((state == LISTEN).then_some(Listener { address, port, uid }))
}

fn bytes<const N: usize>(of: &[u8], at: usize) -> io::Result<[u8; N]> {
    of.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(malformed)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about sockets cannot be read")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const USER: u32 = 65532;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    fn socket(family: u8, state: u8, port: u16, address: &[u8]) -> Vec<u8> {
        let mut body = vec![family, state, 0, 0];
        body.extend(port.to_be_bytes());
        body.extend([0; 2]);
        body.extend(address);
        body.resize(UID, 0);
        body.extend(USER.to_ne_bytes());
        body.resize(72, 0);
        message(BY_FAMILY, &body)
    }

    #[test]
    fn an_answer_is_read_to_its_end_and_no_further() {
        let v6 = "fd00::7".parse::<Ipv6Addr>().unwrap();
        let four = socket(2, LISTEN, 3000, &[10, 0, 0, 7]);
        let whole = [
            four.clone(),
            socket(2, 1, 3001, &[10, 0, 0, 7]),
            socket(1, LISTEN, 3002, &[0; 16]),
            message(99, b"abc"),
            socket(10, LISTEN, 3003, &v6.octets()),
            message(DONE, &0_i32.to_ne_bytes()),
            vec![1],
        ];
        let mut found = Vec::new();
        assert!(read(&whole.concat(), &mut found).unwrap());
        let of = |address, port| Listener { address, port, uid: USER };
        assert_eq!(found, [of(Ipv4Addr::new(10, 0, 0, 7).into(), 3000), of(v6.into(), 3003)]);
        assert!(!read(&four, &mut found).unwrap());

        let missing = (-2_i32).to_ne_bytes();
        for failed in [message(DONE, &missing), message(ERROR, &missing)] {
            assert_eq!(read(&failed, &mut found).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let mut endless = four.clone();
        endless[..4].copy_from_slice(&0_u32.to_ne_bytes());
        for broken in [&four[..7], &four[..ENTRY - 4], &endless, &message(BY_FAMILY, &[2, LISTEN])] {
            assert_eq!(read(broken, &mut found).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn what_listens_here_is_found() {
        let here = ["127.0.0.1:0", "0.0.0.0:0"].map(|address| TcpListener::bind(address).unwrap());
        let found = match listening() {
            // Kernels without it are rare; the tables are read there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            found => found.unwrap(),
        };
        for listener in here {
            let address = listener.local_addr().unwrap();
            let uid = rustix::process::geteuid().as_raw();
            let expected = Listener { address: address.ip(), port: address.port(), uid };
            assert!(found.contains(&expected), "{address}: {found:?}");
        }
    }
}
