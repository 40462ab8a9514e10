#!/usr/bin/env bash
# A file system on a loop device whose speed the kernel holds to what is asked: stands for one drive.
#   throttled_device.sh up NAME SIZE_MIB ext4|xfs READ_BYTES_PER_S WRITE_BYTES_PER_S   (0 0 = not throttled)
#   throttled_device.sh speed NAME READ_BYTES_PER_S WRITE_BYTES_PER_S
#   throttled_device.sh down NAME
#   throttled_device.sh path NAME | device NAME
# Needs root, loop devices, and for a limit the blkio controller of cgroup v1. The image lies in
# memory (/dev/shm). The kernel works in slices of 100 ms: exact in the mean, bursty for one block,
# and each idle gap earns about one slice for nothing; judge saturated reads of 2 s and more.
set -euo pipefail

base=${BENCH_DEVICES_DIR:-${TMPDIR:-/tmp}/kvstream-bench}
images=/dev/shm/kvstream-bench-$(id -u)

die() { echo "throttled_device.sh: $*" >&2; exit 2; }
number() { case $1 in '' | *[!0-9]*) die "'$1' is not a whole number" ;; esac; }
loop_of() { losetup -n -O NAME -j "$images/$1.img" | head -1 | tr -d ' '; }

blkio_folder() {
  local folder
  folder=$(awk '$3 == "cgroup" && $4 ~ /(^|,)blkio(,|$)/ {print $2; exit}' /proc/mounts)
  [ -n "$folder" ] || die "no blkio controller of cgroup v1 is mounted, so nothing can be throttled here"
  printf '%s' "$folder"
}

set_speed() { # LOOP READ WRITE
  local folder numbers
  [ "$2" -ne 0 ] || [ "$3" -ne 0 ] || grep -qE ' cgroup .*blkio' /proc/mounts || return 0
  folder=$(blkio_folder)
  numbers=$(cat "/sys/block/${1##*/}/dev")
  echo "$numbers $2" >"$folder/blkio.throttle.read_bps_device"
  echo "$numbers $3" >"$folder/blkio.throttle.write_bps_device"
}

up() { # NAME MIB FS READ WRITE
  local name=$1 mib=$2 image=$images/$1.img loop available_mib
  number "$mib"; number "$4"; number "$5"
  case $3 in ext4 | xfs) ;; *) die "the file system must be ext4 or xfs, not '$3'" ;; esac
  command -v "mkfs.$3" >/dev/null || die "mkfs.$3 is missing (launch/packages.sh --with-bench)"
  [ ! -e "$image" ] || die "$name is up already (throttled_device.sh down $name)"
  available_mib=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  [ $((mib * 2)) -le "$available_mib" ] ||
    die "$mib MiB is more than half of the $available_mib MiB of memory that is free"
  mkdir -p "$images" "$base/$name"
  trap 'down "$name" 2>/dev/null' ERR
  dd if=/dev/zero of="$image" bs=1M count="$mib" status=none # the first touch of memory is slow
  loop=$(losetup -f --show "$image")
  if [ "$3" = ext4 ]; then
    mkfs.ext4 -q -F -m 0 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$loop"
  else
    mkfs.xfs -q -f -K "$loop"
  fi
  mount -o noatime "$loop" "$base/$name"
  set_speed "$loop" "$4" "$5"
  trap - ERR
  echo "$base/$name"
}

down() { # NAME; also what stopped half-way
  local loop
  if mountpoint -q "$base/$1"; then umount "$base/$1"; fi
  for loop in $(losetup -n -O NAME -j "$images/$1.img" 2>/dev/null); do
    set_speed "$loop" 0 0
    losetup -d "$loop"
  done
  rm -f "$images/$1.img"
  rmdir "$base/$1" "$base" "$images" 2>/dev/null || true
}

[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" -eq 0 ] || die "needs root (loop devices, mount)"
case $2 in '' | *[!a-zA-Z0-9_-]*) die "a name is letters, digits, - and _, not '$2'" ;; esac
case $1 in
  up) [ $# -eq 6 ] || die "up NAME SIZE_MIB FS READ WRITE"; up "$2" "$3" "$4" "$5" "$6" ;;
  speed) [ $# -eq 4 ] || die "speed NAME READ WRITE"; number "$3"; number "$4"
    set_speed "$(loop_of "$2")" "$3" "$4" ;;
  down) down "$2" ;;
  path) echo "$base/$2" ;;
  device) loop_of "$2" ;;
  *) die "unknown command '$1'" ;;
esac
