# Sourced by mpirun.sh and srun.sh: the variables that Open MPI 4, HDF5 and the pfs tier need. What
# the user has set stays; what is set here is printed, once, to stderr.

set_unless_set() { # NAME VALUE WHY
  if [ -n "${!1+set}" ]; then
    echo "launch: $1=${!1} (yours, kept)" >&2
  else
    export "$1=$2"
    echo "launch: $1=$2 ($3)" >&2
  fi
}

set_unless_set OMPI_MCA_io romio321 "Open MPI's other MPI-IO can hang and lose data in version 4"
set_unless_set HDF5_USE_FILE_LOCKING FALSE "many parallel file systems have no locks"
set_unless_set OMPI_MCA_hwloc_base_binding_policy none "the engine places its own threads"
if [ "$(id -u)" = 0 ]; then
  set_unless_set OMPI_ALLOW_RUN_AS_ROOT 1 "you are root"
  set_unless_set OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1 "you are root"
fi
# MPI carries no blocks between ranks, so that nothing is lost; containers forbid the other way.
set_unless_set OMPI_MCA_btl_vader_single_copy_mechanism none "often forbidden in containers"
