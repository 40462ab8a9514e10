"""Draws the sides of replays beside each other: plot.py OUT FILE...

Each FILE is what `kvstream replay --json` wrote: one run, or {runs, comparisons}. `kvstream plot`
carries this script and calls it; exit code 3 tells it to try another python3.
"""

import json
import math
import os
import sys
import textwrap

NO_MATPLOTLIB = 3
PAIRS_FOR_INTERVAL = 6  # below, 95 % cannot be had from order statistics: the range is drawn
TIER_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999"]
SIDE_COLOUR, OURS_COLOUR, CEILING_COLOUR = "#71879B", "#0B6E4F", "#B00020"

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
except ImportError:
    sys.exit(NO_MATPLOTLIB)


def fail(text):
    print(f"kvstream plot: {text}", file=sys.stderr)
    sys.exit(2)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        fail(f"cannot read {path} ({error.strerror})")
    except ValueError as error:
        fail(f"{path} is no JSON ({error}); give a file that `kvstream replay --json` wrote")
    runs = data.get("runs", [data]) if isinstance(data, dict) else []
    if not runs or not all(isinstance(run, dict) and "step_read_s" in run for run in runs):
        fail(f"{path} holds no replay; give a file that `kvstream replay --json` wrote")
    return runs, data.get("comparisons", [])


def number(run, *names):
    """The value at a path of names, or None where it is absent or null."""
    for name in names:
        run = run.get(name) if isinstance(run, dict) else None
    return run if isinstance(run, (int, float)) and not isinstance(run, bool) else None


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def interval(values):
    """Median, low and high: its exact 95 % interval from 6 pairs on, else the range."""
    values, count = sorted(values), len(values)
    rank = 1
    if count >= PAIRS_FOR_INTERVAL:
        below = 0.0
        for k in range(count // 2):
            below += math.comb(count, k) / 2**count
            if 1 - 2 * below < 0.95:
                break
            rank = k + 1
    return median(values), values[rank - 1], values[count - rank]


class Side:
    """The runs of one side in one file."""

    def __init__(self, name, label):
        self.name, self.label, self.runs = name, label, []
        self.colour = OURS_COLOUR if "completion" in name else SIDE_COLOUR

    def values(self, *names):
        found = [number(run, *names) for run in self.runs]
        return [value for value in found if value is not None]


class Picture:
    """All sides in the order of the files, and the comparisons between them."""

    def __init__(self, paths):
        self.sides, self.comparisons = [], []
        for path in paths:
            runs, comparisons = load(path)
            prefix = os.path.splitext(os.path.basename(path))[0] + "\n" if len(paths) > 1 else ""
            of_file = {}
            for run in runs:
                name = str(run.get("side", "run"))
                side = of_file.setdefault(name, Side(name, prefix + name.replace(" ", "\n")))
                side.runs.append(run)
            self.sides += of_file.values()
            self.comparisons += [(of_file, line) for line in comparisons]

    def ceilings(self, measure, names, more_is_better):
        """Index of a side -> the best value it could reach, by the comparison with its rival."""
        ceilings = {}
        for of_file, line in self.comparisons:
            ceiling, rival = number(line, "ceiling"), of_file.get(line.get("rival"))
            side = of_file.get(line.get("side"))
            if line.get("measure") != measure or not ceiling or not rival or not side:
                continue
            values = rival.values(*names)
            if values:
                best = median(values) * ceiling if more_is_better else median(values) / ceiling
                ceilings.setdefault(self.sides.index(side), best)
        return ceilings

    def subtitle(self):
        """What the bars stand for, and what of it is no real device."""
        first = self.sides[0].runs[0]
        ranks = first.get("ranks", 1)
        parts = [f"{ranks} {'rank' if ranks == 1 else 'ranks'}, "
                 f"{first.get('requests', '?')} requests"]
        pairs = max(len(side.runs) for side in self.sides)
        if pairs >= PAIRS_FOR_INTERVAL:
            parts.append(f"median of {pairs} interleaved runs, lines: its 95 % interval")
        elif pairs > 1:
            parts.append(f"median of {pairs} interleaved runs, lines: their range")
        calibration = first.get("calibration")
        throttled = calibration.get("throttled", []) if isinstance(calibration, dict) else []
        for device in throttled:
            here = number(device, "rate_bytes_per_s")
            there = number(device, "represented_bytes_per_s")
            if here and there:
                parts.append(f"{device.get('device')} throttled to {here / 1e6:.4g} MB/s "
                             f"(represents {there / 1e9:.3g} GB/s)")
        marks = {mark for side in self.sides for run in side.runs for mark in run.get("marks", [])}
        parts += sorted("marked: " + mark for mark in marks)
        return textwrap.fill(" · ".join(parts), 170)


def label_bar(axes, index, text, colour="white"):
    axes.annotate(text, (index, 0), ha="center", va="bottom", fontsize=8, color=colour,
                  xytext=(0, 3), textcoords="offset points")


def place_legend(axes):
    """In a line of its own between the title and the axes, where no bar can be."""
    axes.legend(fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0.0, 1.0),
                borderaxespad=0, borderpad=0.2)


