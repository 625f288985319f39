//! From manifests to what is to run on this machine. Pure, but for the look whether programs are there.
//!
//! The steps are the operator's own: the same validation, and the sidecar's files by the same function as the ConfigMap
//! and the Secret of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longshore_crds::McpServer;
use longshore_crds::mcp_server::Catalog as About;
use longshore_sidecar_config::{InventoryAccess, Upstream, paths};

use super::access::Permitted;
use super::cluster_only;
use super::environment::{self, Environment};
use super::keys::{self, ClientKey, Made};
use super::manifests::{Documents, FoundServer};
use super::program::{self, Program};
use super::{Error, ServerId};
use crate::mcp_server::build;
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::dereference::{ApiKeysLookup, Dereferenced, Lookup};
use crate::mcp_server::references::{self, Kind, Need, Reference};
use crate::mcp_server::session_keys::SessionKeys;
use crate::mcp_server::validate::{Readiness, ValidatedServer, validate};
use crate::settings::{Place, Settings, Sidecar};

/// A server as it is to run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Which server.
    pub(super) id: ServerId,
    /// The sidecar's two files.
    pub(super) files: Files,
    /// How the sidecar reaches the server.
    pub(super) upstream: Upstream,
    /// How many threads serve clients.
    pub(super) workers: usize,
    /// What to start. Otherwise why nothing can be started.
    pub(super) program: Result<Program, Vec<String>>,
    /// What clients have to bring.
    pub(super) key: ClientKey,
    /// What they may do.
    pub(super) permitted: Permitted,
    /// What is worth a line to whoever looks.
    pub(super) notes: Vec<String>,
    /// What its owner says of it, for the catalog.
    pub(super) about: About,
}

/// The sidecar's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// `config.json`.
    pub(super) config: Vec<u8>,
    /// `keys.json`.
    pub(super) keys: Vec<u8>,
}

/// A manifest that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Which server.
    pub(super) id: ServerId,
    /// Why.
    pub(super) problems: Vec<Problem>,
}

// === impl Plan ===

impl Plan {
    /// The rules and keys of this one, which nothing can be started for, with the program that runs. `None`: that program
    /// cannot be reached as this one says.
    pub(super) fn with_program_of(self, running: &Self) -> Option<Self> {
        let as_before = self.upstream == running.upstream && self.workers == running.workers;
        as_before.then(|| Self { program: running.program.clone(), ..self })
    }
}

/// Plans a server.
pub(super) fn plan(
    found: &FoundServer,
    documents: &Documents,
    inherited: &Environment,
    given_key: Option<&str>,
    made: &mut Made,
) -> Result<Result<Plan, Refused>, Error> {
    let (manifest, id) = (&*found.manifest, &found.id);
    let secret_name = manifest.spec.auth.api_keys.as_ref().map(|keys| keys.secret_ref.name.clone());
    let secret =
        secret_name.as_ref().and_then(|name| documents.secrets.get(&(id.namespace.clone(), name.clone())));
    let (api_keys, key) = keys::of(manifest, id, secret, given_key, made)?;
    let session_keys = made.session_keys(id)?;
    let validated = match validate(manifest, &dereferenced(manifest, id, documents, api_keys, session_keys)) {
        Ok(validated) => validated,
        Err(problems) => return Ok(Err(Refused { id: id.clone(), problems })),
    };
    if let Readiness::Incomplete(problems) = &validated.readiness
        && problems.iter().any(|problem| problem.reason == Reason::Invalid)
    {
        // On a cluster keys and rules would still reach the pods that are there; here what runs stays as it is.
        return Ok(Err(Refused { id: id.clone(), problems: problems.clone() }));
    }
    let (own, not_here) =
        environment::of(&id.namespace, &manifest.spec.source.env, &manifest.spec.source.env_from, documents);
    let mut notes: Vec<String> = cluster_only::sentence(manifest, &not_here).into_iter().collect();
    let permitted = Permitted::of(&manifest.spec.access, &validated.auth, secret.is_some());
    notes.extend(permitted.note());
    if let Some(name) = secret_name.filter(|_| secret.is_none()) {
        let is_used = given_key.map(|given| key == ClientKey::Known(given.to_owned()));
        notes.extend(missed(&id.namespace, &name, documents, is_used));
    }
    if let Readiness::Flawed(flaws) = &validated.readiness {
        notes.extend(flaws.iter().map(|problem| problem.message.clone()));
    }
    let program = match &validated.readiness {
        Readiness::Incomplete(problems) => {
            Err(problems.iter().map(|problem| local_words(problem, documents)).collect())
        }
        Readiness::Complete | Readiness::Flawed(_) => {
            let environment = inherited.iter().chain(&own);
            let environment = environment.map(|(name, value)| (name.clone(), value.clone())).collect();
            program::find(manifest, &found.folder, environment).map_err(|error| vec![error.to_string()])
        }
    };
    Ok(Ok(Plan {
        id: id.clone(),
        files: files(&validated),
        upstream: validated.upstream.clone(),
        workers: validated.sidecar.workers.into(),
        program,
        key,
        permitted,
        notes,
        about: manifest.spec.catalog.clone(),
    }))
}

