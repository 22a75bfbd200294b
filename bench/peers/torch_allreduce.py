#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce of PyTorch's gloo backend, as a peer of `lockstep bench allreduce --sizes -`.

  torchrun --standalone --nproc-per-node 2 torch_allreduce.py REPEATS

Reads sizes in bytes from rank 0's stdin, a line each, and answers each at once with a line of JSON.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

SMALL, CALLS = 65536, 50  # below: so many in a row


def next_size(rank):
    bytes_ = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        bytes_[0] = int(sys.stdin.readline() or 0)
    dist.broadcast(bytes_, 0)
    return int(bytes_[0])


def check(values, rank, ranks):
    """Small integers, so that every order of additions gives the same float."""
    index = torch.arange(len(values)) % 97
    values.copy_(index + rank)
    dist.all_reduce(values)
    assert torch.equal(values, (index * ranks + ranks * (ranks - 1) // 2).float()), "a sum is wrong"


def seconds_of(values, calls, rank, ranks):
    # Ones, and on the last rank what makes the sum zero: it stays zero.
    values.fill_(1.0 if rank + 1 < ranks else 1.0 - ranks)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(values)
    slowest = torch.tensor((time.perf_counter() - began) / calls, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    assert not values.any(), "a sum is not zero"
    return slowest.item()


def main():
    repeats = int(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    buffers = {}
    while bytes_ := next_size(rank):
        if bytes_ not in buffers:
            buffers[bytes_] = torch.empty(bytes_ // 4)
            check(buffers[bytes_], rank, ranks)
        calls = CALLS if bytes_ < SMALL else 1
        seconds = [seconds_of(buffers[bytes_], calls, rank, ranks) for _ in range(repeats + 1)]
        if rank == 0:
            line = {"peer": "gloo", "ranks": ranks, "bytes": bytes_, "calls": calls,
                    "seconds": statistics.median(seconds[1:])}  # fmt: skip
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
