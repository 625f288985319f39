#!/usr/bin/env bash
# Installs packages of Debian's. Who else installs some meanwhile is waited for: another checkout's tests, or a machine that
# has just been started and looks for updates.
#
#   tools/debian.sh PACKAGE...
set -euo pipefail

# What the packages start must not hold on to the lock of whoever wants them.
exec 9>&-
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# Words go to a file: of a pipe whoever waits for its end would wait for what the packages start, too.
said=$(mktemp)
trap 'rm -f "$said"' EXIT

apt() {
  for _ in {1..120}; do
    apt-get -qq "$@" </dev/null >"$said" 2>&1 && return 0
    grep -q 'Could not get lock' "$said" || break
    sleep 5
  done
  cat "$said" >&2
  return 1
}

apt update
apt install -y --no-install-recommends "$@"
