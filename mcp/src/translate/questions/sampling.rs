//! `sampling/createMessage`. Since 2025-11-25 a message may have several blocks, and tools may be offered.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/client/sampling>

use std::borrow::Cow;

use crate::capabilities::ClientCapabilities;
use crate::object::{Object, edit_elements, elements, few_elements, string};
use crate::revision::Structured;
use crate::translate::{Untranslatable, Way, tools};

/// What other servers said is only for clients that declare it, where that can be declared.
const CONTEXT: &str = "includeContext";

/// What is only for clients that can use tools.
const OF_TOOLS: [&str; 2] = ["tools", "toolChoice"];

/// Whether a client has to be able to use tools for this.
pub(super) fn has_tools(params: &str) -> bool {
    Object::read(params).is_ok_and(|params| OF_TOOLS.iter().any(|name| params.present(name).is_some()))
}

pub(super) fn ask(way: Way, asked: &mut Object<'_>, can: &ClientCapabilities) -> Result<(), Untranslatable> {
    // What is not there some servers write as `null`.
    for name in OF_TOOLS {
        asked.remove_null(name);
    }
    if way.to.features().sampling_tools {
        let wants_context = asked.string(CONTEXT).is_some_and(|wanted| wanted.as_str() != "none");
        if wants_context && !can.sampling_context {
            asked.remove(CONTEXT);
        }
    } else {
        if OF_TOOLS.iter().any(|name| asked.get(name).is_some()) {
            return Err(way.unknown("sampling with tools"));
        }
    }
    // None is left out here: the model is to choose among all of them.
    asked.edit("tools", |offered| {
        let definition = |tool| Ok(vec![tools::definition(way, tool)?]);
        edit_elements(offered, |_| way.unreadable("the tools of sampling"), definition)
    })?;
    asked.edit("messages", |messages| {
        edit_elements(messages, |_| way.unreadable("the messages of sampling"), |message| split(way, message))
    })
}

/// A message; one of several blocks becomes several messages of one, where there may be only one.
fn split(way: Way, message: &str) -> Result<Vec<Cow<'_, str>>, Untranslatable> {
    const WHAT: &str = "a message of sampling";
    let mut object = way.object(WHAT, message)?;
    let content = object.original("content").ok_or_else(|| way.unreadable(WHAT))?;
    if way.to.features().sampling_tools || !content.starts_with('[') {
        object.edit("content", |content| blocks(way, content))?;
        return Ok(vec![object.into_text()]);
    }
    let mut messages = Vec::new();
    for part in elements(content).map_err(|_| way.unreadable(WHAT))? {
        let mut one = object.clone();
        one.set("content", block(way, part)?.into_owned());
        messages.push(Cow::Owned(one.write()));
    }
    Ok(messages)
}

/// A client's message, for a server that may know fewer kinds of content.
pub(super) fn answer(way: Way, result: &str) -> Result<Cow<'_, str>, Untranslatable> {
    const WHAT: &str = "the client's message";
    let mut message = way.object(WHAT, result)?;
    message.edit("content", |content| {
        if !content.starts_with('[') {
            return block(way, content);
        }
        match few_elements(content).map_err(|_| way.unreadable(WHAT))?.as_slice() {
            _ if way.to.features().sampling_tools => blocks(way, content),
            [one] => Ok(Cow::Owned(block(way, one)?.into_owned())),
            _ => Err(way.unknown("a message of several blocks")),
        }
    })?;
    Ok(message.into_text())
}

/// One block or a list of them.
fn blocks(way: Way, content: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if content.starts_with('[') {
        edit_elements(content, |_| way.unreadable("a message's content"), |part| Ok(vec![block(way, part)?]))
    } else {
        block(way, content)
    }
}

/// A block that the other side knows. Here nothing can stand for another kind: a model is to read it as it is.
fn block(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    let knows = way.to.features();
    let mut block = way.object("a block of a message", json)?;
    match block.get("type").and_then(string).as_deref() {
        Some("audio") if !knows.audio => Err(way.unknown("audio in a message of sampling")),
        Some("tool_use" | "tool_result") if !knows.sampling_tools => {
            Err(way.unknown("a tool in a message of sampling"))
        }
        Some("tool_result") if knows.structured == Structured::Object => {
            block.edit("structuredContent", |value| {
                Ok(if value.starts_with('{') { Cow::Borrowed(value) } else { Cow::Owned(tools::wrap(value)) })
            })?;
            Ok(block.into_text())
        }
        _ => Ok(Cow::Borrowed(json)),
    }
}
