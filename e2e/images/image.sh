#!/usr/bin/env bash
# Makes an image of folder CONTEXT, without an engine and without a registry, and prints "REFERENCE ARCHIVE".
#
#   images/image.sh NAME[:TAG] CONTEXT [KEY]
#
# ARCHIVE is an OCI archive, as `ctr images import` takes it. It is made once: its name carries a digest of all that
# is in CONTEXT, or KEY where the caller knows better (a base system unpacks differently each time). Without a TAG
# that digest is the tag, so the same reference is always the same image, and two images never share one.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,6s/^# \?//p' "$0" >&2; exit 2; }
context=$(realpath "$2")
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}/images

key=${3:-$(cd "$context" && find . -type f -printf '%p %m\n' | LC_ALL=C sort |
  while read -r file mode; do echo "$file $mode $(sha256sum <"$file")"; done | sha256sum | cut -c1-16)}
case $1 in
*:*) reference=localhost/$1 ;;
*) reference=localhost/$1:$key ;;
esac
archive=$cache/$(tr '/:' '--' <<<"$1")-$key.tar

if [ ! -f "$archive" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/.unfinished.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  # Its own storage, gone afterwards: nothing is left on the machine but the archive. The time stamp and the label
  # would make the same files a new image each time.
  storage=(--root "$work/root" --runroot "$work/run" --storage-driver vfs)
  buildah "${storage[@]}" bud --quiet --isolation chroot --layers=false --timestamp 0 --identity-label=false \
    --tag "$reference" "$context" >/dev/null
  buildah "${storage[@]}" push --quiet "$reference" "oci-archive:$work/image.tar:$reference"
  mv "$work/image.tar" "$archive"
  # Each change of a program makes a new archive; those that nobody has asked for in a week are not asked for again. Folders
  # are of those who were killed, or who make others right now and take them away.
  find "$cache" -ignore_readdir_race -mindepth 1 -maxdepth 1 \( -name '*.tar' -o -type d \) -mtime +7 -exec rm -rf {} +
fi
touch "$archive"
echo "$reference $archive"
