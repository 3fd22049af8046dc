"""Two checkers of A2A agents that others wrote, on an agent at a URL.

a2a-lint looks at the card and speaks revision 0.3 by an HTTP client of its own; a2a-proof holds the
agent to `a2a_contract.yaml` by either binding of 1.0, and refuses cards that lead elsewhere. Prints
a line for each finding, the same at each run, so that two places can be compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

PATIENCE = 30
"""Seconds for one run of a checker."""
PROGRAMS = Path(sys.executable).parent
CONTRACT = Path(__file__).with_name("a2a_contract.yaml")


def lint(url):
    told = json.loads(run("a2a-lint", url, "--live", "--json"))
    if "error" in told:
        yield f"lint error: {told['error']}"
    for finding in told.get("findings", []):
        yield f"lint {finding['level']} {finding['field']}: {finding['message']}"


def prove(url, binding):
    contract = yaml.safe_load(CONTRACT.read_text("utf-8"))
    contract["agent"] = {"url": url, "transport": binding, "timeout": PATIENCE}
    with tempfile.TemporaryDirectory() as directory:
        config, report = Path(directory, "contract.yaml"), Path(directory, "report.json")
        config.write_text(json.dumps(contract), "utf-8")
        told = run("a2a-proof", "run", str(config), "--format", "json", "--output", str(report))
        if not report.exists():
            yield f"proof {binding} error: {told.strip()}"
            return
        found = json.loads(report.read_text("utf-8"))
    yield f"proof {binding} card: {verdict(found['card'])}"
    for scenario in found["scenarios"]:
        [trial] = scenario["trials"]
        turns = " → ".join(f"{turn['state']} {verdict(turn)}" for turn in trial["turns"])
        yield f"proof {binding} {scenario['name']}: {trial['error'] or turns}"


def verdict(result):
    return "passed" if result["passed"] else f"failed {result['failures']}"


def run(program, *arguments):
    """What it printed; a finding makes it fail."""
    command = [str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout or done.stderr


def main(url):
    for findings in (lint(url), prove(url, "JSONRPC"), prove(url, "HTTP+JSON")):
        for finding in findings:
            print(finding.replace(url.rstrip("/"), "<here>"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
