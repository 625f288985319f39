//! What a sidecar says to servers that others wrote, heard on its way and held against the schema of their revision.
//!
//! Over HTTP a recorder listens in the server's place and passes everything on. A process keeps a copy of what it reads.
//! Where the clients are others' too, another recorder listens in the sidecar's place, for what they say wrong and for what
//! they are told.

mod answers;

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::peer::free_port;
use super::schemas::{self, Watch};
use super::{Request, eventually, scripted};

/// Listens in front of a server, or of a sidecar. What was wrong with what the sidecar said fails the test when this is
/// dropped.
pub(crate) struct Recorder {
    pub(crate) port: u16,
    stopped: Arc<AtomicBool>,
    passed: Arc<Mutex<Passed>>,
    given_up: Arc<AtomicUsize>,
    accepts: Option<JoinHandle<()>>,
    _watch: Option<Watch>,
}

/// What has been passed on.
#[derive(Default)]
struct Passed {
    /// Both ends of each connection that is open: those of all that ever were would be more than a process may have.
    streams: HashMap<usize, [TcpStream; 2]>,
    /// What is wrong with what was told on each connection, when it has ended.
    faults: Vec<JoinHandle<Vec<String>>>,
}

/// Reads a request from a connection, and makes of it what is to be made of it.
type Ear = Arc<dyn Fn(&mut BufReader<TcpStream>) -> Option<Request> + Send + Sync>;

/// Reads what is answered on a connection, and says what is wrong with it.
type Reader = Arc<dyn Fn(&Receiver<Request>, Receiver<Vec<u8>>) -> answers::Outcome + Send + Sync>;

/// How a server is told that a call is given up.
const CANCELLED: &str = "notifications/cancelled";

impl Recorder {
    /// Where the server listens that is heard at this port.
    pub(crate) fn server_port(_: u16) -> u16 {
        free_port()
    }

    /// At this port (0: at any), in front of the server at that one.
    pub(crate) fn at(port: u16, server: u16) -> Self {
        // Whoever reads it judges it.
        let mut recorder =
            Self::listening(port, server, Arc::new(scripted::read), Arc::new(answers::of_a_server));
        recorder._watch = Some(Watch::over(recorder.port));
        recorder
    }

    /// At this port (0: at any), in front of a sidecar.
    pub(crate) fn of_clients(port: u16, sidecar: SocketAddr) -> Self {
        Self::of_client(port, sidecar, None)
    }

    /// The same for a client that has this key, which it does not know.
    pub(crate) fn of_client(port: u16, sidecar: SocketAddr, key: Option<&str>) -> Self {
        let key = key.map(str::to_owned);
        let ear = move |reader: &mut BufReader<TcpStream>| {
            let request = scripted::parse(reader)?;
            schemas::stranger_says(&request, sidecar);
            Some(key.iter().fold(request, |request, key| request.key(key)))
        };
        let read = move |requests: &Receiver<Request>, pieces: Receiver<Vec<u8>>| {
            answers::of_a_sidecar(requests, pieces, sidecar)
        };
        Self::listening(port, sidecar.port(), Arc::new(ear), Arc::new(read))
    }

    /// How often whoever is behind this was told that a call is given up: in words, or by the end of a connection.
    pub(crate) fn given_up(&self) -> usize {
        self.given_up.load(Ordering::SeqCst)
    }

    fn listening(port: u16, server: u16, ear: Ear, read: Reader) -> Self {
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
        let port = listener.local_addr().expect("an address").port();
        let (stopped, passed) = <(Arc<AtomicBool>, Arc<Mutex<Passed>>)>::default();
        let given_up = Arc::<AtomicUsize>::default();
        let (flag, all, count) = (stopped.clone(), passed.clone(), given_up.clone());
        let accepts = std::thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let ((asked, requests), (said, pieces)) = (channel(), channel());
                let open = all.clone();
                let mut all = all.lock().expect("no panic");
                let ends = [&client, &server].map(|stream| stream.try_clone().expect("a clone"));
                all.streams.insert(number, ends);
                let (ear, read) = (ear.clone(), read.clone());
                let of_calls = count.clone();
                all.faults.push(std::thread::spawn(move || {
                    let (faults, broken) = read(&requests, pieces);
                    let is_call = broken.is_some_and(|request| scripted::method_of(&request) == "tools/call");
                    of_calls.fetch_add(usize::from(is_call), Ordering::SeqCst);
                    faults
                }));
                drop(all);
                let in_words = count.clone();
                let ear = move |reader: &mut BufReader<TcpStream>| {
                    let request = ear(reader)?;
                    let is_one = scripted::method_of(&request) == CANCELLED;
                    in_words.fetch_add(usize::from(is_one), Ordering::SeqCst);
                    Some(request)
                };
                std::thread::spawn(move || {
                    pass(client, server, &ear, (asked, said));
                    open.lock().expect("no panic").streams.remove(&number);
                });
            }
        });
        Self { port, stopped, passed, given_up, accepts: Some(accepts), _watch: None }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // It listens until it has looked once more. Whoever connects after this is refused, and not cut off.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.accepts.take().map(JoinHandle::join);
        let passed = std::mem::take(&mut *self.passed.lock().expect("no panic"));
        for stream in passed.streams.into_values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let unread = |_| vec!["what came cannot be read".to_owned()];
        let faults: Vec<_> =
            passed.faults.into_iter().flat_map(|judge| judge.join().unwrap_or_else(unread)).collect();
        schemas::fail_for("a client", &faults);
    }
}

