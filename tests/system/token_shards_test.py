#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token shards of llm.c and nanoGPT train to the bits of the same tokens as text; damage is named."""
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BIN, MPIRUN, SOURCE, TINY, clean_environment, flags, lines_of, result_of, train  # noqa: E402

OPTIONS = {**TINY, "steps": 12, "eval.every": 4}


def nanogpt(tokens):
    return struct.pack(f"<{len(tokens)}H", *tokens)


def llmc(tokens):
    header = [20240520, 1, len(tokens)] + [0] * 253
    return struct.pack("<256i", *header) + nanogpt(tokens)


def check_bits(folder):
    text = (SOURCE / "README.md").read_bytes() * 2
    (folder / "text").write_bytes(text)
    (folder / "whole.bin").write_bytes(nanogpt(text))
    shards = folder / "shards"
    shards.mkdir()
    for i, (begin, end) in enumerate([(0, 700), (700, 701), (701, len(text))]):
        (shards / f"train_{i:06}.bin").write_bytes(llmc(text[begin:end]))
    (shards / "prepare.py").write_text("not a shard")
    lines = {}
    for name, ranks, source in (
        ("text", 1, f"text:{folder}/text"),
        ("nanogpt", 2, f"bin:{folder}/whole.bin"),
        ("llmc", 3, f"bin:{shards}"),
        ("pattern", 1, f"bin:{shards}/train_*.bin"),
    ):
        options = {**OPTIONS, "data.source": source, "run": folder / f"run {name}"}
        assert train(ranks, options, folder / f"{name}.log") == 0, (folder / f"{name}.log").read_text()
        lines[name] = lines_of(options["run"]), result_of(options["run"])["weights_sha256"]
        assert lines[name] == lines["text"], f"{name}: {lines[name]}\n{lines['text']}"
    assert lines["text"][0][12]["eval_loss"] != "null"

    # A smaller vocabulary than that of bytes is fine where no byte is a token.
    letters = bytes(byte % 65 for byte in text)
    (folder / "letters.bin").write_bytes(nanogpt(letters))
    (folder / "val.bin").write_bytes(nanogpt(letters[:500]))
    options = {**OPTIONS, "model.vocab": 65, "data.source": f"bin:{folder}/letters.bin",
               "data.eval": f"bin:{folder}/val.bin", "run": folder / "letters"}  # fmt: skip
    assert train(2, options, folder / "letters.log") == 0, (folder / "letters.log").read_text()
    # One changed bit of the data is a refusal.
    data = bytearray((folder / "letters.bin").read_bytes())
    data[10] ^= 1
    (folder / "letters.bin").write_bytes(data)
    assert train(2, {**options, "steps": 14}, folder / "changed.log") == 78, (folder / "changed.log").read_text()
    assert "its data is not that of data.source" in (folder / "changed.log").read_text()
    print("the same tokens give the same bits as text, nanoGPT and llm.c shards, on 1, 2 and 3 ranks")


def check_errors(folder):
    good = llmc(range(200))
    cases = {
        "outside": (llmc([*range(40), 256, *range(100)]), 65, ["token 256 at position 40", "rank 0"]),
        "cut": (good[:-3], 65, ["counts 200 tokens"]),
        "header cut": (good[:500], 65, ["truncated"]),
        "odd": (b"abc", 65, ["61 62 63"]),
        "empty": (b"", 78, ["is empty"]),
        "version": (good[:4] + b"\2" + good[5:], 78, ["version 2"]),
        "weights": (struct.pack("<256i", 20240326, *[0] * 255), 78, ["model weights"]),
    }
    for name, (data, code, texts) in cases.items():
        path = folder / f"{name}.bin"
        path.write_bytes(data)
        options = {**OPTIONS, "data.source": f"bin:{path}", "run": folder / "refused"}
        run = subprocess.run([MPIRUN, "-n", "2", BIN, "train", *flags(options)], capture_output=True,
                             text=True, timeout=60, check=False, env=clean_environment())  # fmt: skip
        messages = [line for line in run.stderr.splitlines() if line.startswith("lockstep: ")]
        assert run.returncode == code and len(messages) == 1, (name, run.returncode, run.stderr)
        for text in [*texts, str(path)]:
            assert text in messages[0], (name, text, messages)
        assert not (folder / "refused/checkpoints").exists(), name
    print(f"{len(cases)} kinds of bad shards are named with file and cause, by one rank")


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep shards ") as name:
        check_bits(pathlib.Path(name))
        check_errors(pathlib.Path(name))


if __name__ == "__main__":
    main()
