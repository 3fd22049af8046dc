"""Turns samples into the table, the named ratios and their bars."""

import json
import pathlib
import statistics

from calls import NO_PROXY, median

# Name → largest value that the project allows itself. Other names are told without a bar.
BARS = {
    "cpu_1k_vs_pingora": 1.3,
    "cpu_32k_vs_pingora": 1.6,
    "cpu_1k_mtls_vs_envoy": 0.6,
    "cpu_1m_vs_envoy": 0.5,
    "cpu_10000_vs_1000_policies": 1.1,
    "idle_rss_mib": 30,
    "start_ms": 150,
    "sse_stream_kib": 40,
    "sse_stream_mtls_kib": 64,
    "sse_event_p50_ms": 5,
    "delegation_cached_us": 90,
    "delegation_uncached_us": 550,
    "limits_us": 15,
    "limits_redis_p99_ms": 0.5,
}

# Name → case of `benches/delegation.rs`.
CHAINS = {
    "delegation_cached_us": "three hops, two known",
    "delegation_uncached_us": "three hops, none known",
}

LICTOR = "lictor-1000"
LIMITED = "lictor-1000-limits"

# Name → group, cell that is measured, cell that it is compared with; cells by label.
RATIOS = {
    "cpu_1k_vs_pingora": ("plain-1k", "lictor-1000", "pingora-plain"),
    "cpu_1k_execute_vs_pingora": ("plain-1k", "lictor-1000 · execute", "pingora-plain"),
    "cpu_1k_vs_envoy": ("plain-1k", "lictor-1000", "envoy-10-plain"),
    "cpu_32k_vs_pingora": ("plain-32k", "lictor-1000", "pingora-plain"),
    "cpu_1k_string_vs_pingora": (
        "shapes-1k",
        "lictor-1000 · string body",
        "pingora-plain · string body",
    ),
    "cpu_1k_key_vs_pingora": ("shapes-1k", "lictor-1000 · key body", "pingora-plain · key body"),
    "cpu_32k_string_vs_pingora": (
        "shapes-32k",
        "lictor-1000 · string body",
        "pingora-plain · string body",
    ),
    "cpu_32k_key_vs_pingora": ("shapes-32k", "lictor-1000 · key body", "pingora-plain · key body"),
    "cpu_1m_vs_envoy": ("plain-1m", "lictor-1000", "envoy-10-plain"),
    "cpu_1m_vs_pingora": ("plain-1m", "lictor-1000", "pingora-plain"),
    "cpu_1k_mtls_vs_envoy": ("mtls-1k", "lictor-1000", "envoy-10-mtls"),
    "cpu_1k_mtls_vs_envoy_1000_rules": ("mtls-1k", "lictor-1000", "envoy-1000-mtls"),
    "cpu_1k_mtls_vs_pingora": ("mtls-1k", "lictor-1000", "pingora-mtls"),
    "cpu_1m_mtls_vs_envoy": ("mtls-1m", "lictor-1000", "envoy-10-mtls"),
    "cpu_10000_vs_1000_policies": ("plain-1k", "lictor-10000", "lictor-1000"),
    "cpu_1000_vs_10_policies": ("plain-1k", "lictor-1000", "lictor-10"),
    "cpu_1k_paced_vs_pingora": ("plain-1k-paced", "lictor-1000", "pingora-plain"),
    "cpu_1k_mtls_paced_vs_envoy": ("mtls-1k-paced", "lictor-1000", "envoy-10-mtls"),
}


class Results:
    """Everything measured in one run."""

    def __init__(self, quick: bool):
        self.quick = quick
        self.minutes = 0.0
        self.processes = []  # (name, start in ms, idle MiB)
        self.peaks = {}
        self.groups = []  # (group, {label: samples})
        self.delegation = {}  # name → µs

    def started(self, name: str, start_ms: float, idle_mib: float) -> None:
        self.processes.append((name, start_ms, idle_mib))

    def measured(self, group, samples: dict) -> None:
        self.groups.append((group, {cell.label(): taken for cell, taken in samples.items()}))

    def samples(self, group_name: str) -> dict:
        return next((taken for group, taken in self.groups if group.name == group_name), {})

    def summary(self) -> dict:
        """Name → number; a name whose rows were left out is left out too."""
        numbers = {}
        for name, (group, ours, theirs) in RATIOS.items():
            samples = self.samples(group)
            if ours in samples and theirs in samples:
                numbers[name] = round(statistics.median(ratios(samples[ours], samples[theirs])), 3)
        for name, start_ms, idle_mib in self.processes:
            if name == "lictor-1000":
                numbers["start_ms"] = round(start_ms, 1)
                numbers["idle_rss_mib"] = round(idle_mib, 1)
        paced = self.samples("plain-1k-paced")
        if "lictor-1000 · execute" in paced:
            wait = median(paced["lictor-1000 · execute"], "p50_us")
            wait -= median(paced["lictor-1000"], "p50_us")
            numbers["intent_wait_p50_ms"] = round(wait / 1000, 3)
        if LIMITED in self.samples("limits"):
            numbers["limits_us"] = round(self.added("limits", "cpu_us"), 1)
        if LIMITED in self.samples("limits-paced"):
            wait = self.added("limits-paced", "p99_us")
            numbers["limits_redis_p99_ms"] = round(wait / 1000, 3)
        streams = self.samples("streams")
        if LICTOR in streams:
            numbers["sse_stream_kib"] = round(median(streams[LICTOR], "kib"), 1)
            numbers["sse_event_p50_ms"] = round(median(streams[LICTOR], "p50_ms"), 2)
        if f"{LICTOR} · mtls" in streams:
            numbers["sse_stream_mtls_kib"] = round(median(streams[f"{LICTOR} · mtls"], "kib"), 1)
        numbers |= {name: round(value, 1) for name, value in self.delegation.items()}
        return numbers


    def added(self, group: str, field: str) -> float:
        """What limits add, taken round by round as ratios are."""
        samples = self.samples(group)
        pairs = zip(samples[LIMITED], samples[LICTOR], strict=True)
        return statistics.median(getattr(one, field) - getattr(other, field) for one, other in pairs)


