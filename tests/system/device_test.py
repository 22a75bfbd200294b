#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run on LOCKSTEP_TEST_DEVICE, on several ranks, has the losses of a run on the CPU."""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import DEVICE, TINY, lines_of, train  # noqa: E402

OPTIONS = {**TINY, "steps": 30}
# In bf16 a device rounds the probabilities of attention too, which the CPU keeps in f32 (2⁻⁹ relative).
LIMITS = {"f32": 1e-5, "bf16": 5e-4}


def losses(folder, name, ranks, **changes):
    log = folder / f"{name}.log"
    assert train(ranks, {**OPTIONS, **changes, "run": folder / name}, log) == 0, log.read_text()[-2000:]
    return [float(line["loss"]) for line in lines_of(folder / name).values()]


def main():
    assert DEVICE != "cpu", "set LOCKSTEP_TEST_DEVICE"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for precision, limit in LIMITS.items():
            want = losses(folder, f"cpu-{precision}", 1, device="cpu", precision=precision)
            got = losses(folder, f"device-{precision}", 2, precision=precision)
            assert len(want) == len(got) == OPTIONS["steps"], (len(want), len(got))
            worst = max(abs(a - b) for a, b in zip(want, got))
            assert worst <= limit, f"{precision}: losses differ by {worst}"
            print(f"{precision}: losses of {DEVICE} on 2 ranks within {worst:.1e} of the CPU's")


if __name__ == "__main__":
    main()
