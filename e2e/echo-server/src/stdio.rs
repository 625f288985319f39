//! One session over standard input and output. Answers that wait for a time do so in threads of their own; all else is
//! answered in turn, and what is answered without a pause is written at once.

use std::collections::HashSet;
use std::io::{self, BufRead as _, BufReader, BufWriter, Stdout, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::FairMutex;

use crate::answer::{Reply, Session, error};
use crate::http::instance;

/// How many calls may take their time at once: each is a thread.
const MAX_WAITING: usize = 512;
/// How much is read, and written, at once.
const CHUNK: usize = 64 * 1024;

/// Whoever has waited longest writes next: those that flood must not keep the others from their turn.
type Output = Arc<FairMutex<BufWriter<Stdout>>>;
/// The calls that send notifications, by id, until they are cancelled.
type Wanted = Arc<FairMutex<HashSet<String>>>;

/// Serves until standard input ends.
pub(crate) fn serve() -> io::Result<()> {
    let mut session = Session::new(&instance()?, 1);
    let output: Output = Arc::new(FairMutex::new(BufWriter::with_capacity(CHUNK, io::stdout())));
    let waiting = Arc::new(AtomicUsize::new(0));
    let wanted = Wanted::default();
    let mut input = BufReader::with_capacity(CHUNK, io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        // A line that is on its way is answered first: one write for both.
        let flush = input.buffer().is_empty();
        match session.answer(&line) {
            Reply::Nothing => {
                if flush {
                    output.lock().flush()?;
                }
            }
            Reply::Now(answer) | Reply::Sick(answer) => write(&output, &answer, flush)?,
            Reply::Cancelled(id) => {
                wanted.lock().remove(&id);
            }
            Reply::Exit(status) => std::process::exit(status.into()),
            later @ (Reply::Later(..) | Reply::Notified(..) | Reply::Announced(..)) => {
                if waiting.load(Ordering::Relaxed) >= MAX_WAITING {
                    write(&output, &error("null", -32000, "too many calls take their time"), true)?;
                    continue;
                }
                waiting.fetch_add(1, Ordering::Relaxed);
                if let Reply::Notified(notifications, _) = &later {
                    wanted.lock().insert(notifications.id.clone());
                }
                let (output, waiting, wanted) = (output.clone(), waiting.clone(), wanted.clone());
                // They end with the process.
                thread::spawn(move || {
                    // Nobody reads any more: the main thread will hear the same.
                    let _ = take_time(later, &output, &wanted);
                    waiting.fetch_sub(1, Ordering::Relaxed);
                });
            }
        }
    }
}

fn take_time(reply: Reply, output: &Output, wanted: &Wanted) -> io::Result<()> {
    match reply {
        Reply::Later(time, answer) => {
            thread::sleep(time);
            write(output, &answer, true)
        }
        Reply::Notified(notifications, answer) => {
            for number in 1..=notifications.count {
                if !wanted.lock().contains(&notifications.id) {
                    return Ok(());
                }
                let pause = notifications.pause;
                write(output, &notifications.number(number), pause > Duration::ZERO)?;
                thread::sleep(pause);
            }
            wanted.lock().remove(&notifications.id);
            write(output, &answer, true)
        }
        Reply::Announced(notifications, answer) => {
            write(output, &answer, true)?;
            for number in 1..=notifications.count {
                let pause = notifications.pause;
                write(output, &notifications.number(number), pause > Duration::ZERO)?;
                thread::sleep(pause);
            }
            output.lock().flush()
        }
        Reply::Nothing | Reply::Cancelled(_) | Reply::Now(_) | Reply::Sick(_) | Reply::Exit(_) => Ok(()),
    }
}

fn write(output: &Output, line: &str, flush: bool) -> io::Result<()> {
    let mut output = output.lock();
    output.write_all(line.as_bytes())?;
    output.write_all(b"\n")?;
    if flush { output.flush() } else { Ok(()) }
}
