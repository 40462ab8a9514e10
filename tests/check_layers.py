#!/usr/bin/env python3
"""Checks who includes whom, and a few rules on files, over include/ src/ mpi_tiers/ launch/.

The arrows of docs/architecture.md stand in ARROWS below and nowhere else. Exit code 0: all hold
(warnings may be printed); 1: a rule is broken. `--self-test` shows on a small made-up tree that
each rule can fail.
"""

import argparse
import pathlib
import re
import sys
import tempfile

# layer -> the layers that its files may include directly; what those may include, it may too.
ARROWS = {
    "core": [],
    "memory": ["core"],
    "topology": ["core"],
    "config": ["core"],
    "metrics": ["core"],
    "tier_interface": ["memory", "topology", "metrics", "config"],
    "device": ["tier_interface"],
    "catalog": ["tier_interface"],
    "step": ["catalog", "device"],
    "writeback": ["catalog", "device"],
    "ranks": ["catalog"],
    "engine": ["step", "writeback", "ranks"],
    "tiers": ["tier_interface"],
    "replay": ["engine"],
    "client": ["engine", "tiers"],
    "mpi_tiers": ["tiers", "ranks"],
    "launch": ["client", "replay", "tiers", "mpi_tiers"],
}

# Each public header belongs to the layer whose words it speaks; one that is not named here is
# the engine's.
PUBLIC_HEADERS = {
    "block": "core", "status": "core", "clock": "core",
    "config": "config",
    "tier": "tier_interface", "step": "tier_interface", "metrics": "tier_interface",
    "engine": "engine",
    "kvstream": "client",
}

# What only some places may include from outside: pattern -> test on the path in the tree.
VENDORS = [
    (re.compile(r"^(mpi\.h|mpi-ext\.h|hdf5(_hl)?\.h|H5.*\.h|uc[pstm]/.*)$"),
     lambda path: path.startswith("mpi_tiers/"), "MPI, HDF5 and UCX live in mpi_tiers/ only"),
    (re.compile(r"^(cuda.*\.h|cuda/.*|nvml\.h)$"),
     lambda path: "_cuda." in path.rsplit("/", 1)[-1], "CUDA lives in *_cuda.* files only"),
]

FORBIDDEN_NAME = re.compile(r"(^|_)(manager|util|helper|misc|common|v2)s?(_|\.|$)", re.IGNORECASE)
FORBIDDEN_TEXT = [
    (re.compile(r"\.detach\(\)"), "a thread that nobody joins"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "a left-over mark"),
]
LINES_SOFT = {".hpp": 150, ".h": 150, ".cpp": 400, ".c": 400}
LINES_HARD_FACTOR = 2  # "two rooms": beyond it the soft limit is a broken rule

ROOTS = ("include", "src", "mpi_tiers", "launch")
SUFFIXES = (".hpp", ".h", ".cpp", ".c", ".cuh", ".cu")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def may_include(layer):
    """All layers that `layer` may include: itself and the closure of its arrows."""
    seen, todo = set(), [layer]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += ARROWS[name]
    return seen


def layer_of(path):
    """The layer of a path in the tree, e.g. src/step/plan.hpp -> step; None for what has none."""
    parts = path.split("/")
    if path.startswith("include/kvstream/"):
        return PUBLIC_HEADERS.get(parts[-1].split(".")[0], "engine")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 and parts[1] in ARROWS else None
    return parts[0] if parts[0] in ("mpi_tiers", "launch") else None


def included_path(root, path, name):
    """Where in the tree an #include leads, or None when it leads out of it."""
    candidates = (f"include/{name}", f"src/{name}", name, f"{path.rsplit('/', 1)[0]}/{name}")
    return next((c for c in candidates if (root / c).is_file()), None)


def check_includes(root, path, lines):
    mine = layer_of(path)
    if mine is None:
        yield f"{path}:1: this folder is not a layer of the arrow table"
        return
    allowed = may_include(mine)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(2)
        for pattern, may, rule in VENDORS:
            if pattern.match(name) and not may(path):
                yield f"{path}:{number}: includes {name}; {rule}"
        target = included_path(root, path, name)
        if target is None:
            if match.group(1) == '"' and name.split("/")[0] in ARROWS:
                yield f"{path}:{number}: includes {name}, which is not there"
            continue
        theirs = layer_of(target)
        if theirs not in allowed:
            yield f"{path}:{number}: {mine} includes {target} of {theirs}, against the arrows"
        if path.startswith("include/") and not target.startswith("include/"):
            yield f"{path}:{number}: a public header includes {target}, which is not public"


