# SPDX-License-Identifier: Apache-2.0
"""Rows 17 to 36 and 55: what a store, or the way to it, answers."""
import contextlib
import os
import re
import signal
import socket
import time

from store_faults.credentials import credential_process
from store_faults.table import BIG, BUILD, ENDLESS, Place, row, unit, wait_for_commit, wait_for_text

SAVE = "key=*/s/*000000000020*"
PART = "op=UploadPart key=*000000000010*w000000*"
COMPLETE = "op=CompleteMultipartUpload key=*000000000010*w000000*"
COMMIT = "key=*/log/999999999996.json"


def gaps(requests):
    """Seconds between one and the next."""
    times = [each["time"] for each in requests]
    return [later - earlier for earlier, later in zip(times, times[1:])]


@row(17, "503 SlowDown with and without Retry-After, 429 and 503 with an HTML page", "pauses, fewer requests at once, then the save succeeds", quick=True)
def slow_down(world):
    place = Place(world, 17)
    place.rules(f"status=503 code=SlowDown set=Retry-After:1 {SAVE}w000000* times=2", f"status=503 {SAVE}w000001* times=4",
                f"status=429 body=none {COMMIT} times=1", "status=503 body=html key=*/m/*20* times=2")  # fmt: skip
    text = place.train()
    assert "failed save" not in text, text
    asked = gaps(place.requests(op="PutObject", key="/000000000020[.].*w000000"))
    assert len(asked) == 2 and min(asked) >= 1, asked
    assert len(place.requests(op="PutObject", key="/000000000020[.].*w000001")) == 5
    place.check_end()
    return unit("S3Throttle.HalvesOnceARoundAndGrowsBackByOneARound:S3Throttle.LetsNoMoreThroughThanAreAllowed")


@row(18, "503 for longer than the attempts last", "the save fails and is counted, training goes on", quick=True)
def unavailable(world):
    place = Place(world, 18)
    place.rules(f"status=503 code=SlowDown {SAVE}")
    text = place.train(environment={"AWS_MAX_ATTEMPTS": "3"})
    assert "the save of step 20 failed (1 in a row" in text and "SlowDown" in text and "1 failed save" in text, text
    assert place.commits() == [10, 30, 40], place.commits()
    assert len(place.requests(op="PutObject", key="/s/../000000000020")) == 6, "3 attempts of 2 writers"
    place.check_end()


@row(18.5, "the store is full: 403 QuotaExceeded, 507, with and without saves in the background", "each save fails after one request and is counted, training goes on", quick=True)
def full(world):
    place = Place(world, "18-full")
    # Before any save has worked, of a shard, and after, of a manifest.
    place.rules("status=403 code=QuotaExceeded op=PutObject key=*/s/*000000000010*w000001*",
                "status=507 body=none op=PutObject key=*/m/000000000030*")  # fmt: skip
    text = place.train()
    for step, code in ((10, "HTTP 403 QuotaExceeded"), (30, "HTTP 507")):
        said = re.search(rf"the save of step {step} failed .*", text)
        assert said and code in said[0] and "training goes on" in said[0], text
    assert "make room in the store" in text and "2 failed saves" in text, text
    assert place.commits() == [20, 40], place.commits()
    assert len(place.requests(op="PutObject", key="/s/../000000000010.*w000001")) == 1
    assert len(place.requests(op="PutObject", key="/m/000000000030")) == 1
    place.check_end()

    place = Place(world, "18-full-behind", {**ENDLESS, "checkpoint.async": "true", "checkpoint.every": 50})
    place.rules("status=403 code=QuotaExceeded op=PutObject key=*/s/*w000001* times=1",
                "status=507 body=none op=PutObject key=*/m/* times=1")  # fmt: skip
    with place.job() as job:
        for code in ("HTTP 403 QuotaExceeded", "HTTP 507"):
            wait_for_text(job, rf"NOTE the save of step \d+ failed .*training goes on.*{code}")
        wait_for_commit(place, job)
        os.kill(job.wait_for_pids()[1], signal.SIGUSR2)
        assert job.wait(60) == 75, place.text()[-3000:]
    assert "2 failed saves" in place.text(), place.text()[-3000:]
    assert sum(1 for each in place.requests() if each["fault"]) == 2, place.requests()
    assert not place.orphans(), place.orphans()


@row(19, "500 to Complete, which was carried out", "seen by a HEAD: completed once")
def complete_500(world):
    place = Place(world, 19, BIG)
    place.rules(f"lost=500 {COMPLETE} times=1")
    place.train()
    assert len(place.requests(op="CompleteMultipartUpload", key="/000000000010[.].*w000000")) == 1
    place.check_end()


@row(20, "200 with an <Error> body to Complete", "completed again, COMMIT only then")
def complete_200(world):
    place = Place(world, 20, BIG)
    place.rules(f"status=200 code=InternalError {COMPLETE} times=2")
    place.train()
    done = place.requests(op="CompleteMultipartUpload", key="/000000000010[.].*w000000")
    commit = place.requests(op="PutObject", key="log/999999999997")
    assert len(done) == 3 and len(commit) == 1 and done[-1]["time"] < commit[0]["time"], (done, commit)
    place.check_end()


