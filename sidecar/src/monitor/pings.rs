//! What becomes of a server by what comes of its pings, as a pure function of that.

use super::attend::Left;
use super::client::CallError;

/// How many pings have to fail for lack of time, or lists for whatever reason, in a row.
pub(super) const PATIENCE: u32 = 3;

/// What is known of a server by the pings before.
#[derive(Default)]
pub(super) struct Pings {
    /// How many in a row had no answer in time.
    late: u32,
    /// Whether one was answered since it was greeted.
    has_answered: bool,
    /// Whether it knew none when it was greeted before. One that knows none then either knows none.
    knows_none: bool,
}

/// What a ping says of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It has answered.
    Answer,
    /// It is there, and that is all that it says.
    Sign,
    /// Nothing came, and may come the next time.
    Nothing,
    /// It is there, and is to be left.
    Leave(Left),
    /// Nobody is there; in words for people.
    Absence(String),
}

impl Pings {
    /// The server was greeted.
    pub(super) fn begin(&mut self) {
        *self = Self { knows_none: self.knows_none, ..Self::default() };
    }

    /// Judges one: `None` if nothing came in time.
    pub(super) fn judge(&mut self, ping: Option<Result<(), CallError>>, is_to_restart: bool) -> Heard {
        match ping {
            Some(Ok(())) => {
                *self = Self { late: 0, has_answered: true, knows_none: false };
                Heard::Answer
            }
            Some(Err(error)) if error.is_busy() => {
                self.late = 0;
                Heard::Sign
            }
            Some(Err(CallError::Rpc { code: -32601, .. })) if self.knows_none && !self.has_answered => {
                self.late = 0;
                Heard::Sign
            }
            Some(Err(CallError::Rpc { code: -32601, .. })) => {
                self.knows_none = !self.has_answered;
                Heard::Leave(Left::Anew)
            }
            Some(Err(CallError::SessionGone)) => Heard::Leave(Left::SessionGone),
            // It is there, however it is: to be greeted anew, and not to be taken for gone.
            Some(Err(error)) if error.is_answer() => Heard::Leave(Left::Lost(error.in_handshake())),
            Some(Err(error)) => Heard::Absence(error.to_string()),
            // Its container waits for it to end.
            None if is_to_restart => {
                Heard::Absence("the server has not answered a ping, and is to be restarted".to_owned())
            }
            None => {
                self.late += 1;
                if self.late >= PATIENCE {
                    return Heard::Absence(format!("the server has not answered {PATIENCE} pings in a row"));
                }
                Heard::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may come of a ping.
    #[derive(Clone, Copy, Debug)]
    enum Ping {
        Answered,
        Busy,
        Unknown,
        Gone,
        Broken,
        Refused,
        Late,
    }
    use Ping::{Answered, Broken, Busy, Gone, Late, Refused, Unknown};

    fn outcome(ping: Ping) -> Option<Result<(), CallError>> {
        let status = |status| CallError::Status { status, path: "/mcp".to_owned(), location: None };
        Some(Err(match ping {
            Answered => return Some(Ok(())),
            Late => return None,
            Busy => status(429),
            Broken => status(500),
            Unknown => {
                CallError::Rpc { code: -32601, message: "no".to_owned(), status: 404, named: Vec::new() }
            }
            Gone => CallError::SessionGone,
            Refused => CallError::Refused { port: 80 },
        }))
    }

    /// A word for what the last ping says, of those since each greeting.
    fn last_of(greetings: &[&[Ping]]) -> &'static str {
        let mut pings = Pings::default();
        let mut last = "";
        for greeting in greetings {
            pings.begin();
            for ping in *greeting {
                last = match pings.judge(outcome(*ping), false) {
                    Heard::Answer => "answer",
                    Heard::Sign => "sign",
                    Heard::Nothing => "nothing",
                    Heard::Leave(Left::Anew) => "anew",
                    Heard::Leave(Left::SessionGone) => "gone",
                    Heard::Leave(Left::Lost(_)) => "lost",
                    Heard::Leave(_) => "left",
                    Heard::Absence(_) => "absence",
                };
            }
        }
        last
    }

    #[test]
    fn a_server_is_judged_by_its_pings() {
        for (greetings, expected) in [
            (&[&[Answered][..]][..], "answer"),
            (&[&[Gone]], "gone"),
            (&[&[Refused]], "absence"),
            // It is there.
            (&[&[Broken]], "lost"),
            (&[&[Busy]], "sign"),
            // Those who are slow have some patience, in a row.
            (&[&[Late, Late]], "nothing"),
            (&[&[Late, Late, Late]], "absence"),
            (&[&[Late, Late, Answered, Late]], "nothing"),
            (&[&[Late, Late, Busy, Late]], "nothing"),
            (&[&[Late, Late], &[Late]], "nothing"),
            // Who knows no pings may be of another era by now, unless it knew none before.
            (&[&[Unknown]], "anew"),
            (&[&[Unknown], &[Unknown]], "sign"),
            (&[&[Unknown], &[Late, Late, Unknown, Late]], "nothing"),
            (&[&[Answered, Unknown]], "anew"),
            (&[&[Answered, Unknown], &[Unknown]], "anew"),
            (&[&[Unknown], &[Answered], &[Unknown]], "anew"),
        ] {
            assert_eq!(last_of(greetings), expected, "{greetings:?}");
        }
    }

    #[test]
    fn who_is_to_be_restarted_has_no_time_to_be_slow() {
        let judged = Pings::default().judge(None, true);
        assert!(matches!(judged, Heard::Absence(message) if message.contains("is to be restarted")));
        assert_eq!(Pings::default().judge(Some(Ok(())), true), Heard::Answer);
    }
}
