#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What saves to a real S3 server add to the memory of a process: at most a copy of its state for each slot in
use, and 256 MiB. Without a slot (checkpoint.async = false), with one and with both.

    save_memory_test.py [--layers 12] [--hidden 768]    85 M parameters, a state of 1.02 GB
"""
import argparse
import pathlib
import re
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from bucket import Bucket  # noqa: E402
from s3_server import URI, s3_server  # noqa: E402
from train import TINY, Job, lines_of  # noqa: E402

ALLOWED = 256 << 20
FIRST = 4  # the step of the first save where the peak before it is taken
MODES = {
    0: {"checkpoint.async": "false", "checkpoint.every": FIRST, "steps": 2 * FIRST},
    1: {"checkpoint.every": FIRST, "steps": 2 * FIRST - 1},
    2: {"checkpoint.every": 1, "steps": 2 * FIRST},
}  # by slots in use


def peak_of(pid):
    """Bytes of resident memory, at most so far; None at the process's end."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def peaks(options, log, environment):
    """(before the first save, at the end, what the job said)"""
    before = last = 0
    with Job(0, options, log, environment=environment) as job:
        while job.process.poll() is None:
            last = peak_of(job.process.pid) or last
            if max(lines_of(job.run), default=0) < FIRST:  # the line of a step comes before its save
                before = last
            time.sleep(0.02)
        assert job.wait() == 0, job.text()[-3000:]
        return before, last, job.text()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep.memory.") as name, s3_server(6 << 30) as environment:
        folder = pathlib.Path(name)
        bucket = Bucket(environment)
        model = {**TINY, "model.layers": chosen.layers, "model.hidden": chosen.hidden, "batch.global": 2,
                 "eval.every": 0, "checkpoint.keep": 1}  # fmt: skip
        before = None
        for slots, keys in MODES.items():
            options = {**model, **keys, "run": folder / str(slots), "store": f"{URI}/{folder.name}/{slots}"}
            start, end, said = peaks(options, folder / f"{slots}.log", environment)
            before = before or start  # where every step saves there is no step before
            copy = 12 * int(re.search(r"model: (\d+) parameters", said)[1])
            assert ("skipped" in said) == (slots == 2), said[-3000:]
            added = end - before
            print(f"{slots} slots, state {copy / 1e9:.2f} GB: saves added {added / 2**20:.0f} MiB to a peak of "
                  f"{before / 2**20:.0f} MiB, {(added - slots * copy) / 2**20:.0f} MiB beside the slots", flush=True)  # fmt: skip
            assert added >= slots * copy, "the slots were not in use"
            assert added <= slots * copy + ALLOWED, "more than allowed"
            bucket.clear(f"{folder.name}/{slots}/")


if __name__ == "__main__":
    main()
