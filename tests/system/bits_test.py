#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same bits on any number of ranks, and nearly the same numbers for other batches and sums."""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from train import BACKENDS, TINY, lines_of, result_of, train, verify  # noqa: E402

OPTIONS = {**TINY, "steps": 20}
OTHER = BACKENDS[1]


def run(folder, name, ranks, **changes):
    options = {**OPTIONS, "run": folder / name, **{k.replace("__", "."): v for k, v in changes.items()}}
    status = train(ranks, options, folder / f"{name}.log")
    assert status == 0, (folder / f"{name}.log").read_text()[-2000:]
    return result_of(folder / name)["weights_sha256"], lines_of(folder / name)


def furthest(a, b):
    return max(abs(float(a[s]["loss"]) / float(b[s]["loss"]) - 1.0) for s in b)


def check_resumed(folder, alone):
    """A few steps each on 4, 3, 1, 2 and 5 ranks, with and without shards."""
    path = folder / "resumed"
    for ranks, zero, end in ((4, 1, 7), (3, 1, 11), (1, 0, 13), (2, 1, 17), (5, 1, None)):
        options = {**OPTIONS, "run": path, "zero": zero, **({"pause_at": end} if end else {})}
        status = train(ranks, options, folder / "resumed.log")
        assert status == (75 if end else 0), (folder / "resumed.log").read_text()[-2000:]
    assert (result_of(path)["weights_sha256"], lines_of(path)) == alone
    verify(path)


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep bits ") as name:
        folder = pathlib.Path(name)
        alone = run(folder, "alone", 0)
        assert len(alone[1]) == 20
        for ranks in (1, 2, 3, 4, 8):
            assert run(folder, f"ranks{ranks}", ranks) == alone, f"{ranks} ranks"
        assert run(folder, "other", 3, backend=OTHER) == alone, f"backend = {OTHER}"
        print(f"V = 8: the same bits alone, on 1, 2, 3, 4 and 8 ranks, and with backend = {OTHER}")
        for ranks in (1, 2, 3):
            assert run(folder, f"zero{ranks}", ranks, zero=1) == alone, f"zero = 1 on {ranks} ranks"
        assert run(folder, "zero-other", 3, zero=1, backend=OTHER) == alone, f"zero = 1, backend = {OTHER}"
        check_resumed(folder, alone)
        print("zero = 1: the same, and also from a run that changes ranks and zero as it goes")
        for name in ("adam", "lamb", "sgd"):
            one = run(folder, name, 1, optim__name=name)
            assert run(folder, f"{name}-zero", 3, optim__name=name, zero=1) == one, name
        print("adam, lamb, sgd: zero = 1 on 3 ranks has the bits of one rank")
        for micro in (2, 4, 8):
            distance = furthest(run(folder, f"micro{micro}", 1, batch__micro=micro)[1], alone[1])
            print(f"batch.micro = {micro}: losses within {distance:.1e}")
            assert distance < 1e-6
        for reduction in ("fast", "ordered"):
            distance = furthest(run(folder, reduction, 2, reduction=reduction)[1], alone[1])
            print(f"reduction = {reduction}: losses within {distance:.1e}")
            assert distance < 1e-6


if __name__ == "__main__":
    main()
