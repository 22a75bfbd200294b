#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One run, however it is spread: V × ranks × backend × zero, each interrupted at a random step and
resumed on another number of ranks, backend and zero, must give one `weights_sha256` and one text of
the losses for each V.

    matrix_test.py [--sample 6 | --all] [--seed 1]
"""
import argparse
import itertools
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import TINY, lines_of, result_of, train  # noqa: E402

STEPS = 12
LEAVES = (4, 8, 12)
SPREADS = [(ranks, backend, zero) for ranks, backend, zero in itertools.product((1, 2, 3, 4), ("shm", "mpi"), (0, 1))]


def options(leaves, run, spread):
    _, backend, zero = spread
    return {**TINY, "batch.global": leaves, "steps": STEPS, "eval.every": 4, "bucket_bytes": 40_000,
            "run": run, "backend": backend, "zero": zero}  # fmt: skip


def run(folder, leaves, spreads, pause=None):
    """The bits of a run that begins in one way and, from step `pause` on, goes on in another."""
    path = folder / f"{leaves}-{len(list(folder.iterdir()))}"
    log = folder / "log"
    for spread, end in zip(spreads, (pause, None) if pause else (None,), strict=True):
        status = train(spread[0], {**options(leaves, path, spread), **({"pause_at": end} if end else {})}, log)
        assert status == (75 if end else 0), log.read_text()[-3000:]
    lines = lines_of(path)
    assert len(lines) == STEPS, sorted(lines)
    return result_of(path)["weights_sha256"], lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=6)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    cells = list(itertools.product(LEAVES, SPREADS))
    if not chosen.all:
        cells = chance.sample(cells, chosen.sample)
    with tempfile.TemporaryDirectory(prefix="lockstep matrix ") as name:
        folder = pathlib.Path(name)
        expected = {leaves: run(folder, leaves, [(1, "auto", 0)]) for leaves in sorted({v for v, _ in cells})}
        assert len({bits for bits, _ in expected.values()}) == len(expected), "V is part of the bits"
        for leaves, spread in cells:
            other = chance.choice([each for each in SPREADS if each[0] != spread[0]])
            pause = chance.randrange(1, STEPS)
            assert run(folder, leaves, [spread, other], pause) == expected[leaves], (leaves, spread, other, pause)
        for leaves, (bits, _) in expected.items():
            print(f"V = {leaves}: {sum(v == leaves for v, _ in cells)} runs, each resumed in another way: {bits}")


if __name__ == "__main__":
    main()
