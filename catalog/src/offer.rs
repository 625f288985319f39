//! What a server offers, made of its sidecar's inventory: every text bounded and cleaned, every list bounded.

mod read;
mod room;
mod schema;

use std::sync::Arc;

use longshore_sidecar_config::inventory::{Connection, Inventory};
use serde_json::value::RawValue;

use crate::limits;
use crate::model::{Annotations, Omitted, Reported};
use crate::record::ServerKey;
use room::{Room, Share};

/// What a sidecar says, as far as the catalog keeps it.
#[derive(Debug, PartialEq)]
pub struct Offer {
    /// Whether its server answers, without the server's own words.
    pub connection: Connection,
    /// Whether it lets anybody in, as far as it says.
    pub lets_in: bool,
    /// What the server calls itself.
    pub reported: Option<Reported>,
    /// The tools, by name.
    pub tools: Vec<Arc<ToolEntry>>,
    /// How many there are beside them.
    pub tools_left_out: usize,
    /// SHA-256 over the definitions.
    pub tools_digest: String,
    /// How many prompts there are.
    pub prompts: usize,
    /// How many resources and resource templates there are.
    pub resources: usize,
    /// Held as long as this, or a part of it, is in memory.
    share: Arc<Share>,
}

/// One tool.
#[derive(Debug, PartialEq)]
pub struct ToolEntry {
    /// Its name.
    pub name: Box<str>,
    /// A name for people.
    pub title: Option<Box<str>>,
    /// What it does.
    pub description: Option<Box<str>>,
    /// The names of its parameters.
    pub parameters: Vec<Box<str>>,
    /// Hints.
    pub annotations: Annotations,
    /// What it takes.
    pub input_schema: Option<Schema>,
    /// What it returns.
    pub output_schema: Option<Schema>,
    /// What is not shown of it.
    pub omitted: Vec<Omitted>,
}

/// A JSON Schema: cleaned, and otherwise as the server gave it.
#[derive(Clone, Debug)]
pub struct Schema(pub Box<RawValue>);

/// Makes offers of inventories, and holds all of them together to their bound. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    room: Arc<Room>,
}

// === impl Reader ===

impl Default for Reader {
    fn default() -> Self {
        Self::new(limits::TEXT, limits::ALL_TOOLS)
    }
}

impl Reader {
    /// A reader whose offers have so much text, and so many tools, at most, of one namespace half of that: by the longest
    /// list of each server, of which there are three as a rule while they are replaced.
    pub fn new(bytes: usize, tools: usize) -> Self {
        Self { room: Arc::new(Room::new(bytes, tools)) }
    }

    /// Reads the JSON of a server's inventory. Definitions that are too long are never in memory a second time.
    pub fn read(&self, server: &ServerKey, json: &[u8]) -> serde_json::Result<Offer> {
        read::inventory(json, Share::of(&self.room, server))
    }

    /// The same for an inventory that is there already.
    pub fn offer(&self, server: &ServerKey, inventory: &Inventory) -> serde_json::Result<Offer> {
        self.read(server, &serde_json::to_vec(inventory)?)
    }
}

// === impl Offer ===

impl Offer {
    /// Of a server of which nothing but names is known, and how many tools it has beside those.
    pub(crate) fn of_names(names: &[String], others: usize) -> Self {
        let mut tools: Vec<Arc<ToolEntry>> = names
            .iter()
            .filter(|name| crate::text::is_plain(name, limits::NAME))
            .map(|name| Arc::new(ToolEntry::unheard(name)))
            .collect();
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        tools.dedup_by(|one, other| one.name == other.name);
        Self {
            connection: Connection {
                state: longshore_sidecar_config::inventory::ConnectionState::Connecting,
                since: String::new(),
                reason: None,
                message: String::new(),
            },
            lets_in: true,
            reported: None,
            tools_left_out: others + (names.len() - tools.len()),
            tools,
            tools_digest: String::new(),
            prompts: 0,
            resources: 0,
            share: Arc::new(Share::none()),
        }
    }

    /// What is left of it without the tools that are not to be listed. Nothing is known of the digest of the others.
    pub fn only(self: Arc<Self>, is_listed: impl Fn(&str) -> bool) -> Arc<Self> {
        let tools: Vec<_> = self.tools.iter().filter(|tool| is_listed(&tool.name)).cloned().collect();
        if tools.len() == self.tools.len() {
            return self;
        }
        Arc::new(Self {
            connection: self.connection.clone(),
            lets_in: self.lets_in,
            reported: self.reported.clone(),
            tools,
            tools_left_out: self.tools_left_out,
            tools_digest: String::new(),
            prompts: self.prompts,
            resources: self.resources,
            share: self.share.clone(),
        })
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolEntry> {
        self.tools.get(self.place(name)?).map(|tool| &**tool)
    }

    /// Where the tool of this name is among all.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.tools.binary_search_by(|tool| (*tool.name).cmp(name)).ok()
    }

