#!/usr/bin/env bash
# Checks everything that can be checked on this machine, quick things first; installs what is missing.
#
#   e2e/test.sh              every layer
#   e2e/test.sh LAYER...     only these: format dependencies lints unit fuzz request-path control-plane node
#
# One line tells how each layer went and how long it took; the last line counts the tests. A layer that fails does not
# stop the others, except where they could not be built either.
#
# All of the workspace is built in one way (`--workspace --all-targets`), and layers choose which of the built tests
# run. To choose packages instead would have cargo build their dependencies anew, with other features.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.."

all=(format dependencies lints unit fuzz request-path control-plane node)
layers=("$@")
[ $# -gt 0 ] || layers=("${all[@]}")
for layer in "${layers[@]}"; do
  [[ " ${all[*]} " == *" $layer "* ]] || { echo "unknown layer: $layer (there are: ${all[*]})" >&2; exit 2; }
done

# Who leaves this machine by a proxy does not go by it to this machine itself.
no_proxy=${no_proxy:-${NO_PROXY:-}}
# A star means every machine only where it stands alone.
[ "$no_proxy" = '*' ] || no_proxy=${no_proxy:+$no_proxy,}127.0.0.1,localhost,::1
export no_proxy NO_PROXY=$no_proxy
# Where git runs this as a hook, it says so in variables, by which every git that tests run would be led to this repository.
# shellcheck disable=SC2046 # words, not one word
unset $(git rev-parse --local-env-vars 2>/dev/null)
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# The programs in the images are those of a release but for how much the compiler makes of them, which would take longer
# than all tests on a node. `make soak` and `make bench` have those of a release.
export LONGSHORE_IMAGES_PROFILE=${LONGSHORE_IMAGES_PROFILE:-test-images}
log=$(mktemp)
making=
trap 'rm -f "$log"; [ -z "$making" ] || kill -- "-$making" 2>/dev/null' EXIT
summary=()
failed=0

say() { printf '\n== %s\n' "$*"; }

# How many test programs run at once, and in the request path's how many tests in each for a processor: these wait more
# than they work.
programs_at_once=2
tests_at_once=3

# What compiles the workspace's own code and looks for lints meanwhile: to look at all of it, and at what it depends on,
# without compiling takes two minutes more.
compiler=$PWD/e2e/tools/clippy.sh

# One failing program does not hide what the others would say.
tests() { RUSTC_WORKSPACE_WRAPPER=$compiler cargo test --locked --workspace --no-fail-fast "$@"; }

# The same for many programs, of which some run at once, the largest first: it has the most tests. Each speaks when it has
# ended. A few of its tests that failed are tried once more, alone: on a machine that is busy enough whatever has to be there
# in time comes late now and then. The last lines name those that pass then.
together() {
  local programs said status=0
  programs=$(tests --no-run --message-format json-render-diagnostics "$@" | python3 -c '
import json, os, sys
artifacts = [json.loads(line) for line in sys.stdin]
tests = [it for it in artifacts if it.get("executable") and it["profile"]["test"]]
for it in sorted(tests, key=lambda it: -os.path.getsize(it["executable"])):
    print(os.path.dirname(it["manifest_path"]), it["executable"], sep="\t")') || return 1
  said=$(mktemp -d)
  export said
  # shellcheck disable=SC2016 # they are the other shell's
  xargs -P "$programs_at_once" -d '\n' -n 1 bash -c '
    IFS=$'"'\t'"' read -r folder program <<<"$1"
    cd "$folder" && "$program" >"$said/$$" 2>&1
    status=$?
    mapfile -t failed < <(sed -n "s/^test \(.*\) \.\.\. FAILED$/\1/p" "$said/$$")
    many=$(sed -n "s/^test result: FAILED\. [0-9]* passed; \([0-9]*\) failed;.*/\1/p" "$said/$$")
    if [ $status -eq 101 ] && [ "$many" = ${#failed[@]} ] && [ "$many" -le 10 ] &&
      "$program" --exact "${failed[@]}" --test-threads 1 >"$said/$$.alone" 2>&1 &&
      grep -q "^test result: ok\. $many passed" "$said/$$.alone"; then
      status=0
      sed -i -E "s/^test result: FAILED\. ([0-9]+ passed); [0-9]+ failed;/test result: ok. \1; 0 failed;/" "$said/$$"
      printf "alone: %s failed beside others, and passed alone\n" "${failed[@]}" >>"$said/$$.alone"
      cat "$said/$$.alone" >>"$said/$$"
    fi
    { flock 9; printf "\n     Ran %s (%s)\n" "${program##*/}" "${folder##*/}"; cat "$said/$$"; } 9>"$said/.lock"
    exit $status' _ <<<"$programs" || status=1
  rm -rf "$said"
  return $status
}

format() { cargo fmt --all --check; }

dependencies() {
  local deny manifest
  deny=$(e2e/tools/install.sh)/bin/cargo-deny || return 1
  "$deny" --locked check --hide-inclusion-graph --allow unused-wrapper licenses bans sources || return 1
  for manifest in mcp sidecar/config sidecar/sessions sidecar/shim; do
    "$deny" --locked --manifest-path "$manifest/Cargo.toml" check bans || return 1
  done
}

lints() { tests --all-targets --no-run; }

# Pure code: what libraries and binaries hold themselves, doc comments among it, and every test program that no layer below
# names. Binaries that hold no tests (`test = false`) would take their time to be linked.
unit() {
  local others status=0
  others=$(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    for target in package["targets"]:
        if target["kind"] == ["test"] and target["name"] not in ("it", "control_plane", "node"):
            print("--test", target["name"])
        if target["kind"] == ["bin"] and target["test"]:
            print("--bin", target["name"])') || return 1
  # shellcheck disable=SC2086 # words, not one word
  together --lib $others || status=1
  documented || status=1
  return $status
}

# The examples in doc comments, and the pages of all libraries: a link in them leads somewhere.
documented() {
  local status=0
  LONGSHORE_PAGES=$(mktemp -d)
  export LONGSHORE_PAGES
  RUSTDOC=$PWD/e2e/tools/rustdoc.sh tests --doc || status=1
  printf '%s\0' "$LONGSHORE_PAGES"/*.sh | xargs -P "$(nproc)" -0 -n 1 bash || status=1
  rm -rf "$LONGSHORE_PAGES"
  return $status
}

# Whatever reads strangers' bytes. The same inputs each time, so that what passes here passes there; `make soak` looks
# for others.
fuzz() { fuzz/run.sh 10000x; }

# The sidecar against servers and clients that others wrote, and with the protocol's conformance suite.
request-path() {
  e2e/peers/install.sh >/dev/null && e2e/conformance/install.sh >/dev/null || return 1
  RUST_TEST_THREADS=$((tests_at_once * $(nproc))) together --test it
}

# All tests of a cluster at once: each waits until there is room for it (e2e/src/testing/room.rs).
clustered() { RUST_TEST_THREADS=100 together --test "$1"; }

# The operator and the schema against a real API server.
control-plane() { e2e/cluster/install.sh control-plane >/dev/null && clustered control_plane; }

# The images of what is tested on a node. Its tests make them where they are not there, and say why that fails.
images() { nice -n 19 bash -c "e2e/cluster/install.sh && e2e/images/longshore.sh && e2e/images/echo-server.sh" &>/dev/null; }

# Everything, installed with Helm, on a real node. Of a cluster that is there already the tests need kubectl and Helm alone.
node() {
  local programs
  if [ -n "${LONGSHORE_E2E_KUBECONFIG:-}" ]; then
    programs=$(e2e/cluster/install.sh control-plane) && PATH=$PATH:$programs clustered node
  else
    e2e/cluster/install.sh >/dev/null && clustered node
  fi
}

run() { # layer $1
  local started=$SECONDS outcome
  say "$1"
  if "$1" 2>&1 | tee -a "$log"; then outcome=ok; else outcome=FAILED failed=1; fi
  summary+=("$(printf '%-14s %-7s %4d s' "$1" "$outcome" $((SECONDS - started)))")
  echo "== $1: $outcome ($((SECONDS - started)) s)"
  [ $outcome = ok ]
}

skip() { # layer $1 for the reason $2
  summary+=("$(printf '%-14s left out: %s' "$1" "$2")")
  echo "== $1: left out: $2"
}

# What is built and the clusters take about 12 GB, where nothing is there yet.
free=$(df --output=avail --block-size=1G . | tail -n 1)
if [ ! -d target/debug ] && [ "$free" -lt 12 ]; then
  say "only $free GB are free on this disk: all layers may take 12"
fi

started=$SECONDS
for layer in "${layers[@]}"; do
  if [ -z "$making" ] && [[ $layer = request-path || $layer = control-plane ]] && [[ " ${layers[*]} " == *" node "* ]] &&
    [ "$(id -u)" = 0 ] && [ -z "${LONGSHORE_E2E_KUBECONFIG:-}${LONGSHORE_E2E_IMAGES:-}" ]; then
    # The compiler has what processors the tests leave: for half of its time the request path waits.
    set -m # a group of processes that can be ended as one
    images &
    making=$!
    set +m
  fi
  if [ "$layer" = node ] && [ -n "$making" ]; then wait "$making"; making=; fi
  if [ "$layer" = node ] && [ "$(id -u)" != 0 ] && [ -z "${LONGSHORE_E2E_KUBECONFIG:-}" ]; then
    skip node "a node needs root (or LONGSHORE_E2E_KUBECONFIG with a cluster to use)"
    continue
  fi
  if run "$layer" || [ "$layer" != lints ]; then continue; fi
  # The tests of what is merely not beautiful still say something.
  compiler=
  if ! cargo check --locked --quiet --workspace --all-targets 2>/dev/null; then
    skip "what is left" "it does not compile"
    break
  fi
done

# Once more, and shortly: what a test prints when it fails can be long.
awk '
  /^---- .* stdout ----$/ { test = $2; next }
  /^thread .* panicked at / { print "\n" test; lines = 5 }
  lines > 0 { print "  " substr($0, 1, 400); lines-- }' "$log"

say "in all: $((SECONDS - started)) s"
printf '   %s\n' "${summary[@]}"
# Tests that say that they show nothing here. They count as passed.
sed -n 's/^left out: /   &/p' "$log"
# Tests that failed, and passed when they were tried alone. They count as passed.
sed -n 's/^alone: /   /p' "$log"
# What `cargo test` counted. A layer that failed without counting a test (a lint, a build) counts as one.
awk -v failed=$failed '
  /^test result: / { for (i = 1; i < NF; i++) { n = $i; w = $(i + 1); sub(/;$/, "", w)
    if (w == "passed") p += n; if (w == "failed") f += n; if (w == "ignored") s += n } }
  END { if (failed && f == 0) f = 1; printf "%d passed, %d failed, %d skipped\n", p, f, s }' "$log"
exit $failed
