//! The server over stdin and stdout: a message a line.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore_mcp::batch::{self, BadBatch, Body};
use longshore_mcp::detect::Wrong;
use longshore_mcp::envelope::{Malformed, Message};
use longshore_mcp::error;
use longshore_mcp::method::NotificationMethod;
use longshore_mcp::revision::Revision;
use longshore_mcp::status::{self, Problem};
use serde_json::Value;
use thiserror::Error;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::task::{AbortHandle, JoinSet};

use crate::modern;
use crate::server::{Change, Server};
use crate::session::{Refusal, Session};
use crate::stream::{Answer, Next, Stream};

/// The longest line.
const MAX_LINE: u64 = 4 << 20;
/// How long what was asked before stdin ended may take: for those who pipe a file into the server.
const GRACE: Duration = Duration::from_millis(500);

/// Why the server over stdin and stdout ended.
#[derive(Debug, Error)]
pub enum StdioError {
    /// A pipe broke.
    #[error("cannot go on with stdin and stdout")]
    Io(#[from] io::Error),
    /// Nobody could tell where the next message begins.
    #[error("a line is longer than {MAX_LINE} bytes")]
    LongLine,
}

/// Serves one client over stdin and stdout, until that client closes stdin.
pub async fn over_stdio(server: Arc<Server>) -> Result<(), StdioError> {
    serve(server, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves one client over two pipes, until that client closes its own.
pub async fn serve(
    server: Arc<Server>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> Result<(), StdioError> {
    let stream = Arc::new(Stream::endless());
    let mut peer = if server.is_modern() {
        Peer::Modern { server: server.clone(), running: HashMap::new(), tasks: JoinSet::new() }
    } else {
        Peer::Legacy(Session::new(server.clone(), stream.clone()))
    };
    let reading = async {
        let mut batches = JoinSet::new();
        let ended = read(&mut peer, &server, input, &stream, &mut batches).await;
        server.tell(Change::End);
        // Whatever is not done by then is what nobody waits for any more.
        let _ = tokio::time::timeout(GRACE, async {
            peer.settle().await;
            while batches.join_next().await.is_some() {}
        })
        .await;
        peer.end();
        stream.close();
        ended
    };
    let (read, written) = tokio::join!(reading, write(&stream, output));
    read?;
    written.map_err(Into::into)
}

/// Who is at the other end.
enum Peer {
    Legacy(Arc<Session>),
    Modern { server: Arc<Server>, running: HashMap<String, AbortHandle>, tasks: JoinSet<()> },
}

async fn read(
    peer: &mut Peer,
    server: &Server,
    input: impl AsyncRead + Unpin,
    stream: &Arc<Stream>,
    batches: &mut JoinSet<()>,
) -> Result<(), StdioError> {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        while batches.try_join_next().is_some() {}
        if (&mut input).take(MAX_LINE).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() as u64 >= MAX_LINE {
            return Err(StdioError::LongLine);
        }
        if line.is_empty() {
            continue;
        }
        match batch::read(&line, server.revision) {
            Ok(Body::One(message)) => peer.receive(&message, stream, server.revision),
            Ok(Body::Batch(batch)) => {
                let requests = batch.iter().filter(|(message, _)| message.request_id().is_some()).count();
                let own = Arc::new(Stream::answering(requests));
                for (message, _) in batch.iter() {
                    peer.receive(message, &own, server.revision);
                }
                if requests > 0 {
                    batches.spawn(join(own, stream.clone()));
                }
            }
            Err(bad) => refuse(stream, None, problem_of(&bad), &bad.to_string(), None, server.revision),
        }
    }
}

/// Passes on what comes of a batch: its answers as one array, everything else at once.
async fn join(batch: Arc<Stream>, stream: Arc<Stream>) {
    let Some(mut reader) = batch.read(None) else { return };
    let mut answers = Vec::new();
    while let Next::Entry(entry) = batch.next(&mut reader).await {
        match entry.answer {
            Some(_) => answers.push(entry.message),
            None => stream.send(entry.message),
        }
    }
    if !answers.is_empty() {
        stream.answer(longshore_mcp::object::array(answers), Answer::Result);
    }
}

async fn write(stream: &Stream, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
    let Some(mut reader) = stream.read(None) else { return Ok(()) };
    loop {
        match stream.next(&mut reader).await {
            Next::Entry(entry) => {
                let mut line = entry.message;
                line.push('\n');
                output.write_all(line.as_bytes()).await?;
                output.flush().await?;
                stream.forget_read();
            }
            // There is nothing to hang up here.
            Next::Broken => {
                reader = match stream.read(Some(reader.position())) {
                    Some(reader) => reader,
                    None => return Ok(()),
                }
            }
            Next::End => return Ok(()),
        }
    }
}

impl Peer {
    fn receive(&mut self, message: &Message<'_>, stream: &Arc<Stream>, revision: Revision) {
        let id = message.request_id().map(|id| id.as_json().to_owned());
        match self {
            Self::Legacy(session) => {
                if let Err(Refusal { problem, why }) = session.receive(message, stream) {
                    refuse(stream, id.as_deref(), problem, &why, None, revision);
                }
            }
            Self::Modern { server, running, tasks } => {
                while tasks.try_join_next().is_some() {}
                running.retain(|_, handle| !handle.is_finished());
                match message {
                    Message::Request(request) => match modern::judge(request, revision) {
                        Ok(lone) => {
                            let key = serde_json::from_str::<Value>(&lone.id).unwrap_or_default().to_string();
                            if running.contains_key(&key) {
                                let why = "a request of this id is being served";
                                refuse(stream, id.as_deref(), Problem::InvalidMessage, why, None, revision);
                                return;
                            }
                            running.insert(key, tasks.spawn(lone.serve(server.clone(), stream.clone())));
                        }
                        Err(wrong) => {
                            let problem = wrong.problem(revision);
                            let data = wrong.data();
                            refuse(
                                stream,
                                id.as_deref(),
                                problem,
                                &wrong.to_string(),
                                data.as_ref(),
                                revision,
                            );
                        }
                    },
                    Message::Notification(told) => {
                        let is_end = told.method.as_str() == NotificationMethod::Cancelled.as_str();
                        let params = told.params.filter(|_| is_end).map(|params| params.get());
                        let params: Option<Value> = params.and_then(|text| serde_json::from_str(text).ok());
                        let cancelled =
                            params.and_then(|params| running.remove(&params["requestId"].to_string()));
                        if let Some(handle) = cancelled {
                            handle.abort();
                        }
                    }
                    Message::Response(_) => {
                        let wrong = Wrong::Response(revision);
                        refuse(stream, None, Problem::InvalidMessage, &wrong.to_string(), None, revision);
                    }
                }
            }
        }
    }

    async fn settle(&mut self) {
        match self {
            Self::Legacy(session) => session.settle().await,
            Self::Modern { tasks, .. } => while tasks.join_next().await.is_some() {},
        }
    }

    fn end(&mut self) {
        match self {
            Self::Legacy(session) => session.end(),
            Self::Modern { tasks, .. } => tasks.abort_all(),
        }
    }
}

fn problem_of(bad: &BadBatch) -> Problem {
    match bad {
        BadBatch::Malformed(Malformed::NotJson) => Problem::NotJson,
        _ => Problem::InvalidMessage,
    }
}

/// Says what is wrong, if there is a way to: until 2025-06-18 no error goes without an id.
fn refuse(
    stream: &Stream,
    id: Option<&str>,
    problem: Problem,
    why: &str,
    data: Option<&Value>,
    revision: Revision,
) {
    if id.is_none() && !revision.features().errors_without_id {
        return;
    }
    let answer = status::answer(problem, revision);
    let id = id.map(longshore_mcp::envelope::Id::from_json);
    stream.answer(error::response(id, answer.code, why, data), Answer::Error(answer.status));
}
