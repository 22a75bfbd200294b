#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One run, however it is spread: precision × V × ranks × backend × zero, each interrupted at a random
step and resumed on another number of ranks, backend and zero, must give one `weights_sha256` and one
text of the losses for each precision and V.

    matrix_test.py [--sample 8 | --all] [--seed 1]
"""
import argparse
import itertools
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BACKENDS, DEVICE, TINY, lines_of, result_of, train  # noqa: E402

STEPS = 12
KINDS = list(itertools.product(("f32", "bf16", "fp16"), (4, 8, 12)))  # (precision, V)
SPREADS = [(ranks, backend, zero) for ranks, backend, zero in itertools.product((1, 2, 3, 4), BACKENDS, (0, 1))]


def options(kind, run, spread):
    precision, leaves = kind
    _, backend, zero = spread
    return {**TINY, "batch.global": leaves, "steps": STEPS, "eval.every": 4, "bucket_bytes": 40_000,
            "run": run, "backend": backend, "zero": zero, "precision": precision}  # fmt: skip


def run(folder, kind, spreads, pause=None):
    """The bits of a run that begins in one way and, from step `pause` on, goes on in another."""
    path = folder / f"{len(list(folder.iterdir()))}"
    log = folder / "log"
    for spread, end in zip(spreads, (pause, None) if pause else (None,), strict=True):
        status = train(spread[0], {**options(kind, path, spread), **({"pause_at": end} if end else {})}, log)
        assert status == (75 if end else 0), log.read_text()[-3000:]
    lines = lines_of(path)
    assert len(lines) == STEPS, sorted(lines)
    return result_of(path)["weights_sha256"], lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=8 if DEVICE == "cpu" else 4)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    cells = list(itertools.product(KINDS, SPREADS))
    if not chosen.all:
        cells = chance.sample(cells, chosen.sample)
    with tempfile.TemporaryDirectory(prefix="lockstep matrix ") as name:
        folder = pathlib.Path(name)
        expected = {kind: run(folder, kind, [(1, "auto", 0)]) for kind in sorted({k for k, _ in cells})}
        assert len({bits for bits, _ in expected.values()}) == len(expected), "precision and V are part of the bits"
        for kind, spread in cells:
            other = chance.choice([each for each in SPREADS if each[0] != spread[0]])
            pause = chance.randrange(1, STEPS)
            assert run(folder, kind, [spread, other], pause) == expected[kind], (kind, spread, other, pause)
        for kind, (bits, _) in expected.items():
            count = sum(k == kind for k, _ in cells)
            print(f"{kind[0]}, V = {kind[1]}: {count} runs, each resumed in another way: {bits}")


if __name__ == "__main__":
    main()
