#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests with ctest.
#   tests/run.sh [--quick | --full] [--preset NAME] [--build-dir DIR] [--no-install] [-j N] [-- CTEST_ARGUMENTS]
# --quick (the default) takes minutes; --full sets KVSTREAM_TEST_FULL=1: longer randomised runs.
set -euo pipefail

usage() {
  sed -n '2,4s/^# \{0,1\}//p' "$0"
  echo
  echo "  --preset NAME    of CMakePresets.json (default release)"
  echo "  --build-dir DIR  default: build/NAME in the tree"
  echo "  --no-install     the packages are there; do not look"
  echo "  -j N             so many compilers and tests at once (default: the cores)"
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=release build_dir='' install=yes jobs=$(nproc) full=no ctest_arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) full=no ;;
    --full) full=yes ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --build-dir) build_dir=${2:?--build-dir needs a folder}; shift ;;
    --no-install) install=no ;;
    -j) jobs=${2:?-j needs a number}; shift ;;
    --) shift; ctest_arguments=("$@"); break ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
  shift
done
build_dir=${build_dir:-$root/build/$preset}
package_set=--full
case $preset in no-mpi | asan | tsan) package_set=--minimal ;; esac

stage_began=$SECONDS timings=()
stage_ended() { # NAME
  timings+=("$(printf '%-10s %5d s' "$1" $((SECONDS - stage_began)))")
  stage_began=$SECONDS
}
report() {
  echo "tests/run.sh, preset $preset: time of each stage"
  printf '  %s\n' "${timings[@]}"
}

cd "$root"
if [ "$install" = yes ]; then
  launch/packages.sh $package_set
  stage_ended install
fi

cmake --preset "$preset" -B "$build_dir"
stage_ended configure
cmake --build "$build_dir" --parallel "$jobs"
stage_ended build

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
[ "$full" = no ] || export KVSTREAM_TEST_FULL=1
# What a test leaves behind goes with this folder.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kvstream-tests.XXXXXX")
trap 'rm -rf -- "$scratch"' EXIT
export TMPDIR=$scratch

result=0
ctest --test-dir "$build_dir" --output-on-failure --no-tests=error --parallel "$jobs" \
  "${ctest_arguments[@]}" || result=$?
stage_ended tests
report
if [ "$result" -eq 0 ]; then echo "tests/run.sh: green"; else echo "tests/run.sh: RED"; fi
exit "$result"
