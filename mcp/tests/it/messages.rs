//! Messages of each revision, made at random: all that its schema has, and what it does not forbid.

use longshore_mcp::method::{Method, ServerRequest};
use longshore_mcp::revision::{Elicitation, Era, Revision, Structured, Tasks};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any of the revisions.
pub(crate) fn revision() -> impl Strategy<Value = Revision> {
    prop::sample::select(Revision::ALL.to_vec())
}

/// Any of the revisions of one era.
pub(crate) fn revision_of(era: Era) -> impl Strategy<Value = Revision> {
    let those: Vec<_> = Revision::ALL.into_iter().filter(|revision| revision.era() == era).collect();
    prop::sample::select(those)
}

/// Words with what is special in JSON.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,8}",
        "[ -~]{0,12}",
        prop::sample::select(vec!["\u{e9}\n\"\\", "\u{1f600}", "\u{2028}\u{0}", "null", "=?base64?x?="])
            .prop_map(str::to_owned),
    ]
}

/// Any JSON, not too large.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| json!(number)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object(inner).prop_map(Value::from)]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    btree_map(text(), inner, 0..4).prop_map(|members| members.into_iter().collect())
}

/// Names of vendors, which nobody here knows.
fn vendor() -> impl Strategy<Value = Map<String, Value>> {
    btree_map("com\\.example/[a-z]{1,4}", any_json(), 0..3).prop_map(|members| members.into_iter().collect())
}

/// An object with these members, those that are not null, and some of a vendor.
fn with_vendor(members: Value) -> impl Strategy<Value = Value> {
    vendor().prop_map(move |vendor| {
        let mut object = vendor;
        for (name, value) in members.as_object().cloned().unwrap_or_default() {
            if !value.is_null() {
                object.insert(name, value);
            }
        }
        Value::from(object)
    })
}

fn maybe<T: Into<Value> + std::fmt::Debug>(inner: impl Strategy<Value = T>) -> impl Strategy<Value = Value> {
    option::of(inner.prop_map(Into::into)).prop_map(|value| value.unwrap_or(Value::Null))
}

fn meta() -> impl Strategy<Value = Value> {
    option::weighted(0.3, vendor()).prop_map(|meta| meta.map_or(Value::Null, Value::from))
}

fn uri() -> impl Strategy<Value = String> {
    "[a-z]{1,4}://[a-z]{0,6}"
}

/// A resource's contents.
fn contents() -> impl Strategy<Value = Value> {
    (uri(), text(), any::<bool>(), meta()).prop_flat_map(|(uri, text, is_text, meta)| {
        let member = if is_text { "text" } else { "blob" };
        with_vendor(json!({"uri": uri, member: text, "mimeType": "text/plain", "_meta": meta}))
    })
}

/// A block of content.
pub(crate) fn block(revision: Revision) -> impl Strategy<Value = Value> {
    let has = revision.features();
    let plain = (text(), meta())
        .prop_flat_map(|(text, meta)| with_vendor(json!({"type": "text", "text": text, "_meta": meta})));
    let image = text().prop_flat_map(|data| {
        with_vendor(
            json!({"type": "image", "data": data, "mimeType": "image/png", "annotations": {"priority": 0.5}}),
        )
    });
    let embedded =
        contents().prop_flat_map(|resource| with_vendor(json!({"type": "resource", "resource": resource})));
    let mut kinds = vec![plain.boxed(), image.boxed(), embedded.boxed()];
    if has.audio {
        let audio = text().prop_flat_map(|data| {
            with_vendor(json!({"type": "audio", "data": data, "mimeType": "audio/wav", "annotations": {"priority": 1}}))
        });
        kinds.push(audio.boxed());
    }
    if has.resource_links {
        let link = (uri(), text(), maybe(text()), maybe(text())).prop_flat_map(|(uri, name, title, description)| {
            with_vendor(json!({
                "type": "resource_link", "uri": uri, "name": name, "title": title, "description": description,
            }))
        });
        kinds.push(link.boxed());
    }
    prop::strategy::Union::new(kinds)
}

