#!/usr/bin/env bash
# Runs the full form of every row that tests/node/sessions shows, one after the other on a machine that does nothing
# else, and writes what came of it to target/soak.md (or to $LONGSHORE_E2E_SOAK); before that, fuzzes for a quarter of an
# hour, and holds what is promised in seconds to that. It takes the better part of two hours, and root.
#
#   e2e/soak.sh              fuzzing, and every row
#   e2e/soak.sh fuzz         fuzzing alone
#   e2e/soak.sh WORD...      rows whose tests have one of these words in their names; a report that is there goes on
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

if [ "$*" != fuzz ] && [ "$(id -u)" != 0 ]; then
  echo 'this needs root, but for e2e/soak.sh fuzz' >&2
  exit 1
fi
report=$(realpath -m "${LONGSHORE_E2E_SOAK:-target/soak.md}")
mkdir -p "$(dirname "$report")"
if [ $# -gt 0 ] && [ -s "$report" ]; then echo >>"$report"; else : >"$report"; fi
cat >>"$report" <<END
Sessions that survive, in full: $(date -u '+%Y-%m-%d %H:%M') UTC, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ' with changes'), $(nproc) processors ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)).

| what is done | outcome | took | what was seen |
|---|---|---|---|
END
export LONGSHORE_E2E_SOAK=$report LONGSHORE_E2E_POLICIES=1

status=0
if [ $# -eq 0 ] || [ "$*" = fuzz ]; then
  if fuzz/run.sh 900; then outcome=ok; else outcome=FAILED status=1; fi
  echo "| what reads strangers' bytes is fuzzed | $outcome | 900 s | $(ls fuzz/corpora | wc -l) targets |" >>"$report"
  if [ $# -gt 0 ]; then cat "$report"; exit $status; fi
fi

e2e/cluster/install.sh >/dev/null
# What is promised in seconds holds there; beside other tests a tenfold of it has to do.
if [ $# -eq 0 ]; then
  began=$SECONDS outcome=passed
  cargo test --locked --workspace --test node -- faults:: failing:: policies:: --test-threads=1 --nocapture || outcome='**failed**' status=1
  cargo test --locked --workspace --test control_plane -- references:: --test-threads=1 || outcome='**failed**' status=1
  echo "| a server dies, a key goes, what was missing comes | $outcome | $((SECONDS - began)) s | within one second, two, and two |" >>"$report"
fi
words=("$@")
[ $# -gt 0 ] || words=(sessions::)
# Other tests have such words in their names too, and are no rows.
tests=$(cargo test --locked --workspace --test node -- --list)
mapfile -t rows < <(sed -n 's/^\(sessions::.*\): test$/\1/p' <<<"$tests" | grep -F "${words[@]/#/-e}")
if [ ${#rows[@]} -eq 0 ]; then
  echo "no row has one of these words in its name: $*" >&2
  exit 1
fi
cargo test --locked --workspace --test node -- --exact "${rows[@]}" --test-threads=1 --nocapture || status=$?
echo
cat "$report"
exit $status
