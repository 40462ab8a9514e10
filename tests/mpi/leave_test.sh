#!/bin/bash
# leave_test.sh PROGRAM: ranks leave MPI in time, also when one of them is gone.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1
fail() { echo "FAILED: $1" >&2; printf '%s\n' "$output" >&2; exit 1; }
count() { grep -c "$1" <<<"$output" || true; }

output=$("$here/run_ranks.sh" 3 30 "$program" 2>&1) || fail "an ordinary run returned $?"
[ "$(count 'left finalized')" = 3 ] || fail "all three ranks finalize"

# Recovery lets the others live; mpirun's own answer says nothing then.
export OMPI_MCA_orte_enable_recovery=1
for dead in 0 1; do
  began=$SECONDS
  output=$("$here/run_ranks.sh" 3 30 "$program" "$dead:die" 2>&1) || true
  [ "$(count 'left without finalize')" = 2 ] || fail "without rank $dead two ranks leave"
  [ $((SECONDS - began)) -lt 20 ] || fail "without rank $dead the run ends in time"
done
echo "leaving works with all ranks, without rank 0, without rank 1"
