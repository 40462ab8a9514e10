#!/usr/bin/env python3
"""Checks that libkvstream.so exports what include/kvstream/kvstream.h declares, and nothing else.

Usage: check_exports.py LIBRARY HEADER. Needs nm. Exit code 0: equal; 1: not, with both differences.
"""

import re
import subprocess
import sys


def main():
    library, header = sys.argv[1:]
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    exported -= {"KVSTREAM_1"}  # the version itself
    with open(header, encoding="utf-8") as file:
        declared = set(re.findall(r"^[a-z][\w ]*\*? ?(kvstream_\w+)\(", file.read(), re.M))
    print(f"{len(declared)} functions declared, {len(exported)} symbols exported")
    for name in sorted(declared - exported):
        print(f"declared, but not exported: {name}")
    for name in sorted(exported - declared):
        print(f"exported, but not declared: {name}")
    return 0 if declared and declared == exported else 1


if __name__ == "__main__":
    sys.exit(main())
