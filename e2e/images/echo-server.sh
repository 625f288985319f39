#!/usr/bin/env bash
# Builds the image of the server that load tests call (e2e/echo-server), and prints its line "REFERENCE ARCHIVE".
set -euo pipefail
. "$(dirname "$(realpath "$0")")/build.sh"

build longshore-echo-server:echo-server
image echo-server "$root/e2e/echo-server/Containerfile" "$built/echo-server"
