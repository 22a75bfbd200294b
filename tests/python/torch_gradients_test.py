#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits and every gradient of gpt2-tiny on real text, against PyTorch from the same weights.

torch_gradients_test.py PROBE
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, SOURCE, clean_environment, train  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests/peer"))

DATA = "/usr/include/c++"
SEED = 7
ROWS = 4
LIMIT = 1e-5  # relative, L2 of a tensor


def torch_tensors(export, batch, dtype):
    import torch_gpt2_reference as reference
    from safetensors.torch import load_file

    config = json.loads((export / "config.json").read_text())
    weights = {name: w.to(dtype).requires_grad_() for name, w in load_file(export / "model.safetensors").items()}
    logits = reference.gpt2_logits(weights, config, batch[0])
    reference.loss_sum(logits, batch[1])[0].backward()
    return {"logits": logits.detach()} | {name: w.grad for name, w in weights.items()}


def our_tensors(probe, export, batch, expected):
    import numpy as np
    import torch

    torch.stack(batch).numpy().astype("<i4").tofile(export / "batch.bin")
    words = [probe, export, SEED, ROWS]
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    rest = torch.from_numpy(np.fromfile(export / "tensors.bin", dtype="<f4"))
    tensors = {}
    for name in ["logits", *run.stdout.split()]:
        tensors[name] = rest[: expected[name].numel()].view(expected[name].shape)
        rest = rest[expected[name].numel() :]
    assert rest.numel() == 0 and tensors.keys() == expected.keys(), tensors.keys() ^ expected.keys()
    return tensors


def main():
    if not importlib.util.find_spec("torch") or not os.path.isdir(DATA):
        print("no PyTorch (scripts/setup --all) or no C++ headers")
        sys.exit(77)
    import torch
    import torch_gpt2_reference as reference

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="lockstep torch ") as name:
        folder = pathlib.Path(name)
        export = folder / "export"
        options = {"model.preset": "gpt2-tiny", "data.source": f"text:{DATA}", "seed": SEED,
                   "steps": 0, "run": folder / "run"}  # fmt: skip
        assert train(1, options, folder / "log") == 0, (folder / "log").read_text()
        subprocess.run([BIN, "ckpt", "export", folder / "run", "--to", export], check=True,
                       stdout=subprocess.DEVNULL, env=clean_environment())  # fmt: skip
        context = json.loads((export / "config.json").read_text())["n_positions"]
        batch = reference.Samples(reference.read_streams(DATA)[0], context).batch(range(ROWS), ROWS)
        theirs = {kind: torch_tensors(export, batch, getattr(torch, kind)) for kind in ("float32", "float64")}
        ours = our_tensors(sys.argv[1], export, batch, theirs["float32"])

    failed = False
    for kind, tensors in theirs.items():
        distances = {
            name: ((ours[name].double() - tensor).norm() / tensor.double().norm()).item()
            for name, tensor in tensors.items()
        }
        furthest = max(distances, key=distances.get)
        failed |= not max(distances.values()) <= LIMIT
        print(f"{len(distances)} tensors against PyTorch's {kind}: furthest {distances[furthest]:.1e} "
              f"({furthest}), limit {LIMIT:.0e}; logits {distances['logits']:.1e}")  # fmt: skip
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
