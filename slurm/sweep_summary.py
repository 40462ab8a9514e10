#!/usr/bin/env python3
"""Prints the runs of a sweep side by side: sweep_summary.py DIRECTORY."""
import json
import pathlib
import sys


def row_of(path):
    """One table row of a run's JSON; a figure that is missing stays empty."""
    document = json.loads(path.read_text())
    run = document["runs"][0] if "runs" in document else document
    policy, _, speed = path.stem.partition("-")
    ttft = run.get("ttft_s") or {}
    checks = run.get("checks") or {}
    figures = [
        (ttft.get("mean"), "{:.4f}"),
        (ttft.get("p99"), "{:.4f}"),
        (run.get("throughput_tokens_per_s"), "{:.0f}"),
        (run.get("io_share"), "{:.2f}"),
        (checks.get("wrong_bytes"), "{}"),
    ]
    return [speed, policy] + ["" if value is None else form.format(value) for value, form in figures]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: sweep_summary.py DIRECTORY")
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.json"))
    if not paths:
        sys.exit(f"sweep_summary.py: no *.json in '{sys.argv[1]}'")
    rows = sorted((row_of(path) for path in paths), key=lambda row: (len(row[0]), row[0]), reverse=True)
    head = ["PFS", "policy", "TTFT mean s", "TTFT p99 s", "tokens/s", "I/O share", "wrong bytes"]
    widths = [max(len(line[i]) for line in [head] + rows) for i in range(len(head))]
    for line in [head] + rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths)))


if __name__ == "__main__":
    main()
