#!/usr/bin/env bash
# Runs `make TARGET` for each TARGET, and says how many seconds each took: scripts/stages.sh TARGET...
# +TARGET begins one beside those that follow, at the lowest priority; TARGET itself then waits for it, and prints what it
# has printed. A TARGET that tests only a part of the tree is left out while that is unchanged (tests/tools/rotation.py).
# The first that fails ends all. Sourced, it only defines its functions.
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
  add_line $((SECONDS - start)) "$name"
  return "$status"
}

add_line() { # add_line SECONDS NAME
  printf '%6s %s\n' "$1" "$2" | tee -a "$STAGES"
}

show_stages() {
  printf '\nSeconds of each stage:\n'
  cat "$STAGES"
}

# Files of what runs beside: TARGET.pid, TARGET.log, and at its end TARGET.status, its seconds and its exit status.
BESIDE=

begin() { # begin TARGET: in a process group of its own, so that all of it can be ended
  local target=$1 file=$BESIDE/$1
  set -o monitor
  {
    local start=$SECONDS status=0
    nice -n 19 make --no-print-directory "$target" || status=$?
    echo "$((SECONDS - start)) $status" >"$file.status"
  } >"$file.log" 2>&1 &
  echo $! >"$file.pid"
  set +o monitor
}

finish() { # finish TARGET: its output, its exit status, and a line with the seconds that it took itself
  local target=$1 file=$BESIDE/$1 seconds='?' status=1
  while kill -0 "$(<"$file.pid")" 2>/dev/null; do sleep 0.2; done
  cat "$file.log"
  if [[ -f $file.status ]]; then read -r seconds status <"$file.status"; fi
  add_line "($seconds)" "make $target, beside others"
  return "$status"
}

end_beside() {
  local file
  for file in "$BESIDE"/*.pid; do
    if [[ -f $file ]]; then kill -- "-$(<"$file")" 2>/dev/null || true; fi
  done
  rm -rf "$BESIDE"
}

main() {
  BESIDE=$(mktemp -d)
  trap end_beside EXIT
  if [[ -z ${STAGES:-} ]]; then
    STAGES=$(mktemp)
    export STAGES
    trap 'end_beside; show_stages; rm -f "$STAGES"' EXIT
  fi
  local word target turn file
  for word in "$@"; do
    target=${word#+}
    turn=$(.venv/bin/python -m tests.tools.rotation "${target%-setup}")
    if [[ -f $BESIDE/$target.pid ]]; then
      stage "wait for make $target" finish "$target"
      rm "$BESIDE/$target.pid"
    elif [[ $turn == "left out"* ]]; then
      # Of a target that would begin beside others there are two words.
      if [[ $word == "$target" ]]; then add_line - "make $target: $turn"; fi
    else
      if [[ -n $turn ]]; then printf '\nmake %s %s\n' "$target" "$turn"; fi
      if [[ $word == "$target" ]]; then
        stage "make $target" make --no-print-directory "$target"
      else
        printf '\n==> make %s begins beside what follows\n' "$target"
        begin "$target"
      fi
    fi
  done
  for file in "$BESIDE"/*.pid; do
    if [[ -f $file ]]; then stage "wait for the rest" finish "$(basename "$file" .pid)"; fi
  done
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
