#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks with ZeRO-1 save to a real S3 server, are asked to leave, and go on as 1, 2, 3 and 6 ranks: the
bits are those of an undisturbed run. Prints how long leaving and coming back take.

    elastic_store_test.py [--ranks 1,2,3,6]
"""
import argparse
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from s3_server import URI, in_small_parts, s3_server  # noqa: E402
from train import TINY, Job, lines_of, newest_commit, result_of, train, verify  # noqa: E402

OPTIONS = {**TINY, "model.layers": 6, "model.hidden": 128, "steps": 40, "checkpoint.every": 10, "zero": 1}


def seconds_since(moment):
    return time.monotonic() - moment


def leave(options, log, environment):
    """Seconds from the notice to the end of the job."""
    with Job(4, options, log, environment=environment) as job:
        job.wait_for_step(14)
        noticed = time.monotonic()
        os.kill(job.pids()[2], signal.SIGTERM)
        assert job.wait(60) == 75, job.text()[-3000:]
        seconds = seconds_since(noticed)
    saved = result_of(options["run"])["steps"]
    assert newest_commit(options["store"], environment) == (1, saved) and saved < OPTIONS["steps"], saved
    return seconds, saved


def come_back(ranks, options, saved, log, environment):
    """Seconds from the start of the command to the end of its first step."""
    started = time.monotonic()
    with Job(ranks, options, log, environment=environment) as job:
        job.wait_for_step(saved + 1)
        seconds = seconds_since(started)
        assert job.wait(120) == 0, job.text()[-3000:]
        assert re.search(rf"resumed at step {saved}\b", job.text()), job.text()[-3000:]
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 3, 6])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep.elastic.") as name, s3_server() as server:
        folder = pathlib.Path(name)
        environment = in_small_parts(server, folder)
        peace = folder / "peace"
        assert train(2, {**OPTIONS, "zero": 0, "run": peace}, folder / "peace.log") == 0
        for ranks in chosen.ranks:
            run, log = folder / str(ranks), folder / f"{ranks}.log"
            options = {**OPTIONS, "run": run, "store": f"{URI}/{name.split('/')[-1]}/{ranks}"}
            leaving, saved = leave(options, log, environment)
            coming = come_back(ranks, options, saved, log, environment)
            assert result_of(run)["weights_sha256"] == result_of(peace)["weights_sha256"]
            assert lines_of(run) == lines_of(peace)
            verify(options["store"], environment)
            print(f"4 ranks left at step {saved} {leaving:.2f} s after the notice; as {ranks} ranks the next step "
                  f"was done {coming:.2f} s after the start; the same bits", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
