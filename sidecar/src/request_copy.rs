//! What is kept of a request after it was read. Its head, and a small body, are pieces of its connection's buffer of up to
//! 64 KiB, which each of them keeps whole: so what may be kept for long is copied, and nothing else of it is kept.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

/// Bodies of up to this size are copied, whatever came with them: most are a fraction of it.
const FEW: usize = 8 * 1024;

/// A value in memory of its own.
pub(crate) fn value(value: &HeaderValue) -> Option<HeaderValue> {
    let mut copy = HeaderValue::from_bytes(value.as_bytes()).ok()?;
    copy.set_sensitive(value.is_sensitive());
    Some(copy)
}

/// How many bytes there are of a head.
pub(crate) fn size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// A body that came with this head, in memory of its own where it would keep more than itself: a large head, or a buffer
/// that is large because of a request before.
pub(crate) fn body(headers: &HeaderMap, body: Bytes) -> Bytes {
    if body.len() <= FEW || size(headers) > body.len() { Bytes::copy_from_slice(&body) } else { body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::API_KEY;

    #[test]
    fn a_body_is_copied_where_it_is_small_or_the_head_is_the_larger_part() {
        let head =
            |size: usize| HeaderMap::from_iter([(API_KEY, HeaderValue::try_from("k".repeat(size)).unwrap())]);
        for (head_size, body_size, is_copied) in
            [(100, FEW, true), (100, FEW + 1, false), (60_000, 50_000, true), (50_000, 60_000, false)]
        {
            let given = Bytes::from("b".repeat(body_size));
            let kept = body(&head(head_size), given.clone());
            assert_eq!(
                (kept.as_ptr() != given.as_ptr(), &kept),
                (is_copied, &given),
                "{head_size} {body_size}"
            );
        }
    }
}