    /// Whether more tools would be listed if the same inventory were read again: others have given room back.
    pub fn may_grow(&self) -> bool {
        self.share.may_grow()
    }

    /// Whether the other lists the same tools and calls itself the same.
    pub(crate) fn lists_the_same(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.tools == other.tools && self.reported == other.reported)
    }
}

// === impl ToolEntry ===

impl ToolEntry {
    /// A tool of which nothing but the name is known.
    fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            parameters: Vec::new(),
            annotations: Annotations::default(),
            input_schema: None,
            output_schema: None,
            omitted: Vec::new(),
        }
    }

    /// A tool that is in somebody's list, of a server that has not been heard itself.
    fn unheard(name: &str) -> Self {
        let reason = "the server has not been heard yet".to_owned();
        let input_schema = Omitted { field: "inputSchema".to_owned(), bytes: 0, reason };
        Self { omitted: vec![input_schema], ..Self::named(name) }
    }

    /// About how much memory it needs.
    fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let schema = |schema: &Option<Schema>| schema.as_ref().map_or(0, |schema| schema.0.get().len());
        let omitted = self.omitted.iter().map(|omitted| omitted.field.len() + omitted.reason.len());
        size_of::<Self>()
            + self.name.len()
            + text(&self.title)
            + text(&self.description)
            + self.parameters.iter().map(|name| name.len() + size_of::<Box<str>>()).sum::<usize>()
            + schema(&self.input_schema)
            + schema(&self.output_schema)
            + self.omitted.capacity() * size_of::<Omitted>()
            + omitted.sum::<usize>()
    }
}

