"""The tables of `bench/conversion.py` as one Markdown page. Losses are computed, never picked."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from tables import median, merged, table

Record = dict[str, Any]
"""One model: `model`, `litert_ms`, and `rows`, converter -> what it did."""

FORMATS = ("float32", "float16", "dynamic", "int8", "int16x8")
RESULTS = ("right", "nearly", "wrong", "does not run", "not converted")
"""Best first."""
LATENCY_FROM_MS = 0.3
"""Below this the overhead of a call is most of what is measured."""
SLOWER = 1.1
"""A latency that many times a peer's is listed as a loss."""
ALIKE = {"tf2onnx": "relayout", "tflite2onnx": "relayout --io convert", "tf2onnx nchw": "relayout --io convert"}
"""Peer -> relayout with the same interface: NHWC as in the source, or NCHW."""
TARGETED = "relayout --target onnxruntime-cpu"
"""relayout's result for the runtime that latencies are taken in: what takes least time there, and not fewest bytes."""


def result(row: dict[str, Any]) -> str:
    if not row["converted"]:
        return "not converted"
    verdict = row["verdict"]
    if not verdict.get("runs"):
        return "does not run"
    return {"ok": "right", "noise": "right", "drift": "nearly"}.get(verdict["numerics"], "wrong")


def kind(record: Record) -> str:
    """The number format of a Keras model, the folder of any other."""
    folder, _, name = record["model"].partition("/")
    return next((known for known in FORMATS if name.endswith(f".{known}") and folder not in OTHER), folder)


OTHER = ("coral", "tflite2onnx", "operators")


def names(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record["rows"]))


def rows_of(records: list[Record], name: str) -> list[dict[str, Any]]:
    return [record["rows"][name] for record in records if name in record["rows"]]


def summary(records: list[Record]) -> str:
    lines = []
    for name in names(records):
        rows = rows_of(records, name)
        found = [result(row) for row in rows]
        done = [row for row in rows if row["converted"] and row["seconds"]]
        seconds = median((statistics.median(row["seconds"]) for row in done), ".2f")
        peak = median((max(row["peak_mb"]) for row in done), ".0f")
        proved = str(sum(bool(row["proved"]) for row in rows)) if any(row["proved"] is not None for row in rows) else ""
        counts = [str(found.count(known)) for known in RESULTS]
        lines.append([name, str(len(rows)), *counts, proved, f"{seconds} ({len(done)})", peak])
    return table(["converter", "models", *RESULTS, "proved minimal", "s (of how many)", "peak MB"], lines)


def by_kind(records: list[Record]) -> str:
    lines = []
    for known in dict.fromkeys([*FORMATS, *map(kind, records)]):
        own = [record for record in records if kind(record) == known]
        cells = []
        for name in names(records):
            found = [result(row) for row in rows_of(own, name)]
            cells.append(" / ".join(str(found.count(word)) for word in ("right", "nearly", "wrong")))
        if own:
            lines.append([known, str(len(own)), *cells])
    return table(["models", "count", *names(records)], lines)


def pairs(records: list[Record], peer: str) -> list[tuple[Record, dict[str, Any], dict[str, Any]]]:
    """Models that a peer and relayout with the same interface both convert, run, and get right or nearly."""
    found = []
    for record in records:
        theirs, ours = record["rows"].get(peer), record["rows"].get(ALIKE[peer])
        if theirs and ours and result(theirs) in RESULTS[:2] and result(ours) in RESULTS[:2]:
            found.append((record, theirs, ours))
    return found


def left(row: dict[str, Any]) -> str:
    return f"{row['verdict']['transposes']} / {row['verdict']['bytes']:,}"


def duels(records: list[Record]) -> str:
    lines = []
    for peer in (name for name in names(records) if name in ALIKE):
        both = pairs(records, peer)
        sizes = [(theirs["verdict"], ours["verdict"]) for _, theirs, ours in both]
        less = sum(ours["bytes"] < theirs["bytes"] for theirs, ours in sizes)
        more = sum(ours["bytes"] > theirs["bytes"] for theirs, ours in sizes)
        totals = [
            f"{sum(side['transposes'] for side in sides):,} / {sum(side['bytes'] for side in sides):,}"
            for sides in ([theirs for theirs, _ in sizes], [ours for _, ours in sizes])
        ]
        lines.append([peer, ALIKE[peer], str(len(both)), *totals, str(less), str(len(both) - less - more), str(more)])
    head = ["peer", "against", "models", "peer: Transposes / bytes", "relayout: Transposes / bytes"]
    return table([*head, "fewer bytes", "equal", "more"], lines, 2)


