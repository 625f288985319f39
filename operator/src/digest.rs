//! SHA-256, in the two spellings that the contracts use.

use std::fmt::Write as _;

/// SHA-256 as 64 lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 as `sha256:` and 64 lower-case hexadecimal digits.
pub fn prefixed(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}
