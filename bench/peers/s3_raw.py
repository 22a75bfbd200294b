# SPDX-License-Identifier: Apache-2.0
"""The least that a client can do: parts of a file as objects of their own, sent and read over a few
connections from and to memory, by plain sockets, without checksums and signed before the clock starts.

  s3_raw.py BUCKET PREFIX FILE [PARTS AT ONCE, 4]    put or get for each line of stdin
"""
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import sys
import time
import urllib.parse

PART = 32 << 20


def signed(method, host, path):
    """Signature version 4 that says nothing of the body."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join([method, path, "", lines, names, headers["x-amz-content-sha256"]])
    scope = [now[:8], os.environ["AWS_REGION"], "s3", "aws4_request"]
    text = "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    user = f"{os.environ['AWS_ACCESS_KEY_ID']}/{'/'.join(scope)}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={user},SignedHeaders={names},Signature={signature}"
    return headers


def put(connection, path, headers, part):
    connection.request("PUT", path, body=part, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()


def get(connection, path, headers, into):
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    done = 0
    while done < len(into):
        count = answer.readinto(into[done:])
        assert count, "cut off"
        done += count
    answer.read()


def main():
    bucket, prefix, file = sys.argv[1:4]
    streams = int(sys.argv[4]) if len(sys.argv) > 4 else 4
    data = pathlib.Path(file).read_bytes()
    host = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc
    begins = range(0, len(data), PART)
    paths = [f"/{bucket}/{prefix}/{begin // PART}" for begin in begins]
    connections = [http.client.HTTPConnection(host, timeout=60, blocksize=1 << 20) for _ in range(streams)]
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        for line in sys.stdin:
            asked = line.strip()
            into = bytearray(len(data))
            view = memoryview(data if asked == "put" else into)
            headers = [signed(asked.upper(), host, path) for path in paths]
            do = put if asked == "put" else get

            def work(stream):
                for index in range(stream, len(paths), streams):
                    do(connections[stream], paths[index], headers[index], view[index * PART : (index + 1) * PART])

            began = time.perf_counter()
            list(pool.map(work, range(streams)))
            seconds = time.perf_counter() - began
            assert asked == "put" or into == data, "what was read is not what was written"
            print(json.dumps({"op": asked, "bytes": len(data), "s": seconds, "checked": True}), flush=True)


if __name__ == "__main__":
    main()
