# SPDX-License-Identifier: Apache-2.0
"""Rows 1 to 16: processes that die, wake up too late or come twice."""
import contextlib
import os
import signal
import time

from store_faults.table import BIG, Place, row
from train import result_of

STEP = "000000000020"
COMMIT = "key=*/log/999999999996.json"  # after JOB, CLAIM and the COMMIT of step 10

# Of the save of step 20: what it is at, how the proxy holds it there, who dies, where the next launch begins.
POINTS = [
    ("the snapshot", f"stall op=PutObject key=*/s/*{STEP}*", 0, 10, {}),
    ("the upload was created", f"lost=stall op=CreateMultipartUpload key=*{STEP}*w000001*", 1, 10, BIG),
    ("part 2", f"stall op=UploadPart query=partNumber=2* key=*{STEP}*w000001*", 1, 10, BIG),
    ("part 1, the head, which comes last", f"stall op=UploadPart query=partNumber=1&* key=*{STEP}*w000001*", 1, 10, BIG),
    ("one shard was completed", f"lost=stall op=CompleteMultipartUpload key=*{STEP}*w000001*", 1, 10, BIG),
    ("looking at the shards", f"stall op=HeadObject key=*/s/*{STEP}*", 0, 10, {}),
    ("the manifest was written", f"lost=stall op=PutObject key=*/m/{STEP}*", 0, 10, {}),
    ("before COMMIT", f"stall op=PutObject {COMMIT}", 0, 10, {}),
    ("after COMMIT, at RETIRE", "stall op=PutObject key=*/log/999999999995.json", 0, 20, {"checkpoint.keep": 1}),
    ("the deletes after RETIRE", "stall op=DeleteObject key=*/s/* nth=2", 0, 30, {"checkpoint.keep": 1}),
]  # fmt: skip


def add_point(number, point):
    what, rule, victim, step, options = point

    @row(number, f"SIGKILL of rank {victim}: {what}", f"resumed at step {step}, same bits, no leftovers",
         quick=number in (7, 8))  # fmt: skip
    def killed(world):
        place = Place(world, number, options)
        place.rules(rule)
        with place.job() as job:
            place.wait_for_fault(job)
            os.kill(job.wait_for_pids()[victim], signal.SIGKILL)
            assert job.wait(30) != 0
        place.resume(step)


for index, each in enumerate(POINTS):
    add_point(index + 1, each)


@row(11, "SIGKILL of all ranks after COMMIT was stored, before its answer", "the new commit counts, same bits", quick=True)
def all_killed(world):
    place = Place(world, 11)
    place.rules(f"lost=stall op=PutObject {COMMIT}")
    with place.job() as job:
        place.wait_for_fault(job)
        for pid in job.wait_for_pids():
            os.kill(pid, signal.SIGKILL)
        assert job.wait(30) != 0
    place.resume(20)


@row(12, "the answer to COMMIT is lost, the process lives", "known by its nonce: one COMMIT, the run goes on", quick=True)
def answer_lost(world):
    place = Place(world, 12)
    place.rules(f"lost op=PutObject {COMMIT} times=1")
    place.train()
    assert place.commits() == [10, 20, 30, 40], place.commits()
    assert len(place.requests(op="PutObject", key="log/999999999996")) == 1, "it was sent again"
    place.check_end()


@contextlib.contextmanager
def zombie(place, ranks=1):
    """A job that is stopped when its shards of step 20 are written and COMMIT is about to be."""
    place.rules(f"stall op=PutObject {COMMIT}")
    with place.job(ranks) as job:
        place.wait_for_fault(job)
        for pid in job.processes():
            os.kill(pid, signal.SIGSTOP)
        yield job


def wake(job):
    for pid in job.processes():
        os.kill(pid, signal.SIGCONT)


@row(13, "a stopped attempt wakes up after a newer launch has claimed", "80, and its objects are taken away", quick=True)
def zombie_wakes(world):
    place = Place(world, 13)
    with zombie(place) as job:
        place.rules()
        newer = place.again("newer")
        text = newer.train(1)
        assert "resumed at step 10" in text, text
        newer.check_end()
        wake(job)
        assert job.wait(30) == 80, place.text()[-3000:]
    assert result_of(place.run)["code"] == 80 and "attempt 2" in result_of(place.run)["reason"], result_of(place.run)
    assert newer.commits() == [10, 20, 30, 40] and not newer.orphans(), (newer.commits(), newer.orphans())


@row(14, "a stopped attempt commits before the newer launch claims", "the new launch resumes from that commit")
def zombie_first(world):
    place = Place(world, 14)
    with zombie(place) as job:
        # The claim of the new launch is under way when the old one wakes.
        place.rules(f"stall op=PutObject {COMMIT} nth=1")
        newer = place.again("newer")
        with newer.job(1) as second:
            place.wait_for_fault(second, count=2)
            wake(job)
            deadline = time.monotonic() + 30
            while place.commits() != [10, 20]:
                assert time.monotonic() < deadline, place.text()
                time.sleep(0.05)
            place.rules()
            assert second.wait(60) == 0, newer.text()[-3000:]
        assert job.wait(30) == 80, place.text()[-3000:]
    resumed = newer.text()
    assert "resumed at step 20" in resumed or "resumed at step 30" in resumed, resumed
    newer.check_end()


@row(15, "6 launches at once; 16 who create one key at once", "each epoch is claimed once, all but the last end with 80")
def racers(world):
    place = Place(world, 15)
    place.rules()
    launches = [place.again(str(each)) for each in range(6)]
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(each.job(1)) for each in launches]
        codes = [job.wait(120) for job in jobs]
    epochs = [each["epoch"] for each in place.records() if each["kind"] == "CLAIM"]
    assert epochs == list(range(1, len(epochs) + 1)), epochs
    assert 0 in codes and set(codes) <= {0, 80}, codes
    ended = launches[codes.index(0)]
    assert result_of(ended.run)["weights_sha256"] == world.peace(place.options)
    said = place.ckpt("probe", place.store)
    assert "yes  of 16 who create one key at once exactly one wins" in said, said
    return f"codes {sorted(codes)}"


@row(16, "another model in the same store", "78, nothing is written")
def other_model(world):
    place = Place(world, 16)
    place.rules()
    place.train(1)
    before = place.objects()
    other = place.again("other")
    seen = len(place.requests())
    text = other.train(1, code=78, model__hidden=64)
    assert "another model" in text, text
    assert all(each["method"] in ("GET", "HEAD") for each in place.requests()[seen:]), place.requests()[seen:]
    assert place.objects() == before
