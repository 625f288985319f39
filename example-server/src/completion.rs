//! Completion of arguments.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answer::read;
use crate::call::Call;
use crate::failure::Failure;
use crate::{prompts, resources};

const WORDS: [&str; 6] = ["paris", "park", "party", "past", "pear", "world"];

#[derive(Deserialize)]
struct Params {
    r#ref: Reference,
    argument: Argument,
    #[serde(default, rename = "context")]
    _context: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

pub(crate) fn complete(call: &Call, params: Value) -> Result<Value, Failure> {
    let Params { r#ref: reference, argument, .. } = read(params)?;
    let known = match &reference {
        Reference::Prompt { name } => {
            let all = prompts::list(&call.server);
            let prompt = all.iter().find(|prompt| prompt["name"] == *name);
            let prompt = prompt.ok_or_else(|| Failure::params(format!("there is no prompt {name:?}")))?;
            let arguments = prompt["arguments"].as_array();
            arguments.is_some_and(|all| all.iter().any(|known| known["name"] == argument.name))
        }
        Reference::Resource { uri } => {
            let all = resources::templates(call.revision());
            if !all.iter().any(|template| template["uriTemplate"] == *uri) {
                return Err(Failure::params(format!("there is no resource template {uri:?}")));
            }
            argument.name == "id"
        }
    };
    if !known {
        return Err(Failure::params(format!("it has no argument {:?}", argument.name)));
    }
    let values: Vec<_> = WORDS.into_iter().filter(|word| word.starts_with(&argument.value)).collect();
    Ok(json!({"completion": {"total": values.len(), "values": values, "hasMore": false}}))
}
