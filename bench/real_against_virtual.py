#!/usr/bin/env python3
"""The same runs with real bytes in real time and in virtual time, side by side.

    real_against_virtual.py --traces DIR [--kvstream PATH] [--out DIR] [--points NAME,...]

DIR holds mooncake/synthetic_trace.jsonl and mooncake/conversation_trace.jsonl. Needs root: two loop
devices in memory, not throttled by the kernel, under the smooth `throttled` wrapper (400/300 and
300/200 MB/s). The tiers are measured once by `kvstream bench fit`; then each point is played with
real bytes (verified), and in virtual time with the same settings. A figure that is off by more than
10 % is marked. Takes about ten minutes; a busy machine shows in the real column.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RATES = {"nvme": "read=400MB/s,write=300MB/s", "pfs": "read=300MB/s,write=200MB/s"}
CAPS = {"nvme": "1GiB", "pfs": "2GiB"}
COMMON = ["--engine", "vllm", "--scale", "bytes=1/256,time=1/20", "--model", "llama-3-8b", "--device",
          "h100-80g", "--device-kv", "8GiB", "--pool", "512MiB", "--progress", "never"]
WARM = ["--skip", "3000", "--prefill-store"]
POINTS = {
    "serial": ("synthetic", [*WARM, "--requests", "400", "--side", "serial"]),
    "completion": ("synthetic", [*WARM, "--requests", "400", "--side", "completion"]),
    "copies everywhere": ("synthetic", [*WARM, "--requests", "400", "--replication", "all", "--side",
                                        "completion replication=all"]),
    "rival": ("synthetic", [*WARM, "--requests", "400", "--side", "rival"]),
    "after-forward": ("synthetic", [*WARM, "--requests", "400", "--side", "pooled writes=after-forward"]),
    "async": ("synthetic", [*WARM, "--requests", "400", "--loads", "async", "--side", "completion"]),
    "shards": ("synthetic", [*WARM, "--requests", "400", "--shards", "2", "--side", "completion"]),
    "conversation": ("conversation", ["--skip", "9000", "--prefill-store", "--requests", "400", "--side",
                                      "completion"]),
    "arrivals": ("agent", ["--requests", "300", "--arrivals", "gamma", "--cv", "2", "--rate", "0.7",
                           "--tail", "drop", "--side", "completion"]),
}


def call(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, timeout=600, **more)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def device(action, *words):
    return call(["bash", str(HERE / "throttled_device.sh"), action, *words]).strip()


def tier_words(folders, throttled=True):
    words = []
    for name, folder in folders.items():
        rates = "," + RATES[name] if throttled else ""
        words += ["--tier", f"{name}={name}:{folder}/{name},cap={CAPS[name]}{rates}"]
    return words


def figures(run):
    reads = run["step_read_s"]
    found = {"mean TTFT, s": run["ttft_s"]["mean"], "makespan, s": run["makespan_s"],
             "read time, s": (reads["mean"] or 0) * reads["count"]}
    for tier in RATES:
        found[f"read from {tier}, MB"] = run["bytes"]["read"][tier] / 1e6
    found["hit ratio"] = run["blocks"]["hit_ratio"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", required=True)
    parser.add_argument("--kvstream", default=str(HERE.parent / "build/release/launch/kvstream"))
    parser.add_argument("--out", default="real-against-virtual")
    parser.add_argument("--points", default=",".join(POINTS))
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    names = {"nvme": "rvn", "pfs": "rvp"}
    folders = {}
    try:
        for tier, mib in (("nvme", "2200"), ("pfs", "3300")):
            folders[tier] = device("up", names[tier], mib, "ext4", "0", "0").splitlines()[-1]
        fit = out / "fit.json"
        print(call([options.kvstream, "bench", "fit", str(fit), "--block", "256KiB",
                    *tier_words(folders)]))
        print(f"{time.strftime('%Y-%m-%d')}, bench/real_against_virtual.py; throttled: "
              f"nvme {RATES['nvme']}, pfs {RATES['pfs']}\n")
        print("| point | figure | real | virtual | virtual / real |\n|---|---|---|---|---|")
        worst = {}
        for point in options.points.split(","):
            trace, words = POINTS[point]
            source = f"{options.traces}/mooncake/{trace}_trace.jsonl" if trace != "agent" else trace
            runs = []
            for kind in ("real", "virtual"):
                for folder in folders.values():
                    call(["find", folder, "-mindepth", "1", "-maxdepth", "1", "-name", "[np]*", "-exec",
                          "rm", "-rf", "{}", "+"])
                path = out / f"{point.replace(' ', '-')}-{kind}.json"
                more = ["--calibrate", "off"] if kind == "real" else ["--virtual-time", "--fit", str(fit)]
                call([options.kvstream, "replay", source, *COMMON, *tier_words(folders), *words, *more,
                      "--json", str(path)])
                runs.append(json.loads(path.read_text()))
            if runs[0]["checks"]["wrong_bytes"] != 0:
                sys.exit(f"{point}: wrong bytes")
            real, virtual = map(figures, runs)
            for name, value in real.items():
                ratio = virtual[name] / value if value else float("nan")
                mark = "" if abs(ratio - 1) <= 0.10 or value < 1e-9 else " **off**"
                print(f"| {point} | {name} | {value:.3f} | {virtual[name]:.3f} | {ratio:.3f}{mark} |",
                      flush=True)
                if value > 1e-9:
                    worst[name] = max(worst.get(name, 0), abs(ratio - 1))
        print("\nlargest difference: " + ", ".join(f"{n} {100 * w:.1f} %" for n, w in worst.items()))
    finally:
        for name in names.values():
            subprocess.run(["bash", str(HERE / "throttled_device.sh"), "down", name], check=False)


if __name__ == "__main__":
    main()