/// A tool's definition.
pub(crate) fn tool(revision: Revision) -> impl Strategy<Value = Value> {
    let has = revision.features();
    let property = if revision.era() == Era::Modern {
        prop_oneof![
            Just(json!(true)),
            Just(json!(false)),
            Just(json!({"type": "string", "x-mcp-header": "Region"}))
        ]
        .boxed()
    } else {
        prop_oneof![Just(json!({"type": "string"})), Just(json!({"type": "number", "x-mcp-header": "A"}))]
            .boxed()
    };
    let input = btree_map("[a-z]{1,3}", property, 0..2).prop_map(
        |properties| json!({"type": "object", "properties": properties, "additionalProperties": false}),
    );
    let object_schema =
        Just(json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}));
    let output = match has.structured {
        Structured::None => Just(Value::Null).boxed(),
        Structured::Object => maybe(object_schema).boxed(),
        Structured::Any => prop_oneof![
            Just(Value::Null),
            object_schema,
            Just(
                json!({"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}})
            ),
            Just(json!({"oneOf": [{"type": "string"}, {"type": "object"}]})),
            Just(json!({"type": "array", "items": {"$ref": "#"}})),
        ]
        .boxed(),
    };
    let execution = if has.tasks == Tasks::Core {
        maybe(Just(json!({"taskSupport": "optional"}))).boxed()
    } else {
        Just(Value::Null).boxed()
    };
    (text(), maybe(text()), input, output, execution, meta()).prop_flat_map(
        |(name, description, input, output, execution, meta)| {
            with_vendor(json!({
                "name": name, "description": description, "inputSchema": input, "outputSchema": output,
                "execution": execution, "_meta": meta, "annotations": {"readOnlyHint": true},
            }))
        },
    )
}

/// What every result of a revision may or has to say.
fn result(revision: Revision, method: Method, members: Value) -> impl Strategy<Value = Value> {
    (meta(), maybe(text())).prop_flat_map(move |(meta, cursor)| {
        let mut members = members.clone();
        members["_meta"] = meta;
        if method.list().is_some() {
            members["nextCursor"] = cursor;
        }
        if revision.features().result_type {
            members["resultType"] = json!("complete");
            if method.is_cacheable() {
                members["ttlMs"] = json!(7);
                members["cacheScope"] = json!("public");
            }
        }
        with_vendor(members)
    })
}

/// A result of a method.
pub(crate) fn result_of(revision: Revision, method: Method) -> BoxedStrategy<Value> {
    let blocks = vec(block(revision), 0..3);
    let members = match method {
        Method::ToolsCall => {
            let structured = match revision.features().structured {
                Structured::None => Just(Value::Null).boxed(),
                Structured::Object => maybe(object(any_json())).boxed(),
                Structured::Any => any_json().boxed(),
            };
            (blocks, structured, maybe(any::<bool>()))
                .prop_map(|(content, structured, is_error)| {
                    json!({"content": content, "structuredContent": structured, "isError": is_error})
                })
                .boxed()
        }
        Method::ToolsList => vec(tool(revision), 0..3).prop_map(|tools| json!({"tools": tools})).boxed(),
        Method::PromptsGet => blocks
            .prop_map(|blocks| {
                let message = |block| json!({"role": "user", "content": block});
                json!({"messages": blocks.into_iter().map(message).collect::<Vec<_>>()})
            })
            .boxed(),
        Method::PromptsList => vec(text(), 0..3)
            .prop_map(|names| {
                json!({"prompts": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
            })
            .boxed(),
        Method::ResourcesList => vec((uri(), text()), 0..3)
            .prop_map(|all| {
                let resource = |(uri, name): &(String, String)| json!({"uri": uri, "name": name, "size": 7});
                json!({"resources": all.iter().map(resource).collect::<Vec<_>>()})
            })
            .boxed(),
        Method::ResourcesTemplatesList => vec(text(), 0..3)
            .prop_map(|names| {
                let template = |name: &String| json!({"uriTemplate": "a://{b}", "name": name});
                json!({"resourceTemplates": names.iter().map(template).collect::<Vec<_>>()})
            })
            .boxed(),
        Method::ResourcesRead => vec(contents(), 0..3).prop_map(|all| json!({"contents": all})).boxed(),
        Method::CompletionComplete => {
            vec(text(), 0..3).prop_map(|values| json!({"completion": {"values": values, "hasMore": true}})).boxed()
        }
        _ => Just(json!({})).boxed(),
    };
    members.prop_flat_map(move |members| result(revision, method, members)).boxed()
}

/// The methods that every revision has.
pub(crate) const EVERYWHERE: [Method; 8] = [
    Method::ToolsList,
    Method::ToolsCall,
    Method::PromptsList,
    Method::PromptsGet,
    Method::ResourcesList,
    Method::ResourcesTemplatesList,
    Method::ResourcesRead,
    Method::CompletionComplete,
];

/// A request of a client, with whatever its revision says in it.
pub(crate) fn request_of(revision: Revision, method: Method) -> BoxedStrategy<Value> {
    let params = match method {
        Method::ToolsCall => (text(), maybe(object(any_json())))
            .prop_map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
            .boxed(),
        Method::PromptsGet => text().prop_map(|name| json!({"name": name, "arguments": {"a": "b"}})).boxed(),
        Method::ResourcesRead => uri().prop_map(|uri| json!({"uri": uri})).boxed(),
        Method::CompletionComplete => text()
            .prop_map(|name| {
                json!({
                    "ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": "b"},
                    "context": {"arguments": {"c": "d"}},
                })
            })
            .boxed(),
        _ => maybe(text()).prop_map(|cursor| json!({"cursor": cursor})).boxed(),
    };
    let token = option::of(prop_oneof![text().prop_map(Value::from), any::<i32>().prop_map(Value::from)]);
    (params, vendor(), token, id())
        .prop_flat_map(move |(mut params, mut meta, token, id)| {
            if let Some(token) = token {
                meta.insert("progressToken".to_owned(), token);
            }
            if revision.era() == Era::Modern {
                meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(revision.as_str()));
                meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), json!({"roots": {}}));
            }
            if !meta.is_empty() {
                params["_meta"] = Value::from(meta);
            }
            with_vendor(params).prop_map(move |params| {
                json!({"jsonrpc": "2.0", "id": id, "method": method.as_str(), "params": params})
            })
        })
        .boxed()
}