@row(21, "Complete after the upload was aborted (RGW says 500)", "bounded, the save fails and is counted, the next succeeds")
def complete_aborted(world):
    place = Place(world, 21, BIG)
    place.rules(f"delay=600 {COMPLETE} times=1")
    with place.job() as job:
        place.wait_for_fault(job)
        for key, upload in world.bucket.uploads(place.prefix):
            world.bucket.abort_upload(key, upload)
        place.rules()
        assert job.wait(120) == 0, place.text()[-3000:]
    assert "the save of step 10 failed (1 in a row" in place.text(), place.text()
    assert len(place.requests(op="CompleteMultipartUpload", key="/000000000010[.].*w000000")) < 10
    place.check_end()


@row(22, "a reset in mid-part and in mid-head, the answer to a part lost", "only that part is sent again")
def part_reset(world):
    place = Place(world, 22, BIG)
    place.rules(f"reset=1000000 {PART} query=partNumber=2* times=1", f"lost {PART} query=partNumber=2* times=1",
                f"reset=3000000 {PART} query=partNumber=1&* times=1")  # fmt: skip
    place.train()
    sent = [re.match(r"partNumber=(\d+)", each["query"])[1] for each in place.requests(op="UploadPart", key="/000000000010[.].*w000000")]
    assert sorted(sent) == ["1", "1", "2", "2", "2", "3"], sent
    place.check_end()


@row(23, "a truncated body, a wrong Content-Range, 200 instead of 206", "detected and read again", quick=True)
def bad_ranges(world):
    place = Place(world, 23)
    place.rules()
    place.train(code=75, pause_at=20)
    shard = "op=GetObject key=*/s/*"
    place.rules(f"cut=5000 {shard} times=2", f"truncate=100 {shard} times=2", f"as=200 {shard} times=1",
                f"'set=Content-Range:bytes 5-9/100' {shard} times=1", f"drop=Content-Range {shard} times=1",
                f"status=200 body=html {shard} times=1", "cut=100 op=GetObject key=*/m/* times=1")  # fmt: skip
    text = place.train()
    assert "resumed at step 20" in text and "damaged" not in text, text
    assert sum(1 for each in place.requests(op="GetObject") if each["fault"]) == 9
    place.check_end()


@row(24, "an answer at 1,000 bytes a second", "given up after 15 s, read over a new connection")
def slow_answer(world):
    place = Place(world, 24)
    place.rules()
    place.train(code=75, pause_at=20)
    place.rules("slow=1000 op=GetObject key=*/s/* times=1")
    assert "resumed at step 20" in place.train()
    place.check_end()


@row(25, "a store that accepts and never answers: PUT, GET and LIST", "a time-out each, then the next attempt succeeds")
def no_answer(world):
    put, get, listing = (Place(world, f"25-{what}") for what in ("put", "get", "list"))
    place = put.again("all")
    place.rules()
    get.train(code=75, pause_at=20)
    place.rules(f"stall op=PutObject key=rows/25-put{COMMIT[4:]} times=1", "stall op=GetObject key=rows/25-get*/s/* times=1",
                "stall op=ListObjectsV2 query=*25-list* times=1")  # fmt: skip
    with contextlib.ExitStack() as stack:
        jobs = [(each, stack.enter_context(each.job(1))) for each in (put, get, listing)]
        for each, job in jobs:
            assert job.wait(120) == 0, each.text()[-3000:]
            assert "failed save" not in each.text(), each.text()
    assert "resumed at step 20" in get.text()
    assert sum(1 for each in world.chaos.requests()[put.before :] if each["fault"] and "stall" in each["fault"]) == 3
    for each in (put, get, listing):
        each.check_end()


@row(26, "403 ExpiredToken in mid-upload: renewal works, fails", "goes on; or the save fails with the reason and is counted")
def expired(world):
    for mode in ("renews", "fails"):
        place = Place(world, f"26-{mode}", BIG)
        environment = credential_process(world, mode)
        place.rules(f"status=403 code=ExpiredToken header=X-Amz-Security-Token:token-1 {PART} query=partNumber=2*")
        with place.job(1, environment=environment) as job:
            if mode == "fails":
                place.wait_for_fault(job)
                deadline = time.monotonic() + 60
                while "the save of step 10 failed" not in place.text():
                    assert time.monotonic() < deadline and job.process.poll() is None, place.text()[-3000:]
                    time.sleep(0.02)
                place.rules()
            assert job.wait(120) == 0, place.text()[-3000:]
        text = place.text()
        if mode == "fails":
            assert "ExpiredToken" in text and "renew them" in text and "1 failed save" in text, text
        else:
            assert "failed save" not in text, text
            tokens = [each["status"] for each in place.requests(op="UploadPart", key="/000000000010[.].*w000000")]
            assert tokens.count(403) <= 2, tokens
        place.check_end()


