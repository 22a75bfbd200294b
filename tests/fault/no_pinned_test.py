#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where page-locked memory for the copies of a GPU's state cannot be had, saves use ordinary memory and say so, in the
background and not; weights and checkpoints are those of a run that has it. With the fake CUDA libraries."""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import DEVICE, TINY, Job, ckpt, newest_commit, result_of, verify  # noqa: E402

# A copy has 2.4 MB; all else that a rank page-locks has less than a megabyte.
OPTIONS = {**TINY, "model.hidden": 128, "steps": 20, "checkpoint.every": 5, "checkpoint.keep": 10}
LIMIT = 2_000_000
SAYS = "copies its state from the GPU into ordinary memory"


def train(folder, name, environment, **options):
    log = folder / f"{name}.log"
    with Job(2, {**OPTIONS, **options, "run": folder / name}, log, environment=environment) as job:
        assert job.wait(120) == 0, job.text()[-3000:]
        text = job.text()
    verify(folder / name)
    assert newest_commit(folder / name)[1] == 20, ckpt("ls", folder / name)
    return result_of(folder / name)["weights_sha256"], text


def main():
    assert DEVICE == "cuda", "set LOCKSTEP_TEST_DEVICE"
    with tempfile.TemporaryDirectory(prefix="lockstep pinned ") as name:
        folder = pathlib.Path(name)
        wanted, text = train(folder, "with", {})
        assert SAYS not in text, text[-3000:]
        for mode in ("true", "false"):
            weights, text = train(folder, f"without-{mode}", {"LOCKSTEP_FAKE_PINNED": str(LIMIT)}, **{"checkpoint.async": mode})
            assert weights == wanted, (mode, weights, wanted)
            for rank in range(2):
                assert text.count(f"NOTE rank {rank} {SAYS}") == 1, text[-3000:]
            assert "failed save" not in text, text[-3000:]
            print(f"checkpoint.async {mode}: without page-locked memory for copies, the same weights, a NOTE for each rank")


if __name__ == "__main__":
    main()
