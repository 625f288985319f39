//! A capsule as bytes: fields in a fixed order, texts behind their length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use longshore_mcp::revision::Revision;

use super::{Capsule, PrincipalDigest, ServerSession, pod};
use crate::identity::{Peer, SessionKey};

/// The address of the capsule's pod has 16 bytes, not 4.
const V6: u8 = 1 << 0;
/// The client's capabilities are there.
const CAPABILITIES: u8 = 1 << 1;
/// What the server knows of the session: two bits.
const SERVER: u8 = 4;
const SERVER_NONE: u8 = 0;
const SERVER_ID: u8 = 1;
const SERVER_UNFIT: u8 = 2;
const SERVER_KEPT_HERE: u8 = 3;
/// All bits that mean something.
const KNOWN: u8 = V6 | CAPABILITIES | (3 << SERVER);

/// Elsewhere the version of a pod's address is in front of it.
const ADDRESS_V4: u8 = 4;
const ADDRESS_V6: u8 = 6;

/// Writes a capsule in at most `limit` bytes; what does not fit is left out.
pub(super) fn write(capsule: &Capsule, limit: usize, out: &mut Vec<u8>) {
    let Capsule { owner, key, principal, revision, server_revision, server, capabilities, issued, expires } =
        capsule;
    let start = out.len();
    let flags_at = out.len();
    out.push(0);
    let mut flags = 0;
    out.push(as_byte(*revision));
    out.push(as_byte(*server_revision));
    out.extend_from_slice(&issued.to_be_bytes());
    out.extend_from_slice(&expires.to_be_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(&principal.0);
    match owner.address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => {
            flags |= V6;
            out.extend_from_slice(&address.octets());
        }
    }
    text(owner.pod.as_str(), out);
    let room = |out: &Vec<u8>, text: &str| {
        text.len() <= usize::from(u16::MAX) && out.len() - start + 2 + text.len() <= limit
    };
    let server = match server {
        ServerSession::None => SERVER_NONE,
        ServerSession::KeptHere => SERVER_KEPT_HERE,
        ServerSession::Id(id) if room(out, id) => {
            text(id, out);
            SERVER_ID
        }
        ServerSession::Id(_) | ServerSession::Unfit => SERVER_UNFIT,
    };
    flags |= server << SERVER;
    if let Some(capabilities) = capabilities.as_ref().filter(|capabilities| room(out, capabilities)) {
        flags |= CAPABILITIES;
        text(capabilities, out);
    }
    out[flags_at] = flags;
}

/// Reads what [`write()`] wrote, and nothing else.
pub(super) fn read(bytes: &[u8]) -> Option<Capsule> {
    let mut rest = bytes;
    let [flags, revision, server_revision] = take(&mut rest)?;
    if flags & !KNOWN != 0 {
        return None;
    }
    let revision = from_byte(revision)?;
    let server_revision = from_byte(server_revision)?;
    let issued = u64::from_be_bytes(take(&mut rest)?);
    let expires = u64::from_be_bytes(take(&mut rest)?);
    let key = SessionKey::new(take(&mut rest)?);
    let principal = PrincipalDigest(take(&mut rest)?);
    let address = if flags & V6 == 0 {
        Ipv4Addr::from(take::<4>(&mut rest)?).into()
    } else {
        Ipv6Addr::from(take::<16>(&mut rest)?).into()
    };
    let owner = Peer { pod: pod(take_text(&mut rest)?)?, address };
    let server = match (flags >> SERVER) & 3 {
        SERVER_NONE => ServerSession::None,
        SERVER_ID => ServerSession::Id(take_text(&mut rest)?.into()),
        SERVER_UNFIT => ServerSession::Unfit,
        // There are only two bits.
        _ => ServerSession::KeptHere,
    };
    let capabilities = if flags & CAPABILITIES == 0 { None } else { Some(take_text(&mut rest)?.into()) };
    rest.is_empty().then_some(Capsule {
        owner,
        key,
        principal,
        revision,
        server_revision,
        server,
        capabilities,
        issued,
        expires,
    })
}

fn as_byte(revision: Revision) -> u8 {
    match revision {
        Revision::V2024_11_05 => 0,
        Revision::V2025_03_26 => 1,
        Revision::V2025_06_18 => 2,
        Revision::V2025_11_25 => 3,
        Revision::V2026_07_28 => 4,
    }
}

fn from_byte(byte: u8) -> Option<Revision> {
    Revision::ALL.into_iter().find(|revision| as_byte(*revision) == byte)
}

pub(crate) fn text(text: &str, out: &mut Vec<u8>) {
    // Whoever writes text has checked its length.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

pub(crate) fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::from(u16::from_be_bytes(take(rest)?));
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    std::str::from_utf8(head).ok()
}

/// A replica as bytes, beside anything but a capsule.
pub(crate) fn put_peer(peer: &Peer, out: &mut Vec<u8>) {
    match peer.address {
        IpAddr::V4(address) => {
            out.push(ADDRESS_V4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(ADDRESS_V6);
            out.extend_from_slice(&address.octets());
        }
    }
    text(peer.pod.as_str(), out);
}

/// What [`put_peer`] wrote.
pub(crate) fn take_peer(rest: &mut &[u8]) -> Option<Peer> {
    let address = match take(rest)? {
        [ADDRESS_V4] => Ipv4Addr::from(take::<4>(rest)?).into(),
        [ADDRESS_V6] => Ipv6Addr::from(take::<16>(rest)?).into(),
        _ => return None,
    };
    Some(Peer { pod: pod(take_text(rest)?)?, address })
}
