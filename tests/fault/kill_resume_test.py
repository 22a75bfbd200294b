#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills (-9) or stops (SIGSTOP) a random rank at a random moment of a training run, again and again.

Every job must end within ten seconds with the right cause, every restart must go on from the last
commit, on another number of ranks and with or without ZeRO-1, and in the end the bits must be those of
a run that nobody touched.
    kill_resume_test.py [--kills 5] [--stops 1] [--all 0] [--store files] [--ranks 2,3,4] [--seed 1]

--all: besides, kills of all processes of a job at once, so that nobody can clear up. --store s3: checkpoints
go to a real S3 server, in shards of several parts. There in the end `ckpt verify` must find every byte as
it was written, and after `ckpt gc` nothing but the log and what its live commits name may be left, by
another client's listing.
"""
import argparse
import contextlib
import dataclasses
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
from bucket import Bucket  # noqa: E402
from commits import committed_keys, records_of  # noqa: E402
from s3_server import URI, in_small_parts, s3_server  # noqa: E402
from train import BACKENDS, TINY, Job, ckpt, lines_of, newest_commit, result_of, train, verify  # noqa: E402

LIMIT = 10.0  # seconds from the fault to the end of the last process
FAULTS = {"killed": (signal.SIGKILL, "lost rank"), "stopped": (signal.SIGSTOP, "stopped rank"),
          "killed with all others": (signal.SIGKILL, None)}  # fmt: skip
WAYS = [("auto", None), (BACKENDS[1], None), (BACKENDS[1], "self,tcp")]  # backend, transports of Open MPI
SMALL = {**TINY, "steps": 400, "checkpoint.every": 5}
# On two ranks a shard has 7 MB: two parts of a multipart upload.
LARGE = {**TINY, "model.layers": 6, "model.hidden": 128, "steps": 80, "checkpoint.every": 3}


@dataclasses.dataclass
class Setting:
    """What all jobs have in common."""

    options: dict
    ranks: list
    environment: dict = None
    bucket: Bucket = None  # None: checkpoints are in the run folder

    def options_of(self, run):
        return {**self.options, "run": run, **({"store": self.store(run)} if self.bucket else {})}

    def store(self, run):
        return f"{URI}/{self.prefix(run)}" if self.bucket else run

    def prefix(self, run):
        return f"{run.parent.name}/{run.name}".replace(" ", "-")

    def newest(self, run):
        return newest_commit(self.store(run), self.environment)


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


def left_by(setting, run):
    """What a fault has left in the store."""
    if not setting.bucket:
        return ""
    prefix = setting.prefix(run) + "/"
    waste = set(setting.bucket.objects(prefix)) - committed_keys(setting.bucket, prefix)
    return f", left {len(waste)} objects without a commit, {len(setting.bucket.uploads(prefix))} unfinished uploads"


def check_store(setting, run):
    """That all commits are whole, and that the sweep leaves nothing else."""
    verify(setting.store(run), setting.environment)
    if not setting.bucket:
        return
    swept = ckpt("gc", setting.store(run), "--dry_run", "false", environment=setting.environment)
    prefix = setting.prefix(run) + "/"
    there, kept = set(setting.bucket.objects(prefix)), committed_keys(setting.bucket, prefix)
    assert there == kept, (there ^ kept, swept)
    assert not setting.bucket.uploads(prefix), setting.bucket.uploads(prefix)
    records = records_of(setting.bucket, prefix)
    assert [record["seq"] for record in records] == list(range(len(records)))
    print(f"  {len(records)} records, {len(there)} objects, all committed; {swept.splitlines()[-1]}")
    setting.bucket.clear(prefix)


def fail_once(setting, folder, run, chance, whole_seconds, fault):
    """One attempt that loses a rank. True if there was one to lose."""
    sent, kind = FAULTS[fault]
    ranks = chance.choice(setting.ranks)
    backend, transports = chance.choice(WAYS)
    expected = setting.newest(run)
    log = folder / f"{len(list(folder.glob('*.log')))}.log"
    options = {**setting.options_of(run), "backend": backend, "zero": chance.choice([0, 1])}
    with Job(ranks, options, log, transports, environment=setting.environment) as job:
        if fault == "stopped":
            job.wait_for_pids()  # before that only timeout.init ends the wait for a stopped rank
        left = 1.0 - (expected[1] if expected else 0) / setting.options["steps"]
        time.sleep(chance.uniform(0.0, whole_seconds * max(left, 0.2)))
        victims = {rank: pid for pid, rank in job.processes().items() if rank is not None}
        if not victims or job.process.poll() is not None:
            assert job.wait() == 0, job.text()[-2000:]
            return False
        victim = chance.choice(sorted(victims))
        begun = job.pids() is not None
        for pid in job.processes() if kind is None else [victims[victim]]:
            with contextlib.suppress(ProcessLookupError):  # mpirun ends with the first of its ranks
                os.kill(pid, sent)
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
        if kind:
            check_causes(run, attempt, ranks, victim, kind, text)
        # Lost before it said where it begins, or with nothing left to do, it says neither.
        resumed = re.search(r"resumed at step (\d+)", text)
        if resumed or "a new run of" in text:
            from_step = int(resumed[1]) if resumed else 0
            assert from_step == (expected[1] if expected else 0), (from_step, expected)
    newest = setting.newest(run)
    assert not expected or (newest and newest[1] >= expected[1]), (newest, expected)
    print(f"rank {victim} of {ranks} over {transports or backend} {fault}, status {status}, ended in {seconds:.1f} s, "
          f"{'attempt ' + str(attempt) if begun else 'before it began'}, "
          f"newest commit {newest}{left_by(setting, run)}", flush=True)  # fmt: skip
    return True


def soak(setting, counts, folder, chance):
    began = time.monotonic()
    peace = folder / "peace"
    assert train(2, {**setting.options, "run": peace}, folder / "peace.log") == 0
    whole_seconds = time.monotonic() - began
    faults = [fault for fault, count in counts.items() for _ in range(count)]
    chance.shuffle(faults)
    done = rounds = 0
    while done < len(faults):
        run = folder / f"run{rounds}"
        rounds += 1
        # A few faults a run, so that runs also reach their end.
        for _ in range(min(4, len(faults) - done)):
            done += fail_once(setting, folder, run, chance, whole_seconds, faults[done])
        log = folder / "end.log"
        status = train(setting.ranks[-1], setting.options_of(run), log, environment=setting.environment)
        assert status == 0, log.read_text()[-3000:]
        assert result_of(run)["weights_sha256"] == result_of(peace)["weights_sha256"]
        assert lines_of(run) == lines_of(peace)
        print(f"run {rounds}: the same bits after {result_of(run)['attempt']} attempts", flush=True)
        check_store(setting, run)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--all", type=int, default=0)
    parser.add_argument("--store", choices=["files", "s3"], default="files")
    parser.add_argument("--ranks", type=lambda text: [int(each) for each in text.split(",")], default=[2, 3, 4])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts = dict(zip(FAULTS, [options.kills, options.stops, options.all]))
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="lockstep kill ") as name, contextlib.ExitStack() as servers:
        folder = pathlib.Path(name)
        setting = Setting(SMALL, options.ranks)
        if options.store == "s3":
            environment = in_small_parts(servers.enter_context(s3_server()), folder)
            setting = Setting(LARGE, options.ranks, environment, Bucket(environment))
        soak(setting, counts, folder, chance)
    print(", ".join(f"{count} x {fault}" for fault, count in counts.items() if count) + ": all as they should be")


if __name__ == "__main__":
    main()
