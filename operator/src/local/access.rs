//! Where the access rules of a server let nobody do anything with it, in the words of a cluster's condition `Ready`. Pure.

use longshore_crds::mcp_server::access::Access;
use serde_json::Value;

use super::keys;
use crate::inventory::ToolsSummary;
use crate::mcp_server::status::{Offered, nobody};
use crate::mcp_server::validate::ValidatedAuth;

/// Who may do what with a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Permitted {
    access: Access,
    principals: Vec<String>,
    is_key_made: bool,
}

// === impl Permitted ===

impl Permitted {
    /// What these rules permit to whoever can prove who they are. A key is made where the Secret with the keys is missing.
    pub(super) fn of(access: &Access, auth: &ValidatedAuth, has_secret: bool) -> Self {
        let is_key_made = !has_secret && matches!(auth, ValidatedAuth::ApiKeys(_));
        Self { access: access.clone(), principals: auth.principals(), is_key_made }
    }

    /// Why nobody may do anything, whatever the server has.
    pub(super) fn note(&self) -> Option<String> {
        let note = nobody(&self.access, Some(&self.principals), None)?;
        if self.access.rules.is_empty() || !self.is_key_made {
            return Some(note);
        }
        // Whoever looks for that principal finds it nowhere.
        Some(format!(
            "the key was made for `{}`, whom no rule of spec.access.rules names: put a Secret with keys of those whom \
             they name beside the manifest",
            keys::PRINCIPAL
        ))
    }

    /// The same of a server that has these tools, and so many that its manifest hides, where [`Permitted::note`] says
    /// nothing.
    pub(super) fn note_on(&self, tools: &[Value], hidden: usize) -> Option<String> {
        if self.note().is_some() {
            return None;
        }
        let names = tools.iter().filter_map(|tool| Some(tool.get("name")?.as_str()?.to_owned())).collect();
        let tools = ToolsSummary { count: u32::try_from(tools.len()).unwrap_or(u32::MAX), names };
        nobody(&self.access, Some(&self.principals), Some(Offered { tools: &tools, hidden }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use k8s_openapi::ByteString;
    use longshore_crds::McpServer;
    use serde_json::json;

    use crate::local::ServerId;
    use crate::local::environment::Environment;
    use crate::local::keys::Made;
    use crate::local::manifests::{Data, Documents, FoundServer};
    use crate::local::plan::plan;

    #[test]
    fn rules_that_permit_nobody_anything_are_told_as_in_a_cluster() {
        let (none, keys) = (json!({"none": {}}), json!({"apiKeys": {"secretRef": {"name": "keys"}}}));
        let for_alice = json!([{"name": "a", "principals": ["alice"], "tools": ["*"]}]);
        let for_all = |tool: &str| json!([{"name": "a", "tools": [tool]}]);
        for (auth, rules, secret, at_once, once_known) in [
            (&none, for_all("*"), None, None, None),
            (&none, json!([]), None, Some("no rule permits anything to anybody"), None),
            (
                &none,
                for_alice.clone(),
                None,
                Some("no rule of spec.access.rules is for the principal anonymous"),
                None,
            ),
            (&keys, for_alice.clone(), None, Some("the key was made for `local`, whom no rule"), None),
            // Its keys are known, and whose they are, whatever they are called.
            (
                &keys,
                for_alice.clone(),
                Some("local"),
                Some("no rule of spec.access.rules is for a principal that has"),
                None,
            ),
            (
                &keys,
                for_alice.clone(),
                Some("bob"),
                Some("no rule of spec.access.rules is for a principal that has"),
                None,
            ),
            (&keys, for_alice.clone(), Some("alice"), None, None),
            (&none, for_all("got"), None, None, Some("no rule of spec.access.rules names any of its tools")),
            (
                &keys,
                for_all("got"),
                Some("bob"),
                None,
                Some("no rule of spec.access.rules names any of its tools"),
            ),
        ] {
            let manifest: McpServer = serde_json::from_value(json!({
                "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
                "metadata": {"namespace": "tools", "name": "a"},
                "spec": {
                    "source": {"image": "x:1", "command": ["/bin/true"]},
                    "transport": {"stdio": {}}, "auth": auth, "access": {"rules": rules},
                },
            }))
            .unwrap();
            let id = ServerId::of(&manifest);
            let found = FoundServer { id, manifest: Box::new(manifest), folder: PathBuf::from("/") };
            let mut documents = Documents::default();
            if let Some(principal) = secret {
                let key = ByteString(b"a-plain-key-of-some-length".to_vec());
                let data = Data::from([(principal.to_owned(), key)]);
                documents.secrets.insert(("tools".to_owned(), "keys".to_owned()), data);
            }
            let plan = plan(&found, &documents, &Environment::new(), None, &mut Made::default());
            let plan = plan.unwrap().unwrap();
            let told = plan.notes.iter().filter(|note| note.contains("rule")).collect::<Vec<_>>();
            assert_eq!(told.len(), usize::from(at_once.is_some()), "{auth} {rules} {secret:?}: {told:?}");
            assert!(at_once.is_none_or(|words| told[0].starts_with(words)), "{told:?}");
            let note = plan.permitted.note_on(&[json!({"name": "get"}), json!({"name": "list"})], 0);
            assert_eq!(note.is_some(), once_known.is_some(), "{auth} {rules} {secret:?}: {note:?}");
            assert!(once_known.is_none_or(|words| note.unwrap().starts_with(words)));
        }
    }
}
