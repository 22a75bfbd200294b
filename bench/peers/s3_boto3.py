# SPDX-License-Identifier: Apache-2.0
"""boto3's transfer manager, with its own settings, does what lines of stdin ask for: put or get.

  s3_boto3.py BUCKET KEY FILE    with the variables of an S3 client; prints a line of JSON for each
"""
import io
import json
import os
import pathlib
import sys
import time

import boto3


def main():
    bucket, key, file = sys.argv[1:]
    data = pathlib.Path(file).read_bytes()
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    for line in sys.stdin:
        asked = line.strip()
        source, into = io.BytesIO(data), io.BytesIO()
        began = time.perf_counter()
        if asked == "put":
            client.upload_fileobj(source, bucket, key)
        else:
            client.download_fileobj(bucket, key, into)
        seconds = time.perf_counter() - began
        assert asked == "put" or into.getvalue() == data, "what was read is not what was written"
        print(json.dumps({"op": asked, "bytes": len(data), "s": seconds, "checked": True}), flush=True)


if __name__ == "__main__":
    main()
