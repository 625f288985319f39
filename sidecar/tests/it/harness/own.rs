//! This program again, in a process of its own: one of its tests is a server or a client there.

/// How it is started as that test, with these words. They choose no further test.
pub(crate) fn command(test: &str, words: &[&str]) -> Vec<String> {
    let own = std::env::current_exe().expect("its own path");
    let own = own.to_str().expect("text");
    let all = [&[own, "--exact", "--ignored", "--nocapture", test], words].concat();
    all.into_iter().map(str::to_owned).collect()
}

/// The words that such a test was given.
pub(crate) fn told() -> Vec<String> {
    std::env::args().skip(5).collect()
}
