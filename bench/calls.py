"""Calls the proxies: single ones to see that they work, and load that is measured."""

import dataclasses
import http.client
import json
import pathlib
import ssl
import statistics
import subprocess
import time

import inputs
from proxies import LOAD_CORE, ROOT, Process, Proxy

ENDS = ROOT / "target/release/examples/bench_ends"

NO_PROXY = "no proxy"


class Invalid(Exception):
    """The run can't be trusted: something did not start, or answered wrongly."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is measured: one kind of call to one proxy; `proxy` is a name, `None` is no proxy."""

    proxy: str | None
    door: str = "plain"
    tool: str = inputs.READ_TOOL
    shape: str = "mixed"
    size: str = "1k"

    def label(self) -> str:
        words = [self.proxy or NO_PROXY]
        words += ["execute"] if self.tool == inputs.EXECUTE_TOOL else []
        words += [f"{self.shape} body"] if self.shape in ("string", "key") else []
        follows = self.shape == inputs.FOLLOW and (self.proxy or "").startswith("lictor")
        words += ["mtls"] if follows and self.door == "mtls" else []
        return " · ".join(words)


@dataclasses.dataclass
class Sample:
    """One measurement of one cell."""

    cpu_us: float  # CPU time per call
    rate: float  # calls per second
    busy: float  # share of its core that the proxy used
    p50_us: float
    p99_us: float


@dataclasses.dataclass
class StreamSample:
    """One measurement of one cell with many streams open."""

    kib: float  # what a stream adds to the resident set
    events: float  # events that passed in a second, over all streams
    p50_ms: float  # from the upstream's sending to the caller's receipt
    p99_ms: float
    ended: int  # streams that the proxy ended well when it was told to stop


class Field:
    """Where calls are made: the folder of inputs, the upstream, and the proxies by name."""

    def __init__(self, run: pathlib.Path):
        self.run = run
        self.upstream = None
        self.upstream_process = None
        self.proxies: dict[str, Proxy] = {}

    def start_upstream(self, port: int) -> None:
        self.upstream = ("127.0.0.1", port)
        words = [ENDS, "upstream", "--listen", "127.0.0.1:%d" % port]
        self.upstream_process = Process(LOAD_CORE, words, self.run / "upstream.log")

    def stop(self) -> None:
        for proxy in self.proxies.values():
            proxy.stop()
        if self.upstream_process:
            self.upstream_process.stop()

    def start(self, proxy: Proxy, limit: float = 20.0) -> float:
        """Starts a proxy and waits for its first right answer; returns the time it took, in ms."""
        begin = time.perf_counter()
        proxy.start()
        while time.perf_counter() - begin < limit:
            if proxy.process.ended():
                break
            try:
                if self.answers(proxy, inputs.READ_TOOL):
                    return (time.perf_counter() - begin) * 1000
            except OSError:
                time.sleep(0.0005)
        log = proxy.process.log.read_text(errors="replace")[-2000:]
        raise Invalid(f"{proxy.name} gave no answer within {limit} s; its log ends:\n{log}")

    def check(self, proxy: Proxy) -> None:
        """A proxy that governs nothing is no peer: what isn't permitted must be refused."""
        for door in ("plain", "mtls"):
            if getattr(proxy, door) is None:
                continue
            if not self.answers(proxy, inputs.READ_TOOL, door):
                raise Invalid(f"{proxy.name} ({door}) does not answer a permitted call")
            if proxy.governed and self.answers(proxy, inputs.DENIED_TOOL, door):
                raise Invalid(f"{proxy.name} ({door}) lets a call pass that nothing permits")
        if proxy.mtls is not None:
            try:
                passed = self.answers(proxy, inputs.READ_TOOL, "mtls", certificate=False)
            except OSError:
                passed = False
            if passed:
                raise Invalid(f"{proxy.name} lets a call without a client certificate pass")

    def answers(self, proxy: Proxy, tool: str, door: str | None = None, certificate=True) -> bool:
        """Makes one call; tells whether the upstream's answer to it came back."""
        body = inputs.call(tool, "mixed", inputs.SIZES["1k"])
        door = door or ("plain" if proxy.plain else "mtls")
        port = getattr(proxy, door)
        if door == "plain":
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        else:
            context = ssl.create_default_context(cafile=self.certificate("root.pem"))
            if certificate:
                context.load_cert_chain(self.certificate("load.pem"), self.certificate("load.key"))
            connection = http.client.HTTPSConnection("localhost", port, timeout=5, context=context)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }
        try:
            connection.request("POST", "/mcp", body, headers)
            text = connection.getresponse().read()
        except http.client.HTTPException as error:
            raise ConnectionError(error) from error
        finally:
            connection.close()
        return b'"text":"%d bytes"' % len(body) in text

    def certificate(self, name: str) -> str:
        return str(self.run / "certificates" / name)

    def measure(self, cell: Cell, seconds: float, warm_up: float, rate: int | None) -> Sample:
        words = ["load", "--seconds", seconds, "--warm-up", warm_up]
        if rate:
            words += ["--rate", rate]
        report = self.run_load(cell, words, warm_up + seconds + 20)
        calls = report["calls"]
        if calls == 0:
            raise Invalid(f"{cell.label()} ({cell.door}, {cell.size}): no call within {seconds} s")
        return Sample(
            cpu_us=report["cpu_us"] / calls,
            rate=calls / report["seconds"],
            busy=report["cpu_us"] / 1e6 / report["seconds"],
            p50_us=report["p50_us"],
            p99_us=report["p99_us"],
        )

    def follow(self, cell: Cell, streams: int, seconds: float) -> StreamSample:
        """Opens streams through a proxy that has done nothing else before."""
        proxy = self.proxies[cell.proxy]
        proxy.stop()
        self.start(proxy)
        words = ["streams", "--streams", streams, "--seconds", seconds]
        # A peer that breaks its streams off is none the worse for it here.
        words += ["--stop"] if proxy.governed else []
        report = self.run_load(cell, words, seconds + 150)
        if report["events"] < streams:
            raise Invalid(f"{cell.label()} ({cell.door}): {report['events']} events")
        return StreamSample(
            kib=report["kib"],
            events=report["events"] / seconds,
            p50_ms=report["p50_ms"],
            p99_ms=report["p99_ms"],
            ended=report["ended"],
        )

    def run_load(self, cell: Cell, words: list, limit: float) -> dict:
        """Runs one command of the load against the cell's proxy; what it printed."""
        body = inputs.body_file(self.run / "bodies", cell.tool, cell.shape, cell.size)
        if cell.proxy:
            proxy = self.proxies[cell.proxy]
            port, process = getattr(proxy, cell.door), proxy.process
        else:
            port, process = self.upstream[1], self.upstream_process
        words = [ENDS, *words, "--body", body]
        words += ["--connect", f"127.0.0.1:{port}", "--process", process.pid]
        if cell.door == "mtls":
            words += ["--certificate", self.certificate("load.pem")]
            words += [
                "--key",
                self.certificate("load.key"),
                "--roots",
                self.certificate("root.pem"),
            ]
        load = Process(LOAD_CORE, words, self.run / "load.log")
        try:
            status = load.child.wait(limit)
        except subprocess.TimeoutExpired:
            status = "no end"
        finally:
            load.stop()
        text = load.log.read_text(errors="replace")
        if status != 0:
            raise Invalid(f"{cell.label()} ({cell.door}, {cell.size}): {status}: {text[-2000:]}")
        return json.loads(text)


def median(samples: list, field: str) -> float:
    return statistics.median(getattr(sample, field) for sample in samples)
