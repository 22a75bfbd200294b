#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that is slow, or stands still for less than the silence timeout, is waited for.

Stops (SIGSTOP) and continues ranks of a run, for seconds and for moments: nobody is declared lost,
and the bits are those of a run that nobody touched. That a rank is lost which stands still for
longer: kill_resume_test.py.
    slow_rank_test.py [--seed 1]
"""
import argparse
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import TINY, Job, lines_of, result_of, train  # noqa: E402

LONG = 4.0  # seconds; the silence timeout is 6
OPTIONS = {**TINY, "model.hidden": 64, "steps": 250, "checkpoint.every": 20}


def pause(pid, seconds):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def check(folder, peace, backend, ranks, long_pauses, chance):
    run, log = folder / f"slow {backend}", folder / f"slow {backend}.log"
    with Job(ranks, {**OPTIONS, "run": run, "backend": backend}, log) as job:
        job.wait_for_step(20)
        pids = job.pids()
        pauses = 0
        for rank in long_pauses:
            # Also long enough that the others have slept: more than one heartbeat.
            pause(pids[rank], LONG)
            assert job.process.poll() is None, f"ended while rank {rank} stood still, or before: {job.text()[-3000:]}"
            time.sleep(0.1)
            pauses += 1
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and job.process.poll() is None:
            try:
                pause(chance.choice(pids), chance.uniform(0.01, 0.2))
            except ProcessLookupError:
                break
            time.sleep(chance.uniform(0.0, 0.1))
            pauses += 1
        assert job.wait(120) == 0, job.text()[-3000:]
        text = job.text()
    assert result_of(run)["attempt"] == 1 and not list((run / "cause").glob("*.json")), text[-3000:]
    assert result_of(run)["weights_sha256"] == result_of(peace)["weights_sha256"]
    assert lines_of(run) == lines_of(peace)
    print(f"{ranks} ranks over {backend}, {pauses} pauses, {len(long_pauses)} of {LONG:.0f} s: the same bits",
          flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    chance = random.Random(parser.parse_args().seed)
    with tempfile.TemporaryDirectory(prefix="lockstep slow ") as name:
        folder = pathlib.Path(name)
        peace = folder / "peace"
        assert train(1, {**OPTIONS, "run": peace}, folder / "peace.log") == 0, (folder / "peace.log").read_text()
        check(folder, peace, "shm", 3, (0,), chance)
        check(folder, peace, "mpi", 2, (1,), chance)


if __name__ == "__main__":
    main()
