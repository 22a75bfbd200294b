#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps per second against PyTorch DDP over gloo, in turns on this machine.

  bench/step.py [--rounds 5] [--ranks 2] [--compile] [--precision bf16]

Needs the release build and `scripts/setup --all`. The machine's speed drifts, so only ratios of
neighbours count: each round runs both sides once, one after the other, and gives one ratio.
Prints a line of JSON a run and a summary; see bench/README.md for what was measured.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = {"layers": 4, "hidden": 256, "heads": 8, "context": 256, "vocab": 256}  # gpt2-3m
BATCH = {"global": 16, "micro": 8}


def last_line(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT,
                         timeout=900, env=environment)  # fmt: skip
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {run.returncode}:\n{run.stderr[-2000:]}")
    line = json.loads(run.stdout.strip().splitlines()[-1])
    print(json.dumps(line), flush=True)
    return line


def ours(options):
    words = [ROOT / "scripts/mpirun-local", "-n", options.ranks, ROOT / "build/release/bin/lockstep", "bench", "step",
             "--repeats", options.repeats, "--model.preset", "none", "--precision", options.precision]  # fmt: skip
    for key, value in SHAPE.items():
        words += [f"--model.{key}", value]
    for key, value in BATCH.items():
        words += [f"--batch.{key}", value]
    line = last_line(words)
    assert line["checked"] is True, line
    return line


def theirs(options, compiled):
    words = [ROOT / "build/venv/bin/torchrun", "--standalone", "--nproc-per-node", options.ranks,
             ROOT / "bench/peers/torch_ddp_gpt.py", "--repeats", options.repeats,
             "--precision", options.precision]  # fmt: skip
    for key, value in SHAPE.items():
        words += [f"--{key}", value]
    for key, value in BATCH.items():
        words += [f"--batch-{key}", value]
    return last_line([*words, "--compile"] if compiled else words)


def summary(name, ratios):
    ratios = sorted(ratios)
    at = [ratios[round(q * (len(ratios) - 1))] for q in (0.1, 0.9)]
    return f"{name}: {statistics.median(ratios):.2f} × its tokens/s (p10 {at[0]:.2f}, p90 {at[1]:.2f}, {len(ratios)} rounds)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10, help="timed steps a run")
    parser.add_argument("--compile", action="store_true", help="also against torch.compile")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="of both sides; PyTorch: autocast")
    options = parser.parse_args()

    ratios = {"eager": [], "compiled": []}
    share = []
    for _ in range(options.rounds):
        mine = ours(options)
        share.append({key: mine[key] / mine["seconds"] for key in ("passes_s", "comm_exposed_s", "optimizer_s")})
        for name in ["eager", "compiled"] if options.compile else ["eager"]:
            peer = theirs(options, name == "compiled")
            assert peer["parameters"] == mine["parameters"], (peer, mine)
            ratios[name].append(mine["tokens_per_s"] / peer["tokens_per_s"])
    for name, values in ratios.items():
        if values:
            print(summary(f"PyTorch DDP/gloo, {name}", values))
    parts = ", ".join(f"{key[:-2]} {statistics.median(s[key] for s in share):.1%}" for key in share[0])
    print(f"where our step goes: {parts}")


if __name__ == "__main__":
    main()
