#!/usr/bin/env bash
# Installs packages of Debian's. Who else installs some meanwhile is waited for: another checkout's tests, or a machine that
# has just been started and looks for updates.
#
#   tools/debian.sh PACKAGE...
set -euo pipefail

# What the packages start must not hold on to the lock of whoever wants them.
exec 9>&-
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

apt() {
  local said
  for _ in {1..120}; do
    said=$(apt-get -qq "$@" 2>&1) && return 0
    [[ $said == *"Could not get lock"* ]] || break
    sleep 5
  done
  printf '%s\n' "$said" >&2
  return 1
}

apt update
apt install -y --no-install-recommends "$@"