def finish(axes, picture, title):
    axes.set_title(title, fontsize=10, loc="left", pad=6 if axes.get_legend() is None else 20)
    turned = len(picture.sides) > 4
    axes.set_xticks(range(len(picture.sides)), [side.label for side in picture.sides],
                    fontsize=8, rotation=30 if turned else 0, ha="right" if turned else "center")
    spare = 0.6 if len(picture.sides) > 2 else 1.2
    axes.set_xlim(-spare, len(picture.sides) - 1 + spare)
    axes.spines[["top", "right"]].set_visible(False)


def draw_bars(axes, picture, title, names, scale, ceilings=None):
    for index, side in enumerate(picture.sides):
        values = [value * scale for value in side.values(*names)]
        if not values:
            label_bar(axes, index, "none", "black")
            continue
        middle, low, high = interval(values)
        axes.bar(index, middle, width=0.7, color=side.colour)
        if len(values) > 1:
            axes.errorbar(index, middle, yerr=[[middle - low], [high - middle]], color="black",
                          capsize=4, linewidth=1)
        label_bar(axes, index, f"{middle:.4g}")
    for index, best in (ceilings or {}).items():
        label = "ceiling (the best it can reach)" if index == next(iter(ceilings)) else None
        axes.plot([index - 0.42, index + 0.42], [best * scale] * 2, color=CEILING_COLOUR,
                  linestyle="--", linewidth=1.5, label=label)
    if ceilings:
        place_legend(axes)
    finish(axes, picture, title)


def draw_bytes(axes, picture):
    tiers = []
    for side in picture.sides:
        for run in side.runs:
            tiers += [tier for tier in run.get("bytes", {}).get("read", {}) if tier not in tiers]
    bottoms = [0.0] * len(picture.sides)
    for place, tier in enumerate(tiers):
        heights = []
        for side in picture.sides:
            values = side.values("bytes", "read", tier)
            heights.append(median(values) * 1e-9 if values else 0.0)
        axes.bar(range(len(heights)), heights, 0.7, bottoms,
                 color=TIER_COLOURS[place % len(TIER_COLOURS)], label=tier)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]
    if tiers:
        place_legend(axes)
    axes.set_ylim(0, 1.1 * max(bottoms) or 1)
    finish(axes, picture, "bytes read per tier, GB")


def draw_efficiency(axes, picture):
    for index, side in enumerate(picture.sides):
        values = side.values("bound", "efficiency")
        if values:
            axes.bar(index, median(values), 0.7, color=side.colour)
            label_bar(axes, index, f"{median(values):.3f}")
        else:
            label_bar(axes, index, "no period\ncounts", "black")
    axes.axhline(1, color=CEILING_COLOUR, linestyle="--", linewidth=1)
    axes.set_ylim(0, 1.15)
    finish(axes, picture, "efficiency T*/T")


def draw(picture, out):
    width = max(13.0, 4 + 2.2 * len(picture.sides))
    figure, axes = pyplot.subplots(2, 3, figsize=(width, 7.5))
    read, rate = ["step_read_s", "mean"], ["throughput_tokens_per_s"]
    draw_bars(axes[0][0], picture, "read time of a step, mean, ms", read, 1e3,
              picture.ceilings("step_read_s.mean", read, more_is_better=False))
    draw_bars(axes[0][1], picture, "throughput, 1000 tokens/s", rate, 1e-3,
              picture.ceilings("throughput_tokens_per_s", rate, more_is_better=True))
    draw_bytes(axes[0][2], picture)
    draw_bars(axes[1][0], picture, "TTFT, mean, ms", ["ttft_s", "mean"], 1e3)
    draw_bars(axes[1][1], picture, "waiting for reads, % of the time", ["io_share"], 100)
    draw_efficiency(axes[1][2], picture)
    figure.suptitle(picture.subtitle(), fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    try:
        figure.savefig(out, dpi=130)
    except (OSError, ValueError) as error:
        fail(f"cannot write {out} ({error}); give --out a .png, .svg or .pdf file in a directory "
             "that can be written")


def main():
    if len(sys.argv) < 3:
        fail("want OUT FILE...")
    draw(Picture(sys.argv[2:]), sys.argv[1])
    print(sys.argv[1])


if __name__ == "__main__":
    main()
