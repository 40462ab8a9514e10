#!/usr/bin/env bash
# From a bare machine to the main job: installs, builds, and replays a trace on 4 ranks.
#   launch/quickstart.sh [TRACE] [--raw NVME_DIR PFS_DIR] [--folder DIR] [--no-install] [--program FILE]
set -euo pipefail

usage() {
  sed -n '2,3s/^# \{0,1\}//p' "$0"
  cat <<'TEXT'

  TRACE                   a Mooncake JSONL file; default: the synthetic Mooncake trace beside this
                          tree when it is there, else documents made by the built-in generator
  --raw NVME_DIR PFS_DIR  two folders on two real devices, used at their own speed
  --folder DIR            where the two storage tiers lie (default: a temporary folder)
  --out DIR               where the JSON and the picture go (default: build/quickstart)
  --ranks N               default 4
  --no-install            the packages are there; do not look
  --program FILE          a kvstream that is built already; do not build

Two folders on one disk would make all read policies tie. So without --raw both tiers go through
the `throttled` wrapper: 500 and 400 MB/s, or less when half of what the folder was measured to give
is less. Needs at most 4 GiB of disk there, looks first, and removes what it made.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
began_in=$PWD
trace='' folder='' nvme_dir='' pfs_dir='' out_dir=$root/build/quickstart ranks=4 install=yes
kvstream=''
need_bytes=$((4 << 30))
cap_mib=1856 # of each tier; with index logs two of them stay below need_bytes

die() { echo "quickstart.sh: $*" >&2; exit 1; }
say() { printf '\n== %s\n' "$*"; }
absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$began_in" "$1" ;; esac; }

while [ $# -gt 0 ]; do
  case $1 in
    --raw)
      [ $# -ge 3 ] || die "--raw needs two folders: NVME_DIR PFS_DIR"
      nvme_dir=$(absolute "$2") pfs_dir=$(absolute "$3"); shift 2 ;;
    --folder) [ $# -ge 2 ] || die "--folder needs a folder"; folder=$(absolute "$2"); shift ;;
    --out) [ $# -ge 2 ] || die "--out needs a folder"; out_dir=$(absolute "$2"); shift ;;
    --ranks) [ $# -ge 2 ] || die "--ranks needs a number"; ranks=$2; shift ;;
    --no-install) install=no ;;
    --program) [ $# -ge 2 ] || die "--program needs a file"; kvstream=$(absolute "$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown argument '$1' (see --help)" ;;
    *) [ -z "$trace" ] || die "more than one trace: '$trace' and '$1'"; trace=$(absolute "$1") ;;
  esac
  shift
done
case $ranks in '' | *[!0-9]* | 0) die "--ranks needs a number above 0, not '$ranks'" ;; esac
[ -z "$trace" ] || [ -r "$trace" ] || die "cannot read the trace '$trace'"
[ -z "$kvstream" ] || [ -x "$kvstream" ] || die "'$kvstream' is no program"

made=() # removed at the end, whatever happens
clean_up() {
  local one
  for one in "${made[@]}"; do rm -rf -- "$one"; done
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

free_bytes() { df --output=avail -B1 -- "$1" | tail -1 | tr -d ' '; }
check_free() { # DIR BYTES
  local free
  free=$(free_bytes "$1")
  [ "$free" -ge "$2" ] || die "'$1' has $((free >> 20)) MiB free and $(($2 >> 20)) MiB are needed;" \
    "name another folder with --folder DIR"
}
make_folder() { # DIR: a fresh folder inside it, its path in $made_folder
  [ -d "$1" ] && [ -w "$1" ] || die "'$1' is not a folder that can be written"
  case $1 in *,*) die "'$1': a tier's path cannot hold a comma; name another folder" ;; esac
  made_folder=$(mktemp -d "${1%/}/kvstream-quickstart.XXXXXX")
  made+=("$made_folder")
}
# A default folder on a disk: memory would show nothing of what a disk does.
disk_folder() {
  local one
  for one in "${TMPDIR:-/tmp}" /var/tmp "$root/build"; do
    [ -d "$one" ] && [ -w "$one" ] || continue
    case $(stat -f -c %T -- "$one") in tmpfs | ramfs) ;; *) printf '%s' "$one"; return ;; esac
  done
  printf '%s' "${TMPDIR:-/tmp}"
}

