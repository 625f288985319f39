//! Sizes and times as a manifest writes them. The grammar is that of the schema's rules, so that what the API server
//! let in is read here, and a manifest that never met an API server is refused with the same sentence.

use std::time::Duration;

/// Why a size or a time could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not written as a size.
    #[error(
        "`{0}` is not a size: write a whole number of bytes, with or without a unit (k, M, Ki, Mi), such as `4Mi`"
    )]
    NotASize(String),
    /// It is not written as a time.
    #[error(
        "`{0}` is not a time: write whole numbers with the units ms, s, m and h, such as `60s` or `1m30s`"
    )]
    NotATime(String),
}

/// Reads a size such as `512Ki`.
pub fn bytes(text: &str) -> Result<u64, Error> {
    let refuse = || Error::NotASize(text.to_owned());
    let (digits, unit) = split_number(text).ok_or_else(refuse)?;
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        _ => return Err(refuse()),
    };
    digits.checked_mul(factor).ok_or_else(refuse)
}

/// Reads a time such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, Error> {
    let refuse = || Error::NotATime(text.to_owned());
    let mut rest = text;
    let mut milliseconds: u64 = 0;
    loop {
        let (number, after) = split_number(rest).ok_or_else(refuse)?;
        let unit_length = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_length);
        let factor: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(refuse()),
        };
        milliseconds =
            number.checked_mul(factor).and_then(|part| milliseconds.checked_add(part)).ok_or_else(refuse)?;
        if next.is_empty() {
            return Ok(Duration::from_millis(milliseconds));
        }
        rest = next;
    }
}

/// Splits the digits at the start (there has to be one) from what follows.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("4k", Some(4_000)),
            ("3M", Some(3_000_000)),
            ("512Ki", Some(512 << 10)),
            ("4Mi", Some(4 << 20)),
            ("", None),
            ("Mi", None),
            ("4 Mi", None),
            ("-1", None),
            ("1.5Mi", None),
            ("4MiB", None),
            ("4K", None),
            ("99999999999999999999", None),
            ("18446744073709551615Mi", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, expected) in [
            ("100ms", Some(100)),
            ("60s", Some(60_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("1m30s", Some(90_000)),
            ("1h0m1ms", Some(3_600_001)),
            ("", None),
            ("60", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("1d", None),
            ("1m30", None),
            ("60 s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(duration(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        assert_eq!(
            bytes("big").map_err(|error| error.to_string()),
            Err("`big` is not a size: write a whole number of bytes, with or without a unit (k, M, Ki, Mi), such as `4Mi`"
                .to_owned())
        );
    }
}
