#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Upload and download of an object against boto3's transfer manager and a raw parallel PUT, in turns.

  bench/object_store.py [--bytes 268435456] [--rounds 11] [--service DIR]

Needs the release build and `scripts/setup --all`. Starts a real S3 server (Ceph RGW, which keeps objects in
memory) or uses the one that tests/services/ceph-rgw has started in DIR. All sides are started once and hold
the same random bytes in memory; while one is asked, the others wait. A round asks every side for one upload
and one download, in another order each time, and gives one ratio; the first does not count. Every side
compares what it has read with what it has written. Raw means parts as objects of their own over four
connections, without checksums, signed before the clock starts (`peers/s3_raw.py`). boto3 signs each part
with its SHA-256; ours has the store compare its MD5, which every S3 server computes anyway. Prints a line
of JSON a sample and a summary.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))
from s3_server import BUCKET, s3_server, variables_of  # noqa: E402


def spread(values, digits=".2f"):
    values = sorted(values)
    low, high = (values[round(q * (len(values) - 1))] for q in (0.1, 0.9))
    return f"{statistics.median(values):{digits}} (p10 {low:{digits}}, p90 {high:{digits}})"


class Side:
    def __init__(self, words, environment):
        self.process = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **environment})  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def ask(self, name, operation):
        self.process.stdin.write(operation + "\n")
        self.process.stdin.flush()
        line = json.loads(self.process.stdout.readline() or "{}")
        assert line.get("checked") is True, f"{name} gives up"
        print(json.dumps({"side": name, **line}), flush=True)
        return line["s"]


def compare(options, folder, environment):
    file = folder / "bytes"
    file.write_bytes(os.urandom(options.bytes))
    prefix = f"bench.{os.getpid()}"
    words = {
        "lockstep": [options.lockstep, "bench", "store", "--store", f"s3://{BUCKET}/{prefix}/ours", "--file", file],
        "boto3": [options.python, ROOT / "bench/peers/s3_boto3.py", BUCKET, f"{prefix}/boto3", file],
        "raw": [options.python, ROOT / "bench/peers/s3_raw.py", BUCKET, f"{prefix}/raw", file],
    }
    seconds = collections.defaultdict(list)
    with contextlib.ExitStack() as sides:
        running = {name: sides.enter_context(Side(line, environment)) for name, line in words.items()}
        for number in range(options.rounds + 1):
            order = list(running)
            order = order[number % 3 :] + order[: number % 3]
            for operation in ("put", "get"):
                for name in order:
                    taken = running[name].ask(name, operation)
                    if number > 0:
                        seconds[name, operation].append(taken)
    print(f"\n{options.bytes / 1e6:.0f} MB, {options.rounds} rounds; × is their time over ours")
    for operation, what in (("put", "upload"), ("get", "download")):
        ours = seconds["lockstep", operation]
        for name in ("boto3", "raw"):
            ratio = [theirs / mine for theirs, mine in zip(seconds[name, operation], ours)]
            print(f"{what} against {name}: {spread(ratio)} ×")
        for name in words:
            rates = [options.bytes / 1e6 / each for each in seconds[name, operation]]
            print(f"  {name}: {spread(rates, '.0f')} MB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=256 << 20)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--service", type=pathlib.Path, help="folder of a running tests/services/ceph-rgw")
    parser.add_argument("--lockstep", default=ROOT / "build/release/bin/lockstep")
    parser.add_argument("--python", default=ROOT / "build/venv/bin/python", help="with boto3")
    options = parser.parse_args()
    service = contextlib.nullcontext(variables_of(options.service)) if options.service else s3_server(4 << 30)
    with tempfile.TemporaryDirectory(prefix="lockstep.bench.") as folder, service as environment:
        compare(options, pathlib.Path(folder), environment)


if __name__ == "__main__":
    main()
