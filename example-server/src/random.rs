//! What nobody can guess.

use std::fmt::Write as _;

/// 128 bits of it.
pub(crate) fn bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    // The system's generator does not fail once it has started, which a process cannot outrun.
    #[expect(
        clippy::expect_used,
        reason = "a server that cannot draw secrets must not go on with known ones"
    )]
    aws_lc_rs::rand::fill(&mut bytes).expect("random bytes");
    bytes
}

/// The same as hexadecimal digits.
pub(crate) fn name() -> String {
    bytes().iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
