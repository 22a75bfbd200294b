#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that two runs are the same to the bit: weights, and the text of every logged loss.

    compare_runs.py [--fall SHARE] RUN RUN
"""
import argparse
import json
import pathlib
import re
import sys

LEVELS = "_.-=oO0#"  # a sparkline without UTF-8
FIELDS = ("loss", "eval_loss", "grad_norm", "tokens", "lr")


def lines_of(run):
    """The last line of each step, as the texts of its fields."""
    steps = {}
    with open(run / "metrics.jsonl", encoding="utf-8") as file:
        for line in file:
            fields = dict(re.findall(r'"(\w+)":([^,}]+)', line))
            steps[int(fields["step"])] = {name: fields.get(name) for name in FIELDS}
    return steps


def sparkline(values, width=60):
    size = -(-len(values) // width)
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((mean - low) * scale)] for mean in means)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs=2, type=pathlib.Path)
    parser.add_argument("--fall", type=float, help="share by which the loss must have fallen")
    arguments = parser.parse_args()
    first, second = (lines_of(run) for run in arguments.runs)
    results = [json.loads((run / "result.json").read_text()) for run in arguments.runs]

    differing = [step for step in sorted({*first, *second}) if first.get(step) != second.get(step)]
    losses = [float(first[step]["loss"]) for step in sorted(first)]
    fall = 1 - losses[-1] / losses[0]
    print(f"loss   {losses[0]:.3f} {sparkline(losses)} {losses[-1]:.3f}  (down by {100 * fall:.0f} %)")
    for run, result in zip(arguments.runs, results):
        print(f"weights {result['weights_sha256']}  {result['attempt']} attempts  {run}")
    same = results[0]["weights_sha256"] == results[1]["weights_sha256"] is not None
    print(f"weights: {'the same bits' if same else 'DIFFERENT'}")
    print(f"lines of {len(first)} steps ({', '.join(FIELDS)}): {'the same text' if not differing else 'DIFFERENT at steps ' + str(differing[:5])}")
    fell = arguments.fall is None or fall > arguments.fall
    if not fell:
        print(f"the loss fell by less than {100 * arguments.fall:.0f} %")
    return 0 if same and not differing and fell else 1


if __name__ == "__main__":
    sys.exit(main())
