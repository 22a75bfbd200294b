#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves in its store, seen from outside: stock tools open it, and damage is found."""
import hashlib
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import h5py

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, TINY, clean_environment, newest_commit, result_of, train  # noqa: E402

OPTIONS = {**TINY, "steps": 6, "checkpoint.every": 2, "checkpoint.keep": 2}


def lockstep(*words):
    return subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, check=False,
                          env=clean_environment())  # fmt: skip


def weights_of_export(path):
    """weights_sha256 from a safetensors file, by its definition."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    digest = hashlib.sha256()
    for name in sorted(n.encode() for n in header if n != "__metadata__"):
        entry = header[name.decode()]
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        digest.update(name + b"\0" + data[8 + size + begin : 8 + size + end])
    return digest.hexdigest()


def check_stock_tools(run):
    shards = sorted((run / "checkpoints/s").rglob("*.h5"))
    # Two live commits of three writers, and the retired one, which the next commit would delete.
    assert len(shards) == 3 * 3, shards
    for shard in shards:
        dump = subprocess.run(["h5dump", "-A", shard], capture_output=True, text=True, check=True)
        assert "lockstep-checkpoint" in dump.stdout and "ls_crc" in dump.stdout or "/param" in dump.stdout
        full = subprocess.run(["h5dump", shard], capture_output=True, text=True, check=True)
        assert full.stdout
    names = set()
    for shard in shards:
        with h5py.File(shard) as file:
            names |= set(file["param"])
            assert file.attrs["ls_complete"] == 1
    assert "transformer.wte.weight" in names, names
    print(f"{len(shards)} shards open in h5dump and h5py")


def check_damage(run, folder):
    chance = random.Random(5)
    # Step 2 is retired: nobody reads it any more.
    files = [p for p in (run / "checkpoints").rglob("*") if p.is_file() and "/000000000002." not in str(p)]
    log = [p for p in files if p.parent.name == "log"]
    manifests = [p for p in files if p.parent.name == "m"]
    shards = [p for p in files if p.suffix == ".h5"]
    for path in [*log, *manifests, *(chance.choice(shards) for _ in range(30))]:
        copy = folder / "damaged"
        shutil.copytree(run, copy)
        target = copy / path.relative_to(run)
        data = bytearray(target.read_bytes())
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        target.write_bytes(data)
        verify = lockstep("ckpt", "verify", copy)
        key = str(path.relative_to(run / "checkpoints"))
        assert verify.returncode == 65, (key, at, verify.stdout, verify.stderr)
        assert key in verify.stdout, (key, at, verify.stdout)
        shutil.rmtree(copy)
    print(f"a flipped bit was found and named in {len(log)} records, {len(manifests)} manifests, 30 places of shards")


def check_fallback(run, folder):
    copy = folder / "fallback"
    shutil.copytree(run, copy)
    newest = json.loads(lockstep_manifest(copy).read_text())
    for how in ("flip", "cut"):
        shard = copy / "checkpoints" / newest["shards"][1]["key"]
        data = bytearray(shard.read_bytes())
        if how == "flip":
            data[len(data) - 5] ^= 4
        shard.write_bytes(data if how == "flip" else data[:-1000])
        log = folder / f"{how}.log"
        assert train(2, {**OPTIONS, "run": copy, "steps": 8}, log) == 0, log.read_text()
        text = log.read_text()
        assert "NOTE" in text and newest["shards"][1]["key"] in text, text
        assert "resumed at step 4" in text, text
        shutil.rmtree(copy)
        shutil.copytree(run, copy)
    # None left: 74, never from step 0.
    for path in (copy / "checkpoints/m").iterdir():
        path.write_text("{}")
    log = folder / "none.log"
    assert train(2, {**OPTIONS, "run": copy, "steps": 8}, log) == 74, log.read_text()
    print("a flipped and a cut shard are named and the commit before is taken; with none left: 74")


def lockstep_manifest(run):
    return sorted((run / "checkpoints/m").iterdir())[-1]


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep files ") as name:
        folder = pathlib.Path(name)
        run = folder / "run"
        assert train(3, {**OPTIONS, "run": run}, folder / "run.log") == 0, (folder / "run.log").read_text()
        assert newest_commit(run) == (1, 6)
        verify = lockstep("ckpt", "verify", run)
        assert verify.returncode == 0, verify.stdout
        assert "transformer.wte.weight" in lockstep("ckpt", "show", run).stdout
        export = lockstep("ckpt", "export", run, "--to", folder / "export")
        assert export.returncode == 0, export.stderr
        assert weights_of_export(folder / "export/model.safetensors") == result_of(run)["weights_sha256"]
        assert json.loads((folder / "export/config.json").read_text())["n_layer"] == 2
        check_stock_tools(run)
        check_damage(run, folder)
        check_fallback(run, folder)


if __name__ == "__main__":
    main()
