//! What the kernel counts of other processes, and where they run.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Has this process, and all that it starts from now on, run on one processor: the first, or `LONGSHORE_BENCH_CPU`.
#[allow(dead_code, reason = "not every measurement needs it")]
pub(crate) fn pin() {
    let processor = std::env::var("LONGSHORE_BENCH_CPU").ok().and_then(|text| text.parse().ok());
    let mut set = CpuSet::new();
    set.set(processor.unwrap_or(0));
    sched_setaffinity(None, &set).expect("a processor of this machine");
}

/// What the kernel has given all threads of a process, in nanoseconds' steps.
pub(crate) fn processor_time(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let files = threads.flatten().map(|thread| thread.path().join("schedstat"));
    let nanoseconds = files.filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// The bytes of memory that a process holds, or has held at most: `VmRSS` or `VmHWM`.
#[allow(dead_code, reason = "not every measurement needs it")]
pub(crate) fn memory(process: u32, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':'));
    let kilobytes: u64 = line.expect("its memory").trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

/// The middle one.
#[allow(dead_code, reason = "not every measurement needs it")]
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort_unstable_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}
