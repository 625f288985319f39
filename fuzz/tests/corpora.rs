//! Every input that is kept, through its target. What the fuzzer finds beyond them is the business of `run.sh`.

#![expect(
    clippy::unwrap_used,
    reason = "a test speaks by failing; clippy frees only functions that are marked as tests, not what they share"
)]

use std::panic::catch_unwind;
use std::path::Path;

use longshore_fuzz::{TARGETS, corpus, explain};

/// `LONGSHORE_FUZZ_KEEP=DIRECTORY` keeps what is in `DIRECTORY/TARGET` too, one input a file: that is what `run.sh keep`
/// does with what it found.
#[test]
fn kept_inputs_pass() {
    let found = std::env::var_os("LONGSHORE_FUZZ_KEEP");
    let mut failed = Vec::new();
    for target in TARGETS {
        if let Some(found) = &found {
            let mut inputs = corpus::read(target);
            inputs.extend(files(&Path::new(found).join(target.name)));
            corpus::write(target, &inputs);
        }
        let inputs = corpus::read(target);
        assert!(!inputs.is_empty(), "{} has no inputs", target.name);
        for input in inputs {
            if catch_unwind(|| target.run(&input)).is_err() {
                explain(target, &input);
                failed.push(target.name);
                break;
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

fn files(directory: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn an_input_is_a_line() {
    let every: Vec<u8> = (0..=255).collect();
    let target = TARGETS[0];
    assert!(!corpus::line(&every).contains('\n'));
    for input in corpus::read(target) {
        assert!(!corpus::line(&input).contains('\n'));
    }
    assert_eq!(corpus::bytes(&corpus::line(&every)), every);
    assert_eq!(corpus::line(b"{\"a\\\"\":'\n'}"), r#"{"a\\"":'\n'}"#);
    let names: std::collections::BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(names.contains(name), "{name} is no target");
    }
}
