# SPDX-License-Identifier: Apache-2.0
"""Row 27, and where temporary credentials come from in the tests."""
import contextlib
import http.server
import json
import sys
import threading
import time

from s3_server import SMALL_PARTS
from store_faults.table import Place, row, unit

# A credential_process: the key pair that the server knows, with a token of its own each time.
PROCESS = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
if number > 1 and sys.argv[2] == "fails":
    sys.exit("the identity provider is down")
print(json.dumps({"Version": 1, "AccessKeyId": sys.argv[3], "SecretAccessKey": sys.argv[4],
                  "SessionToken": f"token-{number}", "Expiration": "2099-01-01T00:00:00Z"}))
"""


NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


def credential_process(world, mode):
    """The variables of a client whose credentials come from a program; it "renews" them or "fails"."""
    folder = world.folder / f"credentials-{mode}"
    folder.mkdir()
    (folder / "process.py").write_text(PROCESS)
    words = [sys.executable, folder / "process.py", folder / "count", mode, world.server["AWS_ACCESS_KEY_ID"],
             world.server["AWS_SECRET_ACCESS_KEY"]]  # fmt: skip
    command = " ".join(f'"{word}"' for word in words)
    (folder / "config").write_text(f"{SMALL_PARTS}credential_process = {command}\n")
    return {**NO_KEYS, "AWS_CONFIG_FILE": str(folder / "config")}


@contextlib.contextmanager
def container(world, answer):
    """A container's endpoint; `answer(number)` gives (status, seconds to wait, life in seconds)."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(time.monotonic())
            status, wait, life = answer(len(asked))
            stop.wait(wait)
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + life))
            body = json.dumps({"AccessKeyId": world.server["AWS_ACCESS_KEY_ID"], "Token": "temporary",
                               "SecretAccessKey": world.server["AWS_SECRET_ACCESS_KEY"], "Expiration": end})  # fmt: skip
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode() if status == 200 else b"<html>no</html>")

        def log_message(self, *_):
            pass

    stop = threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield asked, {**NO_KEYS,
                          "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{server.server_port}/keys"}  # fmt: skip
        finally:
            stop.set()
            server.shutdown()


@row(27, "the container's endpoint says 404, 500, is slow; a life of seconds", "a clear error; the old pair is used until it ends")
def endpoint(world):
    place = Place(world, 27)
    place.rules()
    place.train(1)
    with container(world, lambda _: (404, 0, 0)) as (asked, variables):
        said = place.ckpt("ls", place.store, code=79, environment=variables)
        assert "404" in said and len(asked) <= 3, (said, asked)
    with container(world, lambda number: (500 if number < 3 else 200, 0, 3600)) as (asked, variables):
        place.ckpt("ls", place.store, environment=variables)
    with container(world, lambda _: (200, 60, 3600)) as (_, variables):
        began = time.monotonic()
        said = place.ckpt("ls", place.store, code=79, environment=variables)
        assert "credentials" in said and time.monotonic() - began < 45, (said, time.monotonic() - began)
    # Good for 8 seconds, then the endpoint is down for ever.
    lasting = Place(world, "27-life", {"steps": 1_000_000, "checkpoint.every": 50})
    with container(world, lambda number: (200 if number == 1 else 500, 0, 8)) as (asked, variables), lasting.job(
            1, environment=variables) as job:  # fmt: skip
        deadline = time.monotonic() + 60
        while "failed (1 in a row" not in lasting.text():
            assert time.monotonic() < deadline and job.process.poll() is None, lasting.text()[-3000:]
            time.sleep(0.05)
        last_commit = max(each["time"] for each in lasting.requests(op="PutObject", key="log/"))
        begun = min(each["time"] for each in lasting.requests())
        assert last_commit - begun > 4 and len(asked) > 1, (last_commit - begun, asked)
    assert "credentials" in lasting.text(), lasting.text()
    return unit("S3Credentials.StayInUseUntilTheyEndWhileTheSourceIsDown:S3Credentials.ComeFromTheMachineByASessionToken")
