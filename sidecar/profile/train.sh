#!/usr/bin/env bash
# Writes how often calls take each branch of the sidecar, for this compiler and machine: a release is laid out by that
# (e2e/images/build.sh), and passes calls in two thirds of the time.
#
# The calls are those of the benchmarks. What changes in the code since is compiled as if there were no profile, and what
# does not keeps it; after a change of the request path, of a dependency, of how a release is compiled or of the compiler,
# this is to be done anew. It takes a quarter of an hour, and needs llvm-profdata.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")"

llvm_profdata=$(compgen -c llvm-profdata | sort --version-sort | tail -n 1 || true)
version=$("${llvm_profdata:-false}" --version 2>/dev/null | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p' || true)
# An older one does not understand what the compiler's programs write, and would say so at the end.
[ "${version:-0}" -ge 19 ] ||
  { echo "this needs llvm-profdata 19 or newer: apt-get install --no-install-recommends llvm-19" >&2; exit 1; }

raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# Beside the images' own programs, which it has nothing to do with.
export LONGSHORE_IMAGES_TARGET=${LONGSHORE_IMAGES_TARGET:-$(realpath ../..)/target/profile}
. ../../e2e/images/build.sh
flags+=(-C "profile-generate=$raw")
compile -p longshore-sidecar --bin longshore-sidecar

calls() { # of the benchmark $1, of which these are measured
  LLVM_PROFILE_FILE=$raw/%p.profraw LONGSHORE_SIDECAR=$built/longshore-sidecar \
    cargo bench --locked --manifest-path "$root/Cargo.toml" -p longshore-sidecar --bench "$1" -- "${@:2}" >&2
}
calls path calls unnamed eras
calls stdio
calls forward

"$llvm_profdata" merge --sparse --output "$raw/merged" "$raw"/*.profraw
# Those of other compilers for this machine are as old as they are.
rm -f "$triple"-*.profdata
mv "$raw/merged" "$layout"
settings >"$profiled"
ls -l "$layout"
