#!/usr/bin/env bash
# Runs the examples in doc comments as rustdoc does, and leaves a script in LONGSHORE_PAGES that makes the library's pages
# and denies what rustdoc has to say of them. `make test` gives it to cargo as RUSTDOC: `cargo doc` would look at all that
# the workspace depends on anew, while what cargo says for the examples names what is compiled already.
set -euo pipefail

flags=() examples='' library=
for ((i = 1; i <= $#; i++)); do
  case ${!i} in
    --test) examples=yes ;;
    --test-run-directory) ((i += 1)) ;;
    --crate-name) ((i += 1)) && library=${!i} && flags+=(--crate-name "$library") ;;
    *) flags+=("${!i}") ;;
  esac
done

# Who reads these pages works on the code: they have what is private too.
if [ -n "$examples" ]; then
  {
    export -p
    printf 'exec rustdoc'
    printf ' %q' "${flags[@]}" --document-private-items -D warnings \
      -A rustdoc::private_intra_doc_links --out-dir "$LONGSHORE_PAGES/$library"
  } >"$LONGSHORE_PAGES/$library.sh"
fi
exec rustdoc "$@"
