# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of faults, and the place that each is tried in."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from bucket import Bucket
from commits import records_of
from s3_server import URI, in_small_parts
from train import BIN, SOURCE, TINY, Job, clean_environment, result_of, train

BUILD = pathlib.Path(BIN).parents[1]
OPTIONS = {**TINY, "steps": 40, "checkpoint.every": 10, "checkpoint.keep": 100, "checkpoint.async": "false",
           "eval.every": 0}  # fmt: skip
# Shards of two ranks are 13 MB each, three small parts.
BIG = {**OPTIONS, "model.layers": 1, "model.hidden": 128, "model.vocab": 16000, "model.context": 8, "batch.global": 2,
       "steps": 20}  # fmt: skip
# Runs until it is asked to stop, whatever becomes of its saves.
ENDLESS = {"steps": 1_000_000, "schedule.total": 1000, "checkpoint.max_failures": 1000, "checkpoint.keep": 2}
ROWS = []


class Missing(Exception):
    """What a row needs and this machine or this version has not: it is counted, not passed."""


class Row:
    def __init__(self, number, fault, outcome, check, *, quick):
        self.number, self.fault, self.outcome, self.check, self.quick = number, fault, outcome, check, quick


def row(number, fault, outcome, quick=False):
    """Registers a function that tries the fault; it may return words to add to the outcome."""

    def add(check):
        ROWS.append(Row(number, fault, outcome, check, quick=quick))
        return check

    return add


class World:
    """What all rows share."""

    def __init__(self, folder, server, chaos):
        self.folder, self.server, self.chaos = folder, server, chaos
        self.bucket = Bucket(server)
        self.peaceful = {}
        self.mark = f"{os.getpid()}-{int(time.time())}"  # a server may serve several runs of this test
        self.client = in_small_parts({**server, "AWS_ENDPOINT_URL": chaos.url}, folder)

    def clear(self):
        """Takes away what rows have left in the server: its memory is small."""
        for key in self.bucket.objects("rows/"):
            if not key.startswith("saved-"):
                self.bucket.remove(f"rows/{key}")

    def peace(self, options):
        """weights_sha256 of a run that nothing happens to, in a folder."""
        name = "-".join(str(options[key]) for key in ("model.vocab", "model.layers", "steps"))
        if name not in self.peaceful:
            run = self.folder / f"peace-{name}"
            log = self.folder / "peace.log"
            assert train(2, {**options, "run": run}, log) == 0, log.read_text()
            self.peaceful[name] = result_of(run)["weights_sha256"]
        return self.peaceful[name]


