# SPDX-License-Identifier: Apache-2.0
"""scripts/store-chaos in front of a test's S3 server."""
import json
import pathlib
import subprocess
import time
import urllib.request

from train import SOURCE, alive


class Chaos:
    """The proxy; `with` ends it."""

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
