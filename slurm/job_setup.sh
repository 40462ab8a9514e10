# Sourced by the batch scripts: finds the tree, the program and two folders, and removes the folders
# that it made. The scripts are submitted from the root of a tree that was built.

root=${SLURM_SUBMIT_DIR:-$PWD}
die() { echo "$0: $*" >&2; exit 1; }
[ -x "$root/launch/mpirun.sh" ] || die "submit from the root of the tree: '$root' has no launch/"

# KVSTREAM names another program; else the build of the preset `release`, else what is in PATH.
kvstream=${KVSTREAM:-$root/build/release/launch/kvstream}
[ -x "$kvstream" ] || kvstream=$(command -v kvstream) ||
  die "no '$root/build/release/launch/kvstream': build it first (cmake --preset release)"

# Folders that the user names are kept: the next run starts warm from them.
job_word=${SLURM_JOB_ID:-$$}
made_nvme='' made_pfs=''
if [ -z "${NVME_DIR:-}" ]; then
  NVME_DIR=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/kvstream-$job_word/nvme
  made_nvme=$(dirname "$NVME_DIR")
fi
if [ -z "${PFS_DIR:-}" ]; then
  PFS_DIR=$root/kvstream-$job_word/pfs
  made_pfs=$(dirname "$PFS_DIR")
fi
case $NVME_DIR$PFS_DIR in *,*) die "a tier's path cannot hold a comma: NVME_DIR, PFS_DIR" ;; esac

# Node-local folders are on every node of the job.
remove_made_folders() {
  if [ -n "$made_nvme" ]; then
    srun --ntasks-per-node=1 --ntasks="${SLURM_NNODES:-1}" --overlap --mpi=none \
      rm -rf -- "$made_nvme" </dev/null || echo "$0: '$made_nvme' may be left on some node" >&2
  fi
  [ -z "$made_pfs" ] || rm -rf -- "$made_pfs"
}
trap remove_made_folders EXIT
trap 'exit 143' TERM

echo "job $job_word: $kvstream, nvme tier in $NVME_DIR, pfs tier in $PFS_DIR"
