//! `sampling/createMessage`. Since 2025-11-25 a message may have several blocks, and tools may be offered.

use std::borrow::Cow;

use crate::capabilities::ClientCapabilities;
use crate::object::{Object, edit_elements, elements, string};
use crate::translate::{Untranslatable, Way};

/// What other servers said is only for clients that declare it, where that can be declared.
const CONTEXT: &str = "includeContext";

pub(super) fn ask(way: Way, asked: &mut Object<'_>, can: &ClientCapabilities) -> Result<(), Untranslatable> {
    let knows = way.to.features();
    if knows.sampling_tools {
        let wants_context = asked.string(CONTEXT).is_some_and(|wanted| wanted.as_str() != "none");
        if wants_context && !can.sampling_context {
            asked.remove(CONTEXT);
        }
        return Ok(());
    }
    for name in ["tools", "toolChoice"] {
        if asked.get(name).is_some() {
            return Err(way.unknown("sampling with tools"));
        }
    }
    asked.edit("messages", |messages| {
        edit_elements(messages, |_| way.unreadable("the messages of sampling"), |message| split(way, message))
    })
}

/// A message of several blocks as several messages of one.
fn split(way: Way, message: &str) -> Result<Vec<Cow<'_, str>>, Untranslatable> {
    const WHAT: &str = "a message of sampling";
    let object = way.object(WHAT, message)?;
    let content = object.original("content").ok_or_else(|| way.unreadable(WHAT))?;
    if !content.starts_with('[') {
        known(way, content)?;
        return Ok(vec![Cow::Borrowed(message)]);
    }
    let mut messages = Vec::new();
    for block in elements(content).map_err(|_| way.unreadable(WHAT))? {
        known(way, block)?;
        let mut one = object.clone();
        one.set("content", block.to_owned());
        messages.push(Cow::Owned(one.write()));
    }
    Ok(messages)
}

/// A client's message, for a server that may know fewer kinds of content.
pub(super) fn answer(way: Way, result: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if way.to.features().sampling_tools {
        return Ok(Cow::Borrowed(result));
    }
    const WHAT: &str = "the client's message";
    let mut message = way.object(WHAT, result)?;
    message.edit("content", |content| {
        if !content.starts_with('[') {
            return known(way, content).map(|()| Cow::Borrowed(content));
        }
        match elements(content).map_err(|_| way.unreadable(WHAT))?.as_slice() {
            [block] => known(way, block).map(|()| Cow::Owned((*block).to_owned())),
            _ => Err(way.unknown("a message of several blocks")),
        }
    })?;
    Ok(message.into_text())
}

/// Whether the other side knows this kind of block. Here nothing can stand for it: a model is to read it as it is.
fn known(way: Way, block: &str) -> Result<(), Untranslatable> {
    let object = way.object("a block of a message", block)?;
    match object.get("type").and_then(string).as_deref() {
        Some("audio") if !way.to.features().audio => Err(way.unknown("audio in a message of sampling")),
        Some("tool_use" | "tool_result") => Err(way.unknown("a tool in a message of sampling")),
        _ => Ok(()),
    }
}
