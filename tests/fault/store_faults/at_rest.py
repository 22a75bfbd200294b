# SPDX-License-Identifier: Apache-2.0
"""Rows 31 to 33, 46 to 49, 53 and 54: what lies in the store is damaged, missing, foreign or old."""
import json
import pathlib
import re
import subprocess

from commits import record_key
from store_faults.table import OPTIONS, Missing, Place, row, unit
from train import result_of


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def put_record(place, after=None, **changed):
    """Appends a record to the log as another program would; what it has put there."""
    last = after or place.records()[-1]
    record = {**last, "seq": last["seq"] + 1, "nonce": "0123456789abcdef" * 2, **changed}
    record.pop("crc32c", None)
    text = json.dumps(record, separators=(",", ":"))[:-1].encode()
    place.write(record_key(record["seq"]), text + b',"crc32c":"%08x"}\n' % crc32c(text))
    return record


def saved(world):
    """A place with commits of steps 10 and 20, made once."""
    if not hasattr(world, "saved"):
        world.saved = Place(world, "saved")
        world.saved.rules()
        world.saved.train(code=75, pause_at=20)
    return world.saved


def copied(world, name):
    """Another place with the same objects."""
    source, place = saved(world), Place(world, name)
    for key in source.objects():
        place.write(key, source.read(key))
    return place


def flip(at):
    """A change that turns one bit of the byte at `at`."""

    def change(data):
        data[at] ^= 4
        return data

    return change


def check_fallback(place, named):
    """The tools name the object; the next launch takes step 10, says so, and ends with the right bits."""
    said = place.ckpt("verify", place.store, code=65)
    assert named in said, said
    text = place.train()
    assert "resumed at step 10" in text and re.search("NOTE .*" + re.escape(named), text), text[-3000:]
    assert result_of(place.run)["weights_sha256"] == place.world.peace(place.options)
    assert place.commits()[-1] == 40


@row(31, "one bit flipped at rest: payload, head, manifest, COMMIT", "named (65); the commit before is taken, same bits")
def flipped(world):
    for name, at in (("payload", -5), ("head", 3000)):
        place = copied(world, f"31-{name}")
        key = place.manifest(20)[1]["shards"][1]["key"]
        place.harm(key, flip(at))
        check_fallback(place, key)
    place = copied(world, "31-manifest")
    key = place.manifest(20)[0]
    place.harm(key, flip(100))
    check_fallback(place, key)
    place = copied(world, "31-record")
    key = "log/999999999996.json"
    place.harm(key, flip(60))
    check_fallback(place, key)


@row(32, "a shard is missing, empty, cut, or that of another step", "the manifest tells; the commit before is taken, same bits")
def other_shards(world):
    for name in ("missing", "empty", "cut", "swapped"):
        place = copied(world, f"32-{name}")
        key = place.manifest(20)[1]["shards"][0]["key"]
        old = place.read(place.manifest(10)[1]["shards"][0]["key"])
        if name == "missing":
            place.remove(key)
        else:
            change = {"empty": lambda _: b"", "cut": lambda data: data[:-100], "swapped": lambda _, old=old: old}[name]
            place.harm(key, change)
        check_fallback(place, key)


@row(33, "a manifest without COMMIT; a COMMIT whose manifest is gone", "ignored and swept; the commit before is taken", quick=True)
def lonely(world):
    place = copied(world, "33-manifest")
    stray = "m/000000000030.000001.000.json"
    place.write(stray, place.read(place.manifest(20)[0]))
    place.resume(20)
    place = copied(world, "33-commit")
    key = place.manifest(20)[0]
    place.remove(key)
    check_fallback(place, key)


@row(34.5, "a log of 1,050 records: more than a page of a listing", "the same tip, the run goes on")
def long_log(world):
    place, last = copied(world, "34-long"), None
    for number in range(1050):
        last = put_record(place, last, kind="NOTE", what="test", text=str(number), commit=2)
    text = place.ckpt("ls", place.store)
    assert text.count(" live") == 2, text
    place.resume(20)
    assert place.records()[-1]["seq"] > 1050


@row(46, "layers added, another size, another optimizer", "78 with a list of what differs, nothing is written")
def other_parameters(world):
    place = copied(world, 46)
    before = place.objects()
    for options, named in (({"model__layers": 3}, "transformer.h.2."), ({"model__hidden": 64}, "->"), ({"optim__name": "sgd"}, "(v)")):
        text = place.again(named.strip("(->)") or "size").train(1, code=78, **options)
        assert named in text and "hint" in text, text
    left = [key for key in place.objects() if key not in before and not key.startswith("log/")]
    assert not left, left
    return unit("ModelDifferences.ListWhatWasAddedRemovedAndReshaped")


