#!/usr/bin/env bash
# Fuzzes with libFuzzer, on stable Rust: the compiler is told to count which code an input runs, and the fuzzer goes on
# from inputs that run new code. It begins with those in corpora/.
#
#   fuzz/run.sh SECONDS [TARGET...]   so long in all, the same time for each target (all of them, if none is named)
#   fuzz/run.sh NUMBERx [TARGET...]   so many inputs for each target, and the same ones each time
#   fuzz/run.sh keep                  adds what was found since to corpora/, as little of it as runs the same code
#
# A failure is printed as a line for corpora/TARGET.txt. This needs a C++ compiler (Debian: g++), which is installed
# where it is missing.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

seconds=${1:?how many seconds, or inputs, or keep}
shift
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
found=$target_dir/found
if [ $# -gt 0 ]; then targets=("$@"); else
  targets=()
  for file in fuzz/corpora/*.txt; do targets+=("$(basename "$file" .txt)"); done
fi

# libFuzzer is C++, and built here.
if ! command -v c++ >/dev/null; then
  [ "$(id -u)" = 0 ] || { echo "a C++ compiler is missing: install g++" >&2 && exit 1; }
  echo "installing g++" >&2
  e2e/tools/debian.sh g++
fi

# What counts code is in the compiler's own back end. The triple keeps it out of build scripts and derives.
triple=$(rustc -vV | sed -n 's/^host: //p')
counting='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
counting+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table'
counting+=' -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks'
log=$(mktemp)
trap 'rm -rf "$log" "${here:-}" "${fresh:-}"' EXIT
if ! RUSTFLAGS=$counting CARGO_TARGET_DIR=$target_dir CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_STRIP=none \
  cargo build --locked --release --target "$triple" -p longshore-fuzz --features libfuzzer >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
fuzzer=$target_dir/$triple/release/longshore-fuzz

if [ "$seconds" = keep ]; then
  merged=$target_dir/merged
  rm -rf "$merged"
  for target in "${targets[@]}"; do
    mkdir -p "$merged/$target" "$found/$target"
    # Nothing is added to what is kept already, so this takes only what is new beside it.
    here=$(mktemp -d)
    LONGSHORE_FUZZ=$target LONGSHORE_FUZZ_CORPUS=$here "$fuzzer" -merge=1 -max_len=2048 "$here" "$found/$target" >"$log" 2>&1
    find "$here" -name 'kept-*' -delete
    mv "$here"/* "$merged/$target/" 2>/dev/null || true
    rm -rf "$here"
  done
  LONGSHORE_FUZZ_KEEP=$merged cargo test --locked --quiet -p longshore-fuzz --test corpora
  exit
fi

at_once=1
if [[ $seconds == *x ]]; then
  # Nothing of what was found before, so that it is the same run anywhere.
  fresh=$(mktemp -d)
  found=$fresh
  bound="-seed=1 -runs=${seconds%x}"
  at_once=$(nproc)
else
  bound=-max_total_time=$(((seconds + ${#targets[@]} - 1) / ${#targets[@]}))
fi

fuzz() { # target $1
  local here log
  here=$(mktemp -d)
  log=$(mktemp)
  # shellcheck disable=SC2064 # the names as they are now
  trap "rm -rf '$here' '$log'" EXIT
  mkdir -p "$found/$1"
  # What is found goes to the first directory. 16 KiB hold any conversation; memory that grows with an input is a fault.
  # shellcheck disable=SC2086 # words, not one word
  if LONGSHORE_FUZZ=$1 LONGSHORE_FUZZ_CORPUS=$here "$fuzzer" $bound -max_len=16384 -timeout=10 \
    -rss_limit_mb=1024 -dict=fuzz/words.dict -artifact_prefix="$found/failed-$1-" "$found/$1" "$here" >"$log" 2>&1; then
    printf '%-14s %s\n' "$1" "$(grep -E '^Done [0-9]+ runs' "$log" | tail -1)"
  else
    printf '%-14s FAILED\n%s\n' "$1" "$(grep -vE \
      '^#[0-9]+|^INFO|^"|NEW_FUNC|WARNING|^ +[0-9]+:|^ +at |^0x|^Base64|^stack|^NOTE|^note' "$log" | tail -40)"
    return 1
  fi
}

export found fuzzer bound
export -f fuzz
printf '%s\n' "${targets[@]}" | xargs -P "$at_once" -I '{}' bash -c 'fuzz "{}"'
