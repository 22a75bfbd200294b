#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the same bits on any number of ranks cost, and ZeRO-1: steps of `lockstep bench step` in turns.

  bench/reductions.py [--ranks 2,4] [--rounds 5] [--preset gpt2-3m]

A round runs every way once, one after the other; ratios are within a round. Prints a line of JSON a
run and then a table: time of a step over that of the other way, median (least to most).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Name, leaves a rank, keys; then over which other one.
WAYS = {
    "fast, 1 leaf a rank": (1, {"reduction": "fast"}),
    "invariant, 1 leaf a rank": (1, {"reduction": "invariant"}),
    "fast, 4 leaves a rank": (4, {"reduction": "fast"}),
    "invariant, 4 leaves a rank": (4, {"reduction": "invariant"}),
    "invariant, 1 leaf a rank, zero 1": (1, {"reduction": "invariant", "zero": 1}),
}
RATIOS = {
    "invariant, 1 leaf a rank": ("fast, 1 leaf a rank", 1.05),
    "invariant, 4 leaves a rank": ("fast, 4 leaves a rank", 1.15),
    "invariant, 1 leaf a rank, zero 1": ("invariant, 1 leaf a rank", None),
}


def step(ranks, leaves, keys, options):
    keys = {"model.preset": options.preset, "batch.micro": 1, "batch.global": ranks * leaves,
            "repeats": options.repeats, **keys}  # fmt: skip
    words = [f"--{key}={value}" for key, value in keys.items()]
    out = subprocess.run([ROOT / "scripts/mpirun-local", "-n", str(ranks), ROOT / "build/release/bin/lockstep",
                          "bench", "step", *words], check=True, capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout  # fmt: skip
    return json.loads(out)


def measure(ranks, options):
    found = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, (leaves, keys) in WAYS.items():
            line = step(ranks, leaves, keys, options)
            print(json.dumps({"way": name, **line}), flush=True)
            found[name].append(line)
    return found


def print_table(ranks, found):
    print(f"\n| {ranks} ranks | against | step time | arenas | optimizer state of rank 0 | target |\n|-|-|-|-|-|-|")
    for name, (other, target) in RATIOS.items():
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(found[name], found[other], strict=True)]
        a, b = found[name][0], found[other][0]
        ratio = statistics.median(ratios)
        verdict = f"≤ {target}: {'met' if ratio <= target else 'missed'}" if target else ""
        print(f"| {name} | {other} | {ratio:.3f} ({min(ratios):.3f}–{max(ratios):.3f}) | "
              f"{a['arenas']} of {a['arena_bytes'] / 1e6:.1f} MB, was {b['arenas']} | "
              f"{a['optimizer_bytes'][0] / 1e6:.1f} MB, was {b['optimizer_bytes'][0] / 1e6:.1f} | {verdict} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--preset", default="gpt2-3m")
    options = parser.parse_args()
    results = {ranks: measure(ranks, options) for ranks in options.ranks}
    for ranks, found in results.items():
        print_table(ranks, found)


if __name__ == "__main__":
    main()