/// An id.
pub(crate) fn id() -> impl Strategy<Value = Value> {
    prop_oneof![text().prop_map(Value::from), (-9i64..9).prop_map(Value::from)]
}

/// What a client of a revision can be asked for.
pub(crate) fn question(revision: Revision) -> BoxedStrategy<(&'static str, Value)> {
    let has = revision.features();
    let sampled = if revision >= Revision::V2025_03_26 {
        prop_oneof![
            text().prop_map(|text| json!({"type": "text", "text": text})),
            Just(json!({"type": "audio", "data": "", "mimeType": "audio/wav"})),
        ]
        .boxed()
    } else {
        text().prop_map(|text| json!({"type": "text", "text": text})).boxed()
    };
    let content = if has.sampling_tools {
        let structured = match has.structured {
            Structured::Any => any_json().boxed(),
            _ => object(any_json()).prop_map(Value::from).boxed(),
        };
        let used = structured.prop_map(|structured| {
            json!({"type": "tool_result", "toolUseId": "u", "content": [], "structuredContent": structured})
        });
        let sampled = prop_oneof![3 => sampled, 1 => used];
        prop_oneof![sampled.clone(), vec(sampled, 1..3).prop_map(Value::from)].boxed()
    } else {
        sampled
    };
    let messages = vec(content.prop_map(|content| json!({"role": "user", "content": content})), 0..3);
    let sampling = (messages, maybe(Just("thisServer"))).prop_map(
        |(messages, context)| json!({"messages": messages, "maxTokens": 7, "includeContext": context}),
    );
    let mut all = vec![
        sampling.prop_flat_map(with_vendor).prop_map(|params| ("sampling/createMessage", params)).boxed(),
        Just(("roots/list", json!({}))).boxed(),
    ];
    if has.elicitation >= Elicitation::Form {
        let mut fields = vec![
            json!({"type": "string", "minLength": 1}),
            json!({"type": "integer"}),
            json!({"type": "boolean", "default": true}),
            json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}),
        ];
        if has.elicitation == Elicitation::FormAndUrl {
            fields.push(json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"}));
            fields.push(json!({"type": "array", "items": {"type": "string", "enum": ["a"]}}));
        }
        let form = btree_map("[a-z]{1,3}", prop::sample::select(fields), 0..3).prop_map(|properties| {
            json!({"message": "m", "requestedSchema": {"type": "object", "properties": properties}})
        });
        all.push(form.prop_flat_map(with_vendor).prop_map(|params| ("elicitation/create", params)).boxed());
    }
    if has.elicitation == Elicitation::FormAndUrl {
        let visit = if revision.era() == Era::Legacy {
            json!({"mode": "url", "message": "m", "url": "https://a", "elicitationId": "e"})
        } else {
            json!({"mode": "url", "message": "m", "url": "https://a"})
        };
        all.push(with_vendor(visit).prop_map(|params| ("elicitation/create", params)).boxed());
    }
    prop::strategy::Union::new(all).boxed()
}

