# SPDX-License-Identifier: Apache-2.0
"""Plants includes in a tree of its own and checks which of them check_layers.py refuses."""
import pathlib
import subprocess
import sys
import tempfile

CASES = [  # file, include, allowed
    ("core/a.cpp", "lockstep/core/tensor.h", True),
    ("core/a.cpp", "lockstep/collectives/reducer.h", False),
    ("core/a.cpp", "collectives/backend.h", False),
    ("collectives/a.cpp", "core/kernels.h", True),
    ("collectives/shm/a.cpp", "lockstep/optim/adamw.h", False),
    ("include/lockstep/core/a.h", "lockstep/runtime/trainer.h", False),
    ("optim/a.cpp", "lockstep/collectives/reducer.h", True),
    ("runtime/nn/a.cpp", "lockstep/optim/adamw.h", False),
    ("runtime/data/a.cpp", "lockstep/runtime/object_store.h", True),
    ("runtime/store/a.cpp", "lockstep/runtime/checkpoint.h", False),
    ("runtime/cluster/a.cpp", "runtime/data/text.h", False),
    ("runtime/trainer/a.cpp", "runtime/data/text.h", True),
    ("tools/a.cpp", "lockstep/runtime/trainer.h", True),
    ("tools/a.cpp", "runtime/trainer/step.h", False),
    ("tools/a.cpp", "vector", True),
    ("examples/a.cpp", "lockstep/lockstep.h", True),
    ("runtime/trainer/a.cpp", "lockstep/lockstep.h", False),
    ("include/lockstep/lockstep.h", "lockstep/runtime/trainer.h", True),
    ("include/lockstep/lockstep.h", "runtime/trainer/progress.h", False),
]

checker = pathlib.Path(sys.argv[1]) / "scripts/check_layers.py"
failed = 0
for name, include, allowed in CASES:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#include <{include}>\n")
        run = subprocess.run([sys.executable, checker, folder], capture_output=True, text=True)
        if (run.returncode == 0) != allowed or (not allowed and f"{name}:1:" not in run.stdout):
            failed += 1
            print(f"{name} including {include}: expected {'allowed' if allowed else 'refused'}, got {run.stdout}")
sys.exit(1 if failed else 0)
