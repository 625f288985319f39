//! Reads an inventory without ever holding more of it than is kept. One tool that makes no sense costs the others
//! nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use longshore_sidecar_config::inventory::Connection;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::schema::{self, Read};
use super::{Offer, Schema, Share, ToolEntry};
use crate::limits;
use crate::model::{Annotations, Omitted, Reported};
use crate::text;

/// How many entries of a list are looked at. The sidecar sends no more.
const ENTRIES: usize = 4 * limits::TOOLS;
/// How many revisions of MCP are kept: more than there are.
const MAX_REVISIONS: usize = 16;
/// Schemas may take this part of a server's room, so that some is left for names and descriptions.
const ROOM_FOR_SCHEMAS: usize = limits::SERVER_TEXT / 2;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inventory<'a> {
    connection: Connection,
    #[serde(default)]
    config: Config,
    #[serde(default, borrow)]
    server: Option<Server<'a>>,
    #[serde(borrow)]
    tools: Tools<'a>,
    #[serde(default)]
    tools_digest: String,
    #[serde(default)]
    prompts: Count,
    #[serde(default)]
    resources: Count,
    #[serde(default)]
    resource_templates: Count,
}

/// Older sidecars say nothing of it.
#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    callers: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server<'a> {
    #[serde(borrow)]
    info: &'a RawValue,
    protocol_version: String,
    /// Older sidecars say nothing of these.
    #[serde(default)]
    protocol_versions: Vec<String>,
    #[serde(default)]
    instructions: Option<String>,
}

/// Every member may be anything: what is no text is taken for absent.
#[derive(Deserialize)]
struct Info<'a> {
    #[serde(default, borrow)]
    name: Option<&'a RawValue>,
    #[serde(default, borrow)]
    title: Option<&'a RawValue>,
    #[serde(default, borrow)]
    version: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    #[serde(default, borrow)]
    name: Option<&'a RawValue>,
    #[serde(default, borrow)]
    title: Option<&'a RawValue>,
    #[serde(default, borrow)]
    description: Option<&'a RawValue>,
    #[serde(default, borrow)]
    input_schema: Option<&'a RawValue>,
    #[serde(default, borrow)]
    output_schema: Option<&'a RawValue>,
    #[serde(default, borrow)]
    annotations: Option<&'a RawValue>,
}

/// The first entries of a list, as they stand, and how many there are beside them.
struct Tools<'a> {
    entries: Vec<&'a RawValue>,
    others: usize,
}

/// How long a list is.
#[derive(Default)]
struct Count(usize);

/// Makes an offer of an inventory.
pub(super) fn inventory(json: &[u8], mut share: Share) -> serde_json::Result<Offer> {
    let inventory: Inventory<'_> = serde_json::from_slice(json)?;
    let mut left_out = inventory.tools.others;
    let mut tools: BTreeMap<Box<str>, ToolEntry> = BTreeMap::new();
    let mut room_for_schemas = ROOM_FOR_SCHEMAS;
    for entry in inventory.tools.entries {
        let Some(tool) = tool(entry, &mut room_for_schemas) else {
            left_out += 1;
            continue;
        };
        if tools.contains_key(&tool.name) || !share.take(tool.bytes()) {
            left_out += 1;
            continue;
        }
        tools.insert(tool.name.clone(), tool);
    }
    let connection = Connection {
        message: String::new(),
        since: time(&inventory.connection.since),
        ..inventory.connection
    };
    Ok(Offer {
        connection,
        lets_in: inventory.config.callers != Some(false),
        reported: inventory.server.map(reported),
        tools: tools.into_values().map(Arc::new).collect(),
        tools_left_out: left_out,
        tools_digest: text::line(&inventory.tools_digest, limits::LINE),
        prompts: inventory.prompts.0,
        resources: inventory.resources.0.saturating_add(inventory.resource_templates.0),
        share: Arc::new(share),
    })
}

/// RFC 3339, or nothing: a client that reads answers by their description could read none of a page with something else.
fn time(text: &str) -> String {
    // Years have four digits there, and no sign.
    let time = text.parse::<Timestamp>().ok().filter(|time| time.as_second() >= 0);
    time.map(|time| time.to_string()).unwrap_or_default()
}

fn reported(server: Server<'_>) -> Reported {
    let info = object::<Info<'_>>(server.info).unwrap_or(Info { name: None, title: None, version: None });
    Reported {
        name: line(info.name).unwrap_or_default(),
        title: line(info.title),
        version: line(info.version).unwrap_or_default(),
        protocol_versions: revisions(&server),
        protocol_version: text::line(&server.protocol_version, limits::LINE),
        instructions: server
            .instructions
            .map(|instructions| text::lines(&instructions, limits::DESCRIPTION))
            .filter(|instructions| !instructions.is_empty()),
    }
}

