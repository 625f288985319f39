#!/usr/bin/env bash
# Makes images of servers that others wrote, and prints a line "REFERENCE ARCHIVE" for each:
#
#   localhost/mcp-server-everything:VERSION   on Debian and Node, runs as root unless it is told otherwise, as most
#                                             images do; `streamableHttp` on port 3001 at /mcp by default
#   localhost/go-server:VERSION               one static program in an empty image; port 3000 at /mcp
#
# VERSION is that of the npm package and of the Go SDK. The archives are cached by what they are made of.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}
peers=$("$here/install.sh")
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
everything=$(sed -n 's/.*"@modelcontextprotocol\/server-everything": "\(.*\)".*/\1/p' "$here/everything/package.json")
sdk=$(sed -n 's/^require .*go-sdk v//p' "$here/go/go.mod")
key=$( (basename "$peers"; echo "$suite"; cat "$0" "$here"/*/Containerfile) | sha256sum | cut -c1-16)

mkdir -p "$cache/images"
exec 9>"$cache/images/.peers.lock"
flock 9

# What was made before is looked up without unpacking anything.
made=$cache/images/peers-$key.list
if [ -f "$made" ] && cut -d' ' -f2 "$made" | xargs ls >/dev/null 2>&1; then
  cut -d' ' -f2 "$made" | xargs touch # see image.sh: what nobody asks for is deleted
  cat "$made"
  exit
fi

# The base system has a libc and a shell, no package manager, and is shared by every image that is not static.
base=$cache/images/debian-$suite-$key.base.tar
if [ ! -f "$base" ]; then
  echo "peers: making a base system of Debian $suite; this takes half a minute the first time" >&2
  # Named by suite alone: which mirror serves it is the business of the machine.
  mmdebstrap --quiet --format=tar --variant=essential --include=libstdc++6 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' "$suite" "$base.unfinished" >&2
  mv "$base.unfinished" "$base"
fi

context=$(mktemp -d "$cache/images/.context.XXXXXX")
trap 'rm -rf "$context"' EXIT
mkdir "$context/everything" "$context/go"
cp "$here/everything/Containerfile" "$context/everything/"
ln "$base" "$context/everything/rootfs.tar"
cp -rL "$peers/everything/node_modules" "$context/everything/node_modules"
cp -L "$peers/bin/node" "$context/everything/node"
cp "$here/go/Containerfile" "$peers/bin/go-server" "$context/go/"

{
  "$here/../images/image.sh" "mcp-server-everything:$everything" "$context/everything" "$key"
  "$here/../images/image.sh" "go-server:$sdk" "$context/go"
} >"$context/list"
mv "$context/list" "$made"
cat "$made"
