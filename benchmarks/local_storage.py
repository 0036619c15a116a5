"""Reading speed of local storage beside yogadl 0.1.4: records/s of a shuffled epoch.

    python benchmarks/local_storage.py [--scale 1.0] [--old-python PATH]

Runs both in one go, workload by workload, each in a process of its own. yogadl 0.1.4 is installed
from PyPI into an environment of its own, ``.venv-yogadl-0.1.4``, unless --old-python names the
interpreter of one. Prints a table and writes ``benchmarks/results/local_storage.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import venv
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
OLD_ENVIRONMENT = HERE.parent / ".venv-yogadl-0.1.4"
OLD_REQUIREMENTS = ["yogadl==0.1.4", "tensorflow", "lmdb<2", "websockets<14"]
WORKLOADS = ("scalars", "small_images", "images", "strings")
MEASURES = ("write", "plain", "batch", "batch_size")


def old_python() -> str:
    """The interpreter of an environment with yogadl 0.1.4, which is made if need be."""
    python = OLD_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"Installing yogadl 0.1.4 into {OLD_ENVIRONMENT.name} …", file=sys.stderr)
        venv.create(OLD_ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *OLD_REQUIREMENTS], check=True)
    return str(python)


def measure(python: str, new: bool, workload: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs ``measure_epoch.py`` with an interpreter, in this tree's yogadl if ``new``."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    environment.pop("PYTHONPATH", None)
    if new:
        environment["PYTHONPATH"] = str(HERE.parent)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        command = [python, str(HERE / "measure_epoch.py"), workload, directory]
        command += [str(arguments.scale), str(arguments.seconds)]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    lines = [
        "| workload | | yogadl 0.1.4 | this yogadl | ratio |",
        "|---|---|---:|---:|---:|",
    ]
    names = {
        "write": "write",
        "plain": "`for record in stream`",
        "batch": "`make_tf_dataset(stream).batch(32)`",
        "batch_size": "`make_tf_dataset(stream, batch_size=32)`",
    }
    for sides in results.values():
        for measured in MEASURES:
            # 0.1.4 has no batch_size: the nearest it can do is .batch.
            old = sides["old"].get(measured) or sides["old"]["batch"]
            new = sides["new"][measured]
            lines.append(
                f"| {sides['new']['title']} | {names[measured]} | {old:,.0f} | {new:,.0f} | "
                f"{new / old:.1f}× |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--seconds", type=float, default=20.0, help="longest time per epoch")
    parser.add_argument("--directory", help="where to put the caches (default: temporary)")
    parser.add_argument("--old-python", help="interpreter of an environment with yogadl 0.1.4")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    arguments = parser.parse_args()
    old = arguments.old_python or old_python()
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for workload in arguments.workloads:
        results[workload] = {}
        for side, python in (("old", old), ("new", sys.executable)):
            print(f"{workload}: {side} …", file=sys.stderr)
            results[workload][side] = measure(python, side == "new", workload, arguments)
    machine = {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    target = HERE / "results" / "local_storage.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
