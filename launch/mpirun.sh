#!/usr/bin/env bash
# mpirun with the variables that these versions need; all arguments are mpirun's.
#   launch/mpirun.sh -n 4 kvstream replay TRACE ...
# Outside of Slurm more ranks than cores are fine. Inside an allocation mpirun takes its nodes from it.
# When a rank dies mpirun ends all of them.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
  '') sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
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
# Without a terminal of its own: mpirun stops when a background job's terminal is read.
exec mpirun "$@" </dev/null
