# SPDX-License-Identifier: Apache-2.0
"""Servers that tests use: a real S3 server, and store-chaos in front of it. `with` ends them."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

from train import SOURCE, alive


@contextlib.contextmanager
def ceph_rgw():
    """The variables that a client of a fresh Ceph RGW needs. Exits with 77 where Ceph is not installed.
    LOCKSTEP_TEST_RGW: the folder of one that `tests/services/ceph-rgw start` has started, instead."""
    ready = os.environ.get("LOCKSTEP_TEST_RGW")
    script = SOURCE / "tests/services/ceph-rgw"
    # Ceph's sockets need a short path without blanks.
    with tempfile.TemporaryDirectory(prefix="rgw.", dir="/tmp") as place:
        service = pathlib.Path(ready or f"{place}/s")
        if not ready:
            started = subprocess.run([script, "start", service], check=False, timeout=200)
            if started.returncode == 77:
                sys.exit(77)
            assert started.returncode == 0, "the S3 server does not start"
        try:
            yield dict(line.split("=", 1) for line in (service / "env").read_text().split())
        finally:
            if not ready:
                subprocess.run([script, "stop", service], check=False, timeout=60)


class Chaos:
    """scripts/store-chaos before a server."""

    def __init__(self, upstream, log):
        self.log = pathlib.Path(log)
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen([SOURCE / "scripts/store-chaos", "--upstream", upstream], stdout=out,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)  # fmt: skip
        deadline = time.monotonic() + 20
        while not self.log.read_text().startswith("store-chaos: http"):
            assert time.monotonic() < deadline and alive(self.process.pid), self.log.read_text()
            time.sleep(0.02)
        self.url = self.log.read_text().split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def rules(self, *lines):
        body = "\n".join(lines).encode()
        with urllib.request.urlopen(f"{self.url}/-chaos/rules", body, timeout=20) as answer:
            answer.read()

    def requests(self):
        """All since the start, as dictionaries; rule is None where nothing was done to it."""
        with urllib.request.urlopen(f"{self.url}/-chaos/requests", timeout=20) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]
