#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metrics.jsonl has what NVML says of rank 0's GPU, and where there is no NVML the run says so.

gpu_metrics_test.py FOLDER_OF_LIBNVIDIA_ML
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import TINY, Job  # noqa: E402

# What the fake says of the device on PCI bus 1.
EXPECTED = {
    "gpu_utilization_ratio": 0.51, "gpu_memory_used_bytes": 1 << 30, "gpu_memory_total_bytes": 80 << 30,
    "gpu_power_watts": 301, "gpu_temperature_celsius": 41, "gpu_throttle_seconds_total": 0,
}  # fmt: skip


def run(folder, name, libraries):
    options = {**TINY, "steps": 3, "run": folder / name}
    with Job(2, options, folder / f"{name}.log", environment={"LD_LIBRARY_PATH": str(libraries)}) as job:
        assert job.wait() == 0, job.text()[-2000:]
        lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if k.startswith("gpu_")} for line in lines], job.text()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines, text = run(folder, "with", sys.argv[1])
        assert lines == [EXPECTED] * 3, lines
        assert "no gpu_* metrics" not in text, text
        (folder / "empty").mkdir()
        (folder / "empty/libnvidia-ml.so.1").write_text("no library")  # it hides a real one
        lines, text = run(folder, "without", folder / "empty")
        assert lines == [{}] * 3, lines
        assert text.count("NOTE no gpu_* metrics: libnvidia-ml.so.1 does not open") == 1, text
        print("gpu_* fields are there with NVML, and are not without")


if __name__ == "__main__":
    main()
