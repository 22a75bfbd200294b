#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads by PyTorch Distributed Checkpoint, as a peer of `lockstep bench checkpoint`.

  torchrun --standalone --nproc-per-node 2 torch_dcp.py FOLDER --bytes 268435456 --repeats 5

Every rank holds the same state, as replicas of data-parallel training do; DCP writes each tensor
once and spreads them over the ranks: 16 of one size, so that it can do so evenly. Files are synced
(DCP's default), and the folder is here. Each save gets a fresh folder, which is removed outside the
timing. The stager of asynchronous saves is kept, so that it copies into memory it has.

Prints a line of JSON on rank 0, with the names of `lockstep bench checkpoint`.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

TENSORS = 16


def timed(work):
    """Seconds of the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    work()
    slowest = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


class Subject:
    def __init__(self, options):
        torch.manual_seed(1)
        size = options.bytes // 4 // TENSORS
        self.state = {f"tensor.{i}": torch.randn(size) for i in range(TENSORS)}
        self.original = {name: tensor.clone() for name, tensor in self.state.items()}
        self.folder = options.folder
        self.saves = 0
        self.stager = DefaultStager(StagingOptions(False, False, False, False))
        self.background_group = dist.new_group(backend="gloo")

    def next_folder(self):
        self.saves += 1
        return self.folder / str(self.saves)

    @staticmethod
    def make_durable(folder):
        # DCP has synced the files when all ranks are here.
        if dist.get_rank() == 0:
            for path in (folder, folder.parent):
                handle = os.open(path, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)
        dist.barrier()

    @staticmethod
    def remove(folder):
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder)
        dist.barrier()

    def save_and_load(self, times):
        folder = self.next_folder()

        def save():
            dcp.save(self.state, checkpoint_id=folder)
            self.make_durable(folder)

        times["save_s"].append(timed(save))
        times["load_s"].append(self.load(folder))
        self.remove(folder)

    def load(self, folder):
        for tensor in self.state.values():
            tensor.zero_()
        seconds = timed(lambda: dcp.load(self.state, checkpoint_id=folder))
        for name, tensor in self.state.items():
            assert torch.equal(tensor, self.original[name]), f"{name} is not what was saved"
        return seconds

    def save_in_background(self, times, check=False):
        folder = self.next_folder()
        futures = []

        def begin():
            futures.append(
                dcp.async_save(self.state, checkpoint_id=folder, async_stager=self.stager,
                               process_group=self.background_group)
            )  # fmt: skip

        def save():
            times["stall_s"].append(timed(begin))
            futures[0].result()
            self.make_durable(folder)

        times["background_s"].append(timed(save))
        if check:
            self.load(folder)
        self.remove(folder)

    def copy(self, times, repeats):
        """What a background save copies: all of the state, on every rank."""
        copies = {name: tensor.clone() for name, tensor in self.state.items()}

        def copy():
            for name, tensor in self.state.items():
                copies[name].copy_(tensor)

        times["copy_s"] += [timed(copy) for _ in range(repeats)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="a new one")
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        options.folder.mkdir(parents=True)
    subject = Subject(options)
    keys = ["save_s", "load_s", "stall_s", "copy_s", "background_s"]
    times = {key: [] for key in keys}
    first = {key: [] for key in keys}  # on space of the disk that nobody has written to
    subject.save_and_load(first)
    for _ in range(options.repeats):
        subject.save_and_load(times)
    subject.save_in_background(first, check=True)  # allocates what it stages into
    for _ in range(options.repeats):
        subject.save_in_background(times)
    subject.copy(times, options.repeats)
    subject.stager.close()
    if dist.get_rank() == 0:
        line = {"peer": "torch-dcp", "torch": torch.__version__, "ranks": dist.get_world_size(),
                "bytes": sum(tensor.nbytes for tensor in subject.state.values()), "repeats": options.repeats,
                **{key: statistics.median(values) for key, values in times.items()}, "checked": True}  # fmt: skip
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
