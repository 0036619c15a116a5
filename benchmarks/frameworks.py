"""Measures yogadl inside PyTorch's ``DataLoader`` and Keras's ``fit``, beside what else there is.

    python benchmarks/frameworks.py [--rounds 5] [--seconds 3] [--scale 1.0] [--results DIRECTORY]
                                    [--parts NAME …] [--python NAME=PATH]

With PyTorch: shuffled epochs of 3 KB records in batches of 32, without workers, of a
``yogadl.torch.MapDataset``, of LMDB decoded without pickle, and of LitData; of the first two also
as written without a thought of speed. Each runs in a process
and an environment of its own, in turn, round after round; what counts is the median of the rounds,
of each of which it is the best of up to three epochs. With Keras, see ``keras_fit.py``; its back
ends are parts of their own, of which only TensorFlow's is measured unless --parts names others.

Before anything is timed, the records that arrive are compared with those that were written.
Environments are made in ``.venv-bench-NAME`` unless --python names an interpreter. Results go to
``frameworks.json`` and ``frameworks.md``. The exit status is 1 if anything was wrong or failed.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from typing import Any

import environments
import frameworks_report
import machine
import steps
import targets

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
WORKLOAD = "small_images"
WAY = "workers0"
TORCH_WAYS = {
    "torch_yogadl": ("torch_yogadl", WAY),
    "torch_yogadl_sampler": ("torch_yogadl", "sampler0"),
    "torch_yogadl_plain": ("torch_yogadl", "plain0"),
    "torch_lmdb": ("torch_lmdb", WAY),
    "torch_lmdb_plain": ("torch_lmdb", "plain0"),
    "litdata_loader": ("litdata_loader", WAY),
}
"""What is measured: loaders, and which of their ways."""

TORCH_LOADERS = tuple(dict.fromkeys(loader for loader, _ in TORCH_WAYS.values()))
KERAS_BACKENDS = {
    "keras_tensorflow": "tensorflow",
    "keras_torch": "torch",
    "keras_jax": "jax",
}
PARTS = ("torch", *KERAS_BACKENDS)
STEP_SECONDS = 600

Results = dict[str, Any]


class StepError(Exception):
    """A step delivered wrong records, or nothing."""


def find_interpreters(names: tuple[str, ...], existing: dict[str, str]) -> dict[str, str]:
    """The interpreters by name.

    Raises:
        UnavailableError: an environment cannot be made.
    """
    return {name: environments.interpreter(name, existing) for name in names}


class TorchLoaders:
    """The loaders of PyTorch, one after the other."""

    def __init__(self, arguments: argparse.Namespace, directory: pathlib.Path) -> None:
        pythons = find_interpreters(TORCH_LOADERS, arguments.pythons)
        self._steps = {
            name: steps.Step(python, directory, arguments.scale, arguments.seconds)
            for name, python in pythons.items()
        }
        self._rounds = arguments.rounds

    def measure(self) -> Results:
        versions = {}
        for name in self._steps:
            ways = [way for loader, way in TORCH_WAYS.values() if loader == name]
            written = self._run(name, ways, "write", "check")
            versions[name] = written["loaders"][name]["version"]
            checked = _result(written, name, "check")["ways"]
            if not all(checked[way]["epoch"]["complete"] for way in ways):
                raise StepError(f"{name}: not all of an epoch could be checked")
        rates: dict[str, list[float]] = {key: [] for key in TORCH_WAYS}
        for _ in range(self._rounds):
            for key, (name, way) in TORCH_WAYS.items():
                found = _result(self._run(name, [way], "warm"), name, "warm")["ways"]
                rates[key].append(found[way]["records_per_second"])
        return {"versions": versions, "records_per_second": rates}

    def _run(self, name: str, ways: list[str], *phases: str) -> Results:
        found: Results = {"loaders": {}, "results": {}}
        step = self._steps[name]
        step.run(found, [name], [WORKLOAD], list(phases), STEP_SECONDS, ways=ways)
        for phase in phases:
            _result(found, name, phase)
        return found


def _result(found: Results, name: str, phase: str) -> Results:
    line = steps.outcome(found, WORKLOAD, name, phase)
    if "result" not in line:
        raise StepError(f"{name}, {phase}: {line}")
    result: Results = line["result"]
    return result


def measure_keras(name: str, arguments: argparse.Namespace, directory: pathlib.Path) -> Results:
    python = find_interpreters((name,), arguments.pythons)[name]
    script = pathlib.Path(__file__).resolve().parent / "keras_fit.py"
    command = [python, str(script), "--directory", str(directory)]
    command += ["--scale", str(arguments.scale)]

    def run(*what: str) -> list[Results]:
        print(f"{name} {' '.join(what)} …", file=sys.stderr)
        ended, lines = steps.run(
            [*command, *what], STEP_SECONDS, KERAS_BACKEND=KERAS_BACKENDS[name]
        )
        if ended:
            raise StepError(f"{name} {' '.join(what)}: {ended}")
        return lines

    (about,) = run("--write")
    fits: dict[tuple[int, str], Results] = {}
    for _ in range(arguments.rounds):
        for way in about["ways"]:
            for line in run("--way", way):
                fit = fits.setdefault((line["side"], line["model"]), {**line, "seconds": {}})
                fit["seconds"].setdefault(way, []).append(line["seconds"])
    return {"versions": {name: about["version"]}, "fits": list(fits.values())}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="for the epochs of one round")
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:2])
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="where to report")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="of a loader or part"
    )
    arguments = parser.parse_args()
    arguments.pythons = dict(pair.split("=", 1) for pair in arguments.python)
    return arguments


def main() -> None:
    arguments = parse_arguments()
    results: Results = {
        "arguments": {name: getattr(arguments, name) for name in ("rounds", "seconds", "scale")},
        "parts": {},
    }
    failures = []
    # The system's temporary directory may be in memory.
    place = arguments.directory or arguments.results
    for directory in (place, arguments.results):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="data-", dir=place) as temporary:
        results["machine"] = machine.describe(pathlib.Path(temporary))
        for part in arguments.parts:
            directory = pathlib.Path(temporary) / part
            directory.mkdir()
            try:
                if part == "torch":
                    found = TorchLoaders(arguments, directory).measure()
                else:
                    found = measure_keras(part, arguments, directory)
            except (StepError, environments.UnavailableError) as error:
                failures.append(str(error))
                found = {"failed": str(error)}
            results["parts"][part] = found
    results["targets"] = targets.as_json(frameworks_report.targets(results["parts"]))
    text = json.dumps(results, indent=2) + "\n"
    (arguments.results / "frameworks.json").write_text(text)
    table = frameworks_report.markdown(results)
    (arguments.results / "frameworks.md").write_text(table)
    print(table)
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