@row(28, "this machine's clock is 16 minutes wrong, either way", "the server's is used, and a NOTE says so", quick=True)
def wrong_clock(world):
    library = BUILD / "tests/fault/libwrong_clock.so"
    for name, seconds in (("late", "-960"), ("early", "960")):
        place = Place(world, f"28-{name}")
        place.rules()
        text = place.train(1, environment={"LD_PRELOAD": str(library), "WRONG_CLOCK": seconds})
        skewed = [each for each in place.requests() if each["status"] == 403]
        assert 1 <= len(skewed) <= 2, skewed
        assert re.search(r"NOTE .*clock.* 9[56]\d s (behind|ahead)", text), text
        place.check_end()


@row(29, "403 AccessDenied, 404 NoSuchBucket, 301 to another region (once, for ever)", "78 at once, at most 3 requests", quick=True)
def refused(world):
    place = Place(world, 29)
    place.rules("status=403 code=AccessDenied op=PutObject")
    text = place.train(1, code=78)
    assert "AccessDenied" in text and len(place.requests(op="PutObject")) <= 3, text
    place.rules()
    assert "NoSuchBucket" in place.ckpt("ls", "s3://no-such-bucket/x", code=78)
    seen = len(place.requests())
    place.rules("status=301 code=PermanentRedirect set=x-amz-bucket-region:eu-west-1")
    assert "eu-west-1" in place.ckpt("ls", place.store, code=78)
    assert len(place.requests()) - seen <= 3
    place.rules("status=301 code=PermanentRedirect set=x-amz-bucket-region:eu-west-1 times=1")
    place.train(1)
    place.check_end()


@row(30, "a bit of a part, a shard, a manifest and COMMIT flipped on the way", "the store refuses it, it is sent again", quick=True)
def flipped_on_the_way(world):
    place = Place(world, 30)
    place.rules(f"flip=request {SAVE} op=PutObject times=1", "flip=request op=PutObject key=*/m/*20* times=1",
                f"flip=request op=PutObject {COMMIT} times=1")  # fmt: skip
    place.train()
    assert sum(1 for each in place.requests() if each["fault"] and each["status"] == 400) == 3, place.requests()
    place.check_end()


@row(30.5, "the same in a part of a multipart upload", "the part is refused and sent again")
def flipped_part(world):
    place = Place(world, "30-part", BIG)
    place.rules(f"flip=request {PART} query=partNumber=2* times=1")
    place.train()
    assert [each["status"] for each in place.requests(op="UploadPart", key="/000000000010[.].*w000000") if "partNumber=2" in each["query"]] == [400, 200]
    place.check_end()


@row(34, "listings out of order, with doubles, old, in pages of 3, cut, as HTML", "the same tip")
def listings(world):
    place = Place(world, 34)
    place.rules()
    place.train(code=75, pause_at=30)
    told = place.ckpt("ls", place.store)
    for how in ("list=reversed", "list=doubled", "list=stale", "list=pages:3", "truncate=300 times=1", "cut=300 times=1",
                "status=200 body=html times=1", "flip=answer at=40 times=1"):  # fmt: skip
        place.rules(f"op=ListObjectsV2 {how}")
        assert place.ckpt("ls", place.store) == told, how
    place.rules("op=ListObjectsV2 list=pages:3")
    assert "resumed at step 30" in place.train()
    place.check_end()


@row(36, "a store that ignores If-None-Match, or inverts it", "78 before anything is written")
def no_condition(world):
    for name, rule in (("ignores", "answer=412 lost=200 op=PutObject"), ("inverts", "status=412 code=PreconditionFailed op=PutObject nth=1-")):
        place = Place(world, f"36-{name}")
        place.rules(rule)
        text = place.train(1, code=78)
        assert "only if there is none" in text or "create" in text, text
        assert not [key for key in place.objects() if not key.startswith("p/")], place.objects()


@row(55, "307 with a region; connections closed between requests; requests delivered twice; 307 to a foreign host",
     "handled; nothing is sent to the foreign host", quick=True)  # fmt: skip
def connections(world):
    place = Place(world, 55)
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        foreign.settimeout(0)
        away = f"set=Location:http://127.0.0.1:{foreign.getsockname()[1]}/"
        place.rules(f"status=307 code=TemporaryRedirect {away} set=x-amz-bucket-region:eu-west-1 times=1 op=GetObject",
                    "status=500 header=expect:?*", "twice op=PutObject p=0.2", "hangup p=0.5")  # fmt: skip
        place.train()
        assert not [each for each in place.requests() if each["status"] == 500], "Expect: was sent"
        place.check_end()
        place.rules(f"status=307 code=TemporaryRedirect {away}")
        assert "TemporaryRedirect" in place.ckpt("ls", place.store, code=78)
        try:
            foreign.accept()
        except BlockingIOError:
            return
        raise AssertionError("the redirect was followed")


@row(35, "the limits of parts", "no part below 5 MiB but the last; 10,000 parts are never exceeded", quick=True)
def parts(world):
    small = [each for each in world.chaos.requests() if each["op"] == "UploadPart" and
             re.match("partNumber=1&", each["query"]) and each["bytes"] < 5 << 20]  # fmt: skip
    assert not small, small
    return unit("S3Parts.ObeyTheLimitsOfTheStore")
