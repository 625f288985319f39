#!/usr/bin/env bash
# Builds Longshore's images from this checkout, and prints a line "REFERENCE ARCHIVE" for each: the operator's, then
# the sidecar's.
set -euo pipefail
. "$(dirname "$(realpath "$0")")/build.sh"

build longshore:longshore longshore-sidecar:longshore-sidecar longshore-shim:shim
image longshore "$root/operator/Containerfile" "$built/longshore"
image longshore-sidecar "$root/sidecar/Containerfile" "$built/longshore-sidecar" "$built/shim"
