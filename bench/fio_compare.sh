#!/usr/bin/env bash
# Does one tier alone read as fast as fio on the same device (same sizes, depth 32, O_DIRECT)?
#   bench/fio_compare.sh [--out DIR] [--pairs N] [--read BYTES_PER_S]
# Bars: nvme >= 95 % of fio, pfs (HDF5 and MPI-IO) >= 90 %. The device is a loop device that the kernel
# holds to 500 MB/s; --read 0 lifts that (then the processor is the limit). Needs root and fio; about
# 5 minutes. Rows in DIR/rows.jsonl, the table in DIR/table.md.
source "$(dirname "${BASH_SOURCE[0]}")/bench_setup.sh"

out_dir=$bench_root/build/bench/fio pairs=7 read_rate=500000000
while [ $# -gt 0 ]; do
  case $1 in
    --out) out_dir=${2:?}; shift ;;
    --pairs) pairs=${2:?}; shift ;;
    --read) read_rate=${2:?}; shift ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
setup "$out_dir"
command -v fio >/dev/null || die "fio is missing (launch/packages.sh --with-bench)"

step_mib=1024
fio_rate() { # FILE; bytes/s on stdout
  timeout -k 10 120 fio --name=read --filename="$1" --rw=randread --bs="$2" --size=${step_mib}m \
    --iodepth=32 --ioengine=io_uring --direct=1 --randseed="$3" --output-format=json </dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["read"]["bw_bytes"])'
}

for kind in nvme pfs; do
  bar=0.95
  [ $kind = nvme ] || bar=0.90
  bring_up kvfio 3000 ext4 "$read_rate" 0
  file=$mount_point/fio.data tier=$kind=$kind:$mount_point/kv,cap=1400MiB
  # Written, not only allocated: extents that were never written read as zeros at memory speed.
  timeout 120 dd if=/dev/urandom of="$file" bs=4M count=$((step_mib / 4)) oflag=direct status=none
  for block in 256KiB 1MiB 8MiB; do
    name=$kind-$block runs=() rates=()
    for ((pair = 0; pair < pairs; pair++)); do
      rates+=("$(fio_rate "$file" "${block%iB}" "$pair")")
      timeout -k 10 600 "$kvstream" bench step --tier "$tier" --block $block --step ${step_mib}MiB \
        --policy pooled --pairs 1 --calibrate off --json "$out/$name.$pair.json" </dev/null \
        >"$out/$name.txt" || die "$name: see $out/$name.txt"
      runs+=("$out/$name.$pair.json")
    done
    python3 - "$out/$name.json" "${runs[@]}" <<'PYTHON'
import json, sys
reports = [json.load(open(path)) for path in sys.argv[2:]]
json.dump({"runs": [run for report in reports for run in report.get("runs", [report])]},
          open(sys.argv[1], "w"))
PYTHON
    list=$(IFS=,; echo "${rates[*]}")
    note_case "$name" "$name.json" \
      "bench/fio_compare.sh --pairs $pairs --read $read_rate" \
      "[{\"figure\": \"rate\", \"name\": \"$kind tier / fio\", \"side\": \"pooled\",
         \"step_bytes\": $((step_mib << 20)), \"against_bytes_per_s\": [$list], \"bar\": $bar}]"
    echo "$name: fio at $(printf '%s ' "${rates[@]}")bytes/s"
  done
  take_down
done
"$bench_root/bench/figures.py" "$out"
