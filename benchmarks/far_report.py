"""The results of ``far.py`` as tables."""

from __future__ import annotations

from collections.abc import Iterator

import far_limits
import far_memory
import report
import workloads
from far_bench import OURS, PROCESSES, Results
from far_cases import SHARDS, SLOWER_SECONDS
from targets import Target
from wording import number

LABELS = {
    OURS: "this yogadl",
    "mosaic_far": "Mosaic Streaming",
    "litdata_far": "LitData",
    "webdataset_far": "WebDataset",
    "huggingface_far": "Hugging Face",
    "torch_yogadl": "PyTorch",
}

# What is to be reached, by workload or for all: in times of boto3's, of the fastest of the others,
# and of bytes that have to come; and in seconds.
_MOST_TIMES = {"images": 0.8, "small_images": 1.1}
_LEAST_RATES = {"images": 3.0, "small_images": 4.5, "tokens": 3.0}
_LEAST_EARLIER = 8.0
_MOST_BYTES = 1.02
_MOST_OF_SHARD = 1.05
_FIRST_SECONDS = 0.25
_ROUND_TRIPS = 3.0
# Seconds that are compared, and how they are told.
_EPOCH_SECONDS = {"from_fetch_to_end_seconds": "from the call on", "seconds": "in all"}

_FIRST = (
    "The first batch of 32 records of a true shuffle, with nothing kept on the machine: seconds "
    "from `fetch(…, download=False)` on, and with the making of the storage, which is mostly "
    "boto3's. Round trips are those that somebody waited for: how much later the batch came from a "
    f"server that takes {SLOWER_SECONDS * 1000:.0f} ms longer for every answer, in units of that. "
    "Requests are those that were begun until the batch was there, and bytes what had come by "
    "then; with one process, all of a file is fetched ahead meanwhile."
)
_EPOCH = (
    "The first epoch of one process, beside the time in which boto3 downloads the same file, in "
    "pieces of 8 MiB by 16 threads: from the calls of `fetch(…, download=False)` and of "
    "`download_file` on, and in all, with the making of the storage and of boto3's client before. "
    "Ratios are of the medians. A second epoch asks for nothing."
)
_SHARD = (
    f"Rank 1 of {SHARDS}, which reads its records and no others: bytes as a multiple of a "
    f"{SHARDS}th of the file."
)
_SHARE = (
    f"{PROCESSES} processes of one machine, which read one true order among them "
    "(`shuffle_then_shard=True`) and keep what they fetch in one folder, as on a machine with "
    "eight GPUs; with two of them killed after a third of what they had to read; and with "
    "`download=True`, where the first process downloads the file and the others wait for it. The "
    "rate is that of all records that were read, from the making of the storages up to the end of "
    "the last process, and the first batch that of the median process. Bytes are a multiple of "
    "the file."
)
_PEERS = (
    "A first epoch, from opening on, with nothing kept on the machine: records per second, "
    "seconds until the first batch of 32, bytes as a multiple of what the records' values have, "
    "and requests. Processes have imported what they need. Each shuffles as it does by itself: "
    "moved is the mean distance of a record of the epoch from its place in the data set, 1 in a "
    "true shuffle and 0 in none; the first batch is from that share of the data set that lies "
    "between the first and the last of its records. Of the ways to read with two worker processes "
    "and with none, the faster one is told."
)


def markdown(results: Results) -> str:
    """The report."""
    parts = results["parts"]
    lines = ["# From a bucket", _about(results), _versions(results)]
    for name, title, told, table in (
        ("first", "The first batch", _FIRST, _first_table),
        ("epoch", "The first epoch", _EPOCH, _epoch_table),
        ("shard", "A shard", _SHARD, _shard_table),
        ("share", "Processes of one machine", _SHARE, _share_table),
        ("limit", "With room for a share", far_limits.TOLD, far_limits.table),
        ("memory", "Memory", far_memory.TOLD, far_memory.table),
    ):
        if name in parts:
            lines += [f"## {title}", _told_when(results, name, told), table(parts[name])]
    if "peers" in parts:
        lines += ["## Beside others", _told_when(results, "peers", _PEERS)]
        for workload, found in parts["peers"].items():
            lines += [f"### {_title(workload)}", _peer_table(found)]
            errors = [error for line in found.values() for error in line["errors"].values()]
            lines += ["\n".join(f"- {error}" for error in errors)] * bool(errors)
    lines += ["## Targets", report.target_table(targets(parts))]
    return "\n\n".join(lines) + "\n"


