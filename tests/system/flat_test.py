#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that saves at every step needs no more memory, open files or threads at its end than before.

    flat_test.py [--steps 400] [--store files]

--store s3: on a real S3 server, in shards of several parts, which are sent by threads of their own.

Looks at both ranks every few milliseconds, and compares the second quarter of the run, when all buffers
have been used, with the last. The log of saves in memory may grow by its records.
"""
import argparse
import contextlib
import pathlib
import re
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from s3_server import URI, in_small_parts, s3_server  # noqa: E402
from train import TINY, Job, newest_commit, result_of  # noqa: E402

RECORD_BYTES = 1024  # CLAIM aside, a save adds COMMIT, RETIRE and what they name
SLACK_BYTES = 1 << 20  # pages that the allocator touches late
PARTED = {"model.layers": 6, "model.hidden": 128}  # on two ranks a shard has 7 MB: two parts


def look(pid):
    process = pathlib.Path(f"/proc/{pid}")
    status = dict(re.findall(r"(\w+):\s+(\d+)", (process / "status").read_text()))
    # Of its own, without files and memory shared with others.
    return {"bytes": int(status["RssAnon"]) * 1024, "threads": int(status["Threads"]),
            "files": len(list((process / "fd").iterdir()))}  # fmt: skip


def watch(job):
    """{rank: [what was seen]}, evenly over the run."""
    seen = {rank: [] for rank in range(2)}
    processes = {rank: pid for pid, rank in job.processes().items() if rank is not None}
    while job.process.poll() is None:
        for rank, pid in processes.items():
            try:
                seen[rank].append(look(pid))
            except (OSError, KeyError):  # it ends
                pass
        time.sleep(0.005)
    return seen


def check(seen, saves):
    for rank, looks in seen.items():
        assert len(looks) >= 20, f"rank {rank}: only {len(looks)} looks"
        quarter = len(looks) // 4
        early, late = looks[quarter : 2 * quarter], looks[-quarter:]
        before, after = (statistics.median(what["bytes"] for what in part) for part in (early, late))
        limit = SLACK_BYTES + RECORD_BYTES * saves
        assert after - before <= limit, f"rank {rank}: memory grew by {after - before} bytes (limit {limit})"
        threads = [max(what["threads"] for what in part) for part in (early, late)]
        assert threads[1] <= threads[0], f"rank {rank}: {threads} threads"
        files = [max(what["files"] for what in part) for part in (early, late)]
        assert files[1] <= files[0] + 1, f"rank {rank}: {files} open files"
        print(f"rank {rank}: memory {(after - before) / 1024:+.0f} KiB at {before / 2**20:.1f} MiB, "
              f"at most {threads[0]} and {threads[1]} threads, {files[0]} and {files[1]} open files")  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--store", choices=["files", "s3"], default="files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep.flat.") as name, contextlib.ExitStack() as servers:
        environment, parted = None, {}
        if options.store == "s3":
            environment = in_small_parts(servers.enter_context(s3_server()), pathlib.Path(name))
            parted = PARTED
        for background in ("true", "false"):
            run = pathlib.Path(name) / background
            # Steps wait for no file then, and are over before much has been saved.
            steps = options.steps * (5 if background == "true" and not parted else 1)
            keys = {**TINY, **parted, "run": run, "steps": steps, "checkpoint.every": 1,
                    "checkpoint.async": background}  # fmt: skip
            store = run
            if environment:
                store = keys["store"] = f"{URI}/{pathlib.Path(name).name}/{background}"
            with Job(2, keys, f"{run}.log", environment=environment) as job:
                job.wait_for_step(1)
                seen = watch(job)
                assert job.wait(1200) == 0, job.text()[-2000:]
                text = job.text()
            assert result_of(run)["steps"] == steps
            assert newest_commit(store, environment) == (1, steps)
            skipped = re.search(r"(\d+) skipped saves?", text)
            saves = steps - (int(skipped[1]) if skipped else 0)
            print(f"checkpoint.async {background}: {steps} steps, {saves} saves")
            check(seen, saves)


if __name__ == "__main__":
    main()
