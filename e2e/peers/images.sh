#!/usr/bin/env bash
# Makes images of servers that others wrote, and prints a line "REFERENCE ARCHIVE" for each:
#
#   localhost/mcp-server-everything:VERSION   on Debian and Node, runs as root unless it is told otherwise, as most
#                                             images do; `streamableHttp` on port 3001 at /mcp by default
#                                             `node /app/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js
#                                             FOLDER` is there too, over stdio
#   localhost/go-server:VERSION               one static program in an empty image; port 3000 at /mcp
#   localhost/mcp-servers-python:VERSION      on Debian and Python: `python3 -m mcp_server_time` and
#                                             `python3 -m mcp_server_git` over stdio, and a repository in
#                                             /srv/repository
#
# VERSION is that of the npm package, of the Go SDK and of mcp-server-git. The archives are cached by what they are
# made of.
set -euo pipefail
umask 022 # in an image it is another user who reads them

here=$(dirname "$(realpath "$0")")
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}
peers=$("$here/install.sh")
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
everything=$(sed -n 's/.*"@modelcontextprotocol\/server-everything": "\(.*\)".*/\1/p' "$here/everything/package.json")
python=$(sed -n 's/^mcp-server-git==\([^ ]*\).*/\1/p' "$here/python/requirements.txt")
sdk=$(sed -n 's/^require .*go-sdk v//p' "$here/go/go.mod")
key=$( (basename "$peers"; echo "$suite"; cat "$0" "$here"/*/Containerfile) | sha256sum | cut -c1-16)

mkdir -p "$cache/images"
exec 9>"$cache/images/.peers.lock"
flock 9

# What was made before is looked up without unpacking anything.
made=$cache/images/peers-$key.list
if [ -f "$made" ] && cut -d' ' -f2- "$made" | xargs -d '\n' ls >/dev/null 2>&1; then
  cut -d' ' -f2- "$made" | xargs -d '\n' touch # see image.sh: what nobody asks for is deleted
  cat "$made"
  exit
fi

# A base system has a libc, a shell and packages $1, and no package manager. Prints the archive that it is in.
base() {
  local archive
  archive=$cache/images/debian-$( (echo "$suite $1"; declare -f base) | sha256sum | cut -c1-16).base.tar
  if [ ! -f "$archive" ]; then
    echo "peers: making a base system of Debian $suite with $1; this takes half a minute the first time" >&2
    # Named by suite alone: which mirror serves it is the business of the machine.
    mmdebstrap --quiet --format=tar --variant=essential --include="$1" \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      --dpkgopt='path-exclude=/usr/share/man/*' "$suite" "$archive.unfinished" >&2
    mv "$archive.unfinished" "$archive"
  fi
  echo "$archive"
}

context=$(mktemp -d "$cache/images/.context.XXXXXX")
trap 'rm -rf "$context"' EXIT
mkdir "$context/everything" "$context/go" "$context/python"
cp "$here/everything/Containerfile" "$context/everything/"
ln "$(base libstdc++6)" "$context/everything/rootfs.tar"
cp -rL "$peers/everything/node_modules" "$context/everything/node_modules"
cp -L "$peers/bin/node" "$context/everything/node"
cp "$here/go/Containerfile" "$peers/bin/go-server" "$context/go/"

cp "$here/python/Containerfile" "$context/python/"
ln "$(base python3,git)" "$context/python/rootfs.tar"
# Some packages hold compiled code, and that is for one version of Python.
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
tar --list --file "$context/python/rootfs.tar" | grep "usr/bin/python$version\$" >/dev/null ||
  { echo "peers: this machine has Python $version and Debian $suite has another: install Debian's python3" >&2 && exit 1; }
cp -r "$peers/python" "$context/python/packages"
# The same repository every time, whoever makes it: its commit's digest is compared.
# shellcheck disable=SC2046 # words, not one word
unset $(git rev-parse --local-env-vars)
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
repository=$context/python/repository
author=(-c user.name=Longshore -c user.email=longshore@example.com)
git init --quiet --initial-branch=main --template= "$repository"
echo 'a file to read' >"$repository/README"
git -C "$repository" add README
GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' \
  git "${author[@]}" -C "$repository" commit --quiet --message 'The first commit'
# It is root's there, and nobody runs the image as root: git would not touch what another user owns.
git config --file "$context/python/gitconfig" safe.directory /srv/repository

{
  "$here/../images/image.sh" "mcp-server-everything:$everything" "$context/everything" "$key"
  "$here/../images/image.sh" "go-server:$sdk" "$context/go"
  "$here/../images/image.sh" "mcp-servers-python:$python" "$context/python" "$key"
} >"$context/list"
mv "$context/list" "$made"
cat "$made"
