#!/usr/bin/env bash
# Installs the protocol's conformance suite, and the servers that it is run against, and prints the folder that holds
# them:
#
#   bin/conformance     the suite
#   bin/judge           the same for what a revision requires, as often as it is wanted: judge.mjs
#   bin/typescript      a server on the TypeScript SDK, as the last release before each revision was and as the newest
#   bin/python          the same on the Python SDK
#   bin/go              a server on the newest release of the Go SDK
#   bin/go-older        the same on older ones
#   bin/client          clients on these SDKs: `bin/client SDK URL...` tries everything at servers with these fixtures,
#                       and prints a line for each with what came of it
#   suite/              the npm project of the suite, which says what each revision requires
#
# The servers are started as `bin/LANGUAGE REVISION TRANSPORT PORT`: TRANSPORT is http, sse or stdio, which takes no
# port. The protocol is the SDKs'; what they offer is in fixtures.json.
#
# The Node that runs them is that of ../peers. Versions are pinned by the lockfiles beside this script, with digests.
# Packages are named by a digest of these, the folder by one of everything, and neither is ever written to again.
set -euo pipefail

sources=$(dirname "$(realpath "$0")")
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}

say() { echo "conformance: $*" >&2; }

peers=$("$sources/../peers/install.sh")

mkdir -p "$cache/conformance"
exec 9>"$cache/conformance/.lock"
flock 9

export GOTOOLCHAIN=local GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
digest() { sha256sum | cut -c1-16; }
files() { # those of this folder that match
  cd "$sources" && find . -type f "$@" -not -path '*/node_modules/*' | LC_ALL=C sort | xargs sha256sum
}
# The program itself: on some machines `python3` is a script that takes longer to find it than it takes to start.
python=$(python3 -c 'import sys; print(sys.executable)')
locks=$( ("$python" --version; files -name 'package*.json' -o -name '*.txt') | digest)
packages=$cache/conformance/packages-$locks
everything=$( (echo "$packages $peers $python"; go env GOVERSION; files -not -name '*.txt') | digest)
folder=$cache/conformance/$everything

