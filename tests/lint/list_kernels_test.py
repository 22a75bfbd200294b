#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""list_kernels.py passes a build whose kernels stay in registers, and fails one that spills or is unread."""
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(sys.argv[1]) / "scripts/list_kernels.py"
REPORT = """ptxas info    : Compiling entry function '_ZN8lockstep4cuda5add_xEv' for '{sm}'
ptxas info    : Function properties for _ZN8lockstep4cuda5add_xEv
    {spills} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 256 bytes smem
"""


def listed(build, *words):
    return subprocess.run([sys.executable, SCRIPT, *words, build], capture_output=True, text=True, check=False)


with tempfile.TemporaryDirectory() as folder:
    build = pathlib.Path(folder)
    nvcc = {"file": "/x/add.cu", "command": "nvcc -O3 -x cu -c add.cu -o core/add.cu.o"}
    # The same source, compiled for the host by a test, has no report and needs none.
    host = {"file": "/x/add.cu", "command": "c++ -x c++ -c add.cu -o tests/add.cu.o"}
    (build / "compile_commands.json").write_text(json.dumps([nvcc, host]), "utf-8")
    assert listed(build).returncode == 1, "a kernel source without a report"

    report = build / "ptxas/core-add.cu.o.txt"
    report.parent.mkdir()
    report.write_text("".join(REPORT.format(sm=sm, spills=0) for sm in ("sm_80", "sm_100")), "utf-8")
    good = listed(build)
    assert good.returncode == 0 and "add_x" in good.stdout, (good.stdout, good.stderr)
    assert "kernels: 2, registers at most 40, 0 with spills" in good.stdout, good.stdout
    table = listed(build, "--table")
    assert table.returncode == 0, table.stderr
    assert "| kernel | sm_80 | sm_100 | shared bytes | stack | spills |" in table.stdout, table.stdout
    assert "| 40 | 40 | 256 | 0 | 0 |" in table.stdout, table.stdout

    report.write_text(REPORT.format(sm="sm_90", spills=16), "utf-8")
    bad = listed(build)
    assert bad.returncode == 1 and "spills 32 bytes on sm_90" in bad.stderr, (bad.stdout, bad.stderr)

    (build / "compile_commands.json").write_text(json.dumps([host]), "utf-8")
    assert "no kernels" in listed(build).stderr, "a build without kernels"