def check_file(root, path):
    """(errors, warnings) of one file."""
    lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
    errors, warnings = list(check_includes(root, path, lines)), []
    name = path.rsplit("/", 1)[-1]
    if FORBIDDEN_NAME.search(name):
        errors.append(f"{path}:1: a file name that does not say what is inside")
    if name.endswith((".hpp", ".h")) and "#pragma once" not in lines:
        errors.append(f"{path}:1: no #pragma once")
    for number, line in enumerate(lines, 1):
        for pattern, what in FORBIDDEN_TEXT:
            if pattern.search(line):
                errors.append(f"{path}:{number}: {what}")
    soft = LINES_SOFT.get("." + name.rsplit(".", 1)[-1], 400)
    if len(lines) > soft * LINES_HARD_FACTOR:
        errors.append(f"{path}:1: {len(lines)} lines; more than {LINES_HARD_FACTOR} x {soft}")
    elif len(lines) > soft:
        warnings.append(f"{path}:1: {len(lines)} lines ({soft})")
    return errors, warnings


def check_tree(root):
    errors, warnings, count = [], [], 0
    for top in ROOTS:
        for file in sorted((root / top).rglob("*")):
            if file.is_file() and file.suffix in SUFFIXES:
                count += 1
                found = check_file(root, file.relative_to(root).as_posix())
                errors += found[0]
                warnings += found[1]
    if count == 0:
        errors.append(f"{root}: no source file found; this is not the tree")
    return errors, warnings, count


# path -> (text, part of the error that must appear, or None: the file is fine)
SELF_TEST = {
    "src/core/keys.hpp": ("#pragma once\n", None),
    "src/engine/engine.cpp": ('#include "step/plan.hpp"\n#include "core/keys.hpp"\n', None),
    "src/step/plan.hpp": ("#pragma once\n", None),
    "mpi_tiers/group.cpp": ("#include <mpi.h>\n", None),
    "src/memory/device_cuda.cpp": ("#include <cuda_runtime.h>\n", None),
    "include/kvstream/block.hpp": ("#pragma once\n", None),
    "src/core/upward.cpp": ('#include "step/plan.hpp"\n', "core includes src/step/plan.hpp"),
    "src/writeback/sideways.cpp": ('#include "step/plan.hpp"\n', "against the arrows"),
    "src/step/vendor.cpp": ("#include <mpi.h>\n", "mpi_tiers/ only"),
    "launch/vendor.cpp": ("#include <ucp/api/ucp.h>\n", "mpi_tiers/ only"),
    "src/memory/vendor.cpp": ("#include <cuda_runtime.h>\n", "*_cuda.* files only"),
    "include/kvstream/leaky.hpp": ('#pragma once\n#include "core/keys.hpp"\n', "is not public"),
    "src/step/gone.cpp": ('#include "core/gone.hpp"\n', "which is not there"),
    "src/step/step_util.hpp": ("#pragma once\n", "does not say what is inside"),
    "src/step/bare.hpp": ("\n", "no #pragma once"),
    "src/step/thread.cpp": ("thread.detach();\n", "nobody joins"),
    "src/step/long.cpp": ("\n" * 801, "801 lines"),
    "src/unknown/file.cpp": ("\n", "not a layer"),
}


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, (text, _) in SELF_TEST.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        errors = check_tree(root)[0]
        for path, (_, wanted) in SELF_TEST.items():
            mine = [e for e in errors if e.startswith(path + ":")]
            if wanted is None and mine:
                failures.append(f"{path}: must pass, but: {mine}")
            if wanted is not None and not any(wanted in e for e in mine):
                failures.append(f"{path}: must fail with '{wanted}', but: {mine}")
    with tempfile.TemporaryDirectory() as folder:
        if not check_tree(pathlib.Path(folder))[0]:
            failures.append("an empty tree must fail")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--self-test", action="store_true", help="show that each rule can fail")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent,
                        type=pathlib.Path, help="the tree (default: the one this script is in)")
    arguments = parser.parse_args()
    if arguments.self_test:
        failures = self_test()
        print("\n".join(failures) or f"layers: self-test passed ({len(SELF_TEST)} cases)")
        return 1 if failures else 0
    errors, warnings, count = check_tree(arguments.root)
    for line in warnings:
        print(f"warning: {line}")
    for line in errors:
        print(f"error: {line}")
    print(f"layers: {count} files, {len(errors)} errors, {len(warnings)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
