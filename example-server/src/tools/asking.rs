//! Tools that ask their client. They look the same in all revisions: see [`crate::call`].

use longshore_mcp::capabilities::Need;
use longshore_mcp::revision::{self, Questions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::content::said;
use super::{Outcome, read};
use crate::call::{Call, Carry, Side};
use crate::failure::Failure;
use crate::question::Question;

/// The page that users are sent to. Nothing is there: clients of tests say that they went.
const PAGE: &str = "https://longshore.example/consent";

#[derive(Deserialize)]
struct Sampling {
    prompt: String,
}

#[derive(Deserialize)]
struct Elicitation {
    message: String,
}

pub(super) async fn run(call: &Call, name: &str, arguments: Map<String, Value>) -> Outcome {
    match name {
        "test_sampling" => {
            let Sampling { prompt } = read(call, arguments)?;
            let answer = call.ask(Question::sample("sampling", &prompt, 100)).await?;
            Ok(said(format!("LLM response: {}", sampled(&answer))))
        }
        "test_sampling_with_tools" => {
            let Sampling { prompt } = read(call, arguments)?;
            weather(call, &prompt).await
        }
        "test_missing_capability" if !call.client.has(Need::Sampling) => {
            Err(Failure::capability(Need::Sampling))
        }
        "test_missing_capability" => Ok(said("the client can be asked for samples")),
        "test_elicitation" => {
            let Elicitation { message } = read(call, arguments)?;
            let fields = json!({
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            });
            let answer = call.ask(Question::form("answer", &message, fields, &["username", "email"])).await?;
            Ok(said(format!("User response: {}", outcome(&answer))))
        }
        "test_elicitation_sep1034_defaults" => {
            completed(call, "Please review these defaults", defaults()).await
        }
        "test_elicitation_sep1330_enums" => completed(call, "Please choose", choices()).await,
        "test_elicitation_url" => visit(call).await,
        "test_elicitation_url_required" => visit_first(call).await,
        "test_streaming_elicitation" => {
            call.stream.open();
            let answer = call.ask(name_form("user_name", "What is your name?")).await?;
            Ok(said(format!("Hello, {}!", field(&answer, "name"))))
        }
        "test_input_required_result_elicitation" => {
            let answer = call.ask(name_form("user_name", "What is your name?")).await?;
            Ok(said(format!("Hello, {}!", field(&answer, "name"))))
        }
        "test_input_required_result_sampling" => {
            let answer =
                call.ask(Question::sample("capital_question", "What is the capital of France?", 100)).await?;
            Ok(said(sampled(&answer)))
        }
        "test_input_required_result_list_roots" => {
            let answer = call.ask(Question::roots("client_roots")).await?;
            Ok(said(format!("roots: {}", roots(&answer))))
        }
        "test_input_required_result_request_state" => {
            let ok = json!({"ok": {"type": "boolean"}});
            call.ask_all(vec![Question::form("confirm", "Please confirm", ok, &["ok"])], Carry::Always)
                .await?;
            Ok(said("state-ok: what was remembered came back"))
        }
        "test_input_required_result_tampered_state" => {
            // What every revision can ask.
            call.ask_all(vec![Question::sample("confirm", "Please confirm", 100)], Carry::Always).await?;
            Ok(said("state-ok: nobody has changed it"))
        }
        "test_input_required_result_multiple_inputs" => {
            let questions = vec![
                name_form("user_name", "What is your name?"),
                Question::sample("greeting", "Generate a greeting", 50),
                Question::roots("client_roots"),
            ];
            let answers = call.ask_all(questions, Carry::Always).await?;
            let [name, greeting, list] = answers.as_slice() else {
                return Err(Failure::Tool("not everything was answered".to_owned()));
            };
            Ok(said(format!("{} {}; roots: {}", sampled(greeting), field(name, "name"), roots(list))))
        }
        "test_input_required_result_multi_round" => {
            let first = name_form("step1", "Step 1: What is your name?");
            let name = call.ask_all(vec![first], Carry::Always).await?;
            let color = json!({"color": {"type": "string"}});
            let second = Question::form("step2", "Step 2: What is your favorite color?", color, &["color"]);
            let color = call.ask_all(vec![second], Carry::Always).await?;
            Ok(said(format!("{} likes {}", field(&name[0], "name"), field(&color[0], "color"))))
        }
        _ => {
            // A client may claim more than the revision has.
            let has_forms = call.revision().features().elicitation > revision::Elicitation::None;
            let form = has_forms.then(|| name_form("user_name", "What is your name?"));
            let others =
                [Question::sample("greeting", "Generate a greeting", 50), Question::roots("client_roots")];
            let questions: Vec<_> =
                form.into_iter().chain(others).filter(|question| call.client.has(question.need)).collect();
            let asked = questions.len();
            call.ask_all(questions, Carry::IfNeeded).await?;
            Ok(said(format!("asked {asked} things, which is all that the client can be asked")))
        }
    }
}

/// Asks a model that may ask for the weather, and once more with the weather that it asked for.
async fn weather(call: &Call, prompt: &str) -> Outcome {
    let tools = json!([{
        "name": "weather",
        "description": "Tells the weather",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }]);
    let prompt = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    let first = Question::sample_with_tools("question", &json!([prompt]), &tools);
    let asked = call.ask_all(vec![first], Carry::Always).await?.into_iter().next().unwrap_or_default();
    let content = &asked["content"];
    let blocks = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    let uses = blocks.iter().filter(|block| block["type"] == "tool_use");
    let results: Vec<_> = uses
        .map(|used| {
            let city = used["input"]["city"].as_str().unwrap_or("nowhere");
            let told = [json!({"type": "text", "text": format!("It rains in {city}")})];
            let structured = json!({"city": city, "rains": true});
            json!({
                "type": "tool_result", "toolUseId": used["id"], "content": told, "structuredContent": structured,
            })
        })
        .collect();
    if results.is_empty() {
        return Ok(said(sampled(&asked)));
    }
    let messages = json!([
        prompt,
        {"role": "assistant", "content": content},
        {"role": "user", "content": results},
    ]);
    let answer = call.ask_all(vec![Question::sample_with_tools("answer", &messages, &tools)], Carry::Always);
    let answer = answer.await?.into_iter().next().unwrap_or_default();
    Ok(said(format!("after {} uses of a tool: {}", results.len(), sampled(&answer))))
}

async fn completed(call: &Call, message: &str, (fields, required): (Value, &[&str])) -> Outcome {
    let answer = call.ask(Question::form("answer", message, fields, required)).await?;
    let action = answer["action"].as_str().unwrap_or_default();
    let content = answer.get("content").cloned().unwrap_or_else(|| json!({}));
    Ok(said(format!("Elicitation completed: action={action}, content={content}")))
}

async fn visit(call: &Call) -> Outcome {
    let id = has_ids(call).then(crate::random::name);
    let answer =
        call.ask(Question::visit("consent", "Please give your consent", PAGE, id.as_deref())).await?;
    if let (Some(id), Side::Session(session)) = (id, &call.side)
        && answer["action"] == "accept"
    {
        session.visited(&id);
    }
    Ok(said(format!("User response: {}", outcome(&answer))))
}

/// What a visit is about is asked by an error in the one revision that has it, and otherwise as everything else is.
async fn visit_first(call: &Call) -> Outcome {
    let Side::Session(session) = &call.side else { return visit(call).await };
    if !call.client.has(Need::ElicitationUrl) {
        return Err(Failure::capability(Need::ElicitationUrl));
    }
    match session.visit_first() {
        Some(id) => {
            let question = Question::visit("consent", "Please give your consent", PAGE, Some(&id));
            Err(Failure::Visit(vec![question.params]))
        }
        None => Ok(said("the page was visited")),
    }
}

fn has_ids(call: &Call) -> bool {
    call.revision().features().questions == Questions::Requests
}

fn name_form(key: &'static str, message: &str) -> Question {
    Question::form(key, message, json!({"name": {"type": "string"}}), &["name"])
}

fn defaults() -> (Value, &'static [&'static str]) {
    let fields = json!({
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {
            "type": "string", "description": "User status",
            "enum": ["active", "inactive", "pending"], "default": "active",
        },
        "verified": {"type": "boolean", "description": "Verification status", "default": true},
    });
    (fields, &[])
}

fn choices() -> (Value, &'static [&'static str]) {
    let titled = |names: [&str; 3]| {
        let titled =
            |(at, title): (usize, &str)| json!({"const": format!("value{}", at + 1), "title": title});
        Value::from_iter(names.into_iter().enumerate().map(titled))
    };
    let fields = json!({
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"])},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])},
        },
    });
    (fields, &[])
}

fn sampled(answer: &Value) -> String {
    let content = &answer["content"];
    let text = content["text"].as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or("something that is no text").to_owned()
}

fn field<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer["content"][name].as_str().unwrap_or("nobody")
}

fn roots(answer: &Value) -> String {
    let roots = answer["roots"].as_array().into_iter().flatten();
    roots.filter_map(|root| root["uri"].as_str()).collect::<Vec<_>>().join(", ")
}

fn outcome(answer: &Value) -> String {
    let action = answer["action"].as_str().unwrap_or_default();
    match answer.get("content") {
        Some(content) => format!("action: {action}, content: {content}"),
        None => format!("action: {action}"),
    }
}