/// Where copies go of what was asked and of what was said.
type Copies = (Sender<Request>, Sender<Vec<u8>>);

/// Passes a connection on until its ends are closed, each of which closes the other.
fn pass(
    client: TcpStream,
    server: TcpStream,
    ear: &impl Fn(&mut BufReader<TcpStream>) -> Option<Request>,
    (asked, said): Copies,
) {
    for stream in [&client, &server] {
        // Nothing waits for being put together with more.
        stream.set_nodelay(true).expect("an option");
    }
    let (mut up, down) = (server.try_clone().expect("a clone"), client.try_clone().expect("a clone"));
    let back = std::thread::spawn(move || {
        pass_back(server, &down, &said);
        let _ = down.shutdown(Shutdown::Both);
    });
    let mut requests = BufReader::new(client);
    while let Some(request) = ear(&mut requests) {
        let bytes = [request.head().as_bytes(), b"\r\n", &request.body].concat();
        // Before it can be answered.
        let _ = asked.send(request);
        if up.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = up.shutdown(Shutdown::Both);
    let _ = back.join();
}

/// Passes on what the other side says, as it comes.
fn pass_back(mut from: TcpStream, mut to: &TcpStream, said: &Sender<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        let _ = said.send(buffer[..read].to_vec());
    }
}

/// Whether it could be started. What cannot be is the shim's to say.
fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// What the processes of a shim were told, each in a file of its own.
pub(crate) struct Heard {
    directory: tempfile::TempDir,
    /// Which shim it is.
    socket: std::path::PathBuf,
}

/// Where a process keeps a copy, under its number.
pub(crate) const HEARD: &str = "LONGSHORE_HEARD";
/// The largest copy that is looked at: what is larger is noise that a test makes.
const MAX_COPY: u64 = 8 << 20;

impl Heard {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), socket: socket.to_owned() }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// How often one was told that a call is given up.
    pub(crate) fn given_up(&self) -> usize {
        let files = std::fs::read_dir(self.directory()).expect("the copies").flatten();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.map(|text| text.matches(CANCELLED).count()).sum()
    }

    /// A command of the same process that keeps a copy. Our own servers do so by themselves.
    pub(crate) fn kept(command: &[impl AsRef<str>]) -> Vec<String> {
        const KEEP: &str = r#"exec "$@" < <(exec tee "$LONGSHORE_HEARD/$$" 2> /dev/null)"#;
        let command: Vec<_> = command.iter().map(|word| word.as_ref().to_owned()).collect();
        let keeps = |word: &String| word.ends_with("/server.py") || word.ends_with("/era.py");
        let is_there = command.first().is_some_and(|program| {
            let program = Path::new(program);
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
        });
        if command.iter().any(keeps) || !is_there {
            return command;
        }
        ["bash", "-c", KEEP, "kept"].map(str::to_owned).into_iter().chain(command).collect()
    }

    /// Fails if anything was not right. The processes have ended.
    pub(crate) fn judge(&self) {
        let mut faults = Vec::new();
        for entry in std::fs::read_dir(self.directory()).expect("the copies") {
            let path = entry.expect("a copy").path();
            // Beside what our own servers heard there is what they asked.
            let is_heard = path.extension().is_none();
            if is_heard && path.metadata().expect("a file").len() <= MAX_COPY {
                let heard = std::fs::read(&path).expect("a copy");
                let asked = std::fs::read(path.with_extension("asked")).unwrap_or_default();
                faults.extend(schemas::process_heard(&self.socket, &heard, &asked));
            }
        }
        assert!(faults.is_empty(), "a process got what is not right: {faults:#?}");
    }
}

#[test]
fn a_process_that_keeps_a_copy_is_the_same_process_otherwise() {
    use std::process::{Command, Stdio};
    let heard = Heard::new(Path::new("/nowhere"));
    let script = r#"echo "$$"; read -r line; echo "$line"; read -r none; exit 3"#;
    let command = Heard::kept(&["sh", "-c", script]);
    assert_eq!(command[0], "bash");
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env(HEARD, heard.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let number = child.id().to_string();
    child.stdin.take().unwrap().write_all(b"{}\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{number}\n{{}}\n"));
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(std::fs::read(heard.directory().join(number)).unwrap(), b"{}\n");
    heard.judge();
    // What cannot be started is started as it is, so that it is the shim that fails.
    assert_eq!(Heard::kept(&["no-such-program"]), ["no-such-program"]);
}
