# shellcheck shell=bash
# The parts of a long test run, each with a budget: tools/test sources this. `step` runs a part and goes on after a
# failure; `tell_parts` says at the end how long each took and what failed. A part that would end after
# $MOTLEY_TEST_MINUTES by the pace until then is left out.
failed=()
parts=()  # one line for each part: the seconds it took, and its budget
most_s=$((${MOTLEY_TEST_MINUTES:-75} * 60))
budgets_s=0 steps_s=0  # of the parts until now: their budgets, and what they took
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

what_failed() {  # what_failed LOG: each test that failed with the last lines it printed, or the log's last lines
  awk '
    /^ *(Start +[0-9]+:|[0-9]+\/[0-9]+ +Test +#|[0-9]+% tests passed)/ { show(); failed = /\*\*\*/ && !/Skipped/ }
    failed { lines[++count] = $0 }
    function show(   i) {
      if (count) print lines[1]
      for (i = count > 40 ? count - 38 : 2; i <= count; ++i) print lines[i]
      shown += count; count = 0
    }
    END { show(); exit !shown }' "$1" || tail -n 40 "$1"
}

seconds_now() { echo "$SECONDS"; }

# Whether a part of this budget would end too late, if this machine goes on at the pace of the parts until now.
is_too_late() {
  local paced=$(($1 * (steps_s > budgets_s ? steps_s : budgets_s) / (budgets_s > 0 ? budgets_s : 1)))
  [ $budgets_s -gt 0 ] && [ $(($(seconds_now) + paced)) -gt "$most_s" ]
}

step() {  # step NAME BUDGET COMMAND...: runs the command, prints how long it took, continues after a failure
  local name="$1" budget="$2" begin took
  begin=$(seconds_now)
  shift 2
  if is_too_late "$budget"; then
    echo "== $name: LEFT OUT, as it would end after $((most_s / 60)) min: this machine is slow or busy"
    parts+=("$(printf '%-46s  left out of %5d s' "$name" "$budget")")
    return
  fi
  echo "== $name"
  local verdict=ok
  "$@" 2>&1 | tee "$logs/$name" || verdict=FAILED
  took=$(($(seconds_now) - begin))
  echo "== $name: $verdict, $took s"
  [ $verdict = ok ] || failed+=("$name")
  parts+=("$(printf '%-46s %6d s of %5d s' "$name" $took "$budget")")
  budgets_s=$((budgets_s + budget))
  steps_s=$((steps_s + took))
}

tell_parts() {  # tell_parts NAME: exits 1 if any part failed
  printf '== the budget (tests/README.md): %s\n' "${parts[@]}"
  if [ ${#failed[@]} -gt 0 ]; then
    for name in "${failed[@]}"; do
      echo "== what failed in $name"
      what_failed "$logs/$name"
    done
    printf '%s: failed after %s s: %s\n' "$1" "$(seconds_now)" "$(IFS=,; echo "${failed[*]}")"
    exit 1
  fi
  echo "$1: all passed, $(seconds_now) s"
}