def timed(record: Record, name: str) -> float | None:
    """How many times LiteRT's latency the converted model takes, where both are worth a comparison."""
    row = record["rows"].get(name)
    if not row or not record["litert_ms"] or record["litert_ms"] < LATENCY_FROM_MS or result(row) not in RESULTS[:2]:
        return None
    ratio: float | None = row["verdict"].get("latency")
    return ratio


def latencies(records: list[Record]) -> str:
    lines = []
    peers = [name for name in names(records) if name in ALIKE]
    others = [name for name in names(records) if name == TARGETED or name in ALIKE]
    for known in dict.fromkeys([*FORMATS, *map(kind, records)]):
        own = [record for record in records if kind(record) == known and timed(record, "relayout")]
        if not own:
            continue
        cells = [f"{median((timed(record, 'relayout') or 0 for record in own), '.2f')} ({len(own)})"]
        for name in others:
            found = [ratio for record in own if (ratio := timed(record, name))]
            cells.append(f"{median(found, '.2f')} ({len(found)})")
        for name in peers:
            shared = [(timed(r, ALIKE[name]), timed(r, name)) for r in own]
            ratios = [mine / theirs for mine, theirs in shared if mine and theirs]
            cells.append(f"{median(ratios, '.2f')} ({len(ratios)})")
        lines.append([known, *cells])
    head = ["models", "relayout : LiteRT", *(f"{name} : LiteRT" for name in others)]
    return table([*head, *(f"relayout : {name}" for name in peers)], lines)


def slower(record: Record, name: str, than: str) -> float | None:
    """How many times another's latency that of a result of relayout is, where that is a loss."""
    mine, other = timed(record, name), timed(record, than)
    return mine / other if mine and other and mine > SLOWER * other else None


def suspect(record: Record) -> bool:
    """Whether a result is not right, or a latency of relayout's is a loss."""
    found = [result(row) for row in record["rows"].values()]
    lost = any(slower(record, ours, peer) for peer, ours in ALIKE.items()) or slower(record, TARGETED, "relayout")
    return "nearly" in found or "wrong" in found or bool(lost)


def losses(records: list[Record]) -> str:
    """Every model on which a peer does better: converted or right where relayout is not, fewer bytes, faster."""
    lines: list[list[str]] = []
    for peer in (name for name in names(records) if name in ALIKE):
        for record in records:
            theirs, ours = record["rows"].get(peer), record["rows"].get(ALIKE[peer])
            if theirs and ours and result(theirs) in RESULTS[:2] and better(theirs, ours, result):
                lines.append(["result", record["model"], f"{peer} {result(theirs)}, {ALIKE[peer]} {result(ours)}"])
            if ratio := slower(record, ALIKE[peer], peer):
                lines.append(["latency", record["model"], f"{ratio:.2f} times {peer}"])
        for record, theirs, ours in pairs(records, peer):
            if ours["verdict"]["bytes"] > theirs["verdict"]["bytes"]:
                lines.append(["bytes", record["model"], f"{peer} {left(theirs)}, {ALIKE[peer]} {left(ours)}"])
    for record in records:
        for name, row in record["rows"].items():
            if row["converted"] and row["proved"] is False:
                lines.append(["bytes", record["model"], f"{name} is not proved"])
    counts = ", ".join(f"{sum(line[0] == what for line in lines)} by {what}" for what in ("result", "bytes", "latency"))
    return f"Models: {counts}.\n\n{table(['better by', 'model', 'how much'], sorted(lines), 3)}"


def targeted(records: list[Record]) -> str:
    """Every model that the target makes slower, the slowest first."""
    found = [(ratio, record["model"]) for record in records if (ratio := slower(record, TARGETED, "relayout"))]
    return "\n".join(f"- {model}: {ratio:.2f} times" for ratio, model in sorted(found, reverse=True)) or "None."


def better(theirs: dict[str, Any], ours: dict[str, Any], judged: Callable[[dict[str, Any]], str]) -> bool:
    return RESULTS.index(judged(theirs)) < RESULTS.index(judged(ours))


