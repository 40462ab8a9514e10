#!/bin/bash
# run_ranks.sh RANKS TIMEOUT_S PROGRAM [ARGUMENTS...]: runs a test program under mpirun, and ends it
# when it takes too long. Variables that are set already stay as they are.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: run_ranks.sh RANKS TIMEOUT_S PROGRAM [ARGUMENTS...]" >&2
  exit 2
fi
ranks=$1 timeout_s=$2
shift 2

# More ranks than cores, perhaps as root, perhaps in a container; the tests are about our code.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=${OMPI_ALLOW_RUN_AS_ROOT:-1}
  export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-1}
fi
export OMPI_MCA_io=${OMPI_MCA_io:-romio321}
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
export HDF5_USE_FILE_LOCKING=${HDF5_USE_FILE_LOCKING:-FALSE}

exec timeout -k 5 "$timeout_s" \
  mpirun -n "$ranks" --oversubscribe --bind-to none "$@" </dev/null
