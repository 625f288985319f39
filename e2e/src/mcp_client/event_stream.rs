//! Server-sent events, of which only the data matters here.

/// The data of each event that is complete. Events without data are none.
pub(crate) fn data(text: &str) -> Vec<String> {
    let mut events = Vec::new();
    let mut data: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.is_empty() {
            if !data.is_empty() {
                events.push(std::mem::take(&mut data).join("\n"));
            }
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::data;

    #[test]
    fn data_is_joined_and_what_is_unfinished_is_left_out() {
        let text = ": hello\n\nid: 1\ndata: {\"a\":\ndata: 1}\n\nevent: message\ndata:two\r\n\r\ndata: cut";
        assert_eq!(data(text), ["{\"a\":\n1}", "two"]);
        assert!(data("id: 1\n\nretry: 5\n\n").is_empty());
    }
}
