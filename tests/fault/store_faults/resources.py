# SPDX-License-Identifier: Apache-2.0
"""Row 39: saves that lack memory or threads."""
import os
import pathlib
import re
import resource
import signal
import time

from store_faults.table import BIG, BUILD, ENDLESS, Missing, Place, row, script, unit, wait_for_commit, wait_for_text

# The allocator takes what a step needs from its heap, which stays, and a copy of the state from the system.
FROM_SYSTEM = {"MALLOC_MMAP_THRESHOLD_": str(8 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
STACK = 8 << 20  # of a thread
SLACK = 4 << 20  # of whatever else the process does


def limit_memory(pid, more):
    """Lets the process have `more` bytes of address space than it has; None: any number."""
    size = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    soft = resource.RLIM_INFINITY if more is None else size + more
    resource.prlimit(pid, resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))


@row(39, "no thread for background saves, no memory for a copy of 13 MB, none for a second one", "counted, training goes on; then saves go on with one copy")
def no_memory(world):
    place = Place(world, 39, {**BIG, **ENDLESS, "checkpoint.async": "true", "checkpoint.every": 20})
    place.rules()
    with place.job(environment={**FROM_SYSTEM, "OMP_NUM_THREADS": "1"}) as job:
        pid = job.wait_for_pids()[1]
        job.wait_for_step(2)
        limit_memory(pid, SLACK)
        wait_for_text(job, r"NOTE the save of step \d+ failed .*training goes on.*no thread to write saves with")
        limit_memory(pid, STACK + SLACK)
        wait_for_text(job, r"NOTE the save of step \d+ failed .*training goes on.*no memory for a copy of \d{8} bytes")
        assert not place.commits(), place.commits()
        limit_memory(pid, None)
        wait_for_commit(place, job)
        # One copy waits for the store, the second has no memory.
        place.rules("stall op=PutObject key=*/m/*")
        place.wait_for_fault(job)
        limit_memory(pid, SLACK)
        wait_for_text(job, r"was skipped, one is still being written")
        limit_memory(pid, None)
        stalled = place.commits()[-1]
        place.rules()
        wait_for_commit(place, job, stalled + 100)
        assert len(re.findall("NOTE saves go on with one copy of the state", job.text())) == 1, job.text()[-3000:]
        os.kill(pid, signal.SIGUSR2)
        assert job.wait(60) == 75, place.text()[-3000:]
    assert not place.orphans(), place.orphans()
    assert "all bytes" in place.ckpt("verify", place.store)
    return unit("BackgroundSave.GoesOnWithOneSlotWhereThereIsNoMemoryForTwo:"
                "BackgroundSave.FailsOnAllRanksWhereOneHasNoMemoryForACopyAndTheNextIsMade:"
                "BackgroundSave.FailsOnAllRanksWhenAWriterHasNoMemory")  # fmt: skip


@row(39.3, "a control group or a machine with less memory left than a copy needs", "refused before the kernel kills the rank")
def control_group(_):
    return unit("AvailableMemory.IsWhatAGroupOfVersion2Leaves:AvailableMemory.IsWhatAGroupOfVersion1Leaves:"
                "BackgroundSave.FailsOnAllRanksWhereOneHasNoMemoryForACopyAndTheNextIsMade")  # fmt: skip


@row(39.5, "page-locked memory cannot be had (fake CUDA libraries)", "a copy in ordinary memory and a NOTE, same bits")
def no_pinned(_):
    fake = BUILD.parent / "cuda-fake/bin/lockstep"
    if not fake.exists():
        raise Missing("needs the build cuda-fake beside this one")
    return script("fault/no_pinned_test.py", environment={"LOCKSTEP_BIN": str(fake), "LOCKSTEP_TEST_DEVICE": "cuda",
                                                          "LOCKSTEP_FAKE_GPUS": "8"})  # fmt: skip
