#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same GPT-2 on the same batches with Lockstep and with PyTorch DDP and compares what they learn.

  bench/quality.py [--minutes 10 | --steps N] [--picture bench/results/quality.svg]
  bench/quality.py --precision bf16 --limit 0.02          against Lockstep in f32 instead

`gpt2-3m` on the compiler's headers, from the weights that Lockstep makes for step 0, with the same order
of samples, AdamW, decay, clip and schedule; ranks of one thread each. Both evaluate the same held-back
samples. The sides run one after the other: this compares losses, not speed (bench/step.py does).

Needs the release build and `scripts/setup --all`. Prints a line of JSON an evaluation and a summary, and
draws both curves. Fails if the last held-back losses are more than --limit nats apart.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRIAL_STEPS = 12


def run(command, log, seconds):
    """Wall seconds of a command whose output goes to `log`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    began = time.monotonic()
    with open(log, "w") as out:
        ended = subprocess.run(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, check=False,
                               timeout=seconds, env=environment, stdin=subprocess.DEVNULL)  # fmt: skip
    if ended.returncode != 0:
        text = pathlib.Path(log).read_text()
        sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{text[-2000:]}")
    return time.monotonic() - began


def train(options, folder, steps, every, precision=None):
    """Our side: its lines and wall seconds."""
    keys = {"run": folder, "model.preset": options.preset, "data.source": f"text:{options.text}", "steps": steps,
            "seed": options.seed, "eval.every": every, "eval.batches": options.eval_batches,
            "checkpoint.every": max(1, steps), "precision": precision or options.precision}  # fmt: skip
    command = [ROOT / "scripts/mpirun-local", "-n", options.ranks, options.lockstep, "train"]
    for key, value in keys.items():
        command += [f"--{key}", value]
    seconds = run(command, f"{folder}.log", options.timeout)
    metrics = folder / "metrics.jsonl"
    return lines_of(metrics.read_text()) if metrics.exists() else {}, seconds


def lines_of(text):
    return {line["step"]: line for line in map(json.loads, filter(lambda word: word.startswith("{"), text.splitlines()))}


def steps_in(options, folder):
    """So many that our side takes about the minutes that were asked for."""
    lines, _ = train(options, folder / "trial", TRIAL_STEPS, TRIAL_STEPS)
    step_seconds = statistics.median(line["step_seconds"] for line in lines.values())
    return max(1, round(60 * options.minutes / step_seconds))


def train_peer(options, folder, steps, every):
    """The other side: PyTorch in f32, or ours in f32 where the precision is compared."""
    if options.precision != "f32":
        return train(options, folder / "f32", steps, every, "f32")
    subprocess.run([options.lockstep, "ckpt", "export", folder / "ours", "--step", "0", "--to", folder / "export"],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    command = [options.torchrun, "--standalone", "--nproc-per-node", options.ranks,
               ROOT / "bench/peers/torch_ddp_train.py", "--export", folder / "export", "--text", options.text,
               "--steps", steps, "--seed", options.seed, "--eval-every", every,
               "--eval-batches", options.eval_batches]  # fmt: skip
    seconds = run(command, folder / "torch.log", options.timeout)
    return lines_of((folder / "torch.log").read_text()), seconds


# ---- picture -------------------------------------------------------------------------------------


class Panel:
    """Axes of a part of the picture, in pixels and in values."""

    LEFT, WIDTH = 70, 560

    def __init__(self, top, height, x_range, y_range):
        self.top, self.height, self.x_range, self.y_range = top, height, x_range, y_range

    def at(self, x, y):
        across = (x - self.x_range[0]) / (self.x_range[1] - self.x_range[0])
        up = (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0])
        return round(self.LEFT + self.WIDTH * across, 1), round(self.top + self.height * (1 - up), 1)

    def frame(self, title, y_digits):
        yield (f'<rect x="{self.LEFT}" y="{self.top}" width="{self.WIDTH}" height="{self.height}" '
               'fill="none" stroke="#999"/>')  # fmt: skip
        yield f'<text x="{self.LEFT}" y="{self.top - 8}">{title}</text>'
        for i in range(5):
            value = self.y_range[0] + i / 4 * (self.y_range[1] - self.y_range[0])
            _, y = self.at(self.x_range[0], value)
            yield f'<line x1="{self.LEFT}" y1="{y}" x2="{self.LEFT + self.WIDTH}" y2="{y}" stroke="#eee"/>'
            yield f'<text x="{self.LEFT - 6}" y="{y + 4}" text-anchor="end">{value:.{y_digits}f}</text>'

    def line(self, points, color):
        text = " ".join(f"{x},{y}" for x, y in (self.at(*point) for point in points))
        yield f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.5"/>'

    def dots(self, points, color):
        for x, y in (self.at(*point) for point in points):
            yield f'<circle cx="{x}" cy="{y}" r="4" fill="none" stroke="{color}" stroke-width="1.5"/>'


def draw(path, curve, limit, names, caption):
    """curve: (tokens, our loss, their loss); names: of both sides."""
    us, them = names
    tokens = [point[0] for point in curve]
    losses = [loss for point in curve for loss in point[1:]]
    apart = [(x, 1000 * (ours - theirs)) for x, ours, theirs in curve]
    x_range = (0, tokens[-1])
    room = 0.05 * (max(losses) - min(losses)) + 0.01
    reach = 1.1 * max(1000 * limit, *(abs(y) for _, y in apart))
    upper = Panel(40, 250, x_range, (min(losses) - room, max(losses) + room))
    lower = Panel(340, 110, x_range, (-reach, reach))
    parts = [
        *upper.frame(f"held-back loss, nats a byte: {us} (line), {them} (circles)", 2),
        *upper.line([point[:2] for point in curve], "#06c"),
        *upper.dots([(x, theirs) for x, _, theirs in curve], "#c40"),
        *lower.frame(f"{us} − {them}, thousandths of a nat (limit ±{1000 * limit:g})", 1),
        *lower.line([(0, 1000 * limit), (tokens[-1], 1000 * limit)], "#bbb"),
        *lower.line([(0, -1000 * limit), (tokens[-1], -1000 * limit)], "#bbb"),
        *lower.line(apart, "#06c"),
    ]
    for i in range(5):
        x, y = lower.at(i / 4 * tokens[-1], -reach)
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{i / 4 * tokens[-1] / 1e6:.2f}</text>')
    parts.append(f'<text x="350" y="486" text-anchor="middle">million tokens; {caption}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="660" height="500" '
                    'font-family="sans-serif" font-size="12">\n<rect width="660" height="500" fill="white"/>\n'
                    + "\n".join(parts) + "\n</svg>\n")  # fmt: skip


# ---- command -------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="that our side shall take, by a short trial")
    parser.add_argument("--steps", type=int, help="instead")
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--eval-batches", type=int, default=16, help="global batches of held-back samples")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--preset", default="gpt2-3m")
    parser.add_argument("--text", default="/usr/include/c++")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", choices=["f32", "bf16", "fp16"], default="f32")
    parser.add_argument("--limit", type=float, default=0.01, help="nats")
    parser.add_argument("--picture", type=pathlib.Path, help="default: bench/results/quality[-PRECISION].svg")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds that a side may take")
    parser.add_argument("--lockstep", default=ROOT / "build/release/bin/lockstep")
    parser.add_argument("--torchrun", default=ROOT / "build/venv/bin/torchrun")
    options = parser.parse_args()
    compared = options.precision != "f32"
    names = (f"Lockstep {options.precision}", "f32") if compared else ("Lockstep", "PyTorch DDP")
    suffix = f"-{options.precision}" if compared else ""
    options.picture = options.picture or ROOT / f"bench/results/quality{suffix}.svg"

    with tempfile.TemporaryDirectory(prefix="lockstep-quality.") as name:
        folder = pathlib.Path(name)
        steps = options.steps or steps_in(options, folder)
        every = max(1, math.ceil(steps / options.evaluations))
        train(options, folder / "ours", 0, every)  # commits the first weights
        theirs, their_seconds = train_peer(options, folder, steps, every)
        ours, our_seconds = train(options, folder / "ours", steps, every)

    assert len(ours) == len(theirs) == steps, (len(ours), len(theirs), steps)
    assert all(ours[step]["tokens"] == theirs[step]["tokens"] for step in ours)
    evaluated = [step for step in sorted(ours) if "eval_loss" in ours[step]]
    curve = [(ours[step]["tokens"], ours[step]["eval_loss"], theirs[step]["eval_loss"]) for step in evaluated]
    for step, (tokens, mine, other) in zip(evaluated, curve):
        print(json.dumps({"step": step, "tokens": tokens, "ours": mine, "peer": other, "difference": mine - other}))
    tokens, mine, other = curve[-1]
    draw(options.picture, curve, options.limit, names, f"{options.preset}, {options.ranks} ranks, {steps} steps")
    print(f"after {steps} steps, {tokens} tokens: held-back loss {mine:.5f}, {names[1]} {other:.5f}, "
          f"difference {mine - other:+.2e} nats (limit {options.limit:g}); largest of {len(curve)} "
          f"evaluations {max(abs(a - b) for _, a, b in curve):.2e}")  # fmt: skip
    print(f"wall: {our_seconds:.0f} s, {names[1]} {their_seconds:.0f} s, each with start and evaluations")
    print(f"picture: {options.picture}")
    sys.exit(0 if abs(mine - other) <= options.limit else 1)


if __name__ == "__main__":
    main()
