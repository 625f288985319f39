//! How servers fail: the rows of their errors.

use std::borrow::Cow;

use longshore_mcp::error::code_of;
use longshore_mcp::method::Method;
use longshore_mcp::revision::Era;
use longshore_mcp::status;
use longshore_mcp::translate::{Pair, errors};
use serde_json::{Value, json};

use super::Verdict::{self, Becomes, Passes};

pub(super) fn error(pair: Pair, method: Method, json: &str, modern: Verdict, legacy: Verdict) -> Verdict {
    match errors::error(pair, Some(method), Some("a://b"), json) {
        Cow::Borrowed(_) => Passes,
        Cow::Owned(_) if pair.client.era() == Era::Modern => modern,
        Cow::Owned(_) => legacy,
    }
}

pub(super) fn not_found(pair: Pair) -> Verdict {
    let own = if pair.server.era() == Era::Modern { -32602 } else { -32002 };
    let json = json!({"code": own, "message": "m", "data": {"uri": "a://b"}}).to_string();
    let made = errors::error(pair, Some(Method::ResourcesRead), Some("a://b"), &json);
    assert_eq!(serde_json::from_str::<Value>(&made).unwrap()["data"]["uri"], "a://b");
    match (code_of(&json), code_of(&made)) {
        (before, after) if before == after => Passes,
        (_, Some(-32602)) => Becomes("-32602 with `data.uri`"),
        (_, Some(-32002)) => Becomes("-32002"),
        other => panic!("{other:?}"),
    }
}

pub(super) fn no_method(pair: Pair) -> Verdict {
    let json = r#"{"code":-32601,"message":"Method not found"}"#;
    assert_eq!(errors::error(pair, None, None, json), json);
    match (status::of_error(-32601, pair.server), status::of_error(-32601, pair.client)) {
        (before, after) if before == after => Passes,
        (_, 404) => Becomes("-32601 with HTTP 404"),
        (_, 200) => Becomes("-32601 with HTTP 200"),
        other => panic!("{other:?}"),
    }
}

pub(super) fn reserved(pair: Pair) -> Verdict {
    let made = [-32020, -32021, -32022].map(|code| {
        let json = json!({"code": code, "message": "m"}).to_string();
        let made = errors::error(pair, Some(Method::ToolsCall), None, &json).into_owned();
        (i64::from(code), code_of(&made).unwrap())
    });
    if made.iter().all(|(before, after)| before == after) {
        return Passes;
    }
    match made.map(|(_, after)| after) {
        [-32603, -32603, -32603] => Becomes("-32603: in that revision they are nobody's"),
        [-32603, -32021, -32603] => {
            Becomes("-32021 passes; the others, which are between Longshore and the server, become -32603")
        }
        other => panic!("{other:?}"),
    }
}
