#!/usr/bin/env bash
# Does LMCache work on KVStream? LMCache's own `lmcache bench l2` through its `native_plugin` adapter
# and python/kvstream/lmcache.py, over a host and an nvme tier: everything that was stored is found
# and loaded, its bytes are verified, also from the drive alone and after a restart.
#   bench/lmcache_native.sh [--dir DIR] [--venv DIR]
# --dir: where the nvme tier lies (default: a temporary folder); what is made there is removed.
# A smoke test: 512 blocks of 1 MiB, one run. Its rates, printed beside those of LMCache's fs_native
# in the same folder, are no figures to quote. Exit code 0: all held; 1: something was off. Needs
# python3-venv, 7 GB for the venv (temporary too, unless --venv keeps it) and network for pip.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
library=${KVSTREAM_LIBRARY:-$root/build/release/src/client/libkvstream.so}
lmcache_version=0.5.6
base_dir=${TMPDIR:-/tmp} venv=''
die() { echo "lmcache_native.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --dir) base_dir=${2:?}; shift ;;
    --venv) venv=${2:?}; shift ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
[ -f "$library" ] || die "no '$library': build first (cmake --preset release && cmake --build build/release --target kvstream_c)"
unset KVSTREAM_LIBRARY # the engine reads KVSTREAM_ names as settings

scratch=$(mktemp -d "${TMPDIR:-/tmp}/kvstream-lmcache.XXXXXX")
trap 'rm -rf -- "$scratch"' EXIT
mkdir -p "$base_dir"
store=$(mktemp -d "$base_dir/kvstream-lmcache-store.XXXXXX")
trap 'rm -rf -- "$scratch" "$store"' EXIT
venv=${venv:-$scratch/venv}
if [ ! -x "$venv/bin/lmcache" ]; then
  echo "=== venv with LMCache $lmcache_version"
  /usr/bin/python3 -m venv "$venv"
  timeout 1800 "$venv/bin/pip" install -q "lmcache==$lmcache_version" </dev/null
fi
PYTHONPATH=$root/python timeout 60 "$venv/bin/python" -c \
  "import sys, kvstream.capi as c; c.Engine(['host=host,cap=4MiB'], ['pool=8MiB'], library=sys.argv[1]).close()" \
  "$library" || die "the venv's Python cannot open the library (a libstdc++ of its own, older than the system's?)"

plugin() { # STATS_FILE TIER...; the adapter's JSON
  python3 - "$library" "$@" <<'PYTHON'
import json, sys
library, stats, *tiers = sys.argv[1:]
params = {"block_bytes": 1 << 20, "tiers": tiers, "settings": ["pool=640MiB"], "library": library,
          "stats_file": stats}
print(json.dumps({"type": "native_plugin", "module_path": "kvstream.lmcache",
                  "class_name": "Connector", "adapter_params": params}))
PYTHON
}

bench() { # NAME ADAPTER ARGUMENTS...
  local name=$1 adapter=$2
  shift 2
  echo "=== $name"
  PYTHONPATH=$root/python timeout -k 10 600 "$venv/bin/lmcache" bench l2 --num-keys 64 \
    --in-flight 2 --data-size-kb 1024 --l1-align-bytes 4096 --rounds 3 --warmup-rounds 1 \
    --lookup-max-hit-rate 1.0 --no-skip-verify --format json --output "$scratch/$name.json" \
    --l2-adapter "$adapter" "$@" </dev/null >"$scratch/$name.txt" 2>&1 || {
    cat "$scratch/$name.txt"
    echo "lmcache_native.sh: $name: LMCache's benchmark failed" >&2
    exit 1
  }
}

host=host=host,cap=256MiB nvme=nvme0=nvme:$store/both,cap=2GiB
bench both "$(plugin "$scratch/both.stats" "$host" "$nvme")"
bench restart "$(plugin "$scratch/restart.stats" "$host" "$nvme")" --only load
bench drive "$(plugin "$scratch/drive.stats" "nvme0=nvme:$store/drive,cap=2GiB")"
mkdir "$store/fs_native"
bench fs_native "{\"type\":\"fs_native\",\"base_path\":\"$store/fs_native\",\"num_workers\":4,\"use_odirect\":true}"

python3 - "$scratch" <<'PYTHON'
import json, pathlib, sys

scratch, wrong, rates = pathlib.Path(sys.argv[1]), [], {}
for name in ("both", "restart", "drive", "fs_native"):
    text = (scratch / f"{name}.txt").read_text()
    if name != "restart" and "keys data verified OK" not in text:
        wrong.append(f"{name}: the bytes were not verified")
    sections = json.loads((scratch / f"{name}.json").read_text())["metrics"].values()
    for section in (s for s in sections if "operation" in s):
        operation, asked, good = (section[k] for k in ("operation", "total_keys", "total_success"))
        if good != asked or section["rounds_timed_out"]:
            wrong.append(f"{name}: {operation} of {asked} keys: {good} succeeded")
        rates[name, operation] = section["throughput_avg_mbps"]
        print(f"{name:10} {operation:7} {good:4} of {asked} keys, "
              f"{section['throughput_avg_mbps']:8.0f} MiB/s")
for name in ("both", "restart", "drive"):
    stats = json.loads((scratch / f"{name}.stats").read_text())
    tiers = {tier["name"]: tier for tier in stats["tiers"]}
    print(f"{name:10} blocks served: " + ", ".join(f"{t} {tiers[t]['hits']}" for t in tiers))
    bad = {key: stats[key] for key in ("misses", "late", "dropped") if stats[key]}
    bad |= {f"{key} of {t}": tiers[t][key] for t in tiers
            for key in ("corrupt", "read_errors", "write_errors") if tiers[t][key]}
    if bad:
        wrong.append(f"{name}: {bad}")
    if any(tiers[t]["hits"] == 0 for t in tiers if (name, t) != ("restart", "host")):
        wrong.append(f"{name}: a tier served nothing")
for operation in ("Store", "Load"):
    print(f"{operation}: drive / fs_native = "
          f"{rates['drive', operation] / rates['fs_native', operation]:.2f}, both / fs_native = "
          f"{rates['both', operation] / rates['fs_native', operation]:.2f}")
for line in wrong:
    print(f"WRONG: {line}")
print("lmcache_native.sh: " + ("RED" if wrong else "green"))
sys.exit(1 if wrong else 0)
PYTHON
