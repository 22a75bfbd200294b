#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo's model and data on LOCKSTEP_TEST_DEVICE: 2 ranks, one of them killed, go on to the end. The bits are
those of runs in peace on 1 and 3 ranks, and the losses those of the CPU."""
import os
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import DEVICE, Job, lines_of, result_of, train, verify  # noqa: E402

# scripts/demo, cut down to a few steps.
STEPS = 12
OPTIONS = {
    "model.preset": "gpt2-tiny", "data.source": "text:/usr/include/c++", "reduction": "invariant", "seed": 7,
    "steps": STEPS, "batch.global": 12, "batch.micro": 2, "optim.lr": 2e-3, "schedule.warmup": 20,
    "eval.every": 6, "eval.batches": 2, "checkpoint.every": 2,
}  # fmt: skip
LIMIT = 1e-5


def run(folder, name, ranks, device):
    log = folder / f"{name}.log"
    status = train(ranks, {**OPTIONS, "run": folder / name, "device": device}, log)
    assert status == 0, log.read_text()[-2000:]
    return folder / name


def interrupted(folder):
    """A run that loses rank 1 after a few steps and is started again."""
    path = folder / "interrupted"
    options = {**OPTIONS, "run": path, "device": DEVICE}
    with Job(2, options, folder / "killed.log") as job:
        job.wait_for_step(5)
        os.kill(job.pids()[1], signal.SIGKILL)
        status = job.wait(30)
        assert status in (79, 137), (status, job.text()[-2000:])
    lost_at = max(lines_of(path))
    assert lost_at < STEPS, "it was not interrupted"
    assert train(2, options, folder / "resumed.log") == 0, (folder / "resumed.log").read_text()[-2000:]
    assert result_of(path)["attempt"] == 2, result_of(path)
    verify(path)
    return path, lost_at


def losses(path):
    return [float(line["loss"]) for _, line in sorted(lines_of(path).items())]


def main():
    assert DEVICE != "cpu", "set LOCKSTEP_TEST_DEVICE"
    with tempfile.TemporaryDirectory(prefix="lockstep device ") as name:
        folder = pathlib.Path(name)
        path, lost_at = interrupted(folder)
        bits = result_of(path)["weights_sha256"]
        for ranks in (1, 3):
            peace = run(folder, f"ranks{ranks}", ranks, DEVICE)
            assert result_of(peace)["weights_sha256"] == bits, f"{ranks} ranks in peace have other weights"
            assert lines_of(peace) == lines_of(path), f"{ranks} ranks in peace have other losses"
        print(f"2 ranks, one killed after step {lost_at}, and 1 and 3 in peace: the same bits, {bits}")
        want, got = losses(run(folder, "cpu", 2, "cpu")), losses(path)
        assert len(want) == len(got) == STEPS, (len(want), len(got))
        worst = max(abs(a - b) for a, b in zip(want, got))
        assert worst <= LIMIT, f"losses differ by {worst}"
        print(f"{STEPS} losses of {DEVICE} within {worst:.1e} of the CPU's")


if __name__ == "__main__":
    main()