/// What the operator would have read from the cluster.
fn dereferenced(
    manifest: &McpServer,
    id: &ServerId,
    documents: &Documents,
    api_keys: ApiKeysLookup,
    session_keys: SessionKeys,
) -> Dereferenced {
    // What `spec.pod` names is left out with it, and need not be here. What the server's variables need has to be,
    // whoever else names it.
    let is_needed = |it: &Reference| it.need == Need::Required && !it.field.starts_with("spec.pod.");
    let (needed, left_out): (Vec<_>, Vec<_>) =
        references::of(&manifest.spec).into_iter().partition(is_needed);
    let mut objects = BTreeMap::new();
    let mut demanded = BTreeSet::new();
    for Reference { kind, name, key, .. } in needed {
        demanded.insert((kind, name.clone(), key));
        let at = (id.namespace.clone(), name.clone());
        let data = match kind {
            Kind::Secret => documents.secrets.get(&at),
            Kind::ConfigMap => documents.config_maps.get(&at),
            // Only `spec.pod` names one.
            Kind::ServiceAccount => None,
        };
        let lookup = data.map_or(Lookup::Missing, |data| Lookup::Present {
            keys: Arc::new(data.keys().cloned().collect()),
        });
        objects.insert((kind, name), lookup);
    }
    for Reference { kind, name, key, .. } in left_out {
        let is_demanded = demanded.contains(&(kind, name.clone(), key.clone()));
        let lookup = objects.entry((kind, name)).or_insert(Lookup::Present { keys: Arc::default() });
        if let Lookup::Present { keys } = lookup
            && !is_demanded
        {
            Arc::make_mut(keys).extend(key);
        }
    }
    // Nobody has a token here: the catalog is in the same process and asks the sidecar itself.
    let inventory = InventoryAccess {
        issuer: String::new(),
        subjects: Vec::new(),
        jwks: serde_json::json!({"keys": []}),
    };
    Dereferenced { objects, api_keys, mounted_upstreams: Vec::new(), inventory, session_keys }
}

/// The files of the ConfigMap and the Secret that the operator would make.
fn files(server: &ValidatedServer) -> Files {
    let settings = Settings {
        sidecar: Sidecar::of(String::new()),
        cluster_domain: "cluster.local".to_owned(),
        control_plane_namespace: String::new(),
        callers_from: Vec::new(),
        metrics_from: Vec::new(),
        inventory_subjects: Vec::new(),
        catalog: true,
        rotate_session_keys_after: None,
        place: Place::ThisMachine,
    };
    let (resources, _) = build::build(server, &settings);
    let config =
        resources.config_maps.into_iter().next().and_then(|map| map.data?.remove(paths::CONFIG_FILE));
    let keys = resources.secret.data.and_then(|mut data| data.remove(paths::KEYS_FILE));
    Files {
        config: config.unwrap_or_default().into_bytes(),
        keys: keys.map(|keys| keys.0).unwrap_or_default(),
    }
}

/// The operator's words, with what helps here.
fn local_words(problem: &Problem, documents: &Documents) -> String {
    match problem.reason {
        Reason::SecretNotFound | Reason::ConfigMapNotFound => {
            let unread = unread(documents).map(|unread| format!("; {unread}")).unwrap_or_default();
            format!("{}; here it is looked for in the files beside the manifest{unread}", problem.message)
        }
        _ => problem.message.clone(),
    }
}

/// What to say where the Secret is in none of the documents, and so the key on the command line is used, if there is one, or one
/// was made. Nothing where nobody seems to have meant to have one here.
fn missed(namespace: &str, name: &str, documents: &Documents, is_used: Option<bool>) -> Option<String> {
    let elsewhere = documents.secrets.keys().find(|(_, other)| other == name);
    let elsewhere = elsewhere.map(|(namespace, name)| format!("there is {namespace}/{name}"));
    let unusable = is_used == Some(false);
    let unused = unusable.then(|| {
        "the key of --key is not used: a key has 16 to 1024 visible characters, and no spaces".to_owned()
    });
    let why: Vec<_> = [elsewhere, unused, unread(documents)].into_iter().flatten().collect();
    if why.is_empty() && documents.secrets.is_empty() {
        return None;
    }
    let whose = if is_used == Some(true) { "the one of --key is its key" } else { "a key was made" };
    let mut said = format!("Secret {namespace}/{name} is not in the files, so {whose}");
    why.iter().for_each(|why| said.extend(["; ", why]));
    Some(said)
}

/// Where what is missed may be after all.
fn unread(documents: &Documents) -> Option<String> {
    let (first, others) = documents.unread.split_first()?;
    let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    Some(format!("not all files beside the manifest can be read: {first}{more}"))
}
