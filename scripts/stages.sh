#!/usr/bin/env bash
# Runs `make TARGET` for each TARGET, and says how many seconds each took: scripts/stages.sh TARGET...
# The first that fails ends it. Sourced, it only defines its functions.
# STAGES: a file to which each stage adds its line, "SECONDS NAME". Without it the stages end with a table of their own.
set -o errexit -o nounset -o pipefail

stage() { # stage NAME COMMAND...
  local name=$1 start=$SECONDS status=0
  printf '\n==> %s\n' "$name"
  # Not `"${@:2}" || status=$?`: on the left of ||, errexit would not hold inside a function.
  set +o errexit
  (
    set -o errexit
    "${@:2}"
  )
  status=$?
  set -o errexit
  [[ $status == 0 ]] || name="$name: failed with exit $status"
  printf '%6d %s\n' $((SECONDS - start)) "$name" | tee -a "$STAGES"
  return "$status"
}

show_stages() {
  printf '\nSeconds of each stage:\n'
  cat "$STAGES"
}

main() {
  if [[ -z ${STAGES:-} ]]; then
    STAGES=$(mktemp)
    export STAGES
    trap 'show_stages; rm -f "$STAGES"' EXIT
  fi
  local target
  for target in "$@"; do
    stage "make $target" make --no-print-directory "$target"
  done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
