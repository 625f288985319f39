#!/usr/bin/env bash
# Compiles as rustc does, and denies what clippy has to say. `make test` gives it to cargo as RUSTC_WORKSPACE_WRAPPER, which
# leaves what others wrote to rustc itself. In bash, since other shells lose variables with a hyphen in their names, and
# cargo has some for the compiler.
exec clippy-driver "$@" -D warnings
