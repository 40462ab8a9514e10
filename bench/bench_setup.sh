# Sourced by the scripts of this folder: where things are, devices that go away at the end, cases.
# shellcheck shell=bash
set -euo pipefail

bench_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kvstream=${KVSTREAM:-$bench_root/build/release/launch/kvstream}
device=$bench_root/bench/throttled_device.sh
export BENCH_DEVICES_DIR=${BENCH_DEVICES_DIR:-${TMPDIR:-/tmp}/kvstream-bench}
devices_up=()

die() { echo "$(basename "$0"): $*" >&2; exit 2; }

# setup OUT_DIR: checks what is needed; devices that bring_up made go down however the script ends.
setup() {
  out=$1
  [ "$(id -u)" -eq 0 ] || die "needs root for its loop devices"
  [ -x "$kvstream" ] || die "no '$kvstream': build first (cmake --preset release && cmake --build build/release --target kvstream), or set KVSTREAM"
  mkdir -p "$out"
  : >"$out/cases.jsonl"
  trap take_down EXIT
  trap 'exit 130' INT TERM
}

bring_up() { # NAME MIB FS READ WRITE; the mount point in $mount_point
  "$device" down "$1" 2>/dev/null || true
  devices_up+=("$1")
  mount_point=$("$device" up "$@")
}

take_down() {
  local name
  for name in "${devices_up[@]}"; do "$device" down "$name" || true; done
  devices_up=()
}

# bench_step CASE FIGURES_JSON ARGUMENTS...: runs, keeps JSON and table, notes the case ($pairs is
# the caller's). The whole command stands in the JSON's `config`.
bench_step() {
  local name=$1 figures=$2 result=0
  shift 2
  echo "=== $name"
  timeout -k 10 1800 "$kvstream" bench step "$@" --json "$out/$name.json" >"$out/$name.txt" \
    </dev/null || result=$?
  cat "$out/$name.txt"
  [ "$result" -eq 0 ] || die "$name: kvstream ended with code $result"
  note_case "$name" "$name.json" "bench/$(basename "$0") --only $name --pairs $pairs" "$figures"
}

note_case() { # CASE JSON_FILE COMMAND FIGURES_JSON
  python3 - "$@" >>"$out/cases.jsonl" <<'PYTHON'
import json, sys
case, file, command, figures = sys.argv[1:]
print(json.dumps({"case": case, "json": file, "command": command, "figures": json.loads(figures)}))
PYTHON
}
