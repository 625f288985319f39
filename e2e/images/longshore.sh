#!/usr/bin/env bash
# Builds Longshore's images from this checkout, and prints a line "REFERENCE ARCHIVE" for each: the operator's, then
# the sidecar's.
set -euo pipefail
. "$(dirname "$(realpath "$0")")/build.sh"

build longshore:longshore longshore-sidecar:longshore-sidecar longshore-shim:shim
# What has changed since calls were profiled is compiled to be fast, all of it, and larger for that.
most=15000000
size=$(stat -c %s "$built/longshore-sidecar")
if [ "$profile" = release ] && [ -f "$layout" ] && [ "$size" -gt $most ]; then
  echo "the sidecar has $size bytes, more than the $most that are promised: profile calls anew (make profile)" >&2
  exit 1
fi
image longshore "$root/operator/Containerfile" "$built/longshore"
image longshore-sidecar "$root/sidecar/Containerfile" "$built/longshore-sidecar" "$built/shim"
