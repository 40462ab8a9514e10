#!/usr/bin/env bash
# quickstart_test.sh PROGRAM: launch/quickstart.sh from its arguments to its last line, over a few
# requests: on folders used at their own speed, and with a disk that grows slow during the run.
# Exit code 77: skipped.
set -euo pipefail

program=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$(mktemp -d "${TMPDIR:-/tmp}/kvstream quickstart.XXXXXX")
trap 'rm -rf -- "$here"' EXIT
failed=0
expect() { # WHAT COMMAND...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what" >&2; failed=1; fi
}
says() { grep -q -- "$1" "$here/out"; }
says_not() { ! grep -q -- "$1" "$here/out"; }
empty() { [ -z "$(ls -A -- "$1")" ]; }

free=$(df --output=avail -B1 -- "$here" | tail -1 | tr -d ' ')
if [ "$free" -lt $((5 << 30)) ]; then
  echo "skipped: quickstart.sh wants 4 GiB, and '$here' has $((free >> 20)) MiB"
  exit 77
fi
for ((i = 0; i < 40; i++)); do # documents of four blocks, asked again and again
  d=$((i % 8 * 10))
  echo "{\"timestamp\": $i, \"input_length\": 2048, \"output_length\": 4," \
    "\"hash_ids\": [$((d + 1)), $((d + 2)), $((d + 3)), $((d + 4))]}"
done >"$here/trace.jsonl"

quickstart() { # ARGUMENTS...: its output in out, its code in $code
  code=0
  timeout -k 5 150 "$root/launch/quickstart.sh" "$here/trace.jsonl" --no-install --ranks 2 \
    --program "$program" --out "$here/result" "$@" >"$here/out" 2>&1 </dev/null || code=$?
  [ "$code" -eq 0 ] || tail -20 "$here/out"
}

mkdir "$here/a" "$here/b"
quickstart --raw "$here/a" "$here/b"
expect "--raw ends with 0, not $code" [ "$code" -eq 0 ]
expect "--raw says that nothing is throttled" says 'real devices, not throttled'
expect "--raw says that one device cannot tell policies apart" says 'both folders lie on one device'
expect "--raw throttles no tier" says_not 'throttled: read'
expect "--raw prints ratios" says '^ratios over '
expect "--raw is never judged by the throttled tiers' rates" says_not DISTURBED
expect "--raw leaves a JSON" [ -s "$here/result/quickstart.json" ]
expect "--raw removes what it made of the first folder" empty "$here/a"
expect "--raw removes what it made of the second folder" empty "$here/b"

# After the run (its JSON is there) each direct read of the test file takes four seconds longer.
rm -rf -- "$here/result"
mkdir "$here/bin" "$here/folder"
real=$(command -v dd)
cat >"$here/bin/dd" <<SHIM
#!/usr/bin/env bash
if [ -s "$here/result/quickstart.json" ]; then
  case " \$* " in *" of=/dev/null "*) sleep 4 ;; esac
fi
exec "$real" "\$@"
SHIM
chmod +x "$here/bin/dd"
PATH=$here/bin:$PATH quickstart --folder "$here/folder"
expect "a disturbed run ends with 0, not $code" [ "$code" -eq 0 ]
expect "a disturbed run says so" says '^DISTURBED: the folder fell to'
expect "a disturbed run prints no ratio" says_not '^ratios over '
expect "a disturbed run prints its table all the same" says 'throttled: read'
expect "a disturbed run removes what it made" empty "$here/folder"

[ "$failed" -eq 0 ] || sed -n '1,80p' "$here/out"
exit "$failed"