fn revisions(server: &Server<'_>) -> Vec<String> {
    let named = match server.protocol_versions.as_slice() {
        [] => std::slice::from_ref(&server.protocol_version),
        named => named,
    };
    named.iter().take(MAX_REVISIONS).map(|revision| text::line(revision, limits::LINE)).collect()
}

fn tool(entry: &RawValue, room: &mut usize) -> Option<ToolEntry> {
    let given: Tool<'_> = object(entry)?;
    let name = string(given.name?)?;
    if !text::is_plain(&name, limits::NAME) {
        return None;
    }
    let mut tool = ToolEntry::named(&name);
    let annotations = given.annotations.and_then(object::<BTreeMap<String, &RawValue>>).unwrap_or_default();
    // Where a server of 2025-03-26 has it.
    let title = line(given.title).or_else(|| line(annotations.get("title").copied()));
    tool.title = title.map(Into::into);
    tool.description = given
        .description
        .and_then(string)
        .map(|description| text::lines(&description, limits::DESCRIPTION))
        .filter(|description| !description.is_empty())
        .map(Into::into);
    tool.annotations = hints(&annotations);
    // It is found by its parameters even where the schema is not kept.
    (tool.input_schema, tool.parameters) = kept("inputSchema", given.input_schema, &mut tool.omitted, room);
    (tool.output_schema, _) = kept("outputSchema", given.output_schema, &mut tool.omitted, room);
    Some(tool)
}

/// A schema as it is kept, or a word on why it is not; and the names of its parameters as far as they are known.
fn kept(
    field: &str,
    given: Option<&RawValue>,
    omitted: &mut Vec<Omitted>,
    room: &mut usize,
) -> (Option<Schema>, Vec<Box<str>>) {
    let Some(given) = given else { return (None, Vec::new()) };
    let bytes = given.get().len();
    let (parameters, reason) = if bytes > limits::SCHEMA {
        (Vec::new(), format!("it is longer than {} bytes", limits::SCHEMA))
    } else {
        match schema::read(given.get()) {
            Read::Schema(schema, parameters) => {
                let length = schema.0.get().len();
                if length <= *room {
                    *room -= length;
                    return (Some(schema), parameters);
                }
                (parameters, "the schemas of this server take more room than there is".to_owned())
            }
            Read::Unnamable(parameters) => {
                (parameters, "it has a name with characters that are not shown".to_owned())
            }
            Read::Unreadable(parameters) => {
                (parameters, "it is nested too deeply, or holds numbers that are out of range".to_owned())
            }
            Read::NoObject => (Vec::new(), "it is not an object".to_owned()),
        }
    };
    omitted.push(Omitted { field: field.to_owned(), bytes, reason });
    (None, parameters)
}

fn hints(annotations: &BTreeMap<String, &RawValue>) -> Annotations {
    let hint = |name: &str| serde_json::from_str(annotations.get(name)?.get()).ok();
    Annotations {
        read_only_hint: hint("readOnlyHint"),
        destructive_hint: hint("destructiveHint"),
        idempotent_hint: hint("idempotentHint"),
        open_world_hint: hint("openWorldHint"),
    }
}

/// An object's members. serde takes an array for a struct too, by position.
fn object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    value.get().starts_with('{').then(|| serde_json::from_str(value.get()).ok()).flatten()
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn line(value: Option<&RawValue>) -> Option<String> {
    let line = text::line(&string(value?)?, limits::LINE);
    (!line.is_empty()).then_some(line)
}

impl<'de: 'a, 'a> Deserialize<'de> for Tools<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Tools<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of tools")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tools<'de>, A::Error> {
                let mut entries = Vec::new();
                while entries.len() < ENTRIES {
                    let Some(entry) = list.next_element()? else { return Ok(Tools { entries, others: 0 }) };
                    entries.push(entry);
                }
                Ok(Tools { entries, others: count(list)? })
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counted;
        impl<'de> Visitor<'de> for Counted {
            type Value = Count;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Count, A::Error> {
                Ok(Count(count(list)?))
            }
        }
        deserializer.deserialize_seq(Counted)
    }
}

fn count<'de, A: SeqAccess<'de>>(mut list: A) -> Result<usize, A::Error> {
    let mut count = 0_usize;
    while list.next_element::<IgnoredAny>()?.is_some() {
        count = count.saturating_add(1);
    }
    Ok(count)
}
