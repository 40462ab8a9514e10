#!/usr/bin/env bash
# mpirun with the variables that these versions need; all arguments are mpirun's.
#   launch/mpirun.sh -n 4 kvstream replay TRACE ...
# Outside of Slurm more ranks than cores are fine. Inside an allocation mpirun takes its nodes from it.
# When a rank dies mpirun ends all of them. Ctrl-C or TERM goes to the ranks as USR1, so that they end
# in order, report what was played, and leave 130; a second one ends them at once. (mpirun by itself
# kills its ranks a second after such a signal, and leaves 1.)
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  '') sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
command -v mpirun >/dev/null || {
  echo "mpirun.sh: no mpirun in PATH (Debian: openmpi-bin; on a cluster: module load openmpi)" >&2
  exit 127
}
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
if [ -z "${SLURM_JOB_ID:-}" ]; then
  set_unless_set OMPI_MCA_rmaps_base_oversubscribe 1 "more ranks than cores on one machine"
  set_unless_set OMPI_MCA_mpi_yield_when_idle 1 "ranks share cores"
fi

# In a session of its own, or the terminal's Ctrl-C would reach mpirun past us; and not longer alive
# than this script, however that ends.
alone=()
command -v setpriv >/dev/null && alone+=(setpriv --pdeathsig TERM)
command -v setsid >/dev/null && alone+=(setsid)
asked=0
pass_on() {
  asked=$((asked + 1))
  if [ "$asked" -eq 1 ]; then kill -USR1 "$child"; else kill -TERM "$child"; fi 2>/dev/null || true
}
# Without a terminal: mpirun stops when a background job's terminal is read.
"${alone[@]}" mpirun "$@" </dev/null &
child=$!
trap pass_on INT TERM
# wait also returns when a signal has come; the last one gives the exit code of mpirun.
while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
result=0
wait "$child" || result=$?
exit "$result"