@row(46.5, "a partial load on request, of a state with tensors added, gone and reshaped", "what both hold is loaded, the rest is listed. By `load_commit(…, LoadMatch::common)`; the command has no key for it")
def partial(_):
    return unit("Tools.LoadWhatIsCommonWhereTheyAreAskedTo")


@row(47, "records of a newer minor version, of an unknown kind, of a newer major version", "read, skipped, refused (78)", quick=True)
def versions(world):
    place = copied(world, 47)
    put_record(place, fmt="1.9", kind="NOTE", what="test", text="from a later version", commit=2, later="x")
    put_record(place, kind="WEATHER", text="rain")
    place.resume(20)
    place = copied(world, "47-major")
    put_record(place, fmt="2.0", kind="NOTE", what="test", text="x", commit=2)
    text = place.train(1, code=78)
    assert "2.0" in text or "newer" in text, text
    return unit("Record.MayHoldKeysOfALaterMinorVersion:Record.OfAnUnknownKindIsSkipped:Record.OfALaterMajorVersionIsRefusedWithAHint")


@row(48, "the objects of a commit are deleted while a launch loads it, while a tool reads it", "the commit before is taken; 65", quick=True)
def deleted_meanwhile(world):
    place = copied(world, 48)
    key, manifest = place.manifest(20)
    shards = [shard["key"] for shard in manifest["shards"]]

    def delete():
        for each in [*shards, key]:
            place.remove(each)

    place.rules(f"delay=600 op=GetObject key=*{shards[0]} times=1")
    with place.job() as job:
        place.wait_for_fault(job)
        delete()
        place.rules()
        assert job.wait(60) == 0, place.text()[-3000:]
    assert "resumed at step 10" in place.text() and "is missing" in place.text(), place.text()
    assert result_of(place.run)["weights_sha256"] == world.peace(place.options)
    place = copied(world, "48-tool")
    shards = [shard["key"] for shard in place.manifest(20)[1]["shards"]]
    for each in shards:
        place.remove(each)
    said = place.ckpt("export", place.store, "--to", world.folder / "export-48", "--step", "20", code=65)
    assert shards[0] in said and "missing" in said, said


@row(49, "uploads that three dead attempts have left, one of a later attempt", "three aborted, the other untouched")
def leftover_uploads(world):
    place = Place(world, 49)
    place.rules()
    for attempt in (1, 2, 3):
        place.train(1, code=75, pause_at=5 * attempt)
    keys = {epoch: f"{place.prefix}s/aa/000000000099.{epoch:06d}.000/w000000.h5" for epoch in (1, 2, 3, 9)}
    uploads = {epoch: world.bucket.begin_upload(key) for epoch, key in keys.items()}
    place.train()
    left = world.bucket.uploads(place.prefix)
    assert left == [(keys[9], uploads[9])], left
    world.bucket.abort_upload(keys[9], uploads[9])
    place.check_end()


# 56 layers have 672 tensors, of which each has a parameter, m and v.
MANY = {**OPTIONS, "model.layers": 56, "model.hidden": 8, "model.context": 8, "batch.global": 1, "steps": 1}


@row(53, "a shard of 2,000 datasets is opened and looked at", "at most 2 GETs; at most 20 to read all")
def few_requests(world):
    place = Place(world, 53, MANY)
    place.rules()
    place.train(1)
    counts = {}
    for verb in ("show", "verify"):
        seen = len(place.requests())
        place.ckpt(verb, place.store)
        counts[verb] = sum(1 for each in place.requests()[seen:] if each["op"] == "GetObject" and each["key"].endswith(".h5"))
    seen = len(place.requests())
    place.train(1, steps=2)
    counts["resume"] = sum(1 for each in place.requests()[seen:] if each["op"] == "GetObject" and each["key"].endswith(".h5"))
    assert counts["show"] <= 2 and counts["verify"] <= 20 and counts["resume"] <= 20, counts
    return f"GETs: {counts}"


@row(54, "stock h5dump and h5ls on every shard", "they open", quick=True)
def stock_tools(world):
    place = saved(world)
    listed = ""
    for key in place.objects("s/"):
        path = pathlib.Path(world.folder / "shard.h5")
        path.write_bytes(place.read(key))
        for tool in (["h5dump", path], ["h5ls", "-r", path]):
            run = subprocess.run(tool, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stderr
            listed += run.stdout
    assert "transformer.wte.weight" in listed and "transformer.h.1.mlp.c_fc.weight" in listed, listed[-2000:]


@row(54.5, "a VDS index over shards of which one is missing", "")
def no_index(_):
    raise Missing("the format makes the index optional, and none is written: there is nothing that shows zeros")
