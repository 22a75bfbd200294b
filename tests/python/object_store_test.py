#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains into a real S3 server, is killed, resumes on another rank count: the bits are those of a file store."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, SOURCE, TINY, Job, clean_environment, result_of, train  # noqa: E402

OPTIONS = {**TINY, "steps": 300, "checkpoint.every": 20}
SERVICE = str(SOURCE / "tests/services/ceph-rgw")
STORE = "s3://lockstep/runs/first"


def ckpt(environment, *words, code=0):
    run = subprocess.run([BIN, "ckpt", *words], capture_output=True, text=True, check=False, timeout=120,
                         env={**clean_environment(), **environment})  # fmt: skip
    assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout + run.stderr


def check(folder, environment):
    said = ckpt(environment, "probe", STORE)
    assert "keeps checkpoints" in said and "NO" not in said, said
    assert train(2, {**OPTIONS, "run": folder / "file"}, folder / "file.log") == 0
    run = folder / "run"
    options = {**OPTIONS, "run": run, "store": STORE}
    with Job(2, options, folder / "log", environment=environment) as job:
        job.wait_for_step(130)
        os.kill(job.wait_for_pids()[1], signal.SIGKILL)
        assert job.wait(60) != 0
    with Job(3, options, folder / "log", environment=environment) as job:
        assert job.wait(120) == 0, job.text()[-3000:]
        assert "resumed at step" in job.text(), job.text()
    assert result_of(run)["weights_sha256"] == result_of(folder / "file")["weights_sha256"]
    assert "live" in ckpt(environment, "ls", STORE)
    assert "step 300" in ckpt(environment, "show", STORE)
    assert "all bytes are as they were written" in ckpt(environment, "verify", STORE)
    assert "removed" in ckpt(environment, "gc", STORE, "--dry_run", "false")
    wrong = {**environment, "AWS_SECRET_ACCESS_KEY": "another-secret"}
    said = ckpt(wrong, "ls", STORE, code=78)
    assert "SignatureDoesNotMatch" in said and "another-secret" not in said, said
    said = ckpt(environment, "ls", "s3://no-such-bucket/x", code=78)
    assert "NoSuchBucket" in said, said
    print("killed and resumed in an object store: the bits of a file store")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep store ") as name:
        folder = pathlib.Path(name)
        # Ceph's sockets need a short path without blanks.
        with tempfile.TemporaryDirectory(prefix="rgw.", dir="/tmp") as place:
            service = pathlib.Path(place) / "s"
            started = subprocess.run([SERVICE, "start", service], check=False, timeout=200)
            if started.returncode == 77:
                sys.exit(77)
            assert started.returncode == 0, "the S3 server does not start"
            try:
                lines = (service / "env").read_text().split()
                check(folder, dict(line.split("=", 1) for line in lines))
            finally:
                subprocess.run([SERVICE, "stop", service], check=False, timeout=60)


if __name__ == "__main__":
    main()
