//! A run of `longshore local`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{LONGSHORE, PATIENCE, PORTS_OF_A_RUN, eventually, free_ports};

/// A folder for manifests.
pub(crate) struct Folder(tempfile::TempDir);

/// A run. What is left of it at the end is killed.
pub(crate) struct Local {
    child: Child,
    stdout: Lines,
    stderr: Lines,
    /// Where it keeps its files.
    runtime: tempfile::TempDir,
    /// Its line of JSON, once it was read.
    announced: Option<Value>,
}

/// How to reach a server.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) url: String,
    pub(crate) key: Option<String>,
}

type Lines = Arc<Mutex<Vec<String>>>;

// === impl Folder ===

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file as editors do: whole, under another name, and renamed.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (unfinished, path) = (self.path().join(".unfinished"), self.path().join(name));
        std::fs::write(&unfinished, text).unwrap();
        std::fs::rename(unfinished, &path).unwrap();
        path
    }
}

// === impl Local ===

impl Local {
    /// Starts it with `--json` and these arguments.
    pub(crate) fn json(arguments: &[&str]) -> Self {
        Self::start(&[&["--json"], arguments].concat())
    }

    /// Serves a folder at ports that no other run tries, for tests in which nobody listens at a URL for a moment, or any
    /// more.
    pub(crate) fn apart(folder: &Path) -> Self {
        Self::json(&["--port", &free_ports(PORTS_OF_A_RUN).to_string(), folder.to_str().unwrap()])
    }

    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::with_path(&std::env::var("PATH").unwrap(), arguments)
    }

    /// Like [`Self::json`], but nobody reads its standard error, which is given with it.
    pub(crate) fn unread(arguments: &[&str]) -> (Self, ChildStderr) {
        let path = std::env::var("PATH").unwrap();
        Self::begin(&path, &[&["--json"], arguments].concat())
    }

    /// From now on it is read.
    pub(crate) fn read(&mut self, stderr: ChildStderr) {
        self.stderr = follow(stderr);
    }

    /// With programs of one's own.
    pub(crate) fn with_path(path: &str, arguments: &[&str]) -> Self {
        let (mut local, stderr) = Self::begin(path, arguments);
        local.stderr = follow(stderr);
        local
    }

    /// Starts it; nobody reads its standard error yet.
    fn begin(path: &str, arguments: &[&str]) -> (Self, ChildStderr) {
        let runtime = tempfile::tempdir().unwrap();
        // Whoever runs these tests may ignore what ends a program, as `nohup` does, and it would be ignored here too.
        let mut child = Command::new("env")
            .args(["--default-signal=HUP,INT,TERM", LONGSHORE, "local"])
            .args(arguments)
            .env("PATH", path)
            .env("XDG_RUNTIME_DIR", runtime.path())
            // Their own servers' they may have set for good.
            .env_remove("LONGSHORE_KEY")
            .env_remove("LONGSHORE_LOG_LEVEL")
            .env("SECRET_OF_THE_USER", "not for servers")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = follow(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        (Self { child, stdout, stderr: Lines::default(), runtime, announced: None }, stderr)
    }

    /// The line of JSON: all of them serve.
    pub(crate) fn announced(&mut self) -> Value {
        if let Some(line) = &self.announced {
            return line.clone();
        }
        let line = eventually("the line of JSON", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("it ended with {status}: {}", self.said());
            }
            self.stdout.lock().unwrap().first().cloned()
        });
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.announced = Some(line.clone());
        line
    }

    /// How to reach a server of this name.
    pub(crate) fn server(&mut self, name: &str) -> Served {
        let line = self.announced();
        let servers = line["servers"].as_array().unwrap();
        let found = servers.iter().find(|server| server["name"] == name).unwrap_or_else(|| panic!("{line}"));
        Served {
            url: found["url"].as_str().unwrap().to_owned(),
            key: found["key"].as_str().map(str::to_owned),
        }
    }

    /// The catalog's answer.
    pub(crate) fn catalog(&mut self, path: &str) -> Value {
        let base = self.announced()["catalog"].as_str().unwrap().to_owned();
        let (status, body) = super::get(&format!("{base}{path}"), &[]);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until these words were said, on either output.
    pub(crate) fn says(&self, words: &str) -> String {
        let found = |lines: &Lines| lines.lock().unwrap().iter().find(|line| line.contains(words)).cloned();
        let began = Instant::now();
        loop {
            if let Some(line) = found(&self.stdout).or_else(|| found(&self.stderr)) {
                return line;
            }
            assert!(began.elapsed() < PATIENCE, "not said: {words:?}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Everything that it has printed.
    pub(crate) fn said(&self) -> String {
        let text = |lines: &Lines| lines.lock().unwrap().join("\n");
        format!("{}\n---\n{}", text(&self.stdout), text(&self.stderr))
    }

    /// The processes that it started, and those that these did.
    pub(crate) fn descendants(&self) -> BTreeSet<(u32, u64)> {
        let all = processes();
        let mut family = BTreeSet::from([self.child.id()]);
        loop {
            let more: Vec<u32> = all
                .iter()
                .filter(|process| family.contains(&process.parent) && !family.contains(&process.pid))
                .map(|process| process.pid)
                .collect();
            if more.is_empty() {
                break;
            }
            family.extend(more);
        }
        let children = all.iter().filter(|it| it.pid != self.child.id() && family.contains(&it.pid));
        children.map(|process| (process.pid, process.began)).collect()
    }

    /// The processes of a server, by a word of their command line.
    pub(crate) fn running(&self, word: &str) -> Vec<u32> {
        let lines = self.lines().filter(|(_, line)| line.contains(word));
        let own = lines.filter(|(_, line)| !line.contains(" shim ") && !line.contains(" guard "));
        own.map(|(pid, _)| pid).collect()
    }

    /// Those that look after such a server which listens at a port.
    pub(crate) fn guards(&self, word: &str) -> Vec<u32> {
        let guards = self.lines().filter(|(_, line)| line.contains(" guard ") && line.contains(word));
        guards.map(|(pid, _)| pid).collect()
    }

    /// The command lines of all that it started.
    fn lines(&self) -> impl Iterator<Item = (u32, String)> {
        self.descendants().into_iter().map(|(pid, _)| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&line).replace('\0', " "))
        })
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, and gives its exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        eventually("its end", || self.child.try_wait().unwrap()).code()
    }

    /// What is left in the folder of its files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.runtime.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until none of these is there any more.
pub(crate) fn gone(processes_of: &BTreeSet<(u32, u64)>) {
    eventually("no process is left", || {
        let alive: BTreeSet<_> = processes().into_iter().map(|it| (it.pid, it.began)).collect();
        alive.is_disjoint(processes_of).then_some(())
    });
}

/// The session that a process is in, while there is such a process.
pub(crate) fn session(pid: u32) -> Option<u32> {
    processes().into_iter().find(|process| process.pid == pid).map(|process| process.session)
}

fn follow(from: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let sink = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            sink.lock().unwrap().push(line);
        }
    });
    lines
}

struct Process {
    pid: u32,
    parent: u32,
    session: u32,
    /// With the number, names a process for ever.
    began: u64,
}

/// Every process that is no zombie.
fn processes() -> Vec<Process> {
    let numbers = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name in parentheses may hold anything.
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            let alive = !matches!(fields[0], "Z" | "X");
            let (parent, session) = (fields[1].parse().ok()?, fields[3].parse().ok()?);
            Some(Process { pid, parent, session, began: fields[19].parse().ok()? }).filter(|_| alive)
        })
        .collect()
}
