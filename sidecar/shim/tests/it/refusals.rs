//! What gets no process.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use longshore_shim::protocol::{MAX_PACKET, Refusal, Report, Request, Session, VERSION};
use rustix::io::Errno;

use crate::harness::{ALL_PATIENCE, Setup, Shim, eventually};

#[test]
fn a_command_that_cannot_be_started_is_refused_in_the_systems_words() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let file = |name: &str, text: &[u8], mode| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let interpreter =
        "No such file or directory (the file is there: what is missing is the interpreter that it names)";
    let cases = [
        ("no-such-command-anywhere".to_owned(), Errno::NOENT, "No such file or directory"),
        // It is in the working directory, where nobody looks for it.
        ("Cargo.toml".to_owned(), Errno::NOENT, "No such file or directory"),
        ("/no/such/path".to_owned(), Errno::NOENT, "No such file or directory"),
        (file("text", b"just text", 0o644), Errno::ACCESS, "Permission denied"),
        (file("interpreter", b"#!/no/such/interpreter\n", 0o755), Errno::NOENT, interpreter),
        (file("format", b"\x7fELF but not really", 0o755), Errno::NOEXEC, "Exec format error"),
        (folder.path().to_str().unwrap().to_owned(), Errno::ACCESS, "Permission denied"),
    ];
    for (command, errno, words) in cases {
        let shim = Shim::of(&[&command, "argument"]);
        // It goes on to say so to everybody who asks.
        for session in [1, 2] {
            let (reason, number, said) = shim.ask(Request::Start(Session(session))).unwrap_err();
            assert_eq!((reason, number), (Refusal::NotStarted, errno.raw_os_error()), "{command}: {said}");
            assert!(said.contains(&command) && said.ends_with(words), "{said}");
            assert!(!said.contains("argument"), "arguments may be secret");
        }
        assert!(shim.children().is_empty());
    }
}

#[test]
fn one_process_runs_under_a_number_at_a_time() {
    let shim = Shim::of(&["cat"]);
    let mut first = shim.start(1);
    let _second = shim.start(2);
    assert_eq!(shim.ask(Request::Start(Session(1))).unwrap_err().0, Refusal::Taken);
    first.end(ALL_PATIENCE);
    first.ended();
    shim.start(1);
}

#[test]
fn what_is_not_understood_is_refused_and_does_no_harm() {
    let shim = Shim::of(&["cat"]);
    let mut bystander = shim.start(9);
    let of_another_version = [&[1], &Request::Start(Session(1)).encode()[1..]].concat();
    let packets = [
        vec![0],
        of_another_version,
        vec![VERSION, 77],
        Request::Start(Session(1)).encode()[..10].to_vec(),
        vec![VERSION; MAX_PACKET + 1],
        vec![VERSION; 3 * MAX_PACKET],
        Request::End(ALL_PATIENCE).encode(),
        Report::Started { number: 1, life: 0 }.encode(),
    ];
    for packet in packets {
        let lifeline = shim.connect();
        lifeline.send(&packet);
        let Some((Report::Refused { reason, .. }, _)) = lifeline.receive() else { panic!("not refused") };
        assert_eq!(reason, Refusal::Misunderstood);
        assert!(lifeline.receive().is_none());
    }
    // One that hangs up without a word.
    drop(shim.connect());

    // A sidecar that talks nonsense has lost its mind, and its process.
    let confused = shim.start(1);
    confused.lifeline.send(&[0]);
    assert!(confused.lifeline.receive().is_none());
    let mut adopted = shim.adopt(1).unwrap();
    adopted.write("sane\n");
    assert_eq!(adopted.line(), "sane");
    bystander.end(ALL_PATIENCE);
    bystander.ended();
}

#[test]
fn callers_who_say_nothing_do_not_keep_others_out() {
    let shim = Shim::of(&["cat"]);
    let descriptors = shim.descriptors();
    let silent: Vec<_> = (0..40).map(|_| shim.connect()).collect();
    let mut process = shim.start(1);
    process.write("patience\n");
    assert_eq!(process.line(), "patience");
    drop((silent, process));
    eventually("they are gone", || shim.descriptors() <= descriptors + 3);
}

#[test]
fn another_user_is_not_served() {
    let shim = Setup::new(&["cat"]).options(&["--peer-uid", "15380"]).start();
    let lifeline = shim.connect();
    lifeline.send(&Request::Start(Session(1)).encode());
    assert!(lifeline.receive().is_none(), "not a word");
    assert!(shim.children().is_empty());
}

#[test]
fn a_shim_takes_the_place_of_one_that_was_killed() {
    let mut first = Shim::of(&["cat"]);
    let socket = first.socket();
    first.kill();
    assert!(socket.exists(), "it had no time to remove it");
    let mut second = Command::new(env!("CARGO_BIN_EXE_shim"))
        .arg("--socket")
        .arg(&socket)
        .args(["--", "cat"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the new one listens", || first.try_connect().is_ok());
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn without_a_place_to_listen_it_says_where_it_tried() {
    let output = Command::new(env!("CARGO_BIN_EXE_shim"))
        .args(["--socket", "/no/such/folder/stdio.sock", "--", "cat"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "longshore: cannot listen at /no/such/folder/stdio.sock: No such file or directory (os error 2)\n"
    );
}
