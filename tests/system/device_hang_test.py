#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kernel that never ends, on one of two ranks of the fakes: the job ends with 79 soon after timeout.collective, and
says which rank waited for what."""
import os
import pathlib
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import DEVICE, TINY, Job  # noqa: E402

WAITS = 3  # timeout.collective, in seconds
LIMIT = 60  # of the whole job; what hangs is left after 10 s
# In the first step, and in a later one.
LAUNCHES = (40, 3000)


def main():
    assert DEVICE != "cpu", "set LOCKSTEP_TEST_DEVICE"
    for ranks in (1, 2):
        for launch in LAUNCHES:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                options = {**TINY, "steps": 2000, "eval.every": 0, "timeout.collective": WAITS, "run": folder / "run"}
                began = time.monotonic()
                environment = {"LOCKSTEP_FAKE_CUDA_FAIL": f"hang:{launch}"}
                with Job(ranks, options, folder / "log", environment=environment) as job:
                    status = job.process.wait(timeout=4 * LIMIT)
                took = time.monotonic() - began
                log = (folder / "log").read_text()
                assert status == 79, f"{ranks} ranks, launch {launch}: status {status}\n{log[-3000:]}"
                assert took < LIMIT, f"{ranks} ranks, launch {launch}: {took:.0f} s\n{log[-3000:]}"
                told = re.search(r"rank \d: .*gave up after [0-9.]+ s", log)
                assert told, log[-3000:]
                print(f"{ranks} ranks, launch {launch}: 79 after {took:.1f} s: {told[0]}")


if __name__ == "__main__":
    os.environ.pop("LOCKSTEP_FAKE_CUDA_FAIL", None)
    main()
