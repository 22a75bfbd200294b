# SPDX-License-Identifier: Apache-2.0
"""What a job has put on record in a bucket, by the format alone."""
import json


def records_of(bucket, prefix):
    """The log of a job, oldest first."""
    keys = sorted(bucket.objects(f"{prefix}log/"), reverse=True)
    return [json.loads(bucket.read(f"{prefix}log/{key}")) for key in keys]


def record_key(seq):
    return f"log/{999999999999 - seq:012d}.json"


def committed_keys(bucket, prefix):
    """Every key that a job may keep: its log, and the manifest and shards of each live commit."""
    records = records_of(bucket, prefix)
    dead = {seq for record in records if record["kind"] == "RETIRE" for seq in record["seqs"]}
    dead |= {record["commit"] for record in records if record["kind"] == "NOTE" and record["what"] == "damaged"}
    kept = {record_key(record["seq"]) for record in records}
    for record in records:
        if record["kind"] == "COMMIT" and record["seq"] not in dead:
            manifest = record["manifest"]["key"]
            kept |= {manifest} | {shard["key"] for shard in json.loads(bucket.read(prefix + manifest))["shards"]}
    return kept
