# SPDX-License-Identifier: Apache-2.0
"""An eye on a test's bucket, and a hand in it, that share nothing with Lockstep's client."""
import datetime
import hashlib
import hmac
import http.client
import urllib.parse
import xml.etree.ElementTree as xml

from s3_server import BUCKET


class Bucket:
    """The bucket as another client sees it. Keys are whole unless it says otherwise."""

    def __init__(self, environment):
        self.environment = environment
        self.address = urllib.parse.urlsplit(environment["AWS_ENDPOINT_URL"]).netloc

    def request(self, method, key="", query=None, body=b""):
        """The body of the answer, which must be 2xx."""
        query = "&".join(f"{quoted(k)}={quoted(v)}" for k, v in sorted((query or {}).items()))
        path = quoted(f"/{BUCKET}/{key}" if key else f"/{BUCKET}", safe="/")
        headers = self.signed(method, path, query, body)
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path + (f"?{query}" if query else ""), body, headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        assert 200 <= answer.status < 300, (method, key, query, answer.status, said)
        return said

    def signed(self, method, path, query, body):
        """The headers of a request, with its signature of version 4."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        content = hashlib.sha256(body).hexdigest()
        headers = {"host": self.address, "x-amz-content-sha256": content, "x-amz-date": now}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = "\n".join([method, path, query, lines, names, content])
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

    def read(self, key):
        return self.request("GET", key)

    def write(self, key, data):
        self.request("PUT", key, body=data)

    def remove(self, key):
        self.request("DELETE", key)

    def clear(self, prefix):
        for key in self.objects(prefix):
            self.remove(prefix + key)

    def uploads(self, prefix):
        """(key, id) of the multipart uploads that nobody has ended."""
        page = xml.fromstring(self.request("GET", query={"uploads": "", "prefix": prefix}))
        return [(each.findtext("{*}Key"), each.findtext("{*}UploadId")) for each in page.iterfind("{*}Upload")]

    def begin_upload(self, key):
        """Its id."""
        return xml.fromstring(self.request("POST", key, query={"uploads": ""})).findtext("{*}UploadId")

    def abort_upload(self, key, upload):
        self.request("DELETE", key, query={"uploadId": upload})


def quoted(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")
