//! Whether a server with sessions has forgotten one, which HTTP statuses say. Whoever sends something in a session asks here,
//! so that an answer means the same to all of them.

use http::{Method, StatusCode};

/// What an answer says of the session that was asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Nothing. A server that is busy may know it all the same.
    Nothing,
    /// The server does not know it any more.
    Forgotten,
    /// Either; a ping in the session tells.
    Perhaps,
}

/// What the status of an answer says to a request of this method.
pub(crate) fn says(method: &Method, status: StatusCode) -> Says {
    match (method, status) {
        // 404 is what the protocol has for a session that ended, and 410 is what else HTTP has for it.
        (&Method::POST, StatusCode::NOT_FOUND | StatusCode::GONE) => Says::Forgotten,
        // Many servers say one of them of a session that they do not know, and each could mean something else.
        (
            &Method::POST | &Method::GET,
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN,
        ) => Says::Perhaps,
        // Servers that serve no GET at this path say the same.
        (&Method::GET, StatusCode::NOT_FOUND | StatusCode::GONE) => Says::Perhaps,
        _ => Says::Nothing,
    }
}

/// Whether a server that answers so to who asks for a stream has one, and cannot give it now: too much is asked, say, or it
/// takes a stream for open that has just ended.
pub(crate) fn is_not_now(status: StatusCode) -> bool {
    match status {
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::CONFLICT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => true,
        status => status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED,
    }
}

/// Whether the server has forgotten the session in which it answered so. `ping` is awaited only if that is to be found out:
/// the status of its answer, if there is any. No answer at all says nothing. A session that has no name is never told to be
/// forgotten by a 404: it is about what was asked, if the server knows no sessions.
pub(crate) async fn is_forgotten(
    method: &Method,
    status: StatusCode,
    is_named: bool,
    ping: impl Future<Output = Option<StatusCode>>,
) -> bool {
    match says(method, status) {
        Says::Nothing => false,
        Says::Forgotten if is_named => true,
        // A ping asks for nothing that could be wrong with it, or that could need credentials, so here these are about the
        // session too. Who wants credentials for everything refuses the next handshake in the same way.
        Says::Forgotten | Says::Perhaps => {
            ping.await.is_some_and(|status| says(&Method::POST, status) != Says::Nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn status(number: u16) -> StatusCode {
        StatusCode::from_u16(number).unwrap()
    }

    #[test]
    fn what_statuses_say() {
        use Says::{Forgotten, Nothing, Perhaps};
        for (number, to_post, to_get) in [
            (200, Nothing, Nothing),
            (202, Nothing, Nothing),
            (400, Perhaps, Perhaps),
            (401, Perhaps, Perhaps),
            (403, Perhaps, Perhaps),
            (404, Forgotten, Perhaps),
            (405, Nothing, Nothing),
            (409, Nothing, Nothing),
            (410, Forgotten, Perhaps),
            (429, Nothing, Nothing),
            (500, Nothing, Nothing),
            (501, Nothing, Nothing),
            (503, Nothing, Nothing),
        ] {
            assert_eq!(says(&Method::POST, status(number)), to_post, "POST, {number}");
            assert_eq!(says(&Method::GET, status(number)), to_get, "GET, {number}");
            assert_eq!(says(&Method::DELETE, status(number)), Nothing, "DELETE, {number}");
        }
    }

    #[test]
    fn a_ping_decides_where_a_status_could_mean_either() {
        let pinged = |method, number, is_named, ping: Option<u16>| {
            let ping = async { ping.map(status) };
            is_forgotten(method, status(number), is_named, ping).now_or_never().unwrap()
        };
        for (ping, forgotten) in [
            (None, false),
            (Some(200), false),
            (Some(202), false),
            (Some(400), true),
            (Some(401), true),
            (Some(403), true),
            (Some(404), true),
            (Some(410), true),
            (Some(429), false),
            (Some(500), false),
            (Some(503), false),
        ] {
            let posts = [400, 401, 403].map(|number| (&Method::POST, number));
            let gets = [400, 401, 403, 404, 410].map(|number| (&Method::GET, number));
            for (method, number) in posts.into_iter().chain(gets) {
                for is_named in [true, false] {
                    let found = pinged(method, number, is_named, ping);
                    assert_eq!(found, forgotten, "{method}, {number}, {is_named}, {ping:?}");
                }
            }
            for number in [404, 410] {
                assert_eq!(pinged(&Method::POST, number, false, ping), forgotten, "{number}, {ping:?}");
            }
        }
        // Nobody asks where nothing is to be found out.
        for (method, number, forgotten) in
            [(&Method::POST, 404, true), (&Method::POST, 429, false), (&Method::GET, 405, false)]
        {
            let asked = std::future::pending();
            assert_eq!(is_forgotten(method, status(number), true, asked).now_or_never(), Some(forgotten));
        }
    }
}
