#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep sample` continues a text with the exported weights, as a forward pass in NumPy says."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, TINY, clean_environment, train  # noqa: E402

PROMPT = b"the quick br"


def lockstep(*words, code=0):
    run = subprocess.run([BIN, *words], capture_output=True, check=False, env=clean_environment(), timeout=60)
    assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout, run.stderr.decode()


def exported(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(data[8 + size + begin : 8 + size + end], "<f4")
            tensors[name.removeprefix("transformer.")] = values.reshape(entry["shape"]).astype(np.float64)
    return tensors, json.loads((folder / "config.json").read_text())


def logits_of(weights, config, tokens):
    """GPT-2 in float64: the logits behind the last token."""

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config["layer_norm_epsilon"])
        return x * weights[name + ".weight"] + weights[name + ".bias"]

    def linear(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    length, heads = len(tokens), config["n_head"]
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][:length]
    mask = np.triu(np.full((length, length), -np.inf), 1)
    for i in range(config["n_layer"]):
        block = f"h.{i}."
        q, k, v = np.split(linear(norm(x, block + "ln_1"), block + "attn.c_attn"), 3, axis=-1)
        q, k, v = (t.reshape(length, heads, -1).transpose(1, 0, 2) for t in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(length, -1)
        x = x + linear(mixed, block + "attn.c_proj")
        h = linear(norm(x, block + "ln_2"), block + "mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, block + "mlp.c_proj")
    return norm(x[-1], "ln_f") @ weights["wte.weight"].T


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep sample ") as name:
        folder = pathlib.Path(name)
        text = folder / "text"
        text.write_bytes(b"the quick brown fox jumps over the lazy dog; " * 200)
        run = folder / "run"
        options = {**TINY, "data.source": f"text:{text}", "run": run, "steps": 60, "checkpoint.every": 20,
                   "optim.lr": 5e-3, "schedule.warmup": 5, "schedule.name": "constant"}  # fmt: skip
        assert train(2, options, folder / "log") == 0, (folder / "log").read_text()
        files = sorted(p for p in run.rglob("*"))

        for step in ("20", "60"):
            lockstep("ckpt", "export", str(run), "--to", str(folder / step), "--step", step)
            weights, config = exported(folder / step)
            said, _ = lockstep("sample", str(run), "--prompt", PROMPT, "--step", step, "--temperature", "0",
                               "--tokens", "50")  # fmt: skip
            assert said.startswith(PROMPT) and said.endswith(b"\n") and len(said) == len(PROMPT) + 51
            tokens = list(PROMPT)
            for byte in said[len(PROMPT) : -1]:
                logits = logits_of(weights, config, np.array(tokens[-config["n_positions"] :]))
                # Rounding may turn two nearly equal logits round.
                assert logits[byte] > logits.max() - 1e-4, (step, bytes(tokens), byte, logits.argmax())
                tokens.append(byte)
        newest, _ = lockstep("sample", f"file:{run}/checkpoints", "--prompt", PROMPT, "--temperature=0", "--tokens=50")
        assert newest == said, "the newest commit is step 60"
        assert newest.startswith(b"the quick brown"), newest

        words = ("sample", str(run), "--prompt", PROMPT, "--tokens", "40", "--top-k", "20", "--temperature", "2")
        seven = lockstep(*words, "--seed", "7")[0]
        assert lockstep(*words, "--seed", "7")[0] == seven
        assert lockstep(*words, "--seed", "8")[0] != seven
        assert sorted(p for p in run.rglob("*")) == files, "sample wrote into the run"

        for flags, code, part in (
            (["--prompt", ""], 78, "--prompt is empty"),
            ([], 78, "--prompt is missing"),
            (["--prompt", "x", "--temperature", "-1"], 78, "--temperature"),
            (["--prompt", "x", "--temperatur", "1"], 78, "--temperature?"),
            (["--prompt", "x", "--step", "7"], 74, "step 7"),
            (["--prompt", "x", "--seed", "many"], 78, "--seed many"),
        ):
            assert part in lockstep("sample", str(run), *flags, code=code)[1], flags
        assert "no folder" in lockstep("sample", str(folder / "none"), "--prompt", "x", code=78)[1]

        # A vocabulary above that of the tokeniser is fine for bytes; token shards have no tokeniser.
        (folder / "t.bin").write_bytes(struct.pack("<2000H", *(i % 97 for i in range(2000))))
        for source, vocab, code in (("text:" + str(text), 300, 0), (f"bin:{folder}/t.bin", 300, 78)):
            other = folder / f"run{code}"
            options |= {"data.source": source, "model.vocab": vocab, "run": other, "steps": 2}
            assert train(0, options, folder / "log") == 0, (folder / "log").read_text()
            out, err = lockstep("sample", str(other), "--prompt", "ab", "--temperature", "100", code=code)
            assert code == 0 or "tokeniser of bytes" in err, err
        print("sampling follows the exported weights, repeats itself for a seed and leaves the run alone")


if __name__ == "__main__":
    main()