# Four direct readers or writers at once over one file that was written; bytes/s on stdout.
probe() { # read|write FILE
  local piece_mib=64 pieces=4 began ended piece pids=() failed=no
  began=$(date +%s%N)
  for ((piece = 0; piece < pieces; piece++)); do
    if [ "$1" = write ]; then
      timeout 60 dd if="$2.seed" of="$2" bs=4M seek=$((piece * piece_mib / 4)) conv=notrunc \
        oflag="$direct" status=none &
    else
      timeout 60 dd if="$2" of=/dev/null bs=4M skip=$((piece * piece_mib / 4)) \
        count=$((piece_mib / 4)) iflag="$direct" status=none &
    fi
    pids+=($!)
  done
  for piece in "${pids[@]}"; do wait "$piece" || failed=yes; done
  ended=$(date +%s%N)
  [ "$failed" = no ] || return 1
  echo $((pieces * piece_mib * 1048576 * 1000 / ((ended - began) / 1000000 + 1)))
}
measure() { # DIR: sets write_rate and read_rate, bytes/s
  local file=$1/probe
  direct=direct
  head -c $((64 << 20)) /dev/urandom >"$file.seed"
  fallocate -l $((256 << 20)) "$file" 2>/dev/null || true
  if ! dd if="$file.seed" of="$file" bs=4M count=1 conv=notrunc oflag=direct status=none 2>/dev/null
  then
    direct=dsync
    echo "   (this folder refuses O_DIRECT: measured through the page cache)"
  fi
  write_rate=$(probe write "$file") || die "cannot write the test file in '$1'"
  if [ "$direct" = dsync ]; then sync "$file"; direct=nocache; fi
  read_rate=$(probe read "$file") || die "cannot read the test file in '$1'"
  rm -f -- "$file" "$file.seed"
}
mb() { echo $(($1 / 1000000)); }
least() { if [ "$1" -lt "$2" ]; then echo "$1"; else echo "$2"; fi; }

if [ "$install" = yes ]; then
  say "packages"
  "$root/launch/packages.sh" --full
fi

build() {
  local build_began=$SECONDS
  say "build (log: build/quickstart-build.log)"
  mkdir -p "$root/build" 2>/dev/null && [ -w "$root/build" ] ||
    die "cannot write '$root/build'; copy the tree to a folder of your own"
  check_free "$root/build" $((1 << 30))
  if ! (cd "$root" && cmake --preset release && cmake --build build/release --target kvstream) \
    >"$root/build/quickstart-build.log" 2>&1; then
    tail -30 "$root/build/quickstart-build.log" >&2
    die "the build failed; its whole log is '$root/build/quickstart-build.log'"
  fi
  kvstream=$root/build/release/launch/kvstream
  [ -x "$kvstream" ] || die "the build made no '$kvstream'"
  echo "built in $((SECONDS - build_began)) s: $("$kvstream" --version | head -1)"
}
[ -n "$kvstream" ] || build

say "disk"
tier_tail_nvme='' tier_tail_pfs='' throttled=no
if [ -n "$nvme_dir" ]; then
  for one in "$nvme_dir" "$pfs_dir"; do check_free "$one" $((need_bytes / 2)); done
  make_folder "$nvme_dir"; nvme_dir=$made_folder
  make_folder "$pfs_dir"; pfs_dir=$made_folder
  if [ "$(stat -c %d -- "$nvme_dir")" = "$(stat -c %d -- "$pfs_dir")" ]; then
    echo "note: both folders lie on one device, which can serve all policies at one speed only"
  fi
  echo "real devices, not throttled: nvme in $nvme_dir, pfs in $pfs_dir"
  busy_s=10 write_rate=1000000000 # not measured