install() { # packages into folder $1
  local project requirements
  for project in suite typescript; do
    mkdir "$1/$project"
    cp "$sources/$project"/{package.json,package-lock.json,.npmrc} "$1/$project"
    # No scripts of strangers: none of these packages needs one. The warnings are about the machine's own Node.
    (cd "$1/$project" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  done
  # Plain folders of packages, since a virtual environment does not survive the rename at the end.
  "$python" -m venv "$1/installer"
  for requirements in "$sources"/python/requirements-*.txt; do
    "$1/installer/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
      --target "$1/$(basename "$requirements" .txt | sed 's/requirements/python/')" -r "$requirements" >&2
  done
  # Older releases of the SDK, for which the packages of the first line do.
  for requirements in "$sources"/python/older-*.txt; do
    "$1/installer/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
      --target "$1/$(basename "$requirements" .txt | sed 's/older/python/')" -r "$requirements" >&2
  done
  rm -rf "$1/installer"
}

launcher() { # makes bin/$1 of folder $2, which knows revisions, from the text of a script on standard input
  { printf '#!/bin/sh\nhere=$(dirname "$(dirname "$(realpath "$0")")")\n'; cat; } >"$2/bin/$1"
  chmod 755 "$2/bin/$1"
}

build_go() { # our program with the SDK of folder $1's go.mod, called by the newest revision that the SDK knows
  local revision=2026-07-28 module=$sources/go
  if [ "$1" != "$sources" ]; then
    revision=${1##*/older-} module=$2/.go
    mkdir "$module"
    cp "$1"/go.{mod,sum} "$sources"/go/*.go "$module"
    rm "$module/alone.go" # they know nothing of it
  fi
  (cd "$module" && go build -trimpath -ldflags '-s -w' -o "$2/go-$revision" . >&2)
  rm -rf "$2/.go"
}

build() { # into folder $1
  mkdir "$1/bin"
  cp "$sources/fixtures.json" "$1"
  cp -r "$sources/typescript" "$sources/python" "$1"
  rm -rf "$1/typescript/node_modules"
  ln -s "$packages/typescript/node_modules" "$1/typescript/node_modules"
  ln -s "$packages/suite" "$1/suite"
  local release
  for release in "$sources" "$sources"/go/older-*; do
    build_go "$release" "$1/bin"
  done
  # The suite, but for its last statement: it would run one command line and end.
  local suite=$packages/suite/node_modules/@modelcontextprotocol/conformance requirements
  mkdir "$1/judge" "$1/judge/bin" "$1/judge/requirements"
  cp "$sources/judge.mjs" "$1/judge/bin"
  ln -s "$packages/suite/node_modules" "$1/judge/node_modules"
  sed -E '$s/([A-Za-z_$]+)\.parse\(\);export\{\};$/\1;export{\1 as program};/' "$suite/dist/index.js" >"$1/judge/bin/suite.mjs"
  grep -q 'export{.* as program};' "$1/judge/bin/suite.mjs" || { say "the suite does not end as it did" && return 1; }
  # It would run what a revision does not require, too.
  for requirements in "$suite"/requirements/*.yaml; do
    sed '/^not_scored:/,$d' "$requirements" >"$1/judge/requirements/$(basename "$requirements")"
  done
  launcher judge "$1" <<END
exec "$peers/bin/node" "\$here/judge/bin/judge.mjs"
END
  launcher conformance "$1" <<END
exec "$peers/bin/node" "$packages/suite/node_modules/@modelcontextprotocol/conformance/dist/index.js" "\$@"
END
  launcher typescript "$1" <<END
revision=\$1 transport=\$2 port=\$3
case \$revision in
  2026-07-28) exec "$peers/bin/node" "\$here/typescript/modern.mjs" --transport "\$transport" --listen "\$port" ;;
  *) exec "$peers/bin/node" "\$here/typescript/legacy.mjs" --sdk "\$revision" --transport "\$transport" --listen "\$port" ;;
esac
END
  launcher python "$1" <<END
revision=\$1 transport=\$2 port=\$3
case \$revision in
  2026-07-28) line=2 PYTHONPATH="$packages/python-2" ;;
  *) line=1 PYTHONPATH="$packages/python-\$revision:$packages/python-1" ;;
esac
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
exec "$python" -S "\$here/python/server_\$line.py" --transport "\$transport" --listen "\$port"
END
  launcher client "$1" <<END
sdk=\$1
shift
export PYTHONDONTWRITEBYTECODE=1
case \$sdk in
  typescript-2-modern) exec "$peers/bin/node" "\$here/typescript/client-modern.mjs" --mode modern --urls "\$*" ;;
  typescript-2-legacy) exec "$peers/bin/node" "\$here/typescript/client-modern.mjs" --mode legacy --urls "\$*" ;;
  typescript-*) exec "$peers/bin/node" "\$here/typescript/client-legacy.mjs" --sdk "\${sdk#typescript-}" --urls "\$*" ;;
  python-2-modern) PYTHONPATH="$packages/python-2" exec "$python" -S "\$here/python/client.py" --mode modern --urls "\$@" ;;
  python-2-legacy) PYTHONPATH="$packages/python-2" exec "$python" -S "\$here/python/client.py" --mode legacy --urls "\$@" ;;
  python-*) PYTHONPATH="$packages/\$sdk:$packages/python-1" exec "$python" -S "\$here/python/client.py" --urls "\$@" ;;
  go-*) exec "\$here/bin/\$sdk" client "\$@" ;;
esac
END
  launcher go-older "$1" <<END
release=\$1
# No release knows nothing newer than the first revisions: each speaks all that it knows.
case \$release in 2025-03-26 | 2024-11-05) release=2025-06-18 ;; esac
exec "\$here/bin/go-\$release" server "\$here/fixtures.json" "\$@"
END
  launcher go "$1" <<END
exec "\$here/bin/go-2026-07-28" server "\$here/fixtures.json" "\$@"
END
}

finish() { # makes folder $1 with function $2, whole or not at all
  local unfinished started=$SECONDS
  unfinished=$(mktemp -d "$cache/conformance/.unfinished.XXXXXX")
  # shellcheck disable=SC2064 # the name as it is now
  trap "rm -rf '$unfinished'" EXIT
  "$2" "$unfinished"
  chmod 755 "$unfinished"
  mv -T "$unfinished" "$1"
  say "made $(basename "$1") in $((SECONDS - started)) s"
}

if [ ! -d "$packages" ]; then
  say "installing the suite and the SDKs; this takes half a minute the first time"
  finish "$packages" install
fi
if [ ! -d "$folder" ]; then
  finish "$folder" build
  # Those of other checkouts stay while somebody uses them.
  find "$cache/conformance" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf {} +
fi
touch "$packages" "$folder"
echo "$folder"
