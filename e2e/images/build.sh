# What makes an image of programs from this checkout; sourced by the scripts beside it, which say which.
#
# The programs are static, since the images have nothing else in them. The target triple is given although it is the
# machine's own: without it the flag would reach the build scripts and procedural macros too, which cannot be static.
# A target folder of its own, because the flag would otherwise rebuild everything each time. LONGSHORE_IMAGES_PROFILE
# names one of Cargo's profiles other than that of a release. Lints are for others to look for.

here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
root=$(dirname "$(dirname "$here")")
target=${LONGSHORE_IMAGES_TARGET:-$root/target/images}
compiler=$(rustc -vV)
triple=$(sed -n 's/^host: //p' <<<"$compiler")
profile=${LONGSHORE_IMAGES_PROFILE:-release}
built=$target/$triple/$profile
flags=(-C target-feature=+crt-static)
# What calls do in the sidecar, for releases to be laid out by. Another compiler has other names for its functions.
layout=$root/sidecar/profile/$triple-$(sed -n 's/^release: //p' <<<"$compiler").profdata
# How releases were compiled when it was made.
profiled=$root/sidecar/profile/release.toml

settings() { # of releases: with each of them the functions of a package have other names
  awk '/^\[/ { is_here = /^\[profile\.release[].]/ } is_here && /^[^#]/' "$root/Cargo.toml"
}

compile() { # with the programs that cargo is told
  # The paths among them may have spaces. A compiler's cache (sccache) would keep the lock for as long as it runs.
  CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && printf %s "${flags[*]}") RUSTC_WORKSPACE_WRAPPER="" CARGO_TARGET_DIR=$target \
    cargo build --manifest-path "$root/Cargo.toml" --locked --quiet --profile "$profile" --target "$triple" "$@" 2>&1 9>&- |
    without_old_functions >&2
}

# rustc has a line, and an empty one, for each function that is not what it was when the profile was made. Their number
# says when it is time for a new one.
without_old_functions() {
  awk '/^warning: .*function control flow change detected/ { old++; blank = 1; next }
    blank && /^$/ { next }
    { blank = 0; print; fflush() }
    END { if (old) print old " functions have changed since calls were profiled (make profile)" }'
}

# Builds programs, each named as PACKAGE:BINARY. Those of a release are built one by one, so that each has what it asks of
# its dependencies and no more. All others are built at once: half of what they are made of would be compiled twice.
build() {
  local program wanted=()
  if [ "$profile" = release ]; then
    # The addresses in a program that can be loaded anywhere take half a megabyte otherwise.
    flags+=(-C link-arg=-Wl,-z,pack-relative-relocs)
    # Many functions are the same code for different types. Only the linker that Rust brings along for x86-64 knows that.
    [ "${triple%%-*}" != x86_64 ] || flags+=(-C link-arg=-Wl,--icf=all)
    if [ -f "$layout" ]; then
      flags+=(-C "profile-use=$layout")
      [ "$(settings)" = "$(cat "$profiled")" ] ||
        echo "releases are compiled otherwise than when calls were profiled, which is worth little now (make profile)" >&2
    else
      echo "there is no ${layout#"$root/"}: calls will take half as much time again (make profile)" >&2
    fi
  fi
  for program; do
    wanted+=(-p "${program%:*}" --bin "${program#*:}")
    if [ "$profile" = release ]; then
      compile "${wanted[@]}"
      wanted=()
    fi
  done
  [ ${#wanted[@]} -eq 0 ] || compile "${wanted[@]}"
}

image() { # image.sh for $1 with Containerfile $2 and the binaries that follow
  local context
  context=$(mktemp -d "$target/context.XXXXXX")
  cp "$2" "$context/Containerfile"
  # Whatever this machine lets others do with new files: another user runs them.
  install -m 755 "${@:3}" "$context"
  "$here/image.sh" "$1" "$context"
  rm -rf "$context"
}

mkdir -p "$target"
exec 9>"$target/.lock"
flock 9
