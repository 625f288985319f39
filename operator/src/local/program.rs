//! Which program a server is on this machine, where its image does not run.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use longshore_crds::McpServer;
use thiserror::Error;

use super::environment::{Environment, expand};

/// The annotation of a manifest with the command that starts the server on a machine without its image.
pub(super) const ANNOTATION: &str = "longshore.dev/local-command";

/// A program as it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The file.
    pub(super) file: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<OsString>,
    /// All of its environment.
    pub(super) environment: Environment,
    /// Where it starts.
    pub(super) folder: PathBuf,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NoProgram {
    /// The manifest names an image and no command.
    #[error(
        "image {image} cannot run here, since there is no cluster, and the manifest names no command: add the \
         annotation `{ANNOTATION}: COMMAND` to metadata.annotations, with the command that starts the server on this \
         machine"
    )]
    OnlyImage {
        /// The image.
        image: String,
    },
    /// The manifest's command is not on this machine.
    #[error(
        "image {image} cannot run here, and {program:?}, which spec.source.command names, is not on this machine: \
         install it, or add the annotation `{ANNOTATION}: COMMAND` to metadata.annotations, with the command that \
         starts the server on this machine"
    )]
    NotHere {
        /// The image.
        image: String,
        /// What was looked for.
        program: String,
    },
    /// The annotation's command is not there.
    #[error(
        "{program:?}, which the annotation {ANNOTATION} names, is not on this machine: install it, or correct the \
             annotation"
    )]
    AnnotatedNotHere {
        /// What was looked for.
        program: String,
    },
    /// It is there and may not be executed.
    #[error("{path} may not be executed: `chmod +x` it, or name the program that runs it")]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The annotation is not a command.
    #[error("the annotation {ANNOTATION} is not a command: {because}")]
    Annotation {
        /// Why.
        because: String,
    },
}

/// Finds the program of a manifest.
pub(super) fn find(
    manifest: &McpServer,
    folder: &Path,
    environment: Environment,
) -> Result<Program, NoProgram> {
    let source = &manifest.spec.source;
    let image = source.image.clone();
    let annotation =
        manifest.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
    let words = match annotation {
        Some(line) => {
            let wrong = |because: String| NoProgram::Annotation { because };
            let words = shell_words::split(line).map_err(|error| wrong(error.to_string()))?;
            if words.is_empty() {
                return Err(wrong("it is empty".to_owned()));
            }
            words
        }
        None => source.command.iter().chain(&source.args).map(|word| expand(word, &environment)).collect(),
    };
    let Some((program, arguments)) =
        words.split_first().filter(|_| annotation.is_some() || !source.command.is_empty())
    else {
        return Err(NoProgram::OnlyImage { image });
    };
    let not_here = || match annotation {
        Some(_) => NoProgram::AnnotatedNotHere { program: program.clone() },
        None => NoProgram::NotHere { image, program: program.clone() },
    };
    let file = match annotation {
        // Whoever runs this has it, on the PATH or not.
        Some(_) if program == "longshore" => PathBuf::from(super::OWN_PROGRAM),
        _ => look_up(program, folder, environment.get("PATH").map_or("", String::as_str), not_here)?,
    };
    Ok(Program {
        file,
        arguments: arguments.iter().map(OsString::from).collect(),
        environment,
        folder: folder.to_owned(),
    })
}

/// As a shell in that folder would.
fn look_up(
    program: &str,
    folder: &Path,
    path: &str,
    not_here: impl FnOnce() -> NoProgram,
) -> Result<PathBuf, NoProgram> {
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![folder.join(program)]
    } else {
        path.split(':').filter(|it| !it.is_empty()).map(|it| folder.join(it).join(program)).collect()
    };
    let mut found = None;
    for file in candidates {
        let Ok(about) = file.metadata() else { continue };
        if about.is_file() && about.permissions().mode() & 0o111 != 0 {
            // Found from any folder, whatever becomes of the process's own.
            return Ok(std::path::absolute(&file).unwrap_or(file));
        }
        if about.is_file() {
            found = Some(file);
        }
    }
    Err(found.map_or_else(not_here, |path| NoProgram::NotExecutable { path }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn server(command: &[&str], annotation: Option<&str>) -> McpServer {
        let annotations = annotation.map(|line| json!({ANNOTATION: line})).unwrap_or_default();
        serde_json::from_value(json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "a", "annotations": annotations},
            "spec": {"source": {"image": "x:1", "command": command, "args": ["$(A)"]}},
        }))
        .unwrap()
    }

    #[test]
    fn the_annotation_comes_first_and_what_is_missing_is_said() {
        let folder = Path::new("/bin");
        let env = || {
            Environment::from([("PATH".to_owned(), "/bin".to_owned()), ("A".to_owned(), "one".to_owned())])
        };
        let line = |found: Result<Program, NoProgram>| match found {
            Ok(program) => {
                let arguments = program.arguments.join(std::ffi::OsStr::new("|"));
                format!("{} {}", program.file.display(), arguments.display())
            }
            Err(error) => error.to_string(),
        };
        for (command, annotation, expected) in [
            (&["nothing"][..], Some("longshore example-server"), "/proc/self/exe example-server"),
            (&["longshore"], None, "image x:1 cannot run here, and \"longshore\""),
            (&["sh"][..], None, "/bin/sh one"),
            (&["./sh", "x"], None, "/bin/sh x|one"),
            (&["no-such"], Some("sh -c 'a b'"), "/bin/sh -c|a b"),
            (&[], None, "image x:1 cannot run here, since"),
            (&["no-such"], None, "image x:1 cannot run here, and \"no-such\""),
            (&["sh"], Some("no-such"), "\"no-such\", which the annotation"),
            (&["sh"], Some("'"), "the annotation longshore.dev/local-command is not a command"),
            (&["sh"], Some(" "), "the annotation longshore.dev/local-command is not a command: it is empty"),
            (&["/etc/passwd"], None, "/etc/passwd may not be executed"),
        ] {
            let said = line(find(&server(command, annotation), folder, env()));
            assert!(said.starts_with(expected), "{command:?} {annotation:?}: {said}");
        }
    }
}
