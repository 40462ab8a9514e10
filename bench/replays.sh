#!/usr/bin/env bash
# Do whole replays of real traces stay right, for every policy, while the readers are really busy?
#   bench/replays.sh TRACE_DIR [--out DIR] [--only NAME,...] [--pairs N]
# TRACE_DIR holds Mooncake's conversation_trace.jsonl and synthetic_trace.jsonl. On 4 ranks, one
# setting for all policies: batch 8, nvme and pfs behind the smooth `throttled` wrapper (500/400 and
# 250/200 MB/s) over unthrottled loop devices, caps of 3.5 GiB in all, 400,000 prefill and 60,000
# decode tokens/s a rank. Replays: conversation-warm (9000+300), conversation-cold (the first 300),
# synthetic-warm (3000+300). Needs root and 5 GiB of memory; about 3 minutes a replay and pair.
source "$(dirname "${BASH_SOURCE[0]}")/bench_setup.sh"

traces='' out_dir=$bench_root/build/bench/replays only='' pairs=1
while [ $# -gt 0 ]; do
  case $1 in
    --out) out_dir=${2:?}; shift ;;
    --only) only=${2:?}; shift ;;
    --pairs) pairs=${2:?}; shift ;;
    -*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) traces=$1 ;;
  esac
  shift
done
[ -d "$traces" ] || die "needs the folder of the Mooncake traces as its argument"
setup "$out_dir"

replay() { # NAME TRACE ARGUMENTS...
  local name=$1 trace=$traces/$2 result=0
  shift 2
  [ -z "$only" ] || [[ ",$only," == *",$name,"* ]] || return 0
  bring_up kvnvme 1900 ext4 0 0; nvme=$mount_point/kv
  bring_up kvpfs 1900 xfs 0 0; pfs=$mount_point/kv
  echo "=== $name"
  timeout -k 10 1800 "$bench_root/launch/mpirun.sh" -n 4 "$kvstream" replay \
    "$trace" "$@" --tier "nvme=nvme:$nvme,cap=1750MiB,read=500MB/s,write=400MB/s" \
    --tier "pfs=pfs:$pfs,cap=1750MiB,read=250MB/s,write=200MB/s" --batch 8 \
    --prefill-tokens-per-s 400000 --decode-tokens-per-s 60000 --pairs "$pairs" \
    --policy serial,pooled,static,shortest-queue,completion --log warn --progress never \
    --json "$out/$name.json" </dev/null >"$out/$name.txt" 2>"$out/$name.err" || result=$?
  cat "$out/$name.txt"
  [ "$result" -eq 0 ] || { tail -5 "$out/$name.err" >&2; die "$name ended with code $result"; }
  take_down
}

replay conversation-warm conversation_trace.jsonl --skip 9000 --requests 300 --prefill-store
replay conversation-cold conversation_trace.jsonl --requests 300
replay synthetic-warm synthetic_trace.jsonl --skip 3000 --requests 300 --prefill-store

python3 - "$out" <<'PYTHON'
import glob, json, os, sys
print("\n| replay | policy | wrong bytes | accounts closed | readers busy | blocks hit | step read, mean |")
print("|---|---|---|---|---|---|---|")
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
    for run in json.load(open(path))["runs"]:
        read = run["step_read_s"]["mean"]
        print("| {} | {} | {} | {} | {:.2f} | {:.1%} | {} |".format(
            os.path.basename(path)[:-5], run["side"], run["checks"]["wrong_bytes"],
            "yes" if run["checks"]["accounts_closed"] else "NO", run["read_busy_share"],
            run["blocks"]["hit_ratio"], "-" if read is None else f"{read * 1e3:.1f} ms"))
PYTHON
