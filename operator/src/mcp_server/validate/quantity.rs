//! Sizes and times as manifests spell them.

use std::time::Duration;

/// A whole number of bytes: `4Mi`, `512Ki`, `1000k`, `65536`, `0`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A quantity of Kubernetes, `100m` or `1.5Gi`, as a number that is good enough to compare.
pub(crate) fn amount(text: &str) -> Option<f64> {
    // Rust's numbers have words among them, such as `inf`.
    let is_word = text.ends_with(|last: char| last.is_ascii_alphabetic());
    if let Some(plain) = text.parse().ok().filter(|_| !is_word) {
        return Some(plain);
    }
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let (base, power) = match unit {
        "n" => (1000.0_f64, -3),
        "u" => (1000.0, -2),
        "m" => (1000.0, -1),
        "k" => (1000.0, 1),
        "M" => (1000.0, 2),
        "G" => (1000.0, 3),
        "T" => (1000.0, 4),
        "P" => (1000.0, 5),
        "E" => (1000.0, 6),
        "Ki" => (1024.0, 1),
        "Mi" => (1024.0, 2),
        "Gi" => (1024.0, 3),
        "Ti" => (1024.0, 4),
        "Pi" => (1024.0, 5),
        "Ei" => (1024.0, 6),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * base.powi(power))
}

/// A time: `60s`, `1m30s`, `250ms`, `1h`, `0s`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let factor = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(factor)?)?;
    }
    (!text.is_empty()).then(|| Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes() {
        for (text, expected) in [
            ("4Mi", Some(4 << 20)),
            ("512Ki", Some(512 << 10)),
            ("1000", Some(1000)),
            ("2k", Some(2000)),
            ("0", Some(0)),
            ("", None),
            ("Mi", None),
            ("1.5Mi", None),
            ("4 Mi", None),
            ("4MB", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn reads_times() {
        for (text, expected) in [
            ("60s", Some(60_000)),
            ("1m30s", Some(90_000)),
            ("250ms", Some(250)),
            ("1h", Some(3_600_000)),
            ("0s", Some(0)),
            ("", None),
            ("60", None),
            ("1d", None),
            ("-1s", None),
            ("1.5s", None),
        ] {
            assert_eq!(duration(text), expected.map(Duration::from_millis), "{text}");
        }
    }
}
