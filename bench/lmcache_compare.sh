#!/usr/bin/env bash
# Are our stand-ins for today's caches, `serial` and `pooled`, as fast as the real one? LMCache's own
# file adapter in LMCache's own benchmark, and our policies, in turn on the same held device.
#   bench/lmcache_compare.sh [--out DIR] [--pairs N] [--venv DIR]
# Bar: within 10 % of each other. Needs root, python3-venv, 7 GB for the venv (made in a temporary
# folder and removed; --venv keeps it for the next time) and network for pip; about 5 minutes more.
# Rows in DIR/rows.jsonl, the table in DIR/table.md.
source "$(dirname "${BASH_SOURCE[0]}")/bench_setup.sh"

lmcache_version=0.5.6
out_dir=$bench_root/build/bench/lmcache pairs=7 venv=''
while [ $# -gt 0 ]; do
  case $1 in
    --out) out_dir=${2:?}; shift ;;
    --pairs) pairs=${2:?}; shift ;;
    --venv) venv=${2:?}; shift ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
setup "$out_dir"

own_venv=''
if [ -z "$venv" ]; then
  own_venv=$(mktemp -d "${TMPDIR:-/tmp}/kvstream-lmcache.XXXXXX")
  venv=$own_venv/venv
  trap 'take_down; rm -rf -- "$own_venv"' EXIT
fi
if [ ! -x "$venv/bin/lmcache" ]; then
  echo "=== venv with LMCache $lmcache_version"
  /usr/bin/python3 -m venv "$venv"
  timeout 1800 "$venv/bin/pip" install -q "lmcache==$lmcache_version" </dev/null
fi

# A round is 2 batches of 512 keys of 1 MiB; so is a step of ours: 2 requests of 512 blocks. (The
# kernel's free credit after an idle gap is 5 % of that.)
keys=512 step_mib=1024
bring_up kvlm 6000 ext4 500000000 400000000
store=$mount_point/lmcache
adapter="{\"type\":\"fs_native\",\"base_path\":\"$store\",\"num_workers\":4,\"use_odirect\":true}"
rates=() runs=()
for ((pair = 0; pair < pairs; pair++)); do
  # Keys that are there already are not written again, which would make the tool report nonsense.
  rm -rf -- "$store"
  mkdir -p "$store"
  timeout -k 10 600 "$venv/bin/lmcache" bench l2 --num-keys $keys --in-flight 2 --data-size-kb 1024 \
    --l1-align-bytes 4096 --rounds 2 --warmup-rounds 1 --lookup-max-hit-rate 1.0 --no-skip-verify \
    --format json --output "$out/lmcache.$pair.json" --l2-adapter "$adapter" </dev/null \
    >"$out/lmcache.txt" 2>&1 || die "LMCache's benchmark failed, see $out/lmcache.txt"
  rates+=("$(python3 - "$out/lmcache.$pair.json" <<'PYTHON'
import json, sys
sections = json.load(open(sys.argv[1]))["metrics"].values()
load = next(s for s in sections if s.get("operation") == "Load")
assert load["total_success"] == load["total_keys"], "LMCache lost keys"
print(load["throughput_avg_mbps"] * 1048576)  # it prints MB and counts MiB
PYTHON
  )")
  rm -rf -- "$store"
  timeout -k 10 600 "$kvstream" bench step --tier "nvme=nvme:$mount_point/kv,cap=2300MiB" --block 1MiB \
    --step ${step_mib}MiB --requests 2 --steps 2 --policy serial,pooled --pairs 1 --calibrate off \
    --json "$out/ours.$pair.json" </dev/null >"$out/ours.txt" || die "see $out/ours.txt"
  runs+=("$out/ours.$pair.json")
  echo "pair $pair: LMCache ${rates[-1]} bytes/s"
done
take_down
python3 - "$out/ours.json" "${runs[@]}" <<'PYTHON'
import json, sys
reports = [json.load(open(path)) for path in sys.argv[2:]]
json.dump({"runs": [run for report in reports for run in report.get("runs", [report])]},
          open(sys.argv[1], "w"))
PYTHON
list=$(IFS=,; echo "${rates[*]}")
figure() {
  echo "{\"figure\": \"rate\", \"name\": \"$1 / LMCache fs_native\", \"side\": \"$1\", \"bar\": 0.9,
    \"bar_max\": 1.1, \"step_bytes\": $((step_mib << 20)), \"against_bytes_per_s\": [$list]}"
}
note_case "lmcache-$lmcache_version" ours.json "bench/lmcache_compare.sh --pairs $pairs" \
  "[$(figure serial), $(figure pooled)]"
"$bench_root/bench/figures.py" "$out"
