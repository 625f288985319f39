//! The headers of one request that MCP gives a meaning, collected once. Which HTTP library they come from does not
//! matter.

/// What a header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Field<'a> {
    /// It is not there.
    #[default]
    Absent,
    /// This, without white space around it.
    One(&'a str),
    /// It is there more than once: readers would differ in which one counts.
    Twice,
    /// Bytes that no value may have.
    Unreadable,
}

/// The headers of a request that MCP gives a meaning.
#[derive(Clone, Debug, Default)]
pub struct Fields<'a> {
    /// `MCP-Protocol-Version`.
    pub version: Field<'a>,
    /// `Mcp-Method`.
    pub method: Field<'a>,
    /// `Mcp-Name`.
    pub name: Field<'a>,
    /// `Mcp-Session-Id`.
    pub session: Field<'a>,
    /// `Last-Event-ID`.
    pub last_event: Field<'a>,
    /// `Mcp-Param-X` by X.
    pub arguments: Vec<(&'a str, Field<'a>)>,
}

impl<'a> Fields<'a> {
    /// Picks them out of all headers. Names are compared without regard to case, and those of arguments each with all before
    /// it: whoever reads the request bounds how many headers it has.
    pub fn read(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            // Most headers are none of these.
            if !matches!(name.as_bytes().first(), Some(b'm' | b'M' | b'l' | b'L')) {
                continue;
            }
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            let field = match argument_of(name) {
                _ if is(super::PROTOCOL_VERSION) => &mut fields.version,
                _ if is(super::METHOD) => &mut fields.method,
                _ if is(super::NAME) => &mut fields.name,
                _ if is(super::SESSION_ID) => &mut fields.session,
                _ if is(super::LAST_EVENT_ID) => &mut fields.last_event,
                Some(argument) => {
                    let known =
                        fields.arguments.iter().position(|(name, _)| name.eq_ignore_ascii_case(argument));
                    let at = known.unwrap_or(fields.arguments.len());
                    if known.is_none() {
                        fields.arguments.push((argument, Field::Absent));
                    }
                    &mut fields.arguments[at].1
                }
                None => continue,
            };
            *field = match *field {
                Field::Absent => Field::of(value),
                _ => Field::Twice,
            };
        }
        fields
    }

    /// What `Mcp-Param-X` says.
    pub fn argument(&self, name: &str) -> Field<'a> {
        let found = self.arguments.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map_or(Field::Absent, |(_, field)| *field)
    }
}

/// X of `Mcp-Param-X`.
fn argument_of(name: &str) -> Option<&str> {
    let (prefix, argument) = name.split_at_checked(super::ARGUMENT_PREFIX.len())?;
    prefix.eq_ignore_ascii_case(super::ARGUMENT_PREFIX).then_some(argument)
}

impl<'a> Field<'a> {
    fn of(value: &'a [u8]) -> Self {
        // All of it, also after a byte that is none: several are looked at together then.
        let good = |byte: u8| (byte == b'\t') | (0x20..=0x7e).contains(&byte);
        let all_good = value.iter().fold(true, |all, byte| all & good(*byte));
        match std::str::from_utf8(value) {
            Ok(text) if all_good => Self::One(text.trim_ascii()),
            _ => Self::Unreadable,
        }
    }

    /// The value, if there is exactly one.
    pub fn one(self) -> Option<&'a str> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Twice | Self::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_collected() {
        let fields = Fields::read([
            ("MCP-PROTOCOL-Version", &b" 2026-07-28\t"[..]),
            ("mcp-method", b"ping"),
            ("Mcp-Method", b"ping"),
            ("mcp-name", b"\xff"),
            ("Mcp-Param-Region", b"eu"),
            ("mcp-param-REGION", b"us"),
            ("mcp-param-tenant", b""),
            ("accept", b"*/*"),
        ]);
        assert_eq!(fields.version, Field::One("2026-07-28"));
        assert_eq!((fields.method, fields.name), (Field::Twice, Field::Unreadable));
        assert_eq!(fields.session, Field::Absent);
        assert_eq!(fields.argument("region"), Field::Twice);
        assert_eq!(fields.argument("Tenant"), Field::One(""));
        assert_eq!(fields.argument("other"), Field::Absent);
    }
}