def refused(records: list[Record]) -> str:
    lines = []
    for record in records:
        for name in ("relayout",):
            row = record["rows"][name]
            if result(row) not in RESULTS[:2]:
                why = (
                    row["why"].partition(" (first")[0]
                    or row["verdict"].get("why")
                    or f"off by {row['verdict'].get('error') or 0:.2g} of the largest value"
                )
                peers = [f"{peer}: {result(record['rows'][peer])}" for peer in ALIKE if peer in record["rows"]]
                lines.append(f"- {record['model']}: {result(row)} ({why[:160]}); {', '.join(peers)}")
    return "\n".join(lines) or "None."


def details(records: list[Record]) -> str:
    lines = []
    for record in records:
        cells = []
        for name in names(records):
            row = record["rows"].get(name)
            if row is None:
                cells.append("")
                continue
            known = result(row)
            moved = (
                f" {row['verdict']['bytes']:,}"
                if known in RESULTS[:3] and row["verdict"].get("bytes") is not None
                else ""
            )
            cells.append(f"{known}{moved}")
        lines.append([record["model"], *cells])
    return table(["model", *names(records)], merged(lines))


def lead(records: list[Record]) -> str:
    """Return what the page shows, in three sentences."""
    tools = [name for name in names(records) if not name.startswith("relayout ")]
    good = [sum(result(row) in RESULTS[:2] for row in rows_of(records, name)) for name in tools]
    counts = ", ".join(f"{name} {number}" for name, number in zip(tools, good, strict=True))
    return (
        f"Each converter turns {len(records)} `.tflite` models into ONNX, and each result is compared with LiteRT.\n"
        f"Right or nearly right are: {counts}. Then come the transposed bytes, the times, and every model."
        "\n\n![What becomes of 331 TensorFlow Lite files](plots/benchmark.svg)"
    )


def headlines(records: list[Record]) -> str:
    """What `run.py` takes of it."""
    return "\n\n".join((summary(records), duels(records), latencies(records)))


def page(records: list[Record], versions: dict[str, str], processor: str) -> str:
    """The whole page; `processor` is the one that all of it was measured on."""
    groups = dict.fromkeys(record["model"].partition("/")[0] for record in records)
    count = {group: sum(record["model"].startswith(f"{group}/") for record in records) for group in groups}
    rejudged = sum(bool(record.get("rejudged")) for record in records)
    twice = f"\n  Latencies of {rejudged} models are means of two runs (`--twice`)." if rejudged else ""
    return f"""# Benchmark

{lead(records)}

`bench/conversion.py` made this page of Keras networks with random weights in five number formats
(`bench/make_keras.py`), Coral's quantized networks, tflite2onnx's own test models, and models of one operator each:
{", ".join(f"{group} {number}" for group, number in count.items())}.
{", ".join(f"{name} {number}" for name, number in versions.items())}; {processor or "an unnamed processor"}.

- The reference is LiteRT's default interpreter on one random, image-like input.
- *Right*: within one step of a quantized output, within 1e-4 of the largest value of a float one, or within twice the
  difference of LiteRT's two kinds of kernels.
- *Nearly*: within 2 % of the largest value (of indices: 2 % of them). Dynamic-range models are mostly nearly right,
  since LiteRT rounds their activations at run time.
- Bytes are those of run-time Transposes in one inference; SpaceToDepth and DepthToSpace count as Transposes.
- Seconds and peak memory are those of a whole command with its imports. The machine was busy: compare ratios.{twice}
- On x64 without VNNI int8 kernels run as uint8 in all results, as with `session.x64quantprecision`.

## What is converted

{summary(records)}

## By number format

Right / nearly / wrong. All others do not run or are not converted.

{by_kind(records)}

## Transposes left

A row has the models that both the peer and relayout convert right, or nearly right, with the same interface.

{duels(records)}

## Latency

A number is a ratio: the time of the result in ONNX Runtime by the time of the source in LiteRT (XNNPACK) or of the
peer's result: the median over models, and their number. Below 1 is faster. Both run on one thread, in turns. Models on
which LiteRT takes less than {LATENCY_FROM_MS} ms are left out. Results with the target are for ONNX Runtime's CPU only.

{latencies(records)}

## Where a peer does better

{losses(records)}

## Where the target's result is slower than the default's

{targeted(records)}

## What relayout does not convert or does not get right

{refused(records)}

## Every model

Result, and the bytes transposed in one inference.

{details(records)}
"""
