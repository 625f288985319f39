#!/usr/bin/env bash
# Makes sure that this machine has every program of a test cluster, and prints the folder that holds them.
#
#   cluster/install.sh                what a whole cluster needs
#   cluster/install.sh control-plane  what etcd and kube-apiserver alone need: no Debian packages, no root
#
# Debian's packages are installed where they are missing. What Debian does not have is built from Go modules, once:
# into a folder named by a digest of the sources, so that a change builds anew and everything else is a look-up.
# Several runs at once are safe: one builds, the others wait for it. On two cores the first build takes about five
# minutes, a later one seconds.
#
# All of them are of one module, with CoreDNS and Helm in versions that were made for the same libraries of Kubernetes as
# Kubernetes is: in others these, which are most of what there is to compile, are compiled twice.
set -euo pipefail
umask 022 # in an image it is another user who reads them

sources=$(dirname "$(realpath "$0")")/programs
cache=${LONGSHORE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore}

# Without these the programs tell v0.0.0.
kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$sources/go.mod")
helm=$(sed -n 's/^\thelm.sh\/helm\/v4 v\([^ ]*\).*/\1/p' "$sources/go.mod")

packages=(
  containerd runc containernetworking-plugins iptables ipset conntrack # the node
  iproute2 util-linux procps                                           # its namespaces, and looking into them
  buildah mmdebstrap                                                   # images
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
  "$sources/../../tools/debian.sh" "${missing[@]}"
}

# One set of flags for all, or what they share is compiled anew.
compile() { # to file $1 the command $2 with the linker's flags $3
  (cd "$sources" && go build -trimpath -tags providerless -ldflags "-s -w $3" -o "$1" "$2")
}

build() { # into folder $1
  local version=k8s.io/component-base/version minor component chart variable helm_flags
  minor=$(cut -d. -f2 <<<"$kubernetes")
  say "building Kubernetes $kubernetes, CoreDNS, kube-router and Helm $helm; on two cores this takes five minutes the first time"
  compile "$1/kubernetes" ./kubernetes "-X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=$minor"
  for component in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -s kubernetes "$1/$component"
  done
  compile "$1/coredns" ./coredns ""
  compile "$1/kube-router" ./kube-router ""
  # Helm takes a cluster that it does not ask for one of Kubernetes 1.20, unless it is told which it was built with.
  chart=helm.sh/helm/v4/pkg/chart
  helm_flags="-X helm.sh/helm/v4/internal/version.version=v$helm"
  for variable in $chart/common.k8sVersion $chart/v2/lint/rules.k8sVersion helm.sh/helm/v4/internal/version.kubeClientVersion; do
    helm_flags+=" -X ${variable}Major=1 -X ${variable}Minor=$minor"
  done
  compile "$1/helm" helm.sh/helm/v4/cmd/helm "$helm_flags"
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
export GOTOOLCHAIN=local GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false -gcflags=all=-dwarf=false" CGO_ENABLED=0
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
