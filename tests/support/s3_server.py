# SPDX-License-Identifier: Apache-2.0
"""A real S3 server for a test."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

SERVICE = pathlib.Path(__file__).parents[1] / "services/ceph-rgw"
BUCKET = "lockstep"
URI = f"s3://{BUCKET}"
# Parts of 5 MB, the least that S3 takes, so that small models are sent in several.
SMALL_PARTS = "[default]\ns3 =\n  multipart_chunksize = 5MB\n"


@contextlib.contextmanager
def s3_server(memory=2 << 30):
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


def in_small_parts(variables, folder):
    """The variables of a client that sends small parts; its configuration is written into the folder."""
    (folder / "aws").write_text(SMALL_PARTS)
    return {**variables, "AWS_CONFIG_FILE": str(folder / "aws")}