def targets(parts: Results) -> list[Target]:
    """What is to be reached, and how far it is."""
    found = []
    for name, case in _cases(parts, "first"):
        workload, _ = name.split(", ")
        text = f"round trips to the first batch, {_files(case)}"
        found.append(Target(text, _title(workload), case["round_trips"], _ROUND_TRIPS, False))
    found += _epoch_targets(parts)
    for workload, share in _cases(parts, "shard"):
        ratio = share["bytes"] * SHARDS / parts["shard"]["written"][workload]["bytes"]
        text = f"bytes of rank 1 of {SHARDS}, to a {SHARDS}th"
        found.append(Target(text, _title(workload), ratio, _MOST_OF_SHARD, False))
    for name, case in _cases(parts, "share"):
        workload, who = name.split(", ")
        if who == "downloaded":
            continue
        ratio = case["bytes"] / parts["share"]["written"][workload]["bytes"]
        killed = ", two of them killed" if who == "killed" else ""
        text = f"bytes of {PROCESSES} processes{killed}, to the file"
        found.append(Target(text, _title(workload), ratio, _MOST_BYTES, False))
        other = parts["share"]["cases"].get(f"{workload}, downloaded", {})
        if who == "all" and "seconds" in other:
            figures = f"{_rate(case):,.0f} / {_rate(other):,.0f} records/s"
            text = f"{PROCESSES} processes, to the same with a download"
            ratio = _rate(case) / _rate(other)
            found.append(Target(text, _title(workload), ratio, 1.0, figures=figures))
    for name, kind in (("limit", far_limits), ("memory", far_memory)):
        found += kind.targets(parts[name]) if name in parts else []
    for workload, loaders in parts.get("peers", {}).items():
        rates = {name: _rate(it) for name, it in loaders.items() if "seconds" in it}
        if OURS in rates and len(rates) > 1:
            best = max((name for name in rates if name != OURS), key=rates.__getitem__)
            figures = f"{rates[OURS]:,.0f} / {rates[best]:,.0f} records/s"
            text = f"first epoch, to the fastest of the others, {LABELS[best]}"
            ratio = rates[OURS] / rates[best]
            least = _LEAST_RATES[workload]
            found.append(Target(text, _title(workload), ratio, least, figures=figures))
            firsts = {name: loaders[name]["first_seconds"] for name in rates}
            soonest = min((name for name in rates if name != OURS), key=firsts.__getitem__)
            figures = f"{firsts[OURS]:.3f} / {firsts[soonest]:.3f} s"
            text = f"first batch, times as early as the first of the others, {LABELS[soonest]}"
            ratio = firsts[soonest] / firsts[OURS]
            found.append(Target(text, _title(workload), ratio, _LEAST_EARLIER, figures=figures))
    return found


def _epoch_targets(parts: Results) -> Iterator[Target]:
    for name, case in _cases(parts, "epoch"):
        workload, who = name.split(", ")
        if who != "yogadl":
            continue
        title = _title(workload)
        other = parts["epoch"]["cases"][f"{workload}, boto3"]
        for key, told in _EPOCH_SECONDS.items():
            text = f"seconds of a first epoch, to boto3's download, {told}"
            ratio = case[key] / other[key] if key in other else None
            yield Target(text, title, ratio, _MOST_TIMES[workload], False)
        text = "seconds to its first batch, from `fetch` on"
        yield Target(text, title, case["from_fetch_seconds"], _FIRST_SECONDS, False)
        ratio = case["bytes"] / parts["epoch"]["written"][workload]["bytes"]
        yield Target("its bytes, to the file", title, ratio, _MOST_BYTES, False)
        asked = float(case["epoch_2_requests"])
        yield Target("requests of a second epoch", title, asked, 0, False)


def _cases(parts: Results, name: str) -> list[tuple[str, Results]]:
    cases = parts.get(name, {}).get("cases", {})
    return [(case, found) for case, found in cases.items() if "error" not in found]


def _title(workload: str) -> str:
    return workloads.workload(workload).title


def _rate(found: Results) -> float:
    return float(found["records"] / found["seconds"])


def _spread(found: Results, name: str) -> str:
    low, high = found[f"{name}_range"]
    return f"{found[name]:.3f} ({low:.3f}–{high:.3f})"


def _rates(found: Results) -> str:
    low, high = found["seconds_range"]
    records = found["records"]
    return f"{_rate(found):,.0f} ({records / high:,.0f}–{records / low:,.0f})"


def _part_of(found: Results, other: Results, name: str) -> str:
    """Seconds of something in times of another's, if it is not that."""
    return "" if other is found or name not in other else f"{found[name] / other[name]:.3f}"


def _files(found: Results) -> str:
    return "one file" if found["parts"] == 1 else f"{found['parts']:,} files"


def _megabytes(nbytes: float) -> str:
    return number(nbytes / 1e6)


def _about(results: Results) -> str:
    given, machine = results["arguments"], results["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB of memory, {machine['system']} "
        f"{machine['kernel']}, {machine['file_system']}, Python {machine['python']}. Scale "
        f"{given['scale']:g}. The bucket is nginx on the same machine, which waits "
        f"{given['latency'] * 1000:g} ms before every answer and gives each connection "
        f"{given['rate'] / 1e6:g} MB/s; requests and bytes are those of its log. What stands in "
        "one table was measured in turn, several times over, each time by new processes; what is "
        "told is the median, with the lowest and the highest in brackets."
    )


