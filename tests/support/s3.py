# SPDX-License-Identifier: Apache-2.0
"""A few requests to an S3 server, so that a test sees and harms what a store holds. Standard library only."""
import hashlib
import hmac
import http.client
import re
import time
import urllib.parse


def hash_of(data):
    return hashlib.sha256(data).hexdigest()


def keyed(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class S3:
    """A bucket, addressed by path; `environment` holds the AWS_ variables."""

    def __init__(self, environment, bucket="lockstep"):
        self.host = urllib.parse.urlsplit(environment["AWS_ENDPOINT_URL"]).netloc
        self.key, self.secret = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        self.region, self.bucket = environment["AWS_REGION"], bucket

    def request(self, method, key="", query=None, body=b""):
        """(status, headers, body)"""
        path = urllib.parse.quote(f"/{self.bucket}/{key}" if key else f"/{self.bucket}", safe="/-_.~")
        pairs = sorted((query or {}).items())
        text = "&".join(f"{urllib.parse.quote(n, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}" for n, v in pairs)
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = {"host": self.host, "x-amz-content-sha256": hash_of(body), "x-amz-date": now}
        names = ";".join(signed)
        canonical = "\n".join([method, path, text, *(f"{n}:{v}" for n, v in signed.items()), "", names, hash_of(body)])
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        key_bytes = ("AWS4" + self.secret).encode()
        for part in scope.split("/"):
            key_bytes = keyed(key_bytes, part)
        signature = keyed(key_bytes, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hash_of(canonical.encode())}").hex()
        headers = {**signed, "Authorization": f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, "
                   f"SignedHeaders={names}, Signature={signature}"}  # fmt: skip
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, path + (f"?{text}" if text else ""), body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def do(self, *words, **more):
        status, _, body = self.request(*words, **more)
        assert 200 <= status < 300, (words, status, body)
        return body

    def get(self, key):
        return self.do("GET", key)

    def put(self, key, body):
        self.do("PUT", key, body=body)

    def remove(self, key):
        self.do("DELETE", key)

    def begin_upload(self, key):
        return re.search(rb"<UploadId>(.*?)</UploadId>", self.do("POST", key, query={"uploads": ""}))[1].decode()

    def abort(self, key, upload):
        self.do("DELETE", key, query={"uploadId": upload})

    def uploads(self, prefix):
        """{key: id} of those that are neither complete nor aborted."""
        body = self.do("GET", query={"uploads": "", "prefix": prefix}).decode()
        found = re.findall(r"<Upload>.*?<Key>(.*?)</Key>.*?<UploadId>(.*?)</UploadId>", body, re.S)
        return dict(found)

    def list(self, prefix):
        """{key: size}"""
        found, token = {}, ""
        while True:
            query = {"list-type": "2", "prefix": prefix, **({"continuation-token": token} if token else {})}
            body = self.do("GET", query=query).decode()
            for entry in re.findall(r"<Contents>(.*?)</Contents>", body, re.S):
                found[re.search(r"<Key>(.*?)</Key>", entry)[1]] = int(re.search(r"<Size>(.*?)</Size>", entry)[1])
            if "<IsTruncated>true" not in body:
                return found
            token = re.search(r"<NextContinuationToken>(.*?)</NextContinuationToken>", body)[1]
