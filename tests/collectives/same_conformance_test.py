#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance suite over every transport; each must pass the same tests, without a skip.

same_conformance_test.py COLLECTIVES_TEST NCCL_TEST PROCESS_GROUP_MPI_TEST MPIRUN_LOCAL
"""
import os
import re
import subprocess
import sys

RANKS = 3
PASSED = re.compile(r"^\[       OK \] \w+/Conformance\.(\w+)/", re.MULTILINE)
DECLARED = re.compile(r"^  (\w+)/", re.MULTILINE)


def gtest(words, *options):
    run = subprocess.run([*words, *options, "--gtest_color=no"], capture_output=True, text=True, check=False, timeout=120,
                         stdin=subprocess.DEVNULL, env=dict(os.environ, LOCKSTEP_FAKE_GPUS="4"))  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


def main():
    threads, gpus, processes, mpirun = sys.argv[1:]
    job = [mpirun, "-n", str(RANKS)]
    ways = {  # launcher, program, options, the group's name among the suite's parameters
        "local": ([], threads, [], f"local_{RANKS}"),
        "shm": ([], threads, [], f"shm_{RANKS}"),
        "shm between processes": (job, processes, ["--backend=shm"], "job"),
        "mpi": (job, processes, ["--backend=mpi"], "job"),
        "nccl": ([], gpus, [], f"{RANKS}_ranks"),
        "nccl between processes": (job, processes, ["--backend=nccl", "--device=cuda"], "job"),
    }
    passed, declared = {}, {}
    for name, (launcher, program, options, group) in ways.items():
        chosen = f"--gtest_filter=*Conformance.*/{group}"
        declared[name] = sorted(DECLARED.findall(gtest([program], "--gtest_list_tests", chosen)))
        passed[name] = sorted(PASSED.findall(gtest([*launcher, program, *options], chosen)))
        print(f"{name}: {len(passed[name])} of {len(declared[name])} tests passed on {RANKS} ranks", flush=True)
    want = declared["local"]
    assert len(want) > 10 and len(set(want)) == len(want), want
    for name in ways:
        assert declared[name] == want, f"{name} has other tests: {set(want) ^ set(declared[name])}"
        assert passed[name] == want, f"{name} did not pass: {set(want) - set(passed[name])}"


if __name__ == "__main__":
    main()
