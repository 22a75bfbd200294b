# SPDX-License-Identifier: Apache-2.0
"""Rows 37, 38, 40 to 42, 45, 50 to 52: what happens to processes and disks while they save."""
import contextlib
import errno
import json
import os
import pathlib
import re
import resource
import signal
import struct
import time

from store_faults.table import BUILD, ENDLESS, OPTIONS, Place, row, script, unit, wait_for_commit, wait_for_text
from train import Job, lines_of, result_of, train



@row(37, "a disk that is full, over quota, broken, read-only, a stale handle, short writes", "the save fails and is counted, the commit stands")
def bad_disk(world):
    library = str(BUILD / "tests/fault/libfailing_disk.so")
    # LD_PRELOAD ends a name at a space.
    assert " " not in library, "a build folder with a space"
    run, control, log = world.folder / "run-37", world.folder / "control", world.folder / "37.log"
    options = {**OPTIONS, **ENDLESS, "run": run, "checkpoint.every": 100}
    with Job(1, options, log, environment={"LD_PRELOAD": library, "FAILING_DISK": str(control)}) as job:
        job.wait_for_step(150)
        for error in (errno.EROFS, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EIO):
            seen = len(job.text())
            fresh = control.with_suffix(".next")
            fresh.write_text(f"pwrite {int(error)} 10000 {run}/checkpoints/\n")
            fresh.rename(control)
            deadline = time.monotonic() + 30
            while os.strerror(error) not in job.text()[seen:]:
                assert time.monotonic() < deadline and job.process.poll() is None, job.text()[-3000:]
                time.sleep(0.02)
            control.unlink()
        os.kill(job.wait_for_pids()[0], signal.SIGUSR2)
        assert job.wait(60) == 75, job.text()[-3000:]
    assert not list(run.rglob("checkpoints/t/*")), "temporary files are left"
    return script("fault/bad_disk_test.py", library)


class ForgetfulDisk:
    """What a power cut would certainly leave: of a file what was synced, of a folder's names those that were there
    when it was synced."""

    def __init__(self):
        self.synced, self.names, self.kept = {}, {}, set()

    def play(self, call, path, target=None):
        if call == "write":
            self.synced[path] = False
        elif call == "link":
            self.names[target] = path
        elif call == "mkdir":
            self.names[path.rstrip("/")] = None
        else:
            self.synced[path] = True
            self.kept |= {name for name in self.names if str(pathlib.PurePath(name).parent) == path.rstrip("/")}

    def keeps(self, name, root):
        """Whether an object with its bytes, and the folders down to it, would be there."""
        folders = [str(each) for each in pathlib.PurePath(name).parents if pathlib.PurePath(root) in each.parents]
        return name in self.kept and self.synced.get(self.names[name], False) and all(
            each in self.kept or each not in self.names for each in folders)  # fmt: skip


@row(38, "a power cut at any moment: what was not synced is lost", "no COMMIT comes before its shards and manifest are durable", quick=True)
def power_cut(world):
    library, trace = str(BUILD / "tests/fault/libdisk_trace.so"), world.folder / "trace"
    run, log = world.folder / "run-38", world.folder / "38.log"
    with Job(2, {**OPTIONS, "run": run}, log, environment={"LD_PRELOAD": library, "DISK_TRACE": str(trace)}) as job:
        assert job.wait(60) == 0, job.text()[-3000:]
    root, disk, seen = str(run / "checkpoints"), ForgetfulDisk(), 0
    for line in trace.read_text().splitlines():
        words = line.split("\t")
        if words[0] == "link" and "/log/" in words[2]:
            assert disk.synced.get(words[1]), f"the bytes of {words[2]} are not synced before it has its name"
            record = json.loads(pathlib.Path(words[2]).read_text())
            objects = []
            if record["kind"] == "COMMIT":
                key = record["manifest"]["key"]
                manifest = json.loads(pathlib.Path(root, key).read_text())
                objects = [key, *(shard["key"] for shard in manifest["shards"])]
            lost = [key for key in objects if not disk.keeps(f"{root}/{key}", root)]
            assert not lost, f"step {record['step']} may be committed without {lost}"
            seen += len(objects)
        disk.play(*words)
    assert seen == 4 * 3, f"{seen} objects of 4 commits"
    return f"{seen} objects of 4 commits"


@row(40, "the store does not answer one writer for longer than the limit", "given up on all ranks, it is named")
def slow_writer(world):
    place = Place(world, 40, {**ENDLESS, "checkpoint.async": "true", "checkpoint.every": 2000, "timeout.collective": 8})
    place.rules("stall op=PutObject key=*/s/*000000004000*w000001* times=1")
    with place.job() as job:
        wait_for_text(job, r"failed \(1 in a row")
        assert re.search(r"rank 1.*no answer from store.* for 8 s while writing shard", job.text()), job.text()[-3000:]
        place.rules()
        wait_for_commit(place, job, 4001)
        os.kill(job.wait_for_pids()[0], signal.SIGUSR2)
        assert job.wait(60) == 75, place.text()[-3000:]
        assert 4000 not in place.commits(), place.commits()
    assert not place.orphans(), place.orphans()