/// A client's answer to a question of its revision.
pub(crate) fn answer(revision: Revision) -> BoxedStrategy<(ServerRequest, Value)> {
    let has = revision.features();
    let mut blocks = vec![text().prop_map(|text| json!({"type": "text", "text": text})).boxed()];
    if has.audio {
        blocks.push(Just(json!({"type": "audio", "data": "", "mimeType": "audio/wav"})).boxed());
    }
    if has.sampling_tools {
        let used = object(any_json())
            .prop_map(|input| json!({"type": "tool_use", "id": "u", "name": "t", "input": input}));
        blocks.push(used.boxed());
    }
    let block = prop::strategy::Union::new(blocks);
    let content = if has.sampling_tools {
        prop_oneof![block.clone(), vec(block, 0..3).prop_map(Value::from)].boxed()
    } else {
        block.boxed()
    };
    let sampled = (content, maybe(Just("endTurn"))).prop_map(|(content, reason)| {
        json!({"role": "assistant", "model": "m", "content": content, "stopReason": reason})
    });
    let roots = vec((uri(), maybe(text())), 0..3).prop_flat_map(|roots| {
        let roots: Vec<_> = roots
            .into_iter()
            .map(|(_, name)| {
                if name.is_null() {
                    json!({"uri": "file:///a"})
                } else {
                    json!({"uri": "file:///a", "name": name})
                }
            })
            .collect();
        with_vendor(json!({"roots": roots}))
    });
    let mut all = vec![
        sampled
            .prop_flat_map(with_vendor)
            .prop_map(|result| (ServerRequest::SamplingCreateMessage, result))
            .boxed(),
        roots.prop_map(|result| (ServerRequest::RootsList, result)).boxed(),
    ];
    if has.elicitation > Elicitation::None {
        let given = btree_map(
            "[a-z]{1,3}",
            prop_oneof![Just(json!(true)), Just(json!(7)), text().prop_map(Value::from)],
            0..3,
        );
        let said = prop_oneof![
            given.prop_map(|given| json!({"action": "accept", "content": given})),
            Just(json!({"action": "decline"})),
            Just(json!({"action": "cancel"})),
        ];
        all.push(
            said.prop_flat_map(with_vendor)
                .prop_map(|result| (ServerRequest::ElicitationCreate, result))
                .boxed(),
        );
    }
    prop::strategy::Union::new(all).boxed()
}

/// What a server of any revision may tell: the method, and the message.
pub(crate) fn news() -> impl Strategy<Value = (&'static str, Value)> {
    let kinds = vec![
        ("notifications/progress", json!({"progressToken": "t", "progress": 1.5})),
        ("notifications/message", json!({"level": "info", "data": {"a": [1.0]}})),
        ("notifications/tools/list_changed", json!({})),
        ("notifications/prompts/list_changed", json!({})),
        ("notifications/resources/list_changed", json!({})),
        ("notifications/resources/updated", json!({"uri": "a://b"})),
        ("com.example/news", json!({"a": null})),
    ];
    (prop::sample::select(kinds), vendor(), meta()).prop_map(|((method, mut params), vendor, meta)| {
        for (name, value) in vendor {
            params[name] = value;
        }
        if !meta.is_null() {
            params["_meta"] = meta;
        }
        (method, json!({"jsonrpc": "2.0", "method": method, "params": params}))
    })
}

/// JSON as somebody else might write it: with white space, escapes and members in another order. `choices` decides.
pub(crate) fn ruffled(value: &Value, choices: &[u8]) -> String {
    let mut text = String::new();
    ruffle(value, &mut choices.iter().copied().cycle(), &mut text);
    text
}

fn ruffle(value: &Value, choices: &mut impl Iterator<Item = u8>, text: &mut String) {
    match value {
        Value::Array(elements) => {
            text.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                space(choices, text);
                ruffle(element, choices, text);
                space(choices, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                space(choices, text);
                string(name, choices, text);
                space(choices, text);
                text.push(':');
                space(choices, text);
                ruffle(value, choices, text);
            }
            text.push('}');
        }
        Value::String(value) => string(value, choices, text),
        other => text.push_str(&other.to_string()),
    }
}

fn space(choices: &mut impl Iterator<Item = u8>, text: &mut String) {
    text.push_str(["", "", " ", "\n\t"][usize::from(choices.next().unwrap_or(0) % 4)]);
}

fn string(value: &str, choices: &mut impl Iterator<Item = u8>, text: &mut String) {
    text.push('"');
    for letter in value.chars() {
        let is_plain = !matches!(letter, '"' | '\\') && !letter.is_control();
        if is_plain && !choices.next().unwrap_or(1).is_multiple_of(8) {
            text.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text.push('"');
}
