# SPDX-License-Identifier: Apache-2.0
"""A real S3 server for a test, and an eye on its bucket that shares nothing with Lockstep's client."""
import contextlib
import datetime
import hashlib
import hmac
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import xml.etree.ElementTree as xml

SERVICE = str(pathlib.Path(__file__).parents[1] / "services/ceph-rgw")
BUCKET = "lockstep"
URI = f"s3://{BUCKET}"


@contextlib.contextmanager
def s3_service(memory=2 << 30):
    """The variables that a client of the server needs. Ends the test as skipped where there is no server to
    start. LOCKSTEP_TEST_SERVICE: the folder of one that runs already, which is left running."""
    if given := os.environ.get("LOCKSTEP_TEST_SERVICE"):
        yield variables_of(pathlib.Path(given))
        return
    # Ceph's sockets need a short path without blanks.
    with tempfile.TemporaryDirectory(prefix="rgw.", dir="/tmp") as place:
        service = pathlib.Path(place) / "s"
        started = subprocess.run([SERVICE, "start", service], check=False, timeout=200,
                                 env={**os.environ, "LOCKSTEP_RGW_BYTES": str(memory)})  # fmt: skip
        if started.returncode == 77:
            sys.exit(77)
        assert started.returncode == 0, "the S3 server does not start"
        try:
            yield variables_of(service)
        finally:
            subprocess.run([SERVICE, "stop", service], check=False, timeout=60)


def variables_of(service):
    return dict(line.split("=", 1) for line in (service / "env").read_text().split())


class Bucket:
    """The bucket as another client sees it."""

    def __init__(self, environment):
        self.environment = environment
        self.address = urllib.parse.urlsplit(environment["AWS_ENDPOINT_URL"]).netloc

    def request(self, method, key="", query=None):
        """The body of the answer; throws for another than 2xx."""
        query = "&".join(f"{quoted(k)}={quoted(v)}" for k, v in sorted((query or {}).items()))
        path = quoted(f"/{BUCKET}/{key}", safe="/")
        headers = self.signed(method, path, query)
        url = f"http://{self.address}{path}" + (f"?{query}" if query else "")
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=60) as answer:
            return answer.read()

    def signed(self, method, path, query):
        """Signature version 4 of a request without a body."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        empty = hashlib.sha256(b"").hexdigest()
        headers = {"host": self.address, "x-amz-content-sha256": empty, "x-amz-date": now}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = "\n".join([method, path, query, lines, names, empty])
        scope = [now[:8], self.environment["AWS_REGION"], "s3", "aws4_request"]
        text = "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()])
        key = b"AWS4" + self.environment["AWS_SECRET_ACCESS_KEY"].encode()
        for part in scope:
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        user = f"{self.environment['AWS_ACCESS_KEY_ID']}/{'/'.join(scope)}"
        headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={user},SignedHeaders={names},Signature={signature}"
        return headers

    def objects(self, prefix):
        """{key: (size, etag)}, keys without the prefix."""
        found = {}
        query = {"list-type": "2", "prefix": prefix}
        while True:
            page = xml.fromstring(self.request("GET", query=query))
            for each in page.iterfind("{*}Contents"):
                key, size, etag = (each.findtext(f"{{*}}{name}") for name in ("Key", "Size", "ETag"))
                found[key.removeprefix(prefix)] = (int(size), etag)
            if page.findtext("{*}IsTruncated") != "true":
                return found
            query["continuation-token"] = page.findtext("{*}NextContinuationToken")

    def uploads(self, prefix):
        """Keys of the multipart uploads that nobody has finished."""
        page = xml.fromstring(self.request("GET", query={"uploads": "", "prefix": prefix}))
        return [each.findtext("{*}Key") for each in page.iterfind("{*}Upload")]

    def read(self, key):
        return self.request("GET", key)

    def clear(self, prefix):
        for key in self.objects(prefix):
            self.request("DELETE", prefix + key)


def quoted(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


def records_of(bucket, prefix):
    """The log of a job, oldest first."""
    keys = sorted((key for key in bucket.objects(prefix) if key.startswith("log/")), reverse=True)
    return [json.loads(bucket.read(prefix + key)) for key in keys]


def committed_keys(bucket, prefix):
    """Every key that a job may keep: its log, and the manifest and shards of each live commit."""
    records = records_of(bucket, prefix)
    dead = {seq for record in records if record["kind"] == "RETIRE" for seq in record["seqs"]}
    dead |= {record["commit"] for record in records if record["kind"] == "NOTE" and record["what"] == "damaged"}
    kept = {f"log/{999999999999 - record['seq']:012d}.json" for record in records}
    for record in records:
        if record["kind"] == "COMMIT" and record["seq"] not in dead:
            manifest = record["manifest"]["key"]
            kept |= {manifest} | {shard["key"] for shard in json.loads(bucket.read(prefix + manifest))["shards"]}
    return kept
