#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs between GPUs, those of the fakes, in which NCCL goes wrong: each ends in time, with the code that
schedulers act on and a line that says what it was.

nccl_fault_test.py PROBE MPIRUN_LOCAL
"""
import os
import re
import subprocess
import sys
import time

LIMIT = 15.0  # seconds from the start of mpirun to its end; an operation may take two
# What is wrong, ranks, the fakes' fault, the probe's words, code, what must be on stderr.
CASES = [
    ("nothing", 4, "", ["auto", "cuda"], 0, ""),
    ("nothing, forced", 2, "", ["nccl", "cuda"], 0, ""),
    ("a peer is lost", 3, "remote_error@5:rank1", ["auto", "cuda"], 79,
     r"rank 1: .* of group data .*: remote process exited"),
    ("a collective hangs", 3, "stuck@5:rank2", ["auto", "cuda"], 79,
     r"of group data \(100000 x f32\): gave up after 2"),
    ("a start hangs", 2, "init_never:rank1", ["auto", "cuda"], 79,
     r"make group data: .*not all ranks have connected over NCCL"),
    ("another version", 3, "version=2.19.3:rank2", ["auto", "cuda"], 78,
     r"NCCL differs: rank 0 has [0-9.]+, rank 2 has 2\.19\.3"),
    ("one GPU for two", 2, "", ["auto", "cuda:1"], 78,
     r"rank 0 and rank 1 are on one GPU, 0000:02:00\.0 of host "),
    ("one GPU for two, told to be two hosts", 2, "", ["auto", "cuda:1"], 0, ""),
    ("another backend", 2, "", ["mpi", "cuda"], 78,
     r"backend mpi moves nothing between tensors on cuda"),
    ("a device too few", 3, "", ["auto", "cuda:7"], 79, r"rank 0: cuda:7: cudaErrorInvalidDevice"),
]
# NCCL takes the ranks for as many hosts, as bench/gpu.py does where there is one GPU.
HOST_EACH = ["sh", "-c", 'NCCL_HOSTID="$OMPI_COMM_WORLD_RANK" exec "$0" "$@"']


def main():
    probe, mpirun = sys.argv[1:]
    failed = False
    for name, ranks, fault, words, code, text in CASES:
        environment = dict(os.environ, LOCKSTEP_FAKE_GPUS="4", LOCKSTEP_FAKE_NCCL=fault)
        program = [*HOST_EACH, probe] if "two hosts" in name else [probe]
        began = time.monotonic()
        try:
            job = subprocess.run([mpirun, "-n", str(ranks), *program, *words], env=environment, text=True,
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=4 * LIMIT)
        except subprocess.TimeoutExpired:
            print(f"{name}: does not end")
            failed = True
            continue
        took = time.monotonic() - began
        good = job.returncode == code and re.search(text, job.stderr) and took < LIMIT
        print(f"{name}: {'ok' if good else 'FAILED'}, status {job.returncode} after {took:.1f} s")
        if not good:
            print(f"expected {code} and {text}:\n{job.stderr}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
