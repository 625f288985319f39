//! `longshore key`.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde_json::json;

use crate::api_keys::NewKey;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes an API key of 256 random bits and prints it, once, with the line that goes into the Secret.
    New(New),
}

#[derive(Debug, clap::Args)]
struct New {
    /// Who the key's bearer is: the data name in the Secret, which access rules and the audit log speak of.
    #[arg(long, default_value = "default", value_parser = principal)]
    principal: String,
    /// Print a Secret manifest of this name that holds the key's hash, for `kubectl apply -f -`. The key itself goes
    /// to standard error.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    secret: Option<String>,
    /// The Secret's namespace.
    #[arg(long, requires = "secret")]
    namespace: Option<String>,
    /// Print one line of JSON: {"principal", "key", "secretLine"}.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let Command::New(new) = args.command;
    let NewKey { key, line } = NewKey::generate()?;
    if let Some(name) = new.secret {
        super::print(&secret(&name, new.namespace.as_deref(), &new.principal, &line)?)?;
        // The manifest is on standard output, on its way into a pipe: the key must not be in it.
        write_error(&format!("key of {}: {key}\n", new.principal))
    } else if new.json {
        let shown = json!({ "principal": new.principal, "key": key, "secretLine": line });
        super::print(&format!("{shown}\n"))
    } else {
        super::print(&format!(
            "key:         {key}\nsecret line: {line}\n\nGive the key to {principal}; it is not shown again. Put the \
             line under `{principal}` in the\nSecret that the manifest's auth.apiKeys.secretRef names.\n",
            principal = new.principal,
        ))
    }
}

/// A Secret with one principal. Written as a map, since the generated type could hold much that is not wanted here.
fn secret(name: &str, namespace: Option<&str>, principal: &str, line: &str) -> anyhow::Result<String> {
    let mut metadata = BTreeMap::from([("name", name)]);
    metadata.extend(namespace.map(|namespace| ("namespace", namespace)));
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "stringData": { principal: format!("{line}\n") },
    });
    Ok(revocation(name, namespace, principal) + &serde_saphyr::to_string(&manifest)?)
}

/// What whoever keeps the manifest has to know before they change it. The API server keeps no `stringData`, so `kubectl
/// apply` finds nothing to remove when a name is no longer in it.
fn revocation(name: &str, namespace: Option<&str>, principal: &str) -> String {
    let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let patch = json!([{ "op": "remove", "path": format!("/data/{principal}") }]);
    format!(
        "# Applying this ends the keys that {principal} has. To keep them, run it without --secret, and add the line.\n\
         # To take {principal} away, it is not enough to apply this without the name: its keys would go on to work.\n\
         #   kubectl patch secret {name}{namespace} --type=json -p '{patch}'\n"
    )
}

fn write_error(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(std::io::stderr().lock().write_all(text.as_bytes())?)
}

/// What Kubernetes allows as a data name of a Secret.
fn principal(text: &str) -> Result<String, String> {
    let valid = (1..=253).contains(&text.len())
        && text != "."
        && !text.starts_with("..")
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    match text {
        "anonymous" => Err("`anonymous` stands for callers without a key: choose another name".to_owned()),
        _ if valid => Ok(text.to_owned()),
        _ => {
            Err("use letters, digits, `-`, `_` and `.`, of which no two begin it: the name becomes a data name of a Secret"
                .to_owned())
        }
    }
}