def ratios(ours: list, theirs: list) -> list:
    """Round by round, so that both sides of a ratio come from the same minute."""
    return [one.cpu_us / other.cpu_us for one, other in zip(ours, theirs, strict=True)]


def finish(results: Results, run: pathlib.Path, document: pathlib.Path | None) -> None:
    text = markdown(results)
    print(text)
    numbers = results.summary()
    (run / "summary.json").write_text(json.dumps(numbers, indent=2) + "\n")
    (run / "report.md").write_text(text)
    if document:
        insert(document, text)


def markdown(results: Results) -> str:
    lines = []
    for group, samples in results.groups:
        lines += [f"### {group.title}", ""]
        lines += stream_table(samples) if group.streams else table(samples)
    if results.processes:
        lines += ["### Start and memory", ""]
        lines += ["| proxy | first answer, ms | idle, MiB | peak, MiB |", "|---|--:|--:|--:|"]
        for name, start_ms, idle in results.processes:
            peak = results.peaks.get(name, 0.0)
            lines.append(f"| {name} | {start_ms:.0f} | {idle:.1f} | {peak:.1f} |")
        lines.append("")
    lines += ["### Named results", "", "| name | value | bar | |", "|---|--:|--:|---|"]
    for name, value in results.summary().items():
        bar = BARS.get(name)
        verdict = "" if bar is None else "met" if value <= bar else "**missed**"
        lines.append(
            f"| `{name}` | {value:g} | {'' if bar is None else f'≤ {bar:g}'} | {verdict} |"
        )
    kind = (
        "Quick run: good for checking the harness, not for quoting."
        if results.quick
        else "Full run."
    )
    lines += ["", f"{kind} {results.minutes:.1f} minutes."]
    return "\n".join(lines) + "\n"


def table(samples: dict) -> list:
    """Costs are told against pingora, or not at all where the group lacks it."""
    base = next((taken for label, taken in samples.items() if label.startswith("pingora")), None)
    lines = [
        "| | CPU µs/call | spread | × pingora | calls/s | core busy | p50 µs | p99 µs |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for label, taken in samples.items():
        costs = [sample.cpu_us for sample in taken]
        if label == NO_PROXY:
            # What the upstream itself costs is of no interest; its latency is.
            lines.append(
                f"| {label} | | | | {median(taken, 'rate'):,.0f} | "
                f"| {median(taken, 'p50_us'):.0f} | {median(taken, 'p99_us'):.0f} |"
            )
            continue
        times = f"{statistics.median(ratios(taken, base)):.2f}" if base else ""
        lines.append(
            f"| {label} | {statistics.median(costs):.1f} "
            f"| {min(costs):.1f}–{max(costs):.1f} | {times} "
            f"| {median(taken, 'rate'):,.0f} | {median(taken, 'busy'):.0%} "
            f"| {median(taken, 'p50_us'):.0f} | {median(taken, 'p99_us'):.0f} |"
        )
    return [*lines, ""]


def stream_table(samples: dict) -> list:
    lines = [
        "| | KiB/stream | spread | events/s | p50 ms | p99 ms | ended well |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for label, taken in samples.items():
        sizes = [sample.kib for sample in taken]
        ended = min(sample.ended for sample in taken)
        lines.append(
            f"| {label} | {statistics.median(sizes):.1f} | {min(sizes):.1f}–{max(sizes):.1f} "
            f"| {median(taken, 'events'):,.0f} | {median(taken, 'p50_ms'):.2f} "
            f"| {median(taken, 'p99_ms'):.2f} | {f'{ended:,}' if ended else ''} |"
        )
    return [*lines, ""]


def insert(document: pathlib.Path, text: str) -> None:
    """Replaces what stands between the two marks in the document."""
    begin, end = "<!-- measured -->\n", "<!-- /measured -->"
    head, _, rest = document.read_text().partition(begin)
    _, mark, tail = rest.partition(end)
    if not mark:
        raise ValueError(f"{document} lacks its marks")
    document.write_text(head + begin + "\n" + text + "\n" + end + tail)
