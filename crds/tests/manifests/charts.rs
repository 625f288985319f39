//! The chart's copies of the manifests are the generated ones.

use std::{env, fs, path::PathBuf};

use longshore_crds::manifest;

use crate::UPDATE;

#[test]
fn the_chart_holds_the_generated_manifests() {
    let templates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/longshore-crds/templates");
    let mut expected = Vec::new();
    for mut definition in longshore_crds::manifests().unwrap() {
        let name = format!("{}.yaml", definition.spec.names.plural);
        // Uninstalling the chart must never delete anybody's servers.
        definition
            .metadata
            .annotations
            .get_or_insert_default()
            .insert("helm.sh/resource-policy".to_owned(), "keep".to_owned());
        let yaml = manifest::to_yaml(&definition).unwrap();
        assert!(!yaml.contains("{{"), "helm would take a part of {name} for a template");
        assert!(yaml.len() <= manifest::MAX_BYTES, "{name} has {} bytes", yaml.len());
        let path = templates.join(&name);
        if env::var_os(UPDATE).is_some() {
            fs::write(&path, &yaml).unwrap();
        }
        let copy = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            copy == yaml,
            "charts/longshore-crds/templates/{name} is not what the types say: run `make crds`"
        );
        expected.push(name);
    }
    let mut found: Vec<String> = fs::read_dir(&templates)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "a manifest in the chart that no type stands for");
}
