#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks with ZeRO-1 save to a real S3 server, are asked to leave, and go on as 1, 2, 3 and 6 ranks: the
bits are those of an undisturbed run. Prints how long leaving and coming back take. However many ranks load,
each byte of a shard leaves the server once.

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
from bucket import Bucket  # noqa: E402
from chaos import Chaos  # noqa: E402
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


def check_reads(options, folder, environment):
    """Launches that have nothing to do but load."""
    prefix = options["store"].removeprefix(f"{URI}/") + "/"
    last = f"/{OPTIONS['steps']:012d}."
    shards = {key: size for key, (size, _) in Bucket(environment).objects(prefix).items() if last in key and ".h5" in key}
    for ranks in (1, 2, 4):
        with Chaos(environment["AWS_ENDPOINT_URL"], folder / f"proxy {ranks}.log") as chaos:
            here = {**environment, "AWS_ENDPOINT_URL": chaos.url}
            assert train(ranks, options, folder / "load.log", environment=here) == 0, (folder / "load.log").read_text()
            gets = [each for each in chaos.requests() if each["op"] == "GetObject" and each["key"].endswith(".h5")]
        read = 0
        for each in gets:
            begin, last_byte = re.fullmatch(r"bytes=(\d+)-(\d+)", each["range"]).groups()
            assert each["status"] == 206, each
            read += int(last_byte) + 1 - int(begin)
        assert 0.99 * sum(shards.values()) <= read <= sum(shards.values()), (ranks, read, shards)
        print(f"{ranks} ranks load {len(shards)} shards of {sum(shards.values())} bytes by {len(gets)} requests for "
              f"{read} bytes", flush=True)  # fmt: skip


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
        check_reads(options, folder, environment)


if __name__ == "__main__":
    main()
