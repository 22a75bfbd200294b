#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in bf16 with a fake cuDNN that agrees with our own kernels, one that does not, and none."""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import DEVICE, TINY, Job, lines_of  # noqa: E402

OPTIONS = {**TINY, "model.context": 64, "precision": "bf16", "steps": 12}
NOTE = "NOTE attention by our own kernels"


def run(folder, name, ranks, status=0, **environment):
    """Its losses and what it says."""
    log = folder / f"{name}.log"
    with Job(ranks, {**OPTIONS, "run": folder / name}, log, environment=environment) as job:
        assert job.process.wait(timeout=200) == status, log.read_text()[-3000:]
    return [float(line["loss"]) for line in lines_of(folder / name).values()], log.read_text()


def main():
    assert DEVICE != "cpu", "set LOCKSTEP_TEST_DEVICE"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        own, said = run(folder, "own", 1, LOCKSTEP_CUDA_ATTENTION="own", LOCKSTEP_FAKE_CUDNN="agrees")
        assert NOTE not in said, said
        library, said = run(folder, "library", 1, LOCKSTEP_FAKE_CUDNN="agrees")
        assert NOTE not in said, said
        apart = max(abs(a - b) for a, b in zip(own, library))
        assert 0 < apart < 5e-3, f"losses are {apart} apart"
        print(f"losses with the library are within {apart:.1e} of those of our own kernels")
        # The same bits on any number of ranks hold for both.
        two, said = run(folder, "two", 2, LOCKSTEP_FAKE_CUDNN="agrees")
        assert two == library, (two, library)
        for behaviour in ("", "wrong", "changes", "refuses"):
            environment = {"LOCKSTEP_FAKE_CUDNN": behaviour}
            losses, said = run(folder, f"with {behaviour or 'none'}", 1, **environment)
            assert losses == own, (behaviour, losses, own)
            assert said.count(NOTE) == 1, said
        _, said = run(folder, "must", 1, status=79, LOCKSTEP_CUDA_ATTENTION="cudnn", LOCKSTEP_FAKE_CUDNN="wrong")
        assert "attention by cuDNN: [B 1, T 64, 2 heads of 16]: qkv_grad is off by" in said, said
        _, said = run(folder, "unknown", 1, status=78, LOCKSTEP_CUDA_ATTENTION="flash")
        assert "LOCKSTEP_CUDA_ATTENTION" in said, said


if __name__ == "__main__":
    os.environ.pop("LOCKSTEP_FAKE_CUDNN", None)
    main()
