//! What `longshore local` says: to people on standard output, or one line of JSON and the rest to standard error.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

use super::ServerId;
use super::keys::ClientKey;
use super::output::{STDERR, STDOUT};

/// What stands for a key that nobody here can say.
const PLACEHOLDER: &str = "KEY";

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// People.
    People,
    /// A program.
    Json,
}

/// The line for programs.
#[derive(Serialize)]
struct All {
    catalog: String,
    servers: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    namespace: String,
    name: String,
    url: String,
    key: Option<String>,
}

/// A server in a client's configuration.
#[derive(Serialize)]
struct Client {
    r#type: &'static str,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Headers>,
}

#[derive(Serialize)]
struct Headers {
    #[serde(rename = "Authorization")]
    authorization: String,
}

/// What is said of a server.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    /// Which.
    pub(super) id: &'a ServerId,
    /// Where clients connect.
    pub(super) address: SocketAddr,
    /// What they have to bring.
    pub(super) key: &'a ClientKey,
}

impl Report {
    /// A line for people.
    pub(super) fn line(self, text: &str) {
        let text = shown(text);
        match self {
            Self::People => STDOUT.line(text),
            Self::Json => STDERR.line(format_args!("longshore: {text}")),
        }
    }

    /// Where everything is, at the start and when a server came or changed its key.
    pub(super) fn overview(self, servers: &[Served<'_>], catalog: SocketAddr) {
        if self == Self::Json {
            return;
        }
        let widest = servers.iter().map(|served| served.id.to_string().len()).max().unwrap_or_default();
        let mut text = String::from("\n");
        for served in servers {
            let name = served.id.to_string();
            let key = match served.key {
                ClientKey::NotNeeded => "no key is needed".to_owned(),
                ClientKey::Known(key) => format!("key {key}"),
                ClientKey::Hashed => {
                    "needs a key that the Secret holds as a hash: give it with --key".to_owned()
                }
                ClientKey::NotTheirs => "needs a key, and that of --key is none of its Secret's".to_owned(),
            };
            text.push_str(&format!("  {name:widest$}  {}  {key}\n", super::url(served.address)));
        }
        text.push_str(&format!("  {:widest$}  http://{catalog}/v1/tools\n", "catalog"));
        text.push_str(&format!(
            "\nFor MCP clients (docs/clients.md has other forms):\n\n{}\n",
            snippet(servers)
        ));
        self.line(&text);
    }

    /// All of them serve.
    pub(super) fn ready(self, servers: &[Served<'_>], catalog: SocketAddr) {
        if self == Self::People {
            return;
        }
        let entry = |served: &Served<'_>| Entry {
            namespace: served.id.namespace.clone(),
            name: served.id.name.clone(),
            url: super::url(served.address),
            key: match served.key {
                ClientKey::Known(key) => Some(key.clone()),
                ClientKey::NotNeeded | ClientKey::Hashed | ClientKey::NotTheirs => None,
            },
        };
        let all = All { catalog: format!("http://{catalog}"), servers: servers.iter().map(entry).collect() };
        if let Ok(line) = serde_json::to_string(&all) {
            STDOUT.line(line);
        }
    }
}

/// What to paste into an MCP client.
fn snippet(servers: &[Served<'_>]) -> String {
    let mut entries = BTreeMap::new();
    for served in servers {
        let twice = servers.iter().filter(|other| other.id.name == served.id.name).count() > 1;
        let name = if twice { served.id.to_string() } else { served.id.name.clone() };
        let key = match served.key {
            ClientKey::NotNeeded => None,
            ClientKey::Known(key) => Some(key.as_str()),
            ClientKey::Hashed | ClientKey::NotTheirs => Some(PLACEHOLDER),
        };
        let headers = key.map(|key| Headers { authorization: format!("Bearer {key}") });
        entries.insert(name, Client { r#type: "http", url: super::url(served.address), headers });
    }
    // Plain text in plain structs: it always serialises.
    serde_json::to_string_pretty(&BTreeMap::from([("mcpServers", entries)])).unwrap_or_default()
}

/// A server's words, so that they neither move the cursor nor change how what follows is shown: without colours, and with
/// a space for every other control character.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let colours = if c == '\x1b' { after_colours(rest.as_str()) } else { None };
        if let Some(after) = colours {
            rest = after.chars();
        } else if c.is_control() && !matches!(c, '\n' | '\t') {
            shown.push(' ');
        } else {
            shown.push(c);
        }
    }
    shown
}

/// What follows a sequence of colours, if there is one after an escape.
fn after_colours(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').strip_prefix('m')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_a_server_writes_moves_no_cursor_and_colours_nothing() {
        for (written, expected) in [
            ("plain, é, \ttab", "plain, é, \ttab"),
            ("\x1b[32mINFO\x1b[0m ready \x1b[1;31mred\x1b[m", "INFO ready red"),
            ("\x1b]0;title\x07 \x1b[2J \x1b[31", " ]0;title   [2J  [31"),
            ("over\rwritten\u{9b}2J\x1b", "over written 2J "),
        ] {
            assert_eq!(shown(written), expected);
        }
    }

    #[test]
    fn the_snippet_has_what_a_client_needs() {
        let id =
            |namespace: &str, name: &str| ServerId { namespace: namespace.to_owned(), name: name.to_owned() };
        let (one, two, other) = (id("a", "x"), id("b", "x"), id("a", "y"));
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let known = ClientKey::Known("k".to_owned());
        let served = [
            Served { id: &one, address: address(1), key: &known },
            Served { id: &two, address: address(2), key: &ClientKey::NotNeeded },
            Served { id: &other, address: address(3), key: &ClientKey::Hashed },
        ];
        assert_eq!(
            serde_json::from_str::<Value>(&snippet(&served)).unwrap(),
            json!({"mcpServers": {
                "a/x": {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer k"}},
                "b/x": {"type": "http", "url": "http://127.0.0.1:2/mcp"},
                "y": {"type": "http", "url": "http://127.0.0.1:3/mcp", "headers": {"Authorization": "Bearer KEY"}},
            }})
        );
    }

    /// Whoever pastes what is printed finds on the page for which client it is. All else there is JSON, too.
    #[test]
    fn clients_shows_the_snippet() {
        let page = include_str!("../../../docs/clients.md");
        let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let blocks: Vec<Value> = blocks.map(|block| serde_json::from_str(block).unwrap()).collect();
        let id = ServerId { namespace: "default".to_owned(), name: "first".to_owned() };
        let key = ClientKey::Known("${FIRST_KEY}".to_owned());
        let served = Served { id: &id, address: SocketAddr::from(([127, 0, 0, 1], 8080)), key: &key };
        assert_eq!(blocks[0], serde_json::from_str::<Value>(&snippet(&[served])).unwrap());
        let (_, claude_code) = page.split_once("## Claude Code\n").unwrap();
        assert!(claude_code.find("```json").unwrap() < claude_code.find("\n## ").unwrap());
    }
}
