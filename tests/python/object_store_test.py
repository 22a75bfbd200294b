#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains into a real S3 server, is killed, resumes on another rank count: the bits are those of a file store."""
import os
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from s3_server import URI, s3_server  # noqa: E402
from train import TINY, Job, ckpt, newest_commit, result_of, train, verify  # noqa: E402

OPTIONS = {**TINY, "steps": 300, "checkpoint.every": 20}


def check(folder, environment):
    store = f"{URI}/{folder.name}/first".replace(" ", "-")
    said = ckpt("probe", store, environment=environment)
    assert "keeps checkpoints" in said and "NO" not in said, said
    assert train(2, {**OPTIONS, "run": folder / "file"}, folder / "file.log") == 0
    run = folder / "run"
    options = {**OPTIONS, "run": run, "store": store}
    with Job(2, options, folder / "log", environment=environment) as job:
        job.wait_for_step(20)
        while not newest_commit(store, environment):
            assert job.process.poll() is None, job.text()[-3000:]
        os.kill(job.wait_for_pids()[1], signal.SIGKILL)
        assert job.wait(60) != 0
    with Job(3, options, folder / "log", environment=environment) as job:
        assert job.wait(120) == 0, job.text()[-3000:]
        assert "resumed at step" in job.text(), job.text()
    assert result_of(run)["weights_sha256"] == result_of(folder / "file")["weights_sha256"]
    assert "live" in ckpt("ls", store, environment=environment)
    assert "step 300" in ckpt("show", store, environment=environment)
    verify(store, environment)
    assert "removed" in ckpt("gc", store, "--dry_run", "false", environment=environment)
    wrong = {**environment, "AWS_SECRET_ACCESS_KEY": "another-secret"}
    said = ckpt("ls", store, environment=wrong, code=78)
    assert "SignatureDoesNotMatch" in said and "another-secret" not in said, said
    said = ckpt("ls", "s3://no-such-bucket/x", environment=environment, code=78)
    assert "NoSuchBucket" in said, said
    print("killed and resumed in an object store: the bits of a file store")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep store ") as name, s3_server() as environment:
        check(pathlib.Path(name), environment)


if __name__ == "__main__":
    main()
