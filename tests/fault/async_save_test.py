#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves in the background: the same bits, kills while one is being written, disks that are full.

A save that fails costs nothing but itself: training goes on, the old commit stands, and when there
is space again the next save is made. After checkpoint.max_failures in a row the job ends with 79.
    async_save_test.py [--seed 1]
"""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from mounts import may_mount, small_disk  # noqa: E402
from train import TINY, Job, lines_of, newest_commit, result_of, train, verify, wait_for  # noqa: E402

OPTIONS = {**TINY, "steps": 400, "checkpoint.every": 10, "checkpoint.max_failures": 1000}


# Slower steps, for what is done to a job from outside while it runs.
SLOW = {**OPTIONS, "model.hidden": 128, "model.context": 64, "steps": 500}


def check_end(run, peace, log):
    assert result_of(run)["weights_sha256"] == result_of(peace)["weights_sha256"], log.read_text()[-2000:]
    assert lines_of(run) == lines_of(peace), "lines of metrics.jsonl differ or are missing"
    assert newest_commit(run)[1] == result_of(peace)["steps"]
    verify(run)
    left = list((run / "checkpoints/t").glob("*")) if (run / "checkpoints/t").exists() else []
    assert not left, left


def wait_for_record(job, number):
    """Until this attempt has appended so many records to the log; the first one is its CLAIM."""
    log = job.run / "checkpoints/log"
    before = len(list(log.glob("*.json"))) if log.exists() else 1
    while job.process.poll() is None and (not log.exists() or len(list(log.glob("*.json"))) < before + number):
        time.sleep(0.002)


def stalls(run):
    text = (run / "metrics.jsonl").read_text()
    return sum(json.loads(line)["checkpoint_stall_s"] for line in text.splitlines())


def check_same_bits(folder, peace):
    run, log = folder / "background", folder / "background.log"
    assert train(3, {**OPTIONS, "run": run, "checkpoint.every": 1}, log) == 0, log.read_text()
    check_end(run, peace, log)
    print(f"a save at every step, in the background: the same bits, {stalls(run):.2f} s of stall")


def check_seconds(folder, peace):
    run, log = folder / "seconds", folder / "seconds.log"
    options = {**OPTIONS, "run": run, "checkpoint.every": 0, "checkpoint.every_seconds": 0.1, "checkpoint.keep": 100}
    assert train(2, options, log) == 0, log.read_text()
    check_end(run, peace, log)
    commits = len(list((run / "checkpoints/m").glob("*.json")))
    assert commits >= 3, f"{commits} commits"
    print(f"checkpoint.every_seconds = 0.1: {commits} commits")


def check_auto(folder, peace):
    """`peace`: of the slow options, so that saves end while training goes on."""
    run, log = folder / "auto", folder / "auto.log"
    options = {**SLOW, "run": run, "checkpoint.every": "auto", "checkpoint.mtbf": 20, "checkpoint.keep": 100}
    with Job(2, options, log) as job:
        wait_for(job, r"checkpoint.every = auto: \d+ steps?, .*; a save holds training up for \S+ s and is durable")
        wait_for_record(job, 1)
        os.kill(job.pids()[1], signal.SIGKILL)
        assert job.wait(60) != 0
    saved = newest_commit(run)[1]
    assert train(3, options, log) == 0, log.read_text()
    assert 10 < saved < SLOW["steps"] and f"resumed at step {saved}" in log.read_text(), log.read_text()
    check_end(run, peace, log)
    said = re.findall(r"checkpoint.every = auto: (\d+) steps?, (\S+) s;", log.read_text())
    print(f"checkpoint.every = auto chose {said[0][0]} steps ({said[0][1]} s); killed, resumed at step {saved}: same bits")


def check_kills(folder, peace, chance):
    run, log = folder / "kills", folder / "kills.log"
    options = {**OPTIONS, "run": run, "checkpoint.every": 1}
    for ranks, number in ((2, 2), (3, 4)):
        before = newest_commit(run)
        with Job(ranks, options, log) as job:
            wait_for_record(job, number)
            time.sleep(chance.uniform(0.0, 0.05))
            os.kill(job.pids()[chance.randrange(ranks)], signal.SIGKILL)
            assert job.wait(30) != 0
        commit = newest_commit(run)
        assert commit and (before is None or commit > before), (before, commit)
        verify(run)
    assert train(2, options, log) == 0, log.read_text()
    check_end(run, peace, log)
    resumed = re.findall(r"resumed at step (\d+)", log.read_text())
    print(f"two kills while saves were being written: resumed at steps {resumed}, the same bits")


def limit_files(job, limit):
    """Files of the job cannot grow beyond `limit` any more."""
    for pid in job.pids():
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


def check_failing_store(folder, peace):
    run, log = folder / "limit", folder / "limit.log"
    with Job(2, {**SLOW, "run": run}, log) as job:
        job.wait_for_step(20)
        limit_files(job, 8192)
        wait_for(job, r"NOTE the save of step \d+ failed \(2 in a row")
        limit_files(job, resource.RLIM_INFINITY)
        assert job.wait(120) == 0, job.text()[-3000:]
        text = job.text()
    assert re.search(r"failed \(1 in a row.*training goes on.*rank \d.*s/.*ulimit -f", text, re.S), text[-3000:]
    assert re.search(r"checkpoints: \d+ commits, \d+ failed saves, \d+ skipped saves?", text), text[-3000:]
    check_end(run, peace, log)
    print("saves that could not be written were counted, training went on to the same bits")


def check_giving_up(folder):
    for mode in ("true", "false"):
        run, log = folder / f"give up {mode}", folder / f"give up {mode}.log"
        options = {**SLOW, "run": run, "checkpoint.max_failures": 2, "checkpoint.async": mode}
        with Job(2, options, log) as job:
            job.wait_for_step(20)
            limit_files(job, 8192)
            status = job.wait(60)
            text = job.text()
        assert status == 79, (status, text[-3000:])
        assert "2 saves in a row failed" in text and "checkpoint.max_failures" in text, text[-3000:]
        assert text.count("lockstep: ") == 1, text[-3000:]
        assert result_of(run)["code"] == 79 and newest_commit(run)[1] >= 10, result_of(run)
        verify(run)
    print("checkpoint.max_failures = 2: the job ends with 79, the last commit stands")


def fill(folder):
    """Takes every byte of the file system that is left."""
    with open(folder / "filler", "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def check_full_disk(folder, peace):
    disk = folder / "disk"
    with small_disk(disk, "128m"):
        # What a run needs, and little more, so that the rest is filled at once.
        (disk / "filler").write_bytes(bytes((128 - 64) << 20))
        run, log = disk / "run", folder / "disk.log"
        with Job(2, {**SLOW, "run": run}, log) as job:
            job.wait_for_step(20)
            # Again and again: a commit under way may still make room by what it retires.
            wait_for(job, r"NOTE the save of step \d+ failed \(2 in a row", meanwhile=lambda: fill(disk))
            (disk / "filler").unlink()
            assert job.wait(120) == 0, job.text()[-3000:]
            text = job.text()
        assert "the file system is full" in text, text[-3000:]
        check_end(run, peace, log)
    print("a full disk that held the whole run folder: the same bits, no line of metrics.jsonl is lost")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    chance = random.Random(parser.parse_args().seed)
    mounting = may_mount()
    with tempfile.TemporaryDirectory(prefix="lockstep async ") as name:
        folder = pathlib.Path(name)
        peace, log = folder / "peace", folder / "peace.log"
        assert train(2, {**OPTIONS, "run": peace, "checkpoint.async": "false"}, log) == 0, log.read_text()
        check_same_bits(folder, peace)
        check_seconds(folder, peace)
        check_kills(folder, peace, chance)
        slow, log = folder / "slow", folder / "slow.log"
        assert train(2, {**SLOW, "run": slow, "checkpoint.async": "false"}, log) == 0, log.read_text()
        check_auto(folder, slow)
        check_failing_store(folder, slow)
        check_giving_up(folder)
        if mounting:
            check_full_disk(folder, slow)
        else:
            print("this process may not mount a file system: the full disk was a limit on file sizes only")


if __name__ == "__main__":
    main()
