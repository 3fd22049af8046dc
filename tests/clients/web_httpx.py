"""Calls a web API through Lictor as an agent's own code does, and checks what comes of it.

Prints how many requests it made.
"""

import sys

import httpx

made = 0


def count(_request):
    global made
    made += 1


with httpx.Client(
    base_url=sys.argv[1],
    headers={"Authorization": "Bearer agents-own"},
    follow_redirects=True,
    event_hooks={"request": [count]},
    timeout=20,
) as client:
    items = []
    url = "items?page=1"
    while url:
        answer = client.get(url)
        answer.raise_for_status()
        items += answer.json()
        url = answer.links.get("next", {}).get("url")
        if url:
            url = answer.request.url.join(url)
    assert items == [1, 2, 3], items

    answer = client.get("old")
    assert (answer.status_code, answer.text) == (200, "moved"), answer

    answer = client.get("away")
    assert (answer.status_code, answer.json()["kind"]) == (502, "redirect_refused"), answer.text

    answer = client.post("items", json={"name": "x"})
    assert answer.status_code == 201, answer
    created = answer.request.url.join(answer.headers["location"])
    answer = client.put(created, files={"file": ("a.txt", b"the file")})
    assert answer.status_code == 204, answer

    with client.stream("GET", "events") as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines == [f"data: {number}" for number in range(100)], lines

    answer = client.get("secret/a")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text

    answer = client.get("missing")
    assert (answer.status_code, answer.text) == (404, "GET /v1/missing"), answer.text

print(made)
