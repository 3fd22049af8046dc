#!/usr/bin/env python3
"""Tells where the time, the instructions, the allocations or the system calls of a call go.

One proxy under the load of `make bench`, with a tool attached:

    perf        samples of the CPU clock, kernel included
    callgrind   instructions and heap blocks, by function; slow, but the same from run to run
    strace      system calls per call

`bench/hotspots.py callgrind --proxy pingora-plain` is the yardstick to hold Lictor's against.
"""

import argparse
import collections
import re
import subprocess
import sys
import time

import inputs
import run
from calls import Cell, Field, Invalid

TOP = 45
ALLOCATORS = re.compile(r"(mi_)?(malloc|zalloc|calloc|realloc)(_aligned)?")


def main() -> int:
    arguments = parse()
    if arguments.build:
        run.build()
    field = run.prepare()
    cell = Cell(arguments.proxy, arguments.door, arguments.tool, arguments.shape, arguments.size)
    try:
        TOOLS[arguments.with_](field, cell, arguments.seconds)
    except Invalid as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        field.stop()
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("with_", metavar="TOOL", choices=TOOLS)
    parser.add_argument("--proxy", default=run.LICTOR, help="as in the tables of `make bench`")
    parser.add_argument("--door", default="plain", choices=("plain", "mtls"))
    parser.add_argument("--tool", default=inputs.READ_TOOL)
    parser.add_argument("--shape", default="mixed", choices=inputs.SHAPES)
    parser.add_argument("--size", default="1k", choices=inputs.SIZES)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--no-build", dest="build", action="store_false")
    return parser.parse_args()


def start(field: Field, cell: Cell, wrapper: list) -> None:
    """Starts the proxy under a tool that runs it in its own process."""
    proxy = next(proxy for proxy in run.all_proxies(field) if proxy.name == cell.proxy)
    bare = proxy.command
    proxy.command = lambda: [*wrapper, *bare()]
    field.proxies = {proxy.name: proxy}
    field.start(proxy, limit=120)


def load(field: Field, cell: Cell, seconds: float) -> int:
    """Loads the proxy; returns how many calls were counted."""
    sample = field.measure(cell, seconds, warm_up=0, rate=None)
    return max(1, round(sample.rate * seconds))


def perf(field: Field, cell: Cell, seconds: float) -> None:
    start(field, cell, [])
    data = field.run / "perf.data"
    load(field, cell, 0.5)
    pid = field.proxies[cell.proxy].process.pid
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-p", str(pid), "-o", data]
    with subprocess.Popen([*command, "--", "sleep", str(seconds)]) as recorder:
        load(field, cell, seconds)
        recorder.wait()
    report = ["perf", "report", "-i", data, "--stdio", "--no-children", "--percent-limit", "0.4"]
    print_head(output([*report, "--sort", "dso"]), 12)
    print_head(output([*report, "--sort", "symbol"]), TOP)


def callgrind(field: Field, cell: Cell, seconds: float) -> None:
    data = field.run / "callgrind.out"
    options = ["--tool=callgrind", f"--callgrind-out-file={data}", "--instr-atstart=no"]
    start(field, cell, ["valgrind", *options])
    proxy = field.proxies[cell.proxy]
    load(field, cell, 1.0)
    pid = str(proxy.process.pid)
    output(["callgrind_control", "-i", "on", pid])
    calls = load(field, cell, seconds)
    output(["callgrind_control", "-i", "off", pid])
    proxy.stop()
    for inclusive in ("no", "yes"):
        text = output(["callgrind_annotate", f"--inclusive={inclusive}", "--threshold=95", data])
        total = int(re.search(r"([\d,]+)[^\n]*PROGRAM TOTALS", text).group(1).replace(",", ""))
        print(
            f"\n{total / calls:,.0f} instructions per call, {calls:,} calls, inclusive: {inclusive}"
        )
        rows = re.findall(r"^ *([\d,]+) \([^)]*\) +(?:\S*?:)?(\S.*?)(?: \[[^\]]*\])?$", text, re.M)
        for count, name in rows[1:TOP]:
            print(f"{int(count.replace(',', '')) / calls:12,.0f}  {name[:110]}")
    print_blocks(data.read_text(errors="replace"), calls)


def print_blocks(profile: str, calls: int) -> None:
    """Heap blocks per call, by who asks for them. (dhat sees glibc's allocator only.)"""
    names, counts = {}, collections.Counter()
    caller = callee = ""

    def full(name: str) -> str:
        number, _, text = name.partition(" ")
        return names.setdefault(number, text or number)

    for line in profile.splitlines():
        key, _, value = line.partition("=")
        if key == "fn":
            caller = full(value)
        elif key == "cfn":
            callee = full(value)
        elif key == "calls" and ALLOCATORS.fullmatch(callee) and not ALLOCATORS.fullmatch(caller):
            counts[caller] += int(value.split()[0])
    print(f"\n{counts.total() / calls:.1f} heap blocks per call")
    for name, count in counts.most_common(TOP):
        if count / calls >= 0.05:
            print(f"{count / calls:12.2f}  {name[:110]}")


def strace(field: Field, cell: Cell, seconds: float) -> None:
    start(field, cell, [])
    load(field, cell, 0.5)
    pid = str(field.proxies[cell.proxy].process.pid)
    counts = field.run / "strace.txt"
    tracer = subprocess.Popen(["strace", "-f", "-c", "-U", "calls,name", "-o", counts, "-p", pid])
    time.sleep(0.5)
    # The load's own count starts after its connections are made, and so misses their set-up.
    calls = load(field, cell, seconds)
    tracer.terminate()
    tracer.wait()
    for line in counts.read_text().splitlines():
        count, _, name = line.strip().partition(" ")
        if count.isdigit() and int(count) / calls >= 0.01:
            print(f"{int(count) / calls:8.2f}  {name.strip()}")


TOOLS = {"perf": perf, "callgrind": callgrind, "strace": strace}


def output(words: list) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Invalid(f"{words[0]}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def print_head(text: str, lines: int) -> None:
    kept = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    print("\n".join(kept[:lines]), end="\n\n")


if __name__ == "__main__":
    sys.exit(main())
