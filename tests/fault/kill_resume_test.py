#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills (-9) or stops (SIGSTOP) a random rank at a random moment of a training run, again and again.

Every job must end within ten seconds with the right cause, every restart must go on from the last
commit, on another number of ranks and with or without ZeRO-1, and in the end the bits must be those of
a run that nobody touched.
    kill_resume_test.py [--kills 5] [--stops 1] [--seed 1]
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BACKENDS, TINY, Job, lines_of, newest_commit, result_of, train  # noqa: E402

LIMIT = 10.0  # seconds from the fault to the end of the last process
FAULTS = {"killed": (signal.SIGKILL, "lost rank"), "stopped": (signal.SIGSTOP, "stopped rank")}
WAYS = [("auto", None), (BACKENDS[1], None), (BACKENDS[1], "self,tcp")]  # backend, transports of Open MPI
OPTIONS = {**TINY, "steps": 400, "checkpoint.every": 5}


def check_causes(run, attempt, ranks, victim, kind, text):
    for rank in set(range(ranks)) - {victim}:
        path = run / "cause" / f"{attempt}.{rank}.json"
        assert path.exists(), f"rank {rank} of {ranks} left no cause, rank {victim} was lost:\n{text[-3000:]}"
        cause = json.loads(path.read_text())
        assert cause["origin_rank"] == victim, cause
        assert cause["kind"] == kind and cause["code"] == 79, cause


def parted_in_peace(job, run, victim):
    """Whether all ranks had agreed on the end before the fault, so that nobody misses this one. Rank 0, which
    writes the result, may not have come to that."""
    attempt = job.attempt()
    if list((run / "cause").glob(f"{attempt}.*.json")) or "finished at step" not in job.text():
        return False
    result = result_of(run)
    return victim == 0 or (result["attempt"] == attempt and result["code"] == 0)


def stopped_after_the_end(job, run, victim, pid, failed):
    """Whether it is the last one, and the others have ended in peace."""
    while job.process.poll() is None and time.monotonic() - failed < LIMIT:
        if {each for each, rank in job.processes().items() if rank is not None} == {pid}:
            return parted_in_peace(job, run, victim)
        time.sleep(0.05)
    return False


def fail_once(folder, run, chance, whole_seconds, fault):
    """One attempt that loses a rank. True if there was one to lose."""
    sent, kind = FAULTS[fault]
    ranks = chance.choice([2, 3, 4])
    backend, transports = chance.choice(WAYS)
    expected = newest_commit(run)
    log = folder / f"{len(list(folder.glob('*.log')))}.log"
    options = {**OPTIONS, "run": run, "backend": backend, "zero": chance.choice([0, 1])}
    with Job(ranks, options, log, transports) as job:
        if fault == "stopped":
            job.wait_for_pids()  # before that only timeout.init ends the wait for a stopped rank
        left = 1.0 - (expected[1] if expected else 0) / OPTIONS["steps"]
        time.sleep(chance.uniform(0.0, whole_seconds * max(left, 0.2)))
        victims = {rank: pid for pid, rank in job.processes().items() if rank is not None}
        if not victims or job.process.poll() is not None:
            assert job.wait() == 0, job.text()[-2000:]
            return False
        victim = chance.choice(sorted(victims))
        begun = job.pids() is not None
        os.kill(victims[victim], sent)
        failed = time.monotonic()
        if fault == "stopped" and stopped_after_the_end(job, run, victim, victims[victim], failed):
            os.kill(victims[victim], signal.SIGCONT)
            assert job.wait() == 0, job.text()[-2000:]
            return False
        status = job.wait(LIMIT + 20)
        while job.processes() and time.monotonic() - failed < LIMIT + 20:
            time.sleep(0.02)
        seconds = time.monotonic() - failed
        assert seconds < LIMIT, f"the job needed {seconds:.1f} s to end"
        attempt = job.attempt()
        text = job.text()
        if status == 0 or parted_in_peace(job, run, victim):  # on its last words
            return False
    if begun:
        check_causes(run, attempt, ranks, victim, kind, text)
        # Lost before it said where it begins, or with nothing left to do, it says neither.
        resumed = re.search(r"resumed at step (\d+)", text)
        if resumed or "a new run of" in text:
            from_step = int(resumed[1]) if resumed else 0
            assert from_step == (expected[1] if expected else 0), (from_step, expected)
    newest = newest_commit(run)
    assert not expected or (newest and newest[1] >= expected[1]), (newest, expected)
    print(f"rank {victim} of {ranks} over {transports or backend} {fault}, status {status}, ended in {seconds:.1f} s, "
          f"{'attempt ' + str(attempt) if begun else 'before it began'}, "
          f"newest commit {newest_commit(run)}", flush=True)  # fmt: skip
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="lockstep kill ") as name:
        folder = pathlib.Path(name)
        began = time.monotonic()
        assert train(2, {**OPTIONS, "run": folder / "peace"}, folder / "peace.log") == 0
        whole_seconds = time.monotonic() - began
        faults = ["killed"] * options.kills + ["stopped"] * options.stops
        chance.shuffle(faults)
        done = rounds = 0
        while done < len(faults):
            run = folder / f"run{rounds}"
            rounds += 1
            # A few faults a run, so that runs also reach their end.
            for _ in range(min(4, len(faults) - done)):
                done += fail_once(folder, run, chance, whole_seconds, faults[done])
            assert train(3, {**OPTIONS, "run": run}, folder / "end.log") == 0, (folder / "end.log").read_text()
            assert result_of(run)["weights_sha256"] == result_of(folder / "peace")["weights_sha256"]
            assert lines_of(run) == lines_of(folder / "peace")
            print(f"run {rounds}: the same bits after {result_of(run)['attempt']} attempts", flush=True)
    print(f"{options.kills} kills and {options.stops} stops, all as they should be")


if __name__ == "__main__":
    main()
