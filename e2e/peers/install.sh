#!/usr/bin/env bash
# Installs servers and clients that others wrote, for the tests to talk to, and prints the folder that holds them:
#
#   bin/node                       the Node that runs the next two (its own pinned version, not the machine's)
#   bin/mcp-server-everything      the protocol's test server: `stdio`, or `streamableHttp` on $PORT (default 3001)
#                                  at /mcp. It listens on every address.
#   bin/mcp-server-filesystem      a server over stdio of the folders that it is given
#   bin/go-server                  a server on the Go SDK, static; peers/go/main.go has its tools and flags.
#                                  It listens on 127.0.0.1:3000 at /mcp unless `-listen` says otherwise, and prints
#                                  `serving URL` to standard error when it is ready. `-stdio` serves stdio instead.
#   bin/mcp-server-time            a server over stdio, in Python
#   bin/mcp-server-git             another one, of `--repository FOLDER`
#   bin/mcp-inspector              the Inspector; `--cli URL --transport http --method tools/list` for tests
#   bin/python                     the machine's Python 3 with the SDK `mcp` 2 on its path
#   everything/                    the npm project of both servers (node_modules, package.json)
#   typescript/                    the npm project of the clients: `@modelcontextprotocol/sdk` 1 (import
#                                  `@modelcontextprotocol/sdk/client/index.js`), `@modelcontextprotocol/client` 2, and
#                                  the Inspector. A script outside of it imports them when it is run in this folder
#                                  from standard input: `bin/node --input-type=module - <script.mjs`.
#
# The programs in bin/ find what they need by their own place. Versions are pinned by the lockfiles beside this
# script, with digests. The folder is named by a digest of all of them, is made once, and is never written to again.
# Needs npm, Go, and python3 with venv (which is installed from Debian where it is missing).
set -euo pipefail
umask 022 # in an image it is another user who reads them

sources=$(dirname "$(realpath "$0")")
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}

say() { echo "peers: $*" >&2; }

for tool in npm go; do
  command -v $tool >/dev/null || { say "$tool is missing: install Node with npm, and Go 1.26 or newer" && exit 1; }
done

mkdir -p "$cache/peers"
exec 9>"$cache/peers/.lock"
flock 9

if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  [ "$(id -u)" = 0 ] || { say "python3 with venv is missing: install python3-venv" && exit 1; }
  say "installing python3-venv"
  "$sources/../tools/debian.sh" python3-venv
fi

export GOTOOLCHAIN=local GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
# The program itself: on some machines `python3` is a script that takes longer to find it than it takes to start.
machine_python=$(python3 -c 'import sys; print(sys.executable)')
digest=$( (go env GOVERSION GOOS GOARCH; echo "$machine_python"; "$machine_python" --version; cat "$(realpath "$0")"
  cd "$sources" && find node everything typescript python go -type f -not -path '*/node_modules/*' -not -name Containerfile |
    LC_ALL=C sort | xargs sha256sum) | sha256sum | cut -c1-16)
peers=$cache/peers/$digest

npm_project() { # installs project $1 into $2
  mkdir "$2"
  cp "$sources/$1"/{package.json,package-lock.json,.npmrc} "$2"
  # No scripts of strangers: none of these packages needs one. The warnings are about the machine's own Node.
  (cd "$2" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
}

launcher() { # makes bin/$1, which runs `$2 args` from the peers' own folder
  printf '#!/bin/sh\nhere=$(dirname "$(dirname "$(realpath "$0")")")\nexec %s "$@"\n' "$2" >"$3/bin/$1"
  chmod 755 "$3/bin/$1"
}

build() { # into folder $1
  mkdir "$1/bin"
  local project
  for project in node everything typescript; do
    npm_project $project "$1/$project"
  done
  ln -s ../node/node_modules/.bin/node "$1/bin/node"
  launcher mcp-server-everything '"$here/bin/node" "$here/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"' "$1"
  launcher mcp-server-filesystem '"$here/bin/node" "$here/everything/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"' "$1"
  launcher mcp-inspector '"$here/bin/node" "$here/typescript/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"' "$1"

  (cd "$sources/go" && go build -trimpath -ldflags '-s -w' -o "$1/bin/go-server" . >&2)

  # A plain folder of packages, since a virtual environment does not survive the rename at the end.
  "$machine_python" -m venv "$1/installer"
  "$1/installer/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --target "$1/python" -r "$sources/python/requirements.txt" >&2
  rm -rf "$1/installer"
  local python='env PYTHONPATH="$here/python" PYTHONDONTWRITEBYTECODE=1 '"$machine_python -S"
  launcher python "$python" "$1"
  launcher mcp-server-time "$python -m mcp_server_time" "$1"
  launcher mcp-server-git "$python -m mcp_server_git" "$1"
}

if [ ! -d "$peers" ]; then
  say "installing servers and clients of others; this takes a minute or two the first time"
  unfinished=$(mktemp -d "$cache/peers/.unfinished.XXXXXX")
  trap 'rm -rf "$unfinished"' EXIT
  started=$SECONDS
  build "$unfinished"
  chmod 755 "$unfinished"
  mv -T "$unfinished" "$peers"
  # Those of other checkouts stay while somebody uses them.
  find "$cache/peers" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf {} +
  say "installed in $((SECONDS - started)) s"
fi
touch "$peers"
echo "$peers"
