#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills, stops or trips one rank of a running job and looks at what the others make of it.

lost_rank_test.py PROBE MPIRUN_LOCAL [--seed N] [--rounds N]

Every survivor must leave a cause that names the rank and what happened to it, all must end with one
code, and nothing may be left ten seconds later.
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 10.0  # seconds from the fault to the end of the last process

# What is done, the kind of cause that survivors must name, the code of the job.
FAULTS = {
    "kill": (signal.SIGKILL, "lost rank", 79),
    "stop": (signal.SIGSTOP, "stopped rank", 79),
    "throw": (signal.SIGUSR1, "exception", 70),
}
# Ranks, victim (None: chance), backend, byte transports of Open MPI.
CASES = [
    ("kill", 2, 0, "auto", None),
    ("kill", 3, None, "mpi", None),
    ("kill", 4, 0, "mpi", None),
    ("kill", 4, None, "auto", None),
    ("kill", 3, None, "mpi", "self,tcp"),
    ("kill", 4, 0, "mpi", "self,tcp"),
    ("stop", 2, 1, "auto", None),
    ("stop", 3, 0, "auto", None),
    ("stop", 4, None, "mpi", None),
    ("throw", 2, 0, "auto", None),
    ("throw", 3, None, "mpi", None),
    ("throw", 4, None, "auto", None),
]


def read(path):
    return path.read_text().splitlines() if path.exists() else []


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


class Job:
    def __init__(self, options, folder, ranks, backend, transports, seconds):
        self.folder = folder
        self.ranks = ranks
        environment = dict(os.environ)
        if transports:
            environment["LOCKSTEP_LOCAL_BTL"] = transports
        self.process = subprocess.Popen(
            [options.mpirun, "-n", str(ranks), options.probe, str(folder), backend, str(seconds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def at_work(self):
        return all((self.folder / f"step.{rank}").exists() for rank in range(self.ranks))

    def pids(self):
        return [int(read(self.folder / f"pid.{rank}")[0]) for rank in range(self.ranks)]

    def close(self):
        """Ends what is left, by process number."""
        for path in self.folder.glob("pid.*"):
            pid = int(read(path)[0])
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()


def run_case(options, case, chance):
    fault, ranks, victim, backend, transports = case
    if victim is None:
        victim = chance.randrange(ranks)
    sent, kind, code = FAULTS[fault]
    name = f"{fault} rank {victim} of {ranks}, {backend}" + (f", {transports}" if transports else "")
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        job = Job(options, folder, ranks, backend, transports, 60)
        try:
            if not wait_until(job.at_work, 30):
                return [f"{name}: the job did not get to work: {job.process.communicate()[1]}"]
            time.sleep(chance.uniform(0, 0.3))
            pids = job.pids()
            began = time.monotonic()
            os.kill(pids[victim], sent)
            try:
                job.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                faults.append(f"the launcher still runs after {LIMIT} s")
            took = time.monotonic() - began
            left = [pid for pid in pids if alive(pid)]
            if left and not wait_until(lambda: not any(map(alive, left)), LIMIT - took):
                faults.append(f"processes are left: {left}")
            codes = set()
            for rank in range(ranks):
                if rank == victim and fault != "throw":
                    continue
                cause = read(folder / f"cause.{rank}")
                if cause[:3] != [str(victim), kind, str(code)]:
                    faults.append(f"rank {rank} names the cause {cause}")
                codes.update(read(folder / f"exit.{rank}") or [f"none of rank {rank}"])
            if codes != {str(code)}:
                faults.append(f"codes {codes}, expected {code} everywhere")
            root_survives = victim != 0 or fault == "throw"
            if root_survives and read(folder / "result") != [str(code)]:
                faults.append("rank 0 was cut off before it had written the result")
            status = job.process.poll()
            # mpirun reports the end that it sees first: that of the killed rank, or a survivor's.
            if status != code and not (fault == "kill" and status == 137):
                faults.append(f"the launcher's status is {status}")
            if faults:
                faults.append(job.process.communicate()[1] if status is not None else "")
        finally:
            job.close()
    print(f"{'FAILED' if faults else 'ok'}: {name}: {took:.2f} s", flush=True)
    return [f"{name}: {each}" for each in faults]


def run_clean(options):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        job = Job(options, folder, 3, "auto", None, 1)
        try:
            status = job.process.wait(30)
            causes = list(folder.glob("cause.*"))
        finally:
            job.close()
    return [] if status == 0 and not causes else [f"without a fault: status {status}, {causes}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("mpirun")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    faults = run_clean(options)
    for _ in range(options.rounds):
        for case in CASES:
            faults += run_case(options, case, chance)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
