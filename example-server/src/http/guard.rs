//! Who may call at all: no web page of somebody else, whatever name it has made point here.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, header, uri::Authority};

/// Knows where the server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    is_local: bool,
}

impl Guard {
    pub(crate) fn of(bound: SocketAddr) -> Self {
        Self { is_local: bound.ip().is_loopback() }
    }

    pub(crate) fn judge(self, headers: &HeaderMap) -> Result<(), &'static str> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let Some(host) = host else { return Err("\"Host\" has to name this server") };
        // Whoever lets it listen elsewhere has names for that place which are not known here.
        if self.is_local && !is_loopback(host.host()) {
            return Err("\"Host\" is not one of this machine's own names");
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let origin = origin.and_then(|(_, authority)| authority.parse::<Authority>().ok());
        let is_own = origin
            .is_some_and(|origin| if self.is_local { is_loopback(origin.host()) } else { origin == host });
        if is_own && origins.next().is_none() { Ok(()) } else { Err("\"Origin\" is somewhere else") }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}