// === impl Schema ===

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inventory(tools: &[Value]) -> Value {
        json!({
            "config": {"digest": "sha256:c", "generation": 3, "error": null},
            "phase": "OfANewerSidecar",
            "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
            "server": {
                "info": {"name": "demo\u{202e}", "version": "1", "title": ["not", "text"]},
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": "Be\u{0} kind.\nAlways."
            },
            "tools": tools, "hiddenTools": 0, "toolsDigest": "sha256:t",
            "prompts": [{"name": "p"}], "resources": [1, 2], "resourceTemplates": [{}], "exposed": [],
            "fromANewerSidecar": {"deep": [[[]]]}
        })
    }

    fn key(namespace: &str, name: &str) -> ServerKey {
        ServerKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn read(tools: &[Value]) -> Offer {
        Reader::default().read(&key("a", "demo"), inventory(tools).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn keeps_what_is_fit_to_be_shown_in_order() {
        let offer = read(&[
            json!({
                "name": "write", "title": "Write\u{202e} it", "description": " Writes\u{7} a file. ",
                "inputSchema": {"type": "object", "properties": {
                    "path": {"type": "string", "description": "Where\u{e0041}"},
                    "options": {"type": "object", "properties": {"mode": {"type": "integer"}}},
                }},
                "annotations": {"destructiveHint": true, "readOnlyHint": "no"},
            }),
            json!({"name": "read"}),
        ]);
        assert_eq!(offer.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["read", "write"]);
        let write = offer.tool("write").unwrap();
        assert_eq!(write.title.as_deref(), Some("Write it"));
        assert_eq!(write.description.as_deref(), Some("Writes a file."));
        assert_eq!(write.parameters, ["mode", "options", "path"].map(Box::from));
        assert_eq!(write.annotations, Annotations { destructive_hint: Some(true), ..Annotations::default() });
        let schema: Value = serde_json::from_str(write.input_schema.as_ref().unwrap().0.get()).unwrap();
        assert_eq!(schema["properties"]["path"]["description"], "Where");
        let reported = offer.reported.as_ref().unwrap();
        assert_eq!((&*reported.name, &reported.title), ("demo", &None));
        assert_eq!(reported.instructions.as_deref(), Some("Be kind.\nAlways."));
        assert_eq!((offer.prompts, offer.resources, offer.tools_left_out), (1, 3, 0));
        assert!(offer.tool("nope").is_none());
    }

    /// Whatever answers at the address of a pod may say anything of that.
    #[test]
    fn a_time_is_one_or_is_not_said() {
        for (since, expected) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("2026-01-01T02:00:00.5+02:00", "2026-01-01T00:00:00.5Z"),
            ("", ""),
            ("yesterday", ""),
            ("2026-13-01T00:00:00Z", ""),
            ("-000001-01-01T00:00:00Z", ""),
        ] {
            let mut said = inventory(&[]);
            said["connection"]["since"] = json!(since);
            let offer = Reader::default().read(&key("a", "demo"), said.to_string().as_bytes()).unwrap();
            assert_eq!(offer.connection.since, expected, "{since}");
        }
    }

    #[test]
    fn a_title_stands_in_either_place() {
        for (tool, title) in [
            (json!({"name": "t", "title": "One"}), Some("One")),
            (json!({"name": "t", "annotations": {"title": "Two\u{202e}"}}), Some("Two")),
            (json!({"name": "t", "title": "One", "annotations": {"title": "Two"}}), Some("One")),
            (json!({"name": "t", "title": " ", "annotations": {"title": "Two"}}), Some("Two")),
            (json!({"name": "t", "annotations": {"title": 2}}), None),
            (json!({"name": "t", "annotations": ["title"]}), None),
        ] {
            assert_eq!(read(std::slice::from_ref(&tool)).tools[0].title.as_deref(), title, "{tool}");
        }
    }

    #[test]
    fn what_cannot_be_listed_is_counted() {
        let long = "n".repeat(limits::NAME + 1);
        for (tool, why) in [
            (json!("text"), "no object"),
            (json!(["positional", "array"]), "an array that could pass for an object"),
            (json!({"title": "no name"}), "no name"),
            (json!({"name": 7}), "a name that is no text"),
            (json!({"name": ""}), "an empty name"),
            (json!({"name": "a\u{202e}b"}), "a name that does not show"),
            (json!({"name": long}), "a long name"),
            (json!({"name": "good"}), "a name twice"),
        ] {
            let offer = read(&[json!({"name": "good"}), tool, json!({"name": "last"})]);
            assert_eq!((offer.tools.len(), offer.tools_left_out), (2, 1), "{why}");
        }
    }

    #[test]
    fn schemas_that_are_too_long_or_too_deep_leave_a_word() {
        let mut deep = json!({"items": {}});
        for _ in 0..29 {
            deep = json!({"items": [deep]});
        }
        let deeper = json!({"items": deep}).to_string();
        let deep_text = format!("{}{}{}", "{\"items\":".repeat(500), "{}", "}".repeat(500));
        let with = |schema: &str| {
            let tool = format!(
                "{{\"name\":\"t\",\"inputSchema\":{schema},\"outputSchema\":{{\"type\":\"object\"}}}}"
            );
            let json = inventory(&[]).to_string().replace("\"tools\":[]", &format!("\"tools\":[{tool}]"));
            Reader::default().read(&key("a", "demo"), json.as_bytes()).unwrap()
        };
        assert_eq!(with(&deep.to_string()).tools[0].omitted, []);
        let long = format!("{{\"x\":\"{}\"}}", "y".repeat(1 << 20));
        for (schema, bytes, words) in [
            (long.as_str(), (1 << 20) + 8, "longer than 65536 bytes"),
            (&deeper, deeper.len(), "nested too deeply"),
            (&deep_text, deep_text.len(), "nested too deeply"),
            ("[1]", 3, "not an object"),
            (r#"{"properties":{"p":{},"p\u200b":{}}}"#, 36, "a name with characters that are not shown"),
            (r#"{"allOf":[{"$defs":{"x\u202e":{}}}]}"#, 36, "a name with characters that are not shown"),
        ] {
            let offer = with(schema);
            let tool = &offer.tools[0];
            assert!(tool.input_schema.is_none() && tool.output_schema.is_some());
            let [omitted] = &*tool.omitted else { panic!("{:?}", tool.omitted) };
            assert_eq!((&*omitted.field, omitted.bytes), ("inputSchema", bytes));
            assert!(omitted.reason.contains(words), "{}", omitted.reason);
        }
        let deep_parameter = json!({"properties": {"p": deep}}).to_string();
        for schema in [r#"{"properties":{"p":{},"q\u200b":{}}}"#, deep_parameter.as_str()] {
            let parameters = &with(schema).tools[0].parameters;
            assert_eq!(*parameters, [Box::from("p")], "it is found by those that can be shown");
        }
    }

    /// A word on why it is not kept may be longer than a schema.
    #[test]
    fn what_is_said_of_an_omitted_schema_takes_room() {
        let bare = read(&[json!({"name": "t"})]).tools[0].bytes();
        for omitted in [&["inputSchema"][..], &["inputSchema", "outputSchema"]] {
            let mut tool = json!({"name": "t"});
            omitted.iter().for_each(|field| tool[*field] = json!([1]));
            let tool = read(&[tool]).tools[0].clone();
            let said = tool.omitted.iter().map(|it| size_of_val(it) + it.field.len() + it.reason.len());
            assert!(tool.omitted.len() == omitted.len() && tool.bytes() >= bare + said.sum::<usize>());
        }
    }

    /// What a server with so many tools has, and what is left out.
    fn of(reader: &Reader, namespace: &str, name: &str, tools: usize) -> (Offer, (usize, usize)) {
        let tools: Vec<Value> = (0..tools).map(|n| json!({"name": format!("tool-{n:02}")})).collect();
        let offer = reader.read(&key(namespace, name), inventory(&tools).to_string().as_bytes()).unwrap();
        let counts = (offer.tools.len(), offer.tools_left_out);
        (offer, counts)
    }

    #[test]
    fn all_offers_together_stay_within_the_bound_and_give_back_what_they_had() {
        let reader = Reader::new(1 << 20, 60);
        let (one, listed) = of(&reader, "a", "one", 20);
        assert_eq!(listed, (20, 0));
        let (two, listed) = of(&reader, "a", "two", 20);
        assert_eq!(listed, (10, 10), "a namespace has half of the room");
        let (three, listed) = of(&reader, "b", "three", 40);
        assert_eq!(listed, (30, 10), "and another the other half");
        let (_four, listed) = of(&reader, "c", "four", 10);
        assert_eq!(listed, (0, 10), "then there is none");
        assert!(!one.may_grow() && !two.may_grow() && !three.may_grow());
        drop(one);
        assert!(two.may_grow() && !three.may_grow(), "what goes back is there for who has less than half");
        assert_eq!(of(&reader, "a", "two", 20).1, (20, 0));
    }

    #[test]
    fn what_a_server_had_is_there_for_its_next_list() {
        let reader = Reader::new(1 << 20, 60);
        let hostile = [of(&reader, "a", "hostile", 60).0, of(&reader, "b", "hostile", 25).0];
        let (mut honest, listed) = of(&reader, "c", "honest", 5);
        assert_eq!((hostile[0].tools.len(), listed), (30, (5, 0)));
        for (tools, expected) in [(5, (5, 0)), (7, (5, 2)), (4, (4, 0)), (5, (5, 0))] {
            let (next, listed) = of(&reader, "c", "honest", tools);
            assert_eq!(listed, expected, "{tools} tools");
            honest = next;
        }
        // Who keeps what is to be replaced has room for so many lists, and for a tenth of the room beside; nor do two of them
        // that keep all that they can have more.
        let mut kept = Vec::new();
        for (namespace, tools, expected) in [("a", 60, [30, 30, 6]), ("b", 25, [25, 25, 6])] {
            let more: Vec<_> = (0..3).map(|_| of(&reader, namespace, "hostile", tools)).collect();
            assert_eq!(more.iter().map(|(_, (listed, _))| *listed).collect::<Vec<_>>(), expected);
            assert!(more.iter().all(|(offer, _)| !offer.may_grow()), "{namespace}");
            kept.extend(more);
        }
        let next = [of(&reader, "c", "honest", 5), of(&reader, "c", "honest", 5)];
        assert_eq!((next[0].1, next[1].1), ((5, 0), (5, 0)), "it changes twice in a moment");
        assert_eq!(of(&reader, "c", "honest", 5).1, (0, 5), "of more lists than are needed the last are cut");
        drop((hostile, honest, next));
        assert_eq!(of(&reader, "c", "other", 5).1, (5, 0), "what it had is there for others");
    }

    /// All of which are asked at once when it fails.
    #[test]
    fn lists_that_others_keep_take_nothing_from_a_server_of_four_pods() {
        let reader = Reader::new(1 << 20, 60);
        let kept: Vec<_> =
            ["a", "a", "a", "b", "b", "b"].map(|namespace| of(&reader, namespace, "big", 25).0).into();
        assert!(kept.iter().all(|offer| offer.tools.len() == 25));
        let pods = [(); 4].map(|()| of(&reader, "c", "failing", 5));
        assert!(pods.iter().all(|(_, listed)| *listed == (5, 0)), "{:?}", pods.map(|(_, listed)| listed));
    }

    #[test]
    fn one_servers_text_is_bounded_and_names_go_last() {
        let schema =
            |name: &str| json!({"type": "object", "title": "x".repeat(60_000), "properties": {name: {}}});
        let tools: Vec<Value> = (0..300)
            .map(|n| json!({"name": format!("tool-{n:04}"), "inputSchema": schema("in"), "outputSchema": schema("out")}))
            .collect();
        let offer = read(&tools);
        assert!(offer.tools.iter().all(|tool| tool.parameters == [Box::from("in")]));
        let kept = offer.tools.iter().filter(|tool| tool.input_schema.is_some()).count();
        assert_eq!((offer.tools.len(), offer.tools_left_out), (300, 0));
        assert!((30..200).contains(&kept), "{kept} schemas are kept");
        assert!(offer.tools[299].omitted[0].reason.contains("room"), "{:?}", offer.tools[299].omitted);
    }

    #[test]
    fn an_inventory_that_is_none_is_refused() {
        for json in ["", "[]", "{}", "{\"tools\": 3}"] {
            assert!(Reader::default().read(&key("a", "demo"), json.as_bytes()).is_err(), "{json}");
        }
    }
}
