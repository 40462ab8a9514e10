#!/usr/bin/env bash
# The one list of Debian packages that KVStream is built from, and the check that they are there.
#   launch/packages.sh [--full | --minimal] [--with-bench] [--list | --check]
# Installs only what is missing, as root or with a sudo that asks for no password; else it prints
# the one line to run and ends with exit code 3.
set -euo pipefail

# Build tools and the libraries of src/ and launch/: enough for a `kvstream` without MPI.
minimal=(g++ cmake ninja-build pkg-config git ca-certificates
  libhwloc-dev libspdlog-dev libfmt-dev libgtest-dev libgmock-dev liburing-dev libcli11-dev
  libtomlplusplus-dev nlohmann-json3-dev libxxhash-dev libssl-dev libexpected-dev libabsl-dev
  libzstd-dev)
# mpi_tiers/ and bench/.
mpi=(openmpi-bin libopenmpi-dev libhdf5-openmpi-dev hdf5-tools libucx-dev libbenchmark-dev)
# Nice to have: a faster build, the metrics page, pictures, the style check. Their absence is said
# and stops nothing.
optional=(ccache mold prometheus-cpp-dev python3-matplotlib clang-format)
# What the scripts of bench/ compare with and set up.
bench=(fio xfsprogs e2fsprogs python3-venv)

usage() {
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  echo
  echo "  --full        everything (the default)"
  echo "  --minimal     what is needed without MPI, HDF5 and UCX"
  echo "  --with-bench  also what the scripts of bench/ need"
  echo "  --list        print the names and end"
  echo "  --check       install nothing; exit code 3 when something that is needed is missing"
}

set_name=full action=install with_bench=no
for argument in "$@"; do
  case $argument in
    --full) set_name=full ;;
    --minimal) set_name=minimal ;;
    --with-bench) with_bench=yes ;;
    --list) action=list ;;
    --check) action=check ;;
    -h | --help) usage; exit 0 ;;
    *) echo "packages.sh: unknown argument '$argument' (see --help)" >&2; exit 2 ;;
  esac
done

needed=("${minimal[@]}")
[ "$set_name" = minimal ] || needed+=("${mpi[@]}")
[ "$with_bench" = no ] || needed+=("${bench[@]}")

if [ "$action" = list ]; then
  printf '%s\n' "${needed[@]}" "${optional[@]}"
  exit 0
fi

if ! command -v dpkg-query >/dev/null; then
  echo "packages.sh: no dpkg-query here, so nothing is checked. On a system other than Debian or" >&2
  echo "  Ubuntu install what stands for: ${needed[*]}" >&2
  exit 0
fi

# Names out of "$@" that are not installed, one a line.
missing_of() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p') || true
  printf '%s\n' "$@" | grep -vxF -f <(printf '%s\n' "$installed") || true
}

mapfile -t missing < <(missing_of "${needed[@]}")
mapfile -t missing_optional < <(missing_of "${optional[@]}")
if [ ${#missing[@]} -eq 0 ] && [ ${#missing_optional[@]} -eq 0 ]; then
  echo "packages: all there"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo -n)
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then as_root=(none); fi
fi

if [ "$action" = check ] || [ "${as_root[0]:-}" = none ]; then
  if [ ${#missing[@]} -gt 0 ]; then
    echo "packages.sh: ${#missing[@]} packages are missing, and are not installed from here." >&2
    echo "Please run once, as root:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 3
  fi
  echo "packages: all that is needed is there (without ${missing_optional[*]}, which is optional)"
  exit 0
fi

echo "packages: installing ${missing[*]} ${missing_optional[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" "${missing_optional[@]}"; then
  # An optional name that this release lacks must not keep the needed ones away.
  [ ${#missing[@]} -eq 0 ] || "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
fi
mapfile -t missing < <(missing_of "${needed[@]}")
if [ ${#missing[@]} -gt 0 ]; then
  echo "packages.sh: could not install ${missing[*]} (see the lines above)" >&2
  exit 3
fi
