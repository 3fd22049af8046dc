#!/usr/bin/env python3
"""Measures what a call costs through Lictor and through its peers, in one run.

The method is described in docs/performance.md. Prints tables, and writes them to
`target/bench/report.md` and the named results to `target/bench/summary.json`.
"""

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import inputs
import report
from calls import Cell, Field, Invalid
from proxies import LOAD_CORE, ROOT, Envoy, LimitedLictor, Lictor, Nginx, Pingora, free_port

RUN = ROOT / "target/bench"
NGINX, PINGORA, ENVOY, LICTOR = "nginx", "pingora", "envoy-10", "lictor-1000"


@dataclasses.dataclass
class Group:
    """Cells that are compared with one another, and therefore take turns."""

    name: str
    title: str
    cells: list
    rate: int | None = None
    streams: int | None = None


def plan(lictor: bool) -> list:
    """Everything that is measured, in the order of the report."""
    execute = {"tool": inputs.EXECUTE_TOOL}

    def cells(proxies: list, mtls: bool = False, **which) -> list:
        door = "mtls" if mtls else "plain"
        kept = [name for name in proxies if lictor or not (name or "").startswith("lictor")]
        # Lictor has both doors in one process; a peer has one process for each.
        full = lambda name: name if name is None or name.startswith("lictor") else f"{name}-{door}"
        return [Cell(full(name), door=door, **which) for name in kept]

    peers = [NGINX, PINGORA, ENVOY]
    sizes = ["lictor-10", LICTOR, "lictor-10000"]
    shapes = {
        size: [
            cell
            for shape in ("string", "key")
            for cell in cells([PINGORA, LICTOR], size=size, shape=shape)
        ]
        for size in ("1k", "32k")
    }
    return [
        Group(
            "plain-1k",
            "Plain HTTP, 1 KiB",
            cells([*peers, "envoy-1000", *sizes]) + cells([LICTOR], **execute),
        ),
        Group("plain-32k", "Plain HTTP, 32 KiB", cells([*peers, LICTOR], size="32k")),
        Group("plain-1m", "Plain HTTP, 1 MiB", cells([*peers, LICTOR], size="1m")),
        Group("shapes-1k", "Plain HTTP, 1 KiB of text or keys", shapes["1k"]),
        Group("shapes-32k", "Plain HTTP, 32 KiB of text or keys", shapes["32k"]),
        Group("mtls-1k", "Mutual TLS, 1 KiB", cells([*peers, "envoy-1000", LICTOR], mtls=True)),
        Group("mtls-32k", "Mutual TLS, 32 KiB", cells([*peers, LICTOR], mtls=True, size="32k")),
        Group("mtls-1m", "Mutual TLS, 1 MiB", cells([*peers, LICTOR], mtls=True, size="1m")),
        Group(
            "plain-1k-paced",
            "Plain HTTP, 1 KiB, 1,000 calls/s",
            cells([None, *peers, LICTOR]) + cells([LICTOR], **execute),
            rate=1000,
        ),
        Group(
            "mtls-1k-paced",
            "Mutual TLS, 1 KiB, 1,000 calls/s",
            cells([*peers, LICTOR], mtls=True),
            rate=1000,
        ),
        Group("limits", "Limits shared through Redis, 1 KiB", cells([LICTOR, report.LIMITED])),
        Group(
            "limits-paced",
            "Limits shared through Redis, 1 KiB, 1,000 calls/s",
            cells([LICTOR, report.LIMITED]),
            rate=1000,
        ),
        Group(
            "streams",
            "2,000 event streams, one event a second on each",
            cells([NGINX, LICTOR], shape=inputs.FOLLOW)
            + cells([NGINX, LICTOR], mtls=True, shape=inputs.FOLLOW),
            streams=2000,
        ),
    ]


