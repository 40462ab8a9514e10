#!/usr/bin/env python3
"""Figures of the engine model, all in virtual time: what reads mean for a serving engine.

    engine_model.py PART... [--kvstream PATH] [--out DIR] [--trace CONVERSATION_TRACE]

Parts:
    shares    part of the rival's time that it waits for reads, four models on one fixed setting
    map       the same over tier speed, device and KV space on the device
    offline   LooGLE-like, 110B, sync: completion against rivals, over b_pfs/b_nvme and share
    async     the same with async loads
    online    4,000 coding-agent requests, CV 4, at parts of the rival's saturated throughput
    speed     the whole conversation trace in virtual time: seconds, and equal to the last digit

Prints tables in Markdown and keeps every run's JSON in DIR. Nothing is tuned per model: the one
setting is SETTING below. Modelled throughout; docs/engine-model.md has the assumptions.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time

MODELS = ["llama-3-8b", "llama-3-70b", "qwen1.5-110b", "deepseek-v3"]
# One node of eight accelerators that hold the largest of the four models; 128 GiB of their memory
# for KV; a drive of 7 GB/s and a file system of half of it, writes at 5/7 of reads, each one channel
# that reads and writes share; 16 threads of 8 GB/s that check and copy (fewer would be the
# bottleneck above 30 GB/s).
SETTING = {"device": "h200-141g", "devices": 8, "device-kv": "128GiB", "copy-threads": 16}
NVME_GB_S, PFS_RATIO, WRITE_PART = 7.0, 0.5, 5.0 / 7.0
POOL = "256GiB"
JOBS = 2


class Bench:
    def __init__(self, options):
        self.kvstream, self.out, self.trace = options.kvstream, pathlib.Path(options.out), options.trace
        self.out.mkdir(parents=True, exist_ok=True)

    def run(self, name, workload, settings, sides, tiers, extra=()):
        path = self.out / (name + ".json")
        command = [self.kvstream, "replay", workload, "--virtual-time", "--json", str(path),
                   "--pool", POOL, "--progress", "never", *extra]
        for key, value in settings.items():
            command += ["--" + key, str(value)]
        fit = self.out / (name + ".fit.json")
        fit.write_text(json.dumps(tiers))
        command += ["--fit", str(fit), "--tier", "nvme=nvme,cap=16TiB", "--tier", "pfs=pfs,cap=64TiB"]
        for side in sides:
            command += ["--side", side]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              stdin=subprocess.DEVNULL, timeout=3600)
        (self.out / (name + ".txt")).write_text(" ".join(command) + "\n" + done.stdout + done.stderr)
        if done.returncode != 0:
            return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed"}
        found = json.loads(path.read_text())
        return found if "runs" in found else {"runs": [found], "comparisons": []}


def tiers_of(nvme_gb_s, pfs_ratio):
    """As `kvstream bench fit` would have measured them: one channel that reads and writes share."""
    def device(read, latency_s):
        return {"read_bytes_per_s": read * 1e9, "write_bytes_per_s": read * WRITE_PART * 1e9,
                "read_latency_s": latency_s, "write_latency_s": latency_s, "disturbance": 1}
    return {"tiers": {"nvme": device(nvme_gb_s, 100e-6), "pfs": device(nvme_gb_s * pfs_ratio, 2e-3)},
            "copies": {"threads": SETTING["copy-threads"], "copy_bytes_per_s": 8e9,
                       "link_bytes_per_s": 64e9 * SETTING["devices"]}}


def read_share(run):
    """io / (T - inline writes)"""
    return run["io_share"] / (1 - run["write_wait_share"])


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    row(*["---"] * len(cells))


def comparison(found, side, rival, measure="throughput_tokens_per_s"):
    for line in found["comparisons"]:
        if (line["side"], line["rival"], line["measure"]) == (side, rival, measure):
            return line
        # Sides are compared with the first; the other way round it is the inverse.
        if (line["side"], line["rival"], line["measure"]) == (rival, side, measure):
            return {**line, "ratio": 1 / line["ratio"], "ceiling": None}
    return None


def shares(bench):
    print(f"\nRival (serial, depth request, inline, nvme alone) on LooGLE-like, shuffled, sync; "
          f"{SETTING['devices']} x {SETTING['device']}, {SETTING['device-kv']} of KV on the device, "
          f"nvme {NVME_GB_S:g} GB/s:\n")
    head("model", "waits for reads, of T - inline writes", "inline writes, of T", "blocks hit",
         "no cache / rival, tokens/s")
    for model in MODELS:
        found = bench.run(f"shares-{model}", "loogle", {"model": model, **SETTING},
                          ["rival", "no-cache"], tiers_of(NVME_GB_S, PFS_RATIO))
        if "error" in found:
            row(model, found["error"])
            continue
        rival, none = found["runs"]
        row(model, f"{100 * read_share(rival):.1f} %", f"{100 * rival['write_wait_share']:.1f} %",
            f"{100 * rival['blocks']['hit_ratio']:.1f} %",
            f"{none['throughput_tokens_per_s'] / rival['throughput_tokens_per_s']:.2f}x")


def map_of_shares(bench):
    speeds, devices, spaces = [1.75, 3.5, 7, 14, 28], ["a100-80g", "h100-80g", "h200-141g"], [32, 128, 512]
    print("\nThe rival's waits for reads, % of T - inline writes (bold: the paper's 80-88 %; in "
          "brackets: no cache is faster than it):\n")
    head("model", "device x 8", "KV GiB", *[f"{speed:g} GB/s" for speed in speeds])
    points = [(m, d, s, v) for m in MODELS for d in devices for s in spaces for v in speeds]

    def one(point):
        model, device, space, speed = point
        return point, bench.run(f"map-{model}-{device}-{space}-{speed:g}", "loogle",
                                {"model": model, "device": device, "devices": 8,
                                 "device-kv": f"{space}GiB", "requests": 3000,
                                 "copy-threads": SETTING["copy-threads"]},
                                ["rival", "no-cache"], tiers_of(speed, PFS_RATIO))
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        found = dict(pool.map(one, points))
    for model in MODELS:
        for device in devices:
            for space in spaces:
                cells = []
                for speed in speeds:
                    got = found[(model, device, space, speed)]
                    if "error" in got:
                        cells.append("-")
                        continue
                    rival, none = got["runs"]
                    share = 100 * read_share(rival)
                    text = f"**{share:.0f}**" if 80 <= share <= 88 else f"{share:.0f}"
                    slower = none["throughput_tokens_per_s"] > rival["throughput_tokens_per_s"]
                    cells.append(f"({text})" if slower else text)
                row(model, device, space, *cells)


def surface(bench, loads):
    model = {"model": "qwen1.5-110b", "loads": loads, **SETTING}
    base = bench.run(f"{loads}-base", "loogle", {**model, "loads": "sync"}, ["rival"],
                     tiers_of(NVME_GB_S, PFS_RATIO))["runs"][0]
    share = read_share(base)  # of sync: what the paper speaks of
    one, every = "completion replication=one", "completion replication=all"
    print(f"\nLooGLE-like, shuffled, qwen1.5-110b, `{loads}`, tokens/s against the rival (ratio; "
          "in brackets the part of its own ceiling, where it has one):\n")
    head("rival waits for reads under sync", "b_pfs/b_nvme", "nvme GB/s", "one / rival", "all / rival",
         "rival-deferred / rival", "one / rival-deferred", "no-cache / rival",
         "hit ratios rival, one, all", "dropped rival-deferred, one, all")
    points = []
    for target in (0.60, 0.80, 0.88):
        # Reads take time in proportion to 1/b, the rest does not.
        speed = NVME_GB_S * (share / (1 - share)) / (target / (1 - target))
        points += [(target, ratio, speed) for ratio in (0.25, 0.5, 0.75, 1.0)]

    def play(point):
        target, ratio, speed = point
        rivals = ["rival", "rival-deferred", "no-cache"]
        return point, bench.run(f"{loads}-{target:.2f}-{ratio:g}", "loogle", model,
                                [*rivals, one, every], tiers_of(speed, ratio))
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for (target, ratio, speed), found in pool.map(play, points):
            if "error" in found:
                row(f"{target:.0%}", ratio, found["error"])
                continue
            runs = {run["side"]: run for run in found["runs"]}

            def cell(side, rival):
                line = comparison(found, side, rival)
                text = f"{line['ratio']:.3f}"
                if side == one and rival == "rival" and line["ratio"] >= 1.49:
                    text = f"**{text}**"
                if line.get("ceiling"):
                    text += f" ({line['ratio'] / line['ceiling']:.2f} of {line['ceiling']:.3f})"
                return text
            hits = [100 * runs[side]["blocks"]["hit_ratio"] for side in ("rival", one, every)]
            measured = read_share(runs["rival"]) if loads == "sync" else target
            row(f"{100 * measured:.1f} %", ratio, f"{speed:.1f}", cell(one, "rival"),
                cell(every, "rival"), cell("rival-deferred", "rival"), cell(one, "rival-deferred"),
                cell("no-cache", "rival"), "%.1f, %.1f, %.1f" % tuple(hits),
                ", ".join(str(runs[s]["writes"]["dropped"]) for s in ("rival-deferred", one, every)))


def online(bench):
    one = "completion replication=one"
    agent = {"model": "qwen1.5-110b", **SETTING, "tail": "drop", "arrivals": "gamma", "cv": 4,
             "skip": 2000, "prefill-store": "on"}
    print("\n4,000 coding-agent requests (warm: 2,000 before them), gamma arrivals of CV 4, "
          "qwen1.5-110b, sync; mean TTFT, rival / ours, median of seeds with its 95 % interval:\n")
    head("load", "seeds", "rival stable over 12,000", "one / rival", "one / rival-deferred",
         "no-cache / rival", "hit ratio rival, one", "TTFT rival, one (s)")
    points = [(0.3, 10), (0.5, 10), (0.7, 20), (0.8, 20), (0.9, 20)]

    def play(point):
        load, seeds = point
        long = bench.run(f"online-stable-{load:g}", "agent",
                         {**agent, "requests": 12000, "load": load}, ["rival"],
                         tiers_of(NVME_GB_S, PFS_RATIO))
        found = bench.run(f"online-{load:g}", "agent",
                          {**agent, "requests": 4000, "load": load, "pairs": seeds},
                          ["rival", "rival-deferred", one], tiers_of(NVME_GB_S, PFS_RATIO))
        none = bench.run(f"online-none-{load:g}", "agent", {**agent, "requests": 4000, "load": load},
                         ["rival", "no-cache"], tiers_of(NVME_GB_S, PFS_RATIO))
        return load, seeds, long, found, none
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for load, seeds, long, found, none in pool.map(play, points):
            if "error" in found or "error" in long or "error" in none:
                row(load, seeds, [x.get("error") for x in (long, found, none)])
                continue

            def cell(side, rival):
                line = comparison(found, side, rival, "ttft_s.mean")
                low, high = line["interval"]
                return f"{line['ratio']:.2f}x [{low:.2f}, {high:.2f}]"

            def mean(side, at):
                values = [at(run) for run in found["runs"] if run["side"] == side]
                return sum(values) / len(values)
            behind = long["runs"][0]["load"]
            against = comparison(none, "no-cache", "rival", "ttft_s.mean")
            row(load, seeds, f"{'yes' if behind['stable'] else 'NO'} "
                f"({behind['makespan_over_last_arrival']:.3f})", cell(one, "rival"),
                cell(one, "rival-deferred"), f"{against['ratio']:.3f}x",
                ", ".join(f"{100 * mean(s, lambda r: r['blocks']['hit_ratio']):.1f} %"
                          for s in ("rival", one)),
                ", ".join(f"{mean(s, lambda r: r['ttft_s']['mean']):.1f}" for s in ("rival", one)))


def speed(bench):
    if not bench.trace:
        sys.exit("speed wants --trace: the Mooncake conversation trace")
    print("\nThe whole conversation trace, unscaled, one rank, blocks of 512 tokens:\n")
    head("side", "requests", "wall s (all of the program)", "twice the same, to the last digit")
    for side in ("rival", "completion", "completion replication=all"):
        walls, dumps = [], []
        for turn in range(2):
            begun = time.monotonic()
            found = bench.run(f"speed-{side.split()[0]}-{turn}", bench.trace,
                              {"model": "llama-3-8b", "device": "h100-80g"}, [side],
                              tiers_of(NVME_GB_S, PFS_RATIO))
            walls.append(time.monotonic() - begun)
            run = found["runs"][0]
            run.pop("cost", None)
            run.pop("config", None)
            dumps.append(json.dumps(run, sort_keys=True))
        row(side, run["requests"], f"{min(walls):.1f}", "yes" if dumps[0] == dumps[1] else "NO")


PARTS = {"shares": shares, "map": map_of_shares, "offline": lambda b: surface(b, "sync"),
         "async": lambda b: surface(b, "async"), "online": online, "speed": speed}


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    parser.add_argument("--kvstream", default=str(here / "build/release/launch/kvstream"))
    parser.add_argument("--out", default="engine-model-figures")
    parser.add_argument("--trace", default="")
    options = parser.parse_args()
    bench = Bench(options)
    begun = time.monotonic()
    print(f"{time.strftime('%Y-%m-%d')}, bench/engine_model.py {' '.join(options.parts)} (virtual time)")
    for part in options.parts:
        PARTS[part](bench)
        print(f"\n({part}: done after {time.monotonic() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