@row(41, "an optimizer step while the copy is still being written", "what is saved is the state of its step")
def racing_step(_):
    return unit("BackgroundSave.KeepsTheStateOfItsStepWhateverComesAfter:BackgroundSave.WritesTheBytesOfASynchronousOne")


@row(42, "a save is due while two are being written", "skipped and counted, same bits", quick=True)
def both_busy(world):
    place = Place(world, 42, {"checkpoint.async": "true", "checkpoint.every": 1})
    place.rules("delay=0.7 op=PutObject key=*/m/*")
    text = place.train()
    skipped = re.search(r"(\d+) skipped saves", text)
    assert skipped and int(skipped[1]) > 10 and "0 failed saves" in text, text
    place.check_end()
    return f"{skipped[1]} skipped"


@row(45, "saved on 4 ranks, loaded on 1, 3, 2, with and without ZeRO-1; a hole in the cover", "same bits; a hole is an error")
def reshard(world):
    place = Place(world, 45)
    place.rules()
    for at, (ranks, zero) in enumerate(((4, 0), (1, 1), (3, 1), (2, 0))):
        place.train(ranks, code=75 if at < 3 else 0, pause_at=10 * (at + 1) if at < 3 else 0, zero=zero)
    place.check_end()
    return unit("Cover.NamesAHole:Cover.NamesAnOverlap")


@row(45.5, "shards as tensor-parallel ranks would write them: 2x2, 4x1, 1x4, 2x3, 3x1, 1x1, each to each; a hole", "every element comes to its place; a hole is an error. Synthetic: no layer is split in this version")
def tensor_parallel(_):
    return unit("SyntheticMesh.ShardsOfAnyMeshGiveEveryOtherItsElements:SyntheticMesh.AHoleIsFoundByTheRankThatNeedsIt")


def weights_of(folder, name):
    """The f32 bytes of a tensor in an export."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return data[8 + size + begin : 8 + size + end]


def flip_in_memory(pid, wanted):
    """Turns a bit of the sign in all places of a process's own memory that hold these bytes; how many."""
    found = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            begin, end = (int(each, 16) for each in words[0].split("-"))
            if not words[1].startswith("rw") or end - begin > 1 << 30 or (len(words) > 5 and words[5].startswith("/")):
                continue
            with contextlib.suppress(OSError):
                memory.seek(begin)
                data = memory.read(end - begin)
                at = data.find(wanted)
                while at >= 0:
                    memory.seek(begin + at + 3)
                    memory.write(bytes([data[at + 3] ^ 0x80]))
                    found += 1
                    at = data.find(wanted, at + 1)
    return found


@row(50, "a bit of one rank's weights flips in memory", "81, the parameter and the rank are named, the last commit stands")
def replicas_differ(world):
    # Without updates the weights stay as a first run exports them, so they can be found in memory.
    place = Place(world, 50, {**ENDLESS, "optim.lr": 0, "schedule.warmup": 0, "replica_check": 20})
    place.rules()
    place.train(1, steps=0)
    place.ckpt("export", place.store, "--to", world.folder / "export-50")
    wanted = weights_of(world.folder / "export-50", "transformer.h.1.mlp.c_fc.weight")[:256]
    with place.job() as job:
        job.wait_for_step(5)
        pid = job.wait_for_pids()[1]
        os.kill(pid, signal.SIGSTOP)
        found = flip_in_memory(pid, wanted)
        os.kill(pid, signal.SIGCONT)
        assert found > 0, "the weights were not found"
        code = job.wait(60)
    assert code == 81 and result_of(place.run)["code"] == 81, (code, place.text()[-3000:])
    assert "c_fc.weight of rank 1 differs" in place.text(), place.text()[-3000:]


@row(51, "two saves with training in between", "their shards differ")
def saves_differ(world):
    place = Place(world, 51)
    place.rules()
    place.train(1, code=75, pause_at=20)
    first, second = (place.read(place.manifest(step)[1]["shards"][0]["key"]) for step in (10, 20))
    assert len(first) == len(second) and first[-4096:] != second[-4096:]
    return unit("Checkpointer.SavesWhatIsThereEachTime")


def usage(pid):
    """(resident bytes, open files)"""
    resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return resident, len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


@row(52, "1,000 saves", "memory and open files stay flat")
def thousand_saves(world):
    run, log = world.folder / "run-52", world.folder / "52.log"
    options = {**OPTIONS, "run": run, "steps": 1000, "checkpoint.every": 1, "checkpoint.keep": 2}
    seen = {}
    with Job(2, options, log) as job:
        for step in (200, 900):
            job.wait_for_step(step, 300)
            seen[step] = [usage(pid) for pid in job.wait_for_pids()]
        assert job.wait(120) == 0, job.text()[-3000:]
    for (early, files), (late, more) in zip(seen[200], seen[900]):
        assert late < early + (8 << 20) and abs(more - files) <= 4, seen
    grown = max(late - early for (early, _), (late, _) in zip(seen[200], seen[900]))
    return f"{grown / 2**20:+.1f} MiB from save 200 to 900"
