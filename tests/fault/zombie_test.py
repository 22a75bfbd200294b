#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attempts that do not know of each other and share a store: one goes on, all others are fenced.

    zombie_test.py [--zombies 2] [--races 2] [--racers 16] [--seed 1]

Zombies: all ranks of an attempt are stopped (SIGSTOP) at a random moment; another attempt, with its own run
folder, claims the store and trains to the end; the first is continued. It must end as fenced (80) with the
store as it found it. Races: many launches claim one store at once; all but one must end as fenced.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from bucket import Bucket  # noqa: E402
from commits import committed_keys, records_of  # noqa: E402
from s3_server import URI, in_small_parts, s3_server  # noqa: E402
from train import TINY, Job, ckpt, lines_of, result_of, train, verify  # noqa: E402

FENCED, SAVED = 80, 75
OPTIONS = {**TINY, "model.layers": 6, "model.hidden": 128, "steps": 60, "checkpoint.every": 3}


def signal_ranks(job, number):
    for pid, rank in job.processes().items():
        if rank is not None:
            os.kill(pid, number)


def stop_somewhere(job, chance):
    """All its ranks, after its first commits and before its last."""
    job.wait_for_step(chance.randint(6, 40))
    time.sleep(chance.uniform(0.0, 0.5))
    signal_ranks(job, signal.SIGSTOP)


def zombie(folder, environment, bucket, peace, chance, number):
    prefix = f"{folder.name}/zombie{number}/"
    options = {**OPTIONS, "store": f"{URI}/{prefix[:-1]}", "checkpoint.async": chance.choice(["true", "false"])}
    first, second = folder / f"first{number}", folder / f"second{number}"
    with Job(2, {**options, "run": first}, folder / "zombie.log", environment=environment) as job:
        stop_somewhere(job, chance)
        stopped = max(lines_of(first))
        status = train(2, {**options, "run": second}, folder / "second.log", environment=environment)
        assert status == 0, (folder / "second.log").read_text()[-3000:]
        assert result_of(second)["weights_sha256"] == peace, "the second attempt trained something else"
        before = bucket.objects(prefix)
        signal_ranks(job, signal.SIGCONT)
        woken = time.monotonic()
        status = job.wait(60)
        seconds = time.monotonic() - woken
        said = job.text()
    assert status == FENCED and result_of(first)["code"] == FENCED, (status, result_of(first), said[-3000:])
    assert "has claimed the job" in said, said[-3000:]
    after = bucket.objects(prefix)
    assert after.items() <= before.items(), f"the zombie wrote {after.items() - before.items()}:\n{said[-3000:]}"
    assert committed_keys(bucket, prefix) <= after.keys(), "the zombie removed what is committed"
    left = after.keys() - committed_keys(bucket, prefix) - {key for key in before if "000002.000" in key}
    assert not left and not bucket.uploads(prefix), (left, bucket.uploads(prefix))
    verify(options["store"], environment)
    print(f"a zombie of step {stopped}, checkpoint.async {options['checkpoint.async']}: fenced {seconds:.1f} s "
          f"after it woke, {len(before.keys() - after.keys())} objects of its own removed", flush=True)  # fmt: skip
    bucket.clear(prefix)


def race(folder, environment, bucket, racers, number):
    prefix = f"{folder.name}/race{number}/"
    # Nobody ends by himself before all others have ended.
    options = {**TINY, "steps": 1_000_000, "checkpoint.every": 10, "store": f"{URI}/{prefix[:-1]}"}
    with contextlib.ExitStack() as jobs:
        running = [
            jobs.enter_context(Job(0, {**options, "run": folder / f"race{number}.{racer}"},
                                   folder / f"race{number}.{racer}.log", environment=environment))
            for racer in range(racers)
        ]  # fmt: skip
        deadline = time.monotonic() + 180
        while sum(job.process.poll() is None for job in running) > 1:
            assert time.monotonic() < deadline, "several launches go on"
            time.sleep(0.05)
        time.sleep(0.5)
        winners = [job for job in running if job.process.poll() is None]
        assert len(winners) == 1, "nobody goes on"
        commits = len(records_of(bucket, prefix))
        while len(records_of(bucket, prefix)) < commits + 3:
            assert time.monotonic() < deadline, "the winner does not commit"
            time.sleep(0.05)
        winners[0].process.send_signal(signal.SIGTERM)
        ends = collections.Counter(job.wait(60) for job in running)
        assert ends == {SAVED: 1, FENCED: racers - 1}, (ends, [job.text()[-500:] for job in running])
    records = records_of(bucket, prefix)
    claims = [record["epoch"] for record in records if record["kind"] == "CLAIM"]
    assert claims == list(range(1, len(claims) + 1)), claims
    newest = 0
    for record in records:  # nobody wrote after the CLAIM of a newer one
        newest = max(newest, record["epoch"])
        assert record["epoch"] == newest, record
    assert max(claims) == result_of(winners[0].run)["attempt"], "another than the last to claim went on"
    verify(options["store"], environment)
    ckpt("gc", options["store"], "--dry_run", "false", environment=environment)
    assert set(bucket.objects(prefix)) == committed_keys(bucket, prefix)
    print(f"{racers} launches at once: {len(claims)} claimed one after the other, one went on, "
          f"{racers - 1} were fenced", flush=True)  # fmt: skip
    bucket.clear(prefix)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zombies", type=int, default=2)
    parser.add_argument("--races", type=int, default=2)
    parser.add_argument("--racers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="lockstep.zombie.") as name, s3_server() as server:
        folder = pathlib.Path(name)
        environment = in_small_parts(server, folder)
        bucket = Bucket(environment)
        if options.zombies:
            assert train(2, {**OPTIONS, "run": folder / "peace"}, folder / "peace.log") == 0
        for number in range(options.zombies):
            peace = result_of(folder / "peace")["weights_sha256"]
            zombie(folder, environment, bucket, peace, chance, number)
        for number in range(options.races):
            race(folder, environment, bucket, options.racers, number)


if __name__ == "__main__":
    main()
