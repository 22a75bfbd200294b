#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""20 AdamW steps of gpt2-tiny on the compiler's headers, against PyTorch from the same weights."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, SOURCE, clean_environment, train  # noqa: E402

DATA = "/usr/include/c++"
OPTIONS = {"model.preset": "gpt2-tiny", "data.source": f"text:{DATA}", "seed": 7, "eval.every": 10}
LIMITS = {"loss": 1e-6, "grad_norm": 1e-5, "eval_loss": 1e-6}


def torch_lines(folder):
    script = SOURCE / "tests/peer/torch_gpt2_reference.py"
    words = [sys.executable, script, "--export", folder / "export", "--text", DATA, "--steps", "20",
             "--seed", "7", "--eval-every", "10"]  # fmt: skip
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    return {line["step"]: line for line in map(json.loads, run.stdout.splitlines())}


def main():
    if not importlib.util.find_spec("torch") or not os.path.isdir(DATA):
        print("no PyTorch (scripts/setup --all) or no C++ headers")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="lockstep torch ") as name:
        folder = pathlib.Path(name)
        options = {**OPTIONS, "run": folder / "run"}
        assert train(2, {**options, "steps": 0}, folder / "log") == 0, (folder / "log").read_text()
        subprocess.run([BIN, "ckpt", "export", folder / "run", "--to", folder / "export"], check=True,
                       stdout=subprocess.DEVNULL, env=clean_environment())  # fmt: skip
        assert train(2, {**options, "steps": 20}, folder / "log") == 0, (folder / "log").read_text()
        text = (folder / "run/metrics.jsonl").read_text()
        ours = {line["step"]: line for line in map(json.loads, text.splitlines())}
        theirs = torch_lines(folder)
    assert len(ours) == len(theirs) == 20
    failed = False
    for field, limit in LIMITS.items():
        distances = [abs(ours[s][field] / theirs[s][field] - 1) for s in theirs if field in theirs[s]]
        failed |= max(distances) > limit
        print(f"{field}: {len(distances)} values, furthest {max(distances):.1e} relative (limit {limit:.0e})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
