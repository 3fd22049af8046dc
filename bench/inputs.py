"""What the proxies are fed with: certificates and call bodies."""

import json
import pathlib
import subprocess

TRUST_DOMAIN = "bench.lictor.internal"
CALLER = f"spiffe://{TRUST_DOMAIN}/tenant/acme/agent/load"
PROXY = f"spiffe://{TRUST_DOMAIN}/proxy"

KIB = 1024
SIZES = {"1k": KIB, "32k": 32 * KIB, "1m": 1024 * KIB}
SHAPES = ("mixed", "string", "key")
# A call that the upstream answers with a stream of events that goes on.
FOLLOW = "follow"

# The tools that are called. The first only reads, so that the ledger holds its closing entry alone;
# the second may do anything, so that it holds a durable intent as well; nobody may use the third.
READ_TOOL = "read_file"
EXECUTE_TOOL = "run_job"
DENIED_TOOL = "drop_table"


def make_certificates(directory: pathlib.Path) -> None:
    """One root of the trust domain and two X.509-SVIDs, `proxy` and `load`, all P-256.

    `proxy` is also valid for `localhost`: the load checks its name in the ordinary way.
    """
    directory.mkdir(parents=True, exist_ok=True)
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl = lambda *words: subprocess.run(words, cwd=directory, check=True, capture_output=True)
    openssl(
        *new,
        "-x509",
        "-days",
        "30",
        "-subj",
        "/O=Lictor benchmark",
        "-keyout",
        "root.key",
        "-out",
        "root.pem",
        "-addext",
        "basicConstraints=critical,CA:true",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
        "-addext",
        f"subjectAltName=URI:spiffe://{TRUST_DOMAIN}",
    )
    for name, names in {"proxy": f"URI:{PROXY},DNS:localhost", "load": f"URI:{CALLER}"}.items():
        (directory / f"{name}.ext").write_text(
            "basicConstraints=critical,CA:false\n"
            "keyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth,clientAuth\n"
            f"subjectAltName={names}\n"
        )
        openssl(
            *new, "-subj", "/O=Lictor benchmark", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        openssl(
            "openssl",
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "root.pem",
            "-CAkey",
            "root.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            f"{name}.ext",
            "-out",
            f"{name}.pem",
        )


def call(tool: str, shape: str, size: int) -> bytes:
    """A `tools/call` of exactly `size` bytes.

    `mixed` looks like a tool's usual arguments: short fields, numbers, small records, some text;
    `string` is one long text with an escape in every line; `key` is nothing but short members;
    `follow` asks for a stream of events.
    """
    arguments = {"path": "/srv/reports/2026/q3.md", "limit": 100, "mode": "text", "pad": ""}
    envelope = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    encode = lambda: json.dumps(envelope, separators=(",", ":")).encode()
    room = lambda: size - len(encode())
    line = 'the quarter\'s figures, as "agreed" in the review; see table 4\n'
    if shape == FOLLOW:
        arguments["mode"] = "follow"
    elif shape == "string":
        arguments["text"] = ""
        arguments["text"] = line * (room() // len(json.dumps(line)[1:-1].encode()))
    elif shape == "key":
        members = arguments["fields"] = {}
        one = len(b'"k00000":10000,')
        for index in range((room()) // one):
            members[f"k{index:05}"] = 10000 + index % 90000
    else:
        records = arguments["records"] = []
        record = lambda index: {
            "id": 100000 + index,
            "name": f"item {index:06}",
            "price": 10.25 + index % 80,
            "tags": ["a", "new"],
            "note": line[:48],
        }
        one = len(json.dumps(record(0), separators=(",", ":")).encode()) + 1
        records.extend(record(index) for index in range(room() // one))
    arguments["pad"] = "x" * room()
    body = encode()
    assert len(body) == size, (tool, shape, size, len(body))
    return body


def make_bodies(directory: pathlib.Path) -> None:
    """One file for each combination that the plan calls."""
    directory.mkdir(parents=True, exist_ok=True)
    for size_name, size in SIZES.items():
        for shape in SHAPES:
            for tool in (READ_TOOL, EXECUTE_TOOL):
                body_file(directory, tool, shape, size_name).write_bytes(call(tool, shape, size))
    body_file(directory, READ_TOOL, FOLLOW, "1k").write_bytes(call(READ_TOOL, FOLLOW, KIB))


def body_file(directory: pathlib.Path, tool: str, shape: str, size_name: str) -> pathlib.Path:
    return directory / f"{tool}-{shape}-{size_name}.json"
