#!/usr/bin/env bash
# Makes sure that this machine has every program of a test cluster, and prints the folder that holds them.
#
#   cluster/install.sh                what a whole cluster needs
#   cluster/install.sh control-plane  what etcd and kube-apiserver alone need: no Debian packages, no root
#
# Debian's packages are installed where they are missing. What Debian does not have is built from Go modules, once:
# into a folder named by a digest of the sources, so that a change builds anew and everything else is a look-up.
# Several runs at once are safe: one builds, the others wait for it. On two cores the first build takes about eight
# minutes, a later one seconds.
set -euo pipefail

sources=$(dirname "$(realpath "$0")")/programs
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}

# Must agree with the line `k8s.io/kubernetes` of kubernetes/go.mod; without it clients are told v0.0.0.
kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$sources/kubernetes/go.mod")
helm=$(sed -n 's/^\thelm.sh\/helm\/v4 v\([^ ]*\).*/\1/p' "$sources/helm/go.mod")

packages=(
  containerd runc containernetworking-plugins iptables conntrack # the node
  iproute2 util-linux procps                                     # its namespaces, and looking into them
  buildah mmdebstrap                                             # images
)

say() { echo "cluster: $*" >&2; }

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    say "a whole cluster needs root and these packages: ${missing[*]}"
    return 1
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2
  apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2
}

build() { # into folder $1
  local version=k8s.io/component-base/version
  say "building Kubernetes $kubernetes, CoreDNS and Helm $helm; on two cores this takes eight minutes the first time"
  (cd "$sources/kubernetes" && go build -trimpath -tags providerless -o "$1/kubernetes" -ldflags \
    "-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$kubernetes")" .)
  local component
  for component in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -s kubernetes "$1/$component"
  done
  (cd "$sources/coredns" && go build -trimpath -ldflags '-s -w' -o "$1/coredns" .)
  (cd "$sources/helm" && go build -trimpath -o "$1/helm" \
    -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=v$helm" helm.sh/helm/v4/cmd/helm)
  mkdir "$1/pause-image" # a folder of its own: it is the context of the image
  cc -static -Os -s -o "$1/pause-image/pause" "$sources/pause/pause.c"
  cp "$sources/pause/Containerfile" "$1/pause-image/"
}

case ${1:-whole} in
whole | control-plane) ;;
*) say "unknown argument: $1" && exit 2 ;;
esac
for tool in go cc; do
  command -v $tool >/dev/null || { say "$tool is missing: install Go 1.26 or newer, and a C compiler" && exit 1; }
done

mkdir -p "$cache/programs"
exec 9>"$cache/programs/.lock"
flock 9
[ "${1:-whole}" = control-plane ] || install_packages

# No toolchain but the one at hand: which one it is belongs to what is built.
# Nor is there any use for what the linker strips: to write it takes the compiler a fifth of its time.
export GOTOOLCHAIN=local GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" CGO_ENABLED=0
digest=$( (go env GOVERSION GOOS GOARCH; cat "$(realpath "$0")"; cd "$sources" && find . -type f | LC_ALL=C sort | xargs sha256sum) | sha256sum | cut -c1-16)
programs=$cache/programs/$digest
if [ ! -d "$programs" ]; then
  unfinished=$(mktemp -d "$cache/programs/.unfinished.XXXXXX")
  trap 'rm -rf "$unfinished"' EXIT
  started=$SECONDS
  build "$unfinished"
  chmod 755 "$unfinished"
  mv -T "$unfinished" "$programs"
  # Those of other checkouts stay while somebody uses them.
  find "$cache/programs" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf {} +
  say "built in $((SECONDS - started)) s"
fi
touch "$programs"
echo "$programs"
