#!/usr/bin/env bash
# How near do the read policies come to the bound, on two devices of known speed?
#   bench/tiers_performance.sh [--out DIR] [--pairs N] [--only CASE,...]
# Cases: kernel, kernel-nominal-off (devices held by the kernel), smooth, smooth-nominal-off,
# slow-500MB, slow-2GB, latency-4, latency-16, latency-64 (`throttled` wrapper over the same loop
# devices, not held). Needs root, 6 GiB of memory for the images, and a quiet machine; about
# 25 minutes with 7 pairs. Rows in DIR/rows.jsonl, the table in DIR/table.md.
source "$(dirname "${BASH_SOURCE[0]}")/bench_setup.sh"

out_dir=$bench_root/build/bench/tiers pairs=7 only=''
while [ $# -gt 0 ]; do
  case $1 in
    --out) out_dir=${2:?}; shift ;;
    --pairs) pairs=${2:?}; shift ;;
    --only) only=${2:?}; shift ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
setup "$out_dir"

wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }
image_mib=2900 cap=2600MiB
policies=serial,pooled,static,shortest-queue,completion
smooth_nvme=read=500MB/s,write=400MB/s smooth_pfs=read=250MB/s,write=200MB/s

# completion against the bound, its share of the ceiling over serial, and the other policies.
policy_figures() { # BAR_OVER_STATIC
  cat <<JSON
[{"figure": "efficiency", "side": "completion", "bar": 0.95},
 {"figure": "share_of_ceiling", "side": "completion", "rival": "serial", "bar": 0.95},
 {"figure": "ratio", "side": "completion", "rival": "serial"},
 {"figure": "ratio", "side": "completion", "rival": "pooled", "bar": 0.98},
 {"figure": "ratio", "side": "completion", "rival": "static", "bar": $1},
 {"figure": "ratio", "side": "completion", "rival": "shortest-queue", "bar": 0.98}]
JSON
}
alone='policy=completion use-tiers=nvme'

both_up() { # NVME_READ NVME_WRITE PFS_READ PFS_WRITE
  bring_up kvnvme $image_mib ext4 "$1" "$2"; nvme=$mount_point/kv
  bring_up kvpfs $image_mib xfs "$3" "$4"; pfs=$mount_point/kv
}

if wanted kernel || wanted kernel-nominal-off; then
  both_up 500000000 400000000 250000000 200000000
  tiers=(--tier "nvme=nvme:$nvme,cap=$cap" --tier "pfs=pfs:$pfs,cap=$cap")
  if wanted kernel; then
    bench_step kernel "$(policy_figures 0.98)" "${tiers[@]}" --block 1MiB --step 2GB \
      --policy $policies --nominal nvme=500MB/s,pfs=250MB/s --pairs "$pairs"
  fi
  if wanted kernel-nominal-off; then
    bench_step kernel-nominal-off \
      '[{"figure": "ratio", "side": "completion", "rival": "static", "bar": 1.1}]' \
      "${tiers[@]}" --block 1MiB --step 2GB --policy static,completion \
      --nominal nvme=250MB/s,pfs=250MB/s --pairs "$pairs"
  fi
  take_down
fi

both_up 0 0 0 0
tiers=(--tier "nvme=nvme:$nvme,cap=$cap,$smooth_nvme" --tier "pfs=pfs:$pfs,cap=$cap,$smooth_pfs")
if wanted smooth; then
  bench_step smooth "$(policy_figures 0.98)" "${tiers[@]}" --block 1MiB --step 500MB \
    --policy $policies --pairs "$pairs"
fi
if wanted smooth-nominal-off; then
  bench_step smooth-nominal-off \
    '[{"figure": "ratio", "side": "completion", "rival": "static", "bar": 1.1}]' \
    "${tiers[@]}" --block 1MiB --step 500MB --policy static,completion \
    --nominal nvme=250MB/s,pfs=250MB/s --pairs "$pairs"
fi
# The PFS falls to a tenth in mid-run: at 0.3 s of a step that both would end in 0.7 s (2 GB: 1.2 s).
for size_at in 500MB@0.3 2GB@1.2; do
  size=${size_at%@*} at=${size_at#*@}
  wanted "slow-$size" || continue
  bench_step "slow-$size" "[{\"figure\": \"ratio\", \"side\": \"completion\", \"rival\": \"$alone\", \"bar\": 0.8333},
    {\"figure\": \"ratio\", \"side\": \"completion\", \"rival\": \"static\"}]" \
    "${tiers[@]}" --block 1MiB --step "$size" --slow "pfs@$at=1/10" --pairs "$pairs" \
    --side "$alone" --side static --side completion
done
# NVMe beside a PFS of 32 ms: small steps must not wait for it.
for blocks in 4 16 64; do
  wanted "latency-$blocks" || continue
  requests=$((blocks < 8 ? blocks : 8))
  bench_step "latency-$blocks" "[{\"figure\": \"ratio\", \"side\": \"completion\", \"rival\": \"$alone\", \"bar\": 0.9524}]" \
    --tier "nvme=nvme:$nvme,cap=$cap,$smooth_nvme" \
    --tier "pfs=pfs:$pfs,cap=$cap,$smooth_pfs,latency=32ms" --block 1MiB --step "${blocks}MiB" \
    --requests $requests --steps 20 --side "$alone" --side completion --pairs "$pairs"
done
take_down

"$bench_root/bench/figures.py" "$out"
