#!/usr/bin/env python3
"""Draws made-up runs with launch/plot.py and looks whether its texts lie on each other.

Exit code 77: skipped, there is no matplotlib.
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "launch"))
try:
    import plot
except SystemExit:
    # As `kvstream plot` does: the system's python3 may have what the first in PATH has not.
    system = "/usr/bin/python3"
    if sys.executable != system and os.access(system, os.X_OK):
        os.execv(system, [system, *sys.argv])
    print("skipped: no matplotlib")
    sys.exit(77)


def run_of(side, read_s, marks=()):
    return {"side": side, "ranks": 4, "requests": 300, "marks": list(marks),
            "step_read_s": {"mean": read_s}, "throughput_tokens_per_s": 1e5 / read_s,
            "ttft_s": {"mean": 2 * read_s}, "io_share": 0.4,
            "bytes": {"read": {"host": 1e9, "nvme": 2e9, "pfs": 1e9}},
            "bound": {"efficiency": 0.97},
            "calibration": {"throttled": [{"device": "nvme", "rate_bytes_per_s": 5e8,
                                           "represented_bytes_per_s": 6.4e9}]}}


def report(sides, marks=()):
    ceilings = [{"side": sides[-1], "rival": sides[0], "measure": measure, "ceiling": 1.8}
                for measure in ("step_read_s.mean", "throughput_tokens_per_s")]
    return {"runs": [run_of(side, 0.1 / (i + 1), marks) for i, side in enumerate(sides)],
            "comparisons": ceilings}


class Plot(unittest.TestCase):
    def draw(self, content):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "run.json"
            file.write_text(json.dumps(content), encoding="utf-8")
            plot.draw(plot.Picture([str(file)]), str(file.with_suffix(".png")))
            self.assertGreater(file.with_suffix(".png").stat().st_size, 0)
        return plot.pyplot.gcf()

    def test_no_legend_lies_on_a_title_or_a_bar(self):
        for sides in (["serial", "completion"],
                      ["serial", "pooled", "static", "shortest-queue", "completion"]):
            figure = self.draw(report(sides))
            drawn = figure.canvas.get_renderer()
            legends = 0
            for axes in figure.axes:
                legend = axes.get_legend()
                if legend is None:
                    continue
                legends += 1
                box = legend.get_window_extent(drawn)
                # pyplot keeps a title that stands on the left apart from the others.
                for title in (axes.title, axes._left_title, axes._right_title):
                    if title.get_text():
                        self.assertFalse(box.overlaps(title.get_window_extent(drawn)),
                                         f"{title.get_text()}, {len(sides)} sides")
                for bar in axes.patches:
                    self.assertFalse(box.overlaps(bar.get_window_extent(drawn)))
            self.assertEqual(legends, 3)
            plot.pyplot.close(figure)

    def test_marks_of_the_runs_stand_in_the_picture(self):
        figure = self.draw(report(["serial", "completion"], ["device pfs: off"]))
        self.assertIn("marked: device pfs: off", figure._suptitle.get_text())
        plot.pyplot.close(figure)


if __name__ == "__main__":
    unittest.main()
