#!/usr/bin/env python3
"""Turns the JSON files of a bench script into rows and a table, each figure beside its bar.

    figures.py OUT_DIR    reads OUT_DIR/cases.jsonl, writes OUT_DIR/rows.jsonl and OUT_DIR/table.md

A line of cases.jsonl names a result file of `kvstream bench step`, the command that made it and what
is to be read from it: {"case", "json", "command", "figures": [{"figure", ...}, ...]}. Figures:
  {"figure": "efficiency", "side": S, "bar": B}               median of T*/T over the pairs
  {"figure": "ratio", "side": S, "rival": R, "bar": B}        step time of R over that of S
  {"figure": "share_of_ceiling", "side": S, "rival": R, "bar": B}
  {"figure": "rate", "side": S, "step_bytes": N, "against_bytes_per_s": [..], "bar": B[, "bar_max"]}
A bar is judged by the lower end of the 95 % interval, for which it takes 6 pairs. Exit code 1: a bar
was missed, or could not be judged.
"""

import datetime
import json
import math
import pathlib
import statistics
import sys


def runs_of(report, side):
    runs = report.get("runs", [report])
    return [run for run in runs if run.get("side", side) == side]


def step_seconds(report, side):
    return [run["step_read_s"]["mean"] for run in runs_of(report, side)]


def interval_of(values):
    """Median with the interval of its order statistics: the extremes below 9 values."""
    ordered = sorted(values)
    count = len(ordered)
    if count < 6:
        return statistics.median(ordered), None, None
    rank = 0
    tail = 0.5**count
    while 2 * (tail + math.comb(count, rank + 1) * 0.5**count) <= 0.05:
        rank += 1
        tail += math.comb(count, rank) * 0.5**count
    return statistics.median(ordered), ordered[rank], ordered[count - 1 - rank]


def efficiency(report, wanted):
    values = [run["bound"]["efficiency"] for run in runs_of(report, wanted["side"])
              if run.get("bound")]
    values = [value for value in values if value is not None]
    return interval_of(values) if values else (None, None, None)


def ratio(report, wanted):
    ours, theirs = (step_seconds(report, wanted[key]) for key in ("side", "rival"))
    return interval_of([there / here for here, there in zip(ours, theirs)])


def share_of_ceiling(report, wanted):
    for line in report.get("comparisons", []):
        same = line["side"] == wanted["side"] and line["rival"] == wanted["rival"]
        if same and line["measure"] == "step_read_s.mean" and line.get("ceiling"):
            low, high = (end and end / line["ceiling"] for end in line["interval"])
            return line["ratio"] / line["ceiling"], low, high
    return None, None, None


def rate(report, wanted):
    rates = [wanted["step_bytes"] / seconds for seconds in step_seconds(report, wanted["side"])]
    return interval_of([here / there for here, there in zip(rates, wanted["against_bytes_per_s"])])


FIGURES = {"efficiency": efficiency, "ratio": ratio, "share_of_ceiling": share_of_ceiling,
           "rate": rate}


def row_of(case, report, wanted):
    value, low, high = FIGURES[wanted["figure"]](report, wanted)
    verdict = "shown"
    if value is None:
        verdict = "no figure"
    elif wanted.get("bar") is not None:
        verdict = "reached" if low is not None and low >= wanted["bar"] else "MISSED"
        if wanted.get("bar_max") is not None and value > wanted["bar_max"]:
            verdict = "MISSED"
        if low is None:
            verdict = "too few pairs"
    name = wanted["figure"] + " " + wanted["side"]
    if "rival" in wanted:
        name += " / " + wanted["rival"]
    return {"case": case["case"], "figure": wanted.get("name", name), "value": value, "low": low,
            "high": high, "bar": wanted.get("bar"), "verdict": verdict,
            "drifted": any(run.get("drifted") for run in report.get("runs", [report])),
            "date": datetime.date.today().isoformat(), "command": case["command"]}


def number(value):
    return "-" if value is None else f"{value:.3f}"


def table_of(rows):
    lines = ["| case | figure | median | 95 % interval | bar | |", "|---|---|---|---|---|---|"]
    for row in rows:
        interval = f"{number(row['low'])} - {number(row['high'])}" if row["low"] is not None else "-"
        drifted = " (drifted)" if row["drifted"] else ""
        lines.append(f"| {row['case']} | {row['figure']} | {number(row['value'])} | {interval} | "
                     f"{number(row['bar'])} | {row['verdict']}{drifted} |")
    lines += ["", f"Measured {rows[0]['date']}; the commands:" if rows else "No rows."]
    for command in dict.fromkeys(row["command"] for row in rows):
        lines += ["", "    " + command]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    out = pathlib.Path(sys.argv[1])
    rows = []
    for line in (out / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        report = json.loads((out / case["json"]).read_text(encoding="utf-8"))
        rows += [row_of(case, report, wanted) for wanted in case["figures"]]
    (out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows),
                                    encoding="utf-8")
    (out / "table.md").write_text(table_of(rows), encoding="utf-8")
    print(table_of(rows), end="")
    return 0 if all(row["verdict"] in ("reached", "shown") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