else
  throttled=yes
  folder=${folder:-$(disk_folder)}
  check_free "$folder" "$need_bytes"
  make_folder "$folder"; folder=$made_folder
  nvme_dir=$folder/nvme pfs_dir=$folder/pfs
  mkdir "$nvme_dir" "$pfs_dir"
  measure "$folder"
  # 500 + 400 read, 400 + 320 written; both sums at most half of what the folder gives.
  read_nvme=$(least 500000000 $((read_rate / 2 * 5 / 9)))
  read_pfs=$((read_nvme * 4 / 5))
  write_nvme=$(least 400000000 $((write_rate / 2 * 5 / 9)))
  write_pfs=$((write_nvme * 4 / 5))
  tier_tail_nvme=",read=${read_nvme}B/s,write=${write_nvme}B/s"
  tier_tail_pfs=",read=${read_pfs}B/s,write=${write_pfs}B/s"
  echo "measured: $(mb "$read_rate") MB/s read, $(mb "$write_rate") MB/s written in $folder"
  echo "throttled tiers: nvme $(mb "$read_nvme")/$(mb "$write_nvme") MB/s, pfs" \
    "$(mb "$read_pfs")/$(mb "$write_pfs") MB/s (read/write)"
  busy_s=$((1900000000 / (read_nvme + 1) + 1))
fi

# Requests: the store is filled with what the first `skip` would have left there.
requests=300 skip=0 trace_arguments=()
if [ -z "$trace" ]; then
  shared=$root/../shared/traces/mooncake/synthetic_trace.jsonl
  [ ! -r "$shared" ] || trace=$shared
fi
if [ -n "$trace" ]; then
  lines=$(wc -l <"$trace")
  skip=$(least 3000 $((lines * 9 / 10)))
  requests=$(least 300 $((lines - skip)))
  trace_arguments=("$trace" --skip "$skip" --prefill-store)
else
  trace_arguments=(documents --documents 150 --skip 600 --prefill-store)
fi
# Each pair plays both sides once, and each run is preceded by writing again what the last one
# evicted (about 2.4 GB; the first filling is 3.4). As many pairs as fit into two minutes.
pairs=$(((110 - 3400000000 / write_rate) / (2 * (busy_s + 4 + 2400000000 / write_rate))))
[ "$pairs" -ge 1 ] || pairs=1
[ "$pairs" -le 5 ] || pairs=5

mkdir -p "$out_dir"
json=$out_dir/quickstart.json picture=$out_dir/quickstart.png table=$out_dir/quickstart.txt
command=("$kvstream" replay "${trace_arguments[@]}" --requests "$requests"
  --policy serial,completion --pairs "$pairs" --replication all --batch 8
  --scale "bytes=1/256,time=1/20"
  --tier "nvme=nvme:$nvme_dir,cap=${cap_mib}MiB$tier_tail_nvme"
  --tier "pfs=pfs:$pfs_dir,cap=${cap_mib}MiB$tier_tail_pfs"
  --json "$json" --log warn)
# mpirun stands between the ranks and the terminal, so they cannot see it.
if [ -t 2 ]; then command+=(--progress always); fi

say "replay on $ranks ranks, $pairs pair(s) of runs"
printf ' %q' launch/mpirun.sh -n "$ranks" "${command[@]}"
echo
result=0
run_began=$SECONDS
timeout --foreground -k 10 600 "$root/launch/mpirun.sh" -n "$ranks" "${command[@]}" >"$table" </dev/null ||
  result=$?
if [ "$result" -ne 0 ]; then
  cat "$table"
  die "the replay ended with code $result"
fi
echo "ran for $((SECONDS - run_began)) s"

disturbed=no
if [ "$throttled" = yes ]; then
  before=$read_rate
  measure "$folder"
  echo "the folder again: $(mb "$read_rate") MB/s read (before: $(mb "$before"))"
  [ "$read_rate" -ge $(((read_nvme + read_pfs) * 5 / 4)) ] || disturbed=yes
fi
echo
if [ "$disturbed" = yes ]; then
  sed '/^ratios over /,$d' "$table" # the ratios would speak of the disk
  echo "DISTURBED: the folder fell to $(mb "$read_rate") MB/s, too near to the" \
    "$(mb $((read_nvme + read_pfs))) MB/s that the throttled tiers stand for."
  echo "So there is no ratio. Run it again when the disk is quiet, or name another with --folder DIR."
else
  cat "$table"
fi
echo
echo "JSON:    $json"
if "$kvstream" plot "$json" --out "$picture" >"$out_dir/plot.log" 2>&1; then
  echo "picture: $picture"
else
  echo "picture: none ($(tail -1 "$out_dir/plot.log"))"
fi