def main() -> int:
    arguments = parse()
    subprocess.run([ROOT / "bench/setup.sh"], check=True)
    if arguments.build:
        build()
    lictor = Lictor.binary.exists() and not arguments.peers_only
    if not lictor:
        print("NOTICE: Lictor is left out; only its peers are measured", file=sys.stderr)
    groups = [group for group in plan(lictor) if arguments.only in (None, group.name)]
    if not groups:
        names = ", ".join(group.name for group in plan(lictor))
        print(f"no group of that name; there are: {names}", file=sys.stderr)
        return 64

    # The driver lives where the load does: the proxy's core is the proxy's alone.
    os.sched_setaffinity(0, {LOAD_CORE})
    field = prepare()
    begin = time.monotonic()
    try:
        results = report.Results(quick=arguments.quick)
        start_proxies(field, groups, results, starts=2 if arguments.quick else 7)
        for group in groups:
            measure(field, group, arguments, results)
    except Invalid as error:
        print(f"INVALID RUN: {error}", file=sys.stderr)
        return 1
    finally:
        field.stop()
        shutil.rmtree(RUN / "ledger", ignore_errors=True)
    if lictor and arguments.only is None:
        results.delegation = chains()
    results.minutes = (time.monotonic() - begin) / 60
    report.finish(results, RUN, ROOT / "docs/performance.md" if arguments.update_docs else None)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="to check the harness")
    parser.add_argument("--only", metavar="GROUP", help="measure one group of rows")
    parser.add_argument("--rounds", type=int, help="times that each row is measured")
    parser.add_argument("--seconds", type=float, help="length of one measurement")
    parser.add_argument("--peers-only", action="store_true", help="leave Lictor out")
    parser.add_argument("--no-build", dest="build", action="store_false", help="take what is built")
    parser.add_argument("--update-docs", action="store_true", help="put the tables into docs")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    arguments.seconds = arguments.seconds or (0.7 if arguments.quick else 3.0)
    arguments.warm_up = 0.3 if arguments.quick else 0.5
    return arguments


def build() -> None:
    command = ["cargo", "build", "--release", "--bin", "lictor"]
    for example in ("pass_through", "bench_ends"):
        command += ["--example", example]
    subprocess.run(command, cwd=ROOT, check=True)
    command = ["cargo", "bench", "--no-run", "--bench", "delegation"]
    subprocess.run(command, cwd=ROOT, check=True)


def chains() -> dict[str, float]:
    """What a chain of delegation of three hops costs, in microseconds, by criterion."""
    command = ["cargo", "bench", "--bench", "delegation", "--", "--noplot"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    measured = {}
    for name, case in report.CHAINS.items():
        estimates = ROOT / "target/criterion/delegation" / case / "new/estimates.json"
        nanoseconds = json.loads(estimates.read_text())["median"]["point_estimate"]
        measured[name] = nanoseconds / 1000
    return measured


def prepare() -> Field:
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True)
    inputs.make_certificates(RUN / "certificates")
    inputs.make_bodies(RUN / "bodies")
    field = Field(RUN)
    field.start_upstream(free_port())
    return field


def all_proxies(field: Field) -> list:
    """Every proxy that a plan may name, not started."""
    proxies = []
    for mtls in (False, True):
        door = "mtls" if mtls else "plain"
        proxies += [
            Nginx(f"{NGINX}-{door}", RUN, field.upstream, mtls),
            Pingora(f"{PINGORA}-{door}", RUN, field.upstream, mtls),
            Envoy(10, mtls, RUN, field.upstream),
            Envoy(1000, mtls, RUN, field.upstream),
        ]
    proxies += [Lictor(count, RUN, field.upstream) for count in (10, 1000, 10000)]
    return [*proxies, LimitedLictor(1000, RUN, field.upstream)]


def start_proxies(field: Field, groups: list, results, starts: int) -> None:
    """Starts each proxy several times for its start time; the last one stays."""
    wanted = {cell.proxy for group in groups for cell in group.cells}
    for proxy in all_proxies(field):
        if proxy.name not in wanted:
            continue
        field.proxies[proxy.name] = proxy
        times = []
        for _ in range(starts):
            proxy.stop()
            times.append(field.start(proxy))
        time.sleep(0.5)
        idle = proxy.process.memory_mib("VmRSS")
        field.check(proxy)
        results.started(proxy.name, statistics.median(times), idle)


def measure(field: Field, group: Group, arguments, results) -> None:
    """Takes turns, starting with another cell in each round, so that a slow minute hits all."""
    samples = {cell: [] for cell in group.cells}
    rounds = min(arguments.rounds, 3) if group.streams else arguments.rounds
    for turn in range(rounds):
        shift = turn % len(group.cells)
        for cell in group.cells[shift:] + group.cells[:shift]:
            if group.streams:
                # At least an event on each stream.
                one = field.follow(cell, group.streams, max(arguments.seconds, 1.5))
            else:
                one = field.measure(cell, arguments.seconds, arguments.warm_up, group.rate)
            samples[cell].append(one)
    results.measured(group, samples)
    for proxy in field.proxies.values():
        results.peaks[proxy.name] = proxy.process.memory_mib("VmHWM")


if __name__ == "__main__":
    sys.exit(main())