def _told_when(results: Results, part: str, told: str) -> str:
    when = results["measured"][part]
    return f"{told} {when['date']}, {when['rounds']} rounds."


def _versions(results: Results) -> str:
    lines = []
    for name, found in results["loaders"].items():
        told = f"skipped: {found['skipped']}" if "skipped" in found else found["version"]
        lines.append(f"- {LABELS[name]}: {told}")
    lines += [f"- failed: {fault}" for fault in results["faults"]]
    return "\n".join(lines)


def _first_table(part: Results) -> str:
    rows = []
    for name, found in part["cases"].items():
        workload, _ = name.split(", ")
        if "error" in found:
            rows.append([_title(workload), *["failed"] * 7])
            continue
        rows.append(
            [
                _title(workload),
                f"{part['written'][workload]['records']:,}",
                f"{found['parts']:,}",
                _spread(found, "from_fetch_seconds"),
                _spread(found, "first_seconds"),
                f"{found['round_trips']:.1f}",
                number(found["first_requests"]),
                _megabytes(found["first_bytes"]),
            ]
        )
    head = ["", "records", "files", "s from `fetch`", "s in all", "round trips", "requests", "MB"]
    return report.table(head, rows)


def _epoch_table(part: Results) -> str:
    rows = []
    for name, found in part["cases"].items():
        workload, who = name.split(", ")
        if "error" in found:
            rows.append([f"{_title(workload)}, {who}", *["failed"] * 9])
            continue
        records = part["written"][workload]["records"]
        other = part["cases"][f"{workload}, boto3"]
        rows.append(
            [
                f"{_title(workload)}, {who}",
                _rates({**found, "records": records}),
                *(_part_of(found, other, key) for key in _EPOCH_SECONDS),
                _spread(found, "from_fetch_seconds"),
                _spread(found, "first_seconds"),
                f"{found['bytes'] / part['written'][workload]['bytes']:.3f}",
                number(found["requests"]),
                number(records / found["epoch_2_seconds"]) if "epoch_2_seconds" in found else "–",
                number(found["epoch_2_requests"]) if "epoch_2_requests" in found else "–",
            ]
        )
    head = ["", "records/s", "time / boto3's, from the call on", "in all"]
    head += ["s to the first batch, from the call on", "in all", "bytes / file", "requests"]
    return report.table([*head, "second epoch, records/s", "its requests"], rows)


def _shard_table(part: Results) -> str:
    rows = []
    for workload, found in part["cases"].items():
        if "error" in found:
            rows.append([_title(workload), *["failed"] * 5])
            continue
        rows.append(
            [
                _title(workload),
                number(found["records"]),
                _spread(found, "seconds"),
                _megabytes(found["bytes"]),
                f"{found['bytes'] * SHARDS / part['written'][workload]['bytes']:.3f}",
                number(found["requests"]),
            ]
        )
    return report.table(["", "records", "s", "MB", f"bytes / {SHARDS}th", "requests"], rows)


def _share_table(part: Results) -> str:
    rows = []
    for name, found in part["cases"].items():
        workload, who = name.split(", ")
        told = {"all": "", "killed": ", two killed", "downloaded": ", downloaded"}[who]
        label = f"{_title(workload)}{told}"
        if "error" in found:
            rows.append([label, *["failed"] * 5])
            continue
        size = part["written"][workload]["bytes"]
        rows.append(
            [
                label,
                number(found["records"]),
                _rates(found),
                _spread(found, "first_seconds"),
                f"{found['bytes'] / size:.3f}",
                number(found["requests"]),
            ]
        )
    head = ["", "records", "records/s", "s to the first batch", "bytes / file", "requests"]
    return report.table(head, rows)


def _peer_table(found: Results) -> str:
    ours = _rate(found[OURS]) if "seconds" in found[OURS] else None
    rows = []
    for name, line in found.items():
        if "seconds" not in line:
            rows.append([LABELS[name], *["failed"] * 7])
            continue
        times = "" if ours is None or name == OURS else f"{ours / _rate(line):.3g}×"
        way = f" · {line['way']}" if line["way"] else ""
        values = line["written"]["value_bytes"]
        rows.append(
            [
                f"{LABELS[name]}{way}",
                _rates(line),
                times,
                _spread(line, "first_seconds"),
                f"{line['bytes'] / values:.3f}",
                number(line["requests"]),
                f"{line['moved']:.2f}",
                f"{line['first_span']:.3f}",
            ]
        )
    head = ["", "records/s", "yogadl is as fast as it", "s to the first batch", "bytes / values"]
    return report.table([*head, "requests", "moved", "first batch from"], rows)
