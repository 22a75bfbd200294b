#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A skip is not a pass: fails if a test of a JUnit report was skipped that the list does not expect."""
import sys
import xml.etree.ElementTree as xml

report, expected_path = sys.argv[1:]
with open(expected_path, encoding="utf-8") as lines:
    expected = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
skipped = {
    case.get("name")
    for case in xml.parse(report).iter("testcase")
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
}
for name in sorted(skipped):
    print(f"skipped{'' if name in expected else ' UNEXPECTEDLY'}: {name}")
sys.exit(1 if skipped - expected else 0)
