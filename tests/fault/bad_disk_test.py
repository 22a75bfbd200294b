#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stores that are full, over quota or broken: a failed save costs itself, never the last commit.

Full: a file system with room for one commit and not for two. I/O errors: a disk that breaks (a loop
device, where there is one), and a library that makes calls fail, which also plays the quota (not
every kernel has one).
    bad_disk_test.py FAILING_DISK_LIBRARY
"""
import errno
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from mounts import may_mount, mortal_disk, small_disk  # noqa: E402
from train import TINY, Job, lines_of, newest_commit, result_of, train, verify, wait_for  # noqa: E402

OPTIONS = {**TINY, "model.hidden": 128, "model.context": 64, "steps": 200, "schedule.total": 1000, "checkpoint.every": 10,
           "checkpoint.keep": 1, "checkpoint.max_failures": 1000}  # fmt: skip
# More steps than a job makes while its disk fails and is mended, however slow the machine: it is told
# to leave.
ENDLESS = {**OPTIONS, "steps": 1_000_000}
TWICE = r"NOTE the save of step \d+ failed \(2 in a row"


def size_of(folder):
    """Bytes on disk."""
    return sum(path.lstat().st_blocks * 512 for path in [folder, *folder.rglob("*")])


def wait_for_commit_after(job, store, before):
    deadline = time.monotonic() + 60
    while newest_commit(store) == before:
        assert job.process.poll() is None and time.monotonic() < deadline, f"no commit\n{job.text()[-3000:]}"
        time.sleep(0.02)


def check_leaves(job, run, store, peace):
    """Saves when it is told to leave; until then the losses were those of a run with a good disk."""
    job.wait_for_step(100)
    os.kill(job.pids()[1], signal.SIGUSR1)
    assert job.wait(60) == 75, job.text()[-3000:]
    expected, found = lines_of(peace), lines_of(run)
    common = expected.keys() & found.keys()
    assert len(common) >= 100 and all(found[step] == expected[step] for step in common)
    assert re.search(r"checkpoints: \d+ commits, \d+ failed saves", job.text()), job.text()[-3000:]
    assert newest_commit(store) == (1, result_of(run)["steps"])
    verify(store)


def check_given_up(job, run, store, first, error):
    """checkpoint.max_failures = 2 were reached."""
    status = job.wait(60)
    text = job.text()
    assert status == 79 and result_of(run)["code"] == 79, (status, result_of(run), text[-3000:])
    assert "2 saves in a row failed" in text and error in text, text[-3000:]
    # A record that was linked before the disk's error came may count.
    standing = newest_commit(store)
    assert standing and standing >= first, (standing, first, text[-3000:])
    verify(store)


def check_full(folder, peace, commit):
    with small_disk(folder / "small", commit * 3 // 2) as resize:
        run, log, store = folder / "full", folder / "full.log", f"file:{folder}/small/store"
        with Job(2, {**ENDLESS, "run": run, "store": store}, log) as job:
            # Not always that of step 10: two saves at once have no room.
            wait_for_commit_after(job, store, None)
            first = newest_commit(store)
            wait_for(job, TWICE)
            assert newest_commit(store) == first, (first, job.text()[-3000:])
            verify(store)
            assert os.strerror(errno.ENOSPC) in job.text() and "the file system is full" in job.text(), job.text()
            resize(4 * commit)
            wait_for_commit_after(job, store, first)
            check_leaves(job, run, store, peace)
    print("a store with room for one commit: counted, the commit stands; with more room the next save is made",
          flush=True)  # fmt: skip
    with small_disk(folder / "small again", commit * 3 // 2):
        run, log, store = folder / "given up", folder / "given up.log", f"file:{folder}/small again/store"
        options = {**ENDLESS, "run": run, "store": store, "checkpoint.max_failures": 2, "checkpoint.async": "false"}
        with Job(2, options, log) as job:
            check_given_up(job, run, store, (1, 10), os.strerror(errno.ENOSPC))
    print("and with checkpoint.max_failures = 2 the job ends with 79, the commit stands", flush=True)


def check_errors(folder, peace, library):
    """One run through all errors, one after another."""
    run, log, control = folder / "errors", folder / "errors.log", folder / "control"
    standing = None
    environment = {"LD_PRELOAD": library, "FAILING_DISK": str(control)}
    with Job(2, {**ENDLESS, "run": run}, log, environment=environment) as job:
        for call, error, limit, hint in (("pwrite", errno.EDQUOT, 100_000, "quota is used up"),
                                         ("pwrite", errno.EIO, 0, "disk or the file server failed"),
                                         ("fsync", errno.EIO, 0, "disk or the file server failed")):  # fmt: skip
            wait_for_commit_after(job, run, standing)
            before, seen = newest_commit(run), len(job.text())
            order_failures(control, f"{call} {int(error)} {limit} {run}/checkpoints/")
            deadline = time.monotonic() + 60
            while not re.search(TWICE, job.text()[seen:]) and time.monotonic() < deadline:
                assert job.process.poll() is None, job.text()[-3000:]
                time.sleep(0.02)
            text = job.text()[seen:]
            assert os.strerror(error) in text and hint in text, (call, error, text[-3000:])
            standing = newest_commit(run)
            assert standing >= before, (standing, before)
            verify(run)
            assert newest_commit(run) == standing
            control.unlink()
            print(f"{call}: {os.strerror(error)}: named and counted, {standing} stands", flush=True)
        wait_for_commit_after(job, run, standing)
        check_leaves(job, run, run, peace)


def order_failures(control, words):
    """Tells FAILING_DISK_LIBRARY what to do, whole."""
    fresh = control.with_suffix(".next")
    fresh.write_text(words + "\n")
    fresh.rename(control)


def check_slow_disk(folder, library):
    """mpirun kills what is left of a job a second after a rank was lost: no fsync can be waited for."""
    run, log, control = folder / "slow", folder / "slow.log", folder / "slow control"
    environment = {"LD_PRELOAD": library, "FAILING_DISK": str(control)}
    with Job(3, {**ENDLESS, "run": run}, log, environment=environment) as job:
        wait_for_commit_after(job, run, None)
        order_failures(control, f"stall 4000 0 {run}/")
        os.kill(job.pids()[1], signal.SIGKILL)
        job.wait(60)
        causes = sorted(path.name for path in (run / "cause").glob("*.json"))
        assert causes == ["1.0.json", "1.2.json"], (causes, job.text()[-3000:])
        assert result_of(run)["code"] == 79 and "rank 1" in result_of(run)["reason"], result_of(run)
    print("a rank lost while an fsync takes 4 s: all causes and the result are there", flush=True)


def check_broken_disk(folder, commit):
    """I/O errors of a real disk; they come at the fsync, long after the writes."""
    disk = folder / "disk"
    with mortal_disk(disk, 8 * commit) as break_it:
        if break_it is None:
            print("no loop devices here: no disk with I/O errors of its own")
            return
        run, log, store = folder / "broken", folder / "broken.log", f"file:{disk}/store"
        with Job(2, {**ENDLESS, "run": run, "store": store, "checkpoint.max_failures": 2}, log) as job:
            wait_for_commit_after(job, store, None)
            break_it()
            check_given_up(job, run, store, newest_commit(store), os.strerror(errno.EIO))
    print("a disk that breaks: 79 after two failed saves, the commit stands", flush=True)


def main():
    mounting = may_mount()
    # LD_PRELOAD ends a name at a space, and the tree and TMPDIR may have some.
    with (tempfile.TemporaryDirectory(prefix="lockstep disk ") as name,
          tempfile.TemporaryDirectory(prefix="lockstep-disk.", dir="/tmp") as plain):  # fmt: skip
        folder = pathlib.Path(name)
        library = shutil.copy(sys.argv[1], f"{plain}/failing_disk.so")
        one, peace, log = folder / "one", folder / "peace", folder / "peace.log"
        assert train(2, {**OPTIONS, "run": one, "steps": 10}, log) == 0, log.read_text()
        commit = size_of(one / "checkpoints")
        assert train(2, {**OPTIONS, "run": peace}, log) == 0, log.read_text()
        check_errors(folder, peace, library)
        check_slow_disk(folder, library)
        if mounting:
            check_full(folder, peace, commit)
            check_broken_disk(folder, commit)
        else:
            print("this process may not mount a file system: no full disk")


if __name__ == "__main__":
    main()
