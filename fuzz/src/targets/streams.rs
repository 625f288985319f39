//! What comes in pieces.

use bytes::Bytes;
use longshore_mcp::endpoint;
use longshore_mcp::sse::{self, Decoder, Event};

use crate::input::Input;

/// The reader of lines that processes write. It needs nothing of the sidecar, and the sidecar is large.
#[path = "../../../sidecar/src/upstream/stdio/lines.rs"]
#[expect(dead_code, reason = "the bounds that the sidecar calls it with stand there too")]
mod read;

type Read = Vec<(Option<Vec<u8>>, Option<String>, Option<String>, Option<u64>)>;

fn owned(event: Event<'_>) -> (Option<Vec<u8>>, Option<String>, Option<String>, Option<u64>) {
    if let Some(shared) = event.shared_data() {
        assert_eq!(Some(&shared[..]), event.data.as_deref());
        assert!(!shared.contains(&b'\n') && !shared.contains(&b'\r'), "it is to be written in one line");
    }
    let Event { data, event, id, retry, .. } = event;
    (data.map(Into::into), event.map(Into::into), id.map(Into::into), retry)
}

/// A stream of events says the same however it is cut, and what is written is read again.
pub(super) fn events(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (size, limit) = (usize::from(input.byte()), usize::from(input.byte()) * 16);
    let stream = input.bytes();
    let mut whole = Read::new();
    let mut decoder = Decoder::new(usize::MAX);
    decoder
        .push(&Bytes::copy_from_slice(stream), |event| whole.push(owned(event)))
        .expect("there is no limit");
    let data: usize = whole.iter().map(|(data, ..)| data.as_ref().map_or(0, Vec::len)).sum();
    assert!(data <= stream.len(), "more came out than went in");
    let mut cut = Read::new();
    let mut decoder = Decoder::new(usize::MAX);
    for piece in stream.chunks(size.max(1)) {
        decoder
            .push(&Bytes::copy_from_slice(piece), |event| cut.push(owned(event)))
            .expect("there is no limit");
    }
    // A carriage return at the end of a piece may end an event before its line feed has come, which is then an empty
    // one: those say nothing.
    let nothing = |event: &(Option<Vec<u8>>, _, _, _)| *event == (None, None, None, None);
    whole.retain(|event| !nothing(event));
    cut.retain(|event| !nothing(event));
    assert_eq!(cut, whole, "pieces of {size} bytes");
    // With a limit nothing panics, and no event is longer than it unless it came at once.
    let mut decoder = Decoder::new(limit);
    for piece in stream.chunks(size.max(1)) {
        let longest = limit + piece.len();
        let piece = Bytes::copy_from_slice(piece);
        let pushed =
            decoder.push(&piece, |event| assert!(event.data.is_none_or(|data| data.len() <= longest)));
        if pushed.is_err() {
            break;
        }
    }
    // A message in an event is one line or several, joined as they were.
    let lines: Vec<u8> = stream.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
    for text in [sse::message(stream), sse::numbered("7-1-0", stream)] {
        let mut back = Vec::new();
        Decoder::new(usize::MAX)
            .push(&text.into(), |event| back.push(event.data.map(Vec::from)))
            .expect("no limit");
        assert_eq!(back, [Some(lines.clone())]);
    }
    // One that may have broken off after any byte does not become part of another.
    let mut broken = stream.to_vec();
    broken.extend_from_slice(sse::abandon_after(stream.last().copied().unwrap_or(b'\n')).as_bytes());
    broken.extend_from_slice(&sse::message(b"next"));
    let mut last = Vec::new();
    Decoder::new(usize::MAX)
        .push(&broken.into(), |event| last = event.data.map(Vec::from).unwrap_or_default())
        .expect("no limit");
    assert_eq!(last, b"next");
}

/// Messages go to the server that the stream comes from.
pub(super) fn endpoint(bytes: &[u8]) {
    let Some(reference) = Input::new(bytes).text() else { return };
    for stream in ["http://127.0.0.1:8080/a/sse?x=1", "https://mcp.example/sse"] {
        let Ok(path) = endpoint::resolve(stream, reference) else { continue };
        assert!(path.starts_with('/'), "{path:?} may lead elsewhere");
        assert!(path.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'\\'), "{path:?}");
        assert!(path.len() <= reference.len() + stream.len());
        let part = path.split('?').next().unwrap();
        assert!(!part.split('/').any(|part| part == ".." || part == "."), "{path:?}");
        // It can be told in the event that names it.
        let mut told = None;
        Decoder::new(usize::MAX)
            .push(&endpoint::event(&path).into(), |event| told = event.data.map(Vec::from))
            .expect("no limit");
        assert_eq!(told.as_deref(), Some(path.as_bytes()));
    }
}

/// A process's lines are the same however they are cut.
pub(super) fn lines(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (size, limit) = (usize::from(input.byte()), usize::from(input.byte()));
    let stream = input.bytes();
    let whole = read_lines(stream, stream.len().max(1), limit);
    assert_eq!(read_lines(stream, size.max(1), limit), whole, "pieces of {size} bytes");
    for line in whole.iter().flatten() {
        assert!(!line.contains(&b'\n') && line.len() <= limit);
        assert_eq!(line.trim_ascii(), line);
        assert!(read::excerpt(line).chars().all(|char| !char.is_control()));
    }
}

/// The lines that are not empty, up to one that is too long: that is `None`.
fn read_lines(stream: &[u8], size: usize, limit: usize) -> Vec<Option<Vec<u8>>> {
    let mut lines = read::Lines::new(limit);
    let mut all = Vec::new();
    for piece in stream.chunks(size) {
        lines.space().extend_from_slice(piece);
        loop {
            match lines.next() {
                Ok(None) => break,
                Ok(Some(line)) if line.is_empty() => {}
                Ok(Some(line)) => all.push(Some(line.to_vec())),
                Err(_) => {
                    all.push(None);
                    return all;
                }
            }
        }
    }
    let last = lines.last();
    if !last.is_empty() {
        all.push(Some(last.to_vec()));
    }
    all
}