class Place:
    """A store and a run folder of one row's own. `chaos`: what of the proxy this row has seen."""

    def __init__(self, world, name, options=None):
        self.world, self.bucket, self.name = world, world.bucket, name
        self.prefix = f"rows/{name}-{world.mark}/"
        self.store = f"{URI}/rows/{name}-{world.mark}"
        self.run = world.folder / f"run-{name}"
        self.log = world.folder / f"{name}.log"
        self.options = {**OPTIONS, **(options or {})}
        self.environment = {**world.client, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        self.before = len(world.chaos.requests())

    def again(self, name):
        """The same store from another run folder, as after a move to another machine."""
        other = Place.__new__(Place)
        other.__dict__.update(self.__dict__)
        other.run, other.log = self.world.folder / f"run-{self.name}-{name}", self.world.folder / f"{self.name}-{name}.log"
        return other

    # What happens in the proxy.
    def rules(self, *lines):
        self.world.chaos.rules(*lines)

    def requests(self, **words):
        """Those of this row; words as in op="PutObject", key a regular expression."""
        found = [each for each in self.world.chaos.requests()[self.before :] if self.prefix in each["key"] + "/" or
                 not each["key"]]  # fmt: skip
        key = re.compile(words.pop("key", ""))
        return [each for each in found if all(each[n] == v for n, v in words.items()) and key.search(each["key"])]

    def wait_for_fault(self, job=None, seconds=60, count=1):
        deadline = time.monotonic() + seconds
        while sum(1 for each in self.requests() if each["fault"]) < count:
            assert time.monotonic() < deadline, f"the fault did not come\n{self.text()}"
            assert job is None or job.process.poll() is None, f"the job has ended\n{self.text()}"
            time.sleep(0.02)

    # What runs.
    def job(self, ranks=2, environment=None, **options):
        """`options`: as in model__hidden=64."""
        options = {**self.options, **{key.replace("__", "."): value for key, value in options.items()},
                   "run": self.run, "store": self.store}  # fmt: skip
        return Job(ranks, options, self.log, environment={**self.environment, **(environment or {})})

    def train(self, ranks=2, code=0, seconds=120, **more):
        """Runs to the end; what it has printed this time."""
        seen = len(self.text())
        with self.job(ranks, **more) as job:
            found = job.wait(seconds)
        text = self.text()[seen:]
        assert found == code, (found, text[-3000:])
        return text

    def ckpt(self, *words, code=0, environment=None, seconds=120):
        run = subprocess.run([BIN, "ckpt", *map(str, words)], capture_output=True, text=True, check=False, timeout=seconds,
                             env={**clean_environment(), **self.environment, **(environment or {})})  # fmt: skip
        assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
        return run.stdout + run.stderr

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    # What is in the store, asked for behind the proxy.
    def objects(self, below=""):
        return sorted(below + key for key in self.bucket.objects(self.prefix + below))

    def read(self, key):
        return self.bucket.read(self.prefix + key)

    def write(self, key, data):
        self.bucket.write(self.prefix + key, data)

    def remove(self, key):
        self.bucket.remove(self.prefix + key)

    def records(self):
        """The log, oldest first."""
        return records_of(self.bucket, self.prefix)

    def commits(self):
        """Steps, oldest first."""
        return [each["step"] for each in self.records() if each["kind"] == "COMMIT"]

    def manifest(self, step):
        """(key, content) of the newest commit of this step."""
        key = [each["manifest"]["key"] for each in self.records() if each["kind"] == "COMMIT" and each["step"] == step][-1]
        return key, json.loads(self.read(key))

    def orphans(self):
        """What no commit has, and uploads that nobody ends."""
        objects = set(self.objects())
        manifests = {each["manifest"]["key"] for each in self.records() if each["kind"] == "COMMIT"} & objects
        known = manifests | {shard["key"] for key in manifests for shard in json.loads(self.read(key))["shards"]}
        found = [key for key in objects - known if not key.startswith("log/")]
        return sorted(found) + sorted(self.bucket.uploads(self.prefix))

    def harm(self, key, change):
        """Changes an object at rest."""
        self.write(key, bytes(change(bytearray(self.read(key)))))

    # What must hold.
    def check_end(self):
        """The bits are those of a run in peace, the newest commit is whole, nothing is left over."""
        self.rules()
        steps = self.options["steps"]
        assert result_of(self.run)["code"] == 0, result_of(self.run)
        assert result_of(self.run)["weights_sha256"] == self.world.peace(self.options)
        assert self.commits()[-1] == steps, self.commits()
        assert not self.orphans(), self.orphans()
        assert "all bytes are as they were written" in self.ckpt("verify", self.store, environment=self.world.server)

    def resume(self, step, **more):
        """The next launch goes on from `step` to the bits of a run in peace."""
        self.rules()
        text = self.train(**more)
        found = re.search(r"resumed at step (\d+)", text)
        assert found and int(found[1]) == step, text[-3000:]
        self.check_end()
        return text


def wait_for_text(job, pattern, seconds=60):
    deadline = time.monotonic() + seconds
    while not re.search(pattern, job.text()):
        assert time.monotonic() < deadline and job.process.poll() is None, job.text()[-3000:]
        time.sleep(0.02)


def wait_for_commit(place, job, step=0, seconds=60):
    """Until a commit of this step or a later one is there."""
    deadline = time.monotonic() + seconds
    while max(place.commits(), default=-1) < step:
        assert time.monotonic() < deadline and job.process.poll() is None, place.text()[-3000:]
        time.sleep(0.05)


def unit(pattern):
    """Runs unit tests of the build tree by their names; the number that has passed, all of them."""
    found = 0
    suites = {each.partition(".")[0] for each in pattern.split(":")}
    for binary in sorted((BUILD / "bin").glob("*_test")):
        data = binary.read_bytes() if binary.is_file() and os.access(binary, os.X_OK) else b""
        if not any(suite.encode() + b"\0" in data for suite in suites):
            continue
        run = subprocess.run([binary, f"--gtest_filter={pattern}"], capture_output=True, text=True, check=False, timeout=120,
                             env=clean_environment())  # fmt: skip
        assert run.returncode == 0, run.stdout[-3000:]
        passed = re.search(r"\[  PASSED  \] (\d+) test", run.stdout)
        found += int(passed[1]) if passed else 0
    wanted = len(pattern.split(":"))
    assert found >= wanted or "*" in pattern and found, f"{pattern}: {found} tests, not {wanted}"
    return f"unit: {pattern.replace(':', ', ')}"


def script(name, *words, seconds=300, environment=None):
    """Runs another test of this tree."""
    run = subprocess.run([sys.executable, SOURCE / "tests" / name, *words], capture_output=True, text=True, check=False,
                         timeout=seconds, env={**os.environ, **(environment or {})})  # fmt: skip
    if run.returncode == 77:
        raise Missing(f"{name} is skipped here")
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return name
