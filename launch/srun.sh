#!/usr/bin/env bash
# srun with the variables that these versions need; all arguments are srun's.
#   launch/srun.sh -N 2 -n 4 kvstream replay TRACE ...
# Adds --mpi=pmix unless --mpi is given: without it each task would be an MPI world of its own.
# Under --mpi=pmix a rank that dies ends the whole step. To let the others live, leave MPI out; ranks
# then find each other through files on the parallel file system, and write its plain format:
#   launch/srun.sh --mpi=none --kill-on-bad-exit=0 -n 4 kvstream replay --bootstrap file:DIR ...
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  '') sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
command -v srun >/dev/null || {
  echo "srun.sh: no srun in PATH: this machine has no Slurm; use launch/mpirun.sh" >&2
  exit 127
}
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
mpi=()
if [ -z "${SLURM_MPI_TYPE:-}" ]; then
  mpi=(--mpi=pmix)
  for argument in "$@"; do
    case $argument in --mpi | --mpi=*) mpi=() ;; esac
  done
fi
if [ ${#mpi[@]} -gt 0 ]; then
  if ! srun --mpi=list 2>&1 | grep -qw pmix; then
    echo "srun.sh: this Slurm has no pmix plugin (srun --mpi=list): use launch/mpirun.sh inside" \
      "the allocation, or give the --mpi=... that your MPI was built for" >&2
    exit 1
  fi
  echo "launch: srun ${mpi[*]}" >&2
fi
exec srun "${mpi[@]}" "$@" </dev/null
