//! Inputs that are kept.

use std::path::{Path, PathBuf};

use crate::Target;

/// The file of a target's inputs.
#[must_use]
pub fn file(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(target.name).with_extension("txt")
}

/// The inputs of a target.
#[must_use]
pub fn read(target: Target) -> Vec<Vec<u8>> {
    let file = file(target);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(bytes).collect()
}

/// Replaces the inputs of a target: in order, and each once.
pub fn write(target: Target, inputs: &[Vec<u8>]) {
    let mut lines: Vec<String> = inputs.iter().map(|input| line(input) + "\n").collect();
    lines.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
    lines.dedup();
    std::fs::write(file(target), lines.concat()).expect("the corpus can be written");
}

/// An input as a line.
#[must_use]
pub fn line(input: &[u8]) -> String {
    // Quotes need no escape where nothing is quoted, and messages are full of them.
    input.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// The input in a line.
#[must_use]
pub fn bytes(line: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (kind, tail) = rest.split_first().unwrap_or_else(|| panic!("half an escape: {line}"));
        rest = tail;
        bytes.push(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'"' | b'\'' => *kind,
            b'x' => {
                let (digits, tail) =
                    rest.split_at_checked(2).unwrap_or_else(|| panic!("half an escape: {line}"));
                rest = tail;
                let digits = str::from_utf8(digits).expect("hexadecimal digits");
                u8::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("no byte: {line}"))
            }
            _ => panic!("an escape that nobody knows: {line}"),
        });
    }
    bytes
}
