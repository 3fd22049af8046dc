"""The Python A2A SDK, doing everything it can with `tests/fixtures/a2a_agent.py`, step by step.

Prints a line of JSON for each step, `{"step", "seen"}` or `{"step", "error"}`, in which whatever
differs from run to run has a name in its place, which is its own in each line, so that the lines of
two runs can be compared as they are. `a2a_js.mjs` goes through the same steps. With `--refused` it only does what a proxy is
expected to refuse, and something else after that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import ssl
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.helpers import new_data_part, new_raw_part, new_text_message, new_url_part
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from google.protobuf.json_format import MessageToDict

PATIENCE = 20
"""Seconds for one step."""
POLL = 0.02
"""Seconds between two looks at a task that is expected to get somewhere."""
NOWHERE = "00000000-0000-0000-0000-000000000000"
"""No task has this name."""
HOOK_NAME = "hook"
HOOK = "https://1.1.1.1/a2a"
"""Needs nobody to look it up, and the fixture calls nobody."""
IDENTITY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)")


class Driver:
    """One client of one agent, by one binding of one revision of the protocol."""

    def __init__(self, options, http):
        self.options = options
        self.http = http
        self.origin = str(httpx.URL(options.url).copy_with(raw_path=b"/")).rstrip("/")

    async def connect(self):
        card = await A2ACardResolver(self.http, self.options.url).get_agent_card()
        fitting = [
            interface
            for interface in card.supported_interfaces
            if interface.protocol_binding == self.options.binding
            and interface.protocol_version == self.options.version
        ]
        self.here = {self.options.url.rstrip("/"), *(one.url.rstrip("/") for one in fitting)}
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(fitting)
        self.client, self.blocking = (
            ClientFactory(
                ClientConfig(
                    streaming=streaming,
                    httpx_client=self.http,
                    supported_protocol_bindings=[self.options.binding],
                )
            ).create(card)
            for streaming in (True, False)
        )

    async def read_card(self):
        """As it came, since the SDK drops what is for older clients."""
        found = await self.http.get(f"{self.options.url.rstrip('/')}/.well-known/agent-card.json")
        return found.json()

    async def send(self, said, client=None, configuration=None, **target):
        """All that is answered to a message; the client for streams makes it a stream."""
        message = new_text_message(said, role=Role.ROLE_USER, **target)
        request = SendMessageRequest(message=message, configuration=configuration)
        client = client or self.blocking
        return [event async for event in client.send_message(request)]

    async def task(self, said, **target):
        """The task that a message came to."""
        [answer] = await self.send(said, **target)
        return answer.task

    async def about(self, tenant="", extensions=(), references=()):
        """What the agent says that a message came with beside its parts."""
        message = new_text_message("about", role=Role.ROLE_USER)
        message.reference_task_ids.extend(references)
        request = SendMessageRequest(tenant=tenant, message=message)
        updates = [with_a2a_extensions(list(extensions))]
        context = ClientCallContext(service_parameters=ServiceParametersFactory.create(updates))
        return [event async for event in self.blocking.send_message(request, context=context)]

    async def send_message(self):
        return await self.send("hello")

    async def send_task(self):
        return await self.send("task")

    async def send_parts(self, client=None):
        message = new_text_message("task with parts", role=Role.ROLE_USER)
        message.parts.extend(
            [
                new_data_part({"list": [1, 2.5, None, True], "text": "Grüße, 世界"}),
                new_raw_part(b"\x00\x01\xff", "application/octet-stream", "bytes"),
                new_url_part("https://files.example.com/report.pdf", "application/pdf"),
            ]
        )
        request = SendMessageRequest(message=message)
        return [event async for event in (client or self.blocking).send_message(request)]

    async def stream_parts(self):
        return await self.send_parts(self.client)

    async def stream_task(self):
        return await self.send("pieces", self.client)

    async def stream_message(self):
        return await self.send("hello", self.client)

    async def large(self):
        """Twice 512 KiB, there and back; of that only what its ends and size are."""
        [answer] = await self.send(f"large {'ä' * 262_144} end")
        [part] = answer.message.parts
        return [len(part.text), part.text[:20], part.text[-20:]]

    async def many(self):
        answers = await asyncio.gather(*(self.send(f"number {index}") for index in range(12)))
        return [answer.message.parts[0].text for [answer] in answers]

    async def tenant(self):
        return await self.about(tenant="acme")

    async def extensions(self):
        return await self.about(extensions=["https://example.com/x/1", "https://example.com/y/2"])

    async def references(self):
        return await self.about(references=[(await self.task("task")).id])

    async def fail(self):
        return [(await self.send(said))[0].task.status for said in ("fail", "reject")]

    async def ask(self):
        task = await self.task("ask")
        target = {"task_id": task.id, "context_id": task.context_id}
        return [task, await self.send("answer blue", **target)]

    async def stream_ask(self):
        asked = await self.send("ask", self.client)
        target = {"task_id": asked[0].task.id, "context_id": asked[0].task.context_id}
        return [asked, await self.send("answer red", self.client, **target)]

    async def get(self):
        task = await self.task("task")
        lengths = (None, 0, 1)
        asked = (GetTaskRequest(id=task.id, history_length=length) for length in lengths)
        return [await self.client.get_task(request) for request in asked]

    async def list(self):
        context = str(uuid.uuid4())
        for said in ("task one", "task two", "ask"):
            await self.send(said, context_id=context)
        first = await self.client.list_tasks(ListTasksRequest(context_id=context, page_size=2))
        rest = await self.client.list_tasks(
            ListTasksRequest(context_id=context, page_size=2, page_token=first.next_page_token)
        )
        done = await self.client.list_tasks(
            ListTasksRequest(context_id=context, status=TaskState.TASK_STATE_COMPLETED)
        )
        return [first, rest, done]

    async def start_slow(self):
        """A task that is being worked on."""
        configuration = SendMessageConfiguration(return_immediately=True)
        task = await self.task("slow", configuration=configuration)
        while task.status.state != TaskState.TASK_STATE_WORKING:
            await asyncio.sleep(POLL)
            task = await self.client.get_task(GetTaskRequest(id=task.id))
        return task

    async def cancel(self):
        task = await self.start_slow()
        return await self.client.cancel_task(CancelTaskRequest(id=task.id))

    async def cancel_done(self):
        task = await self.task("task")
        return await self.client.cancel_task(CancelTaskRequest(id=task.id))

    async def subscribe(self):
        task = await self.start_slow()
        events = []
        async for event in self.client.subscribe(SubscribeToTaskRequest(id=task.id)):
            events.append(event)
            if len(events) == 1:
                await self.client.cancel_task(CancelTaskRequest(id=task.id))
        return events

    async def subscribe_done(self):
        task = await self.task("task")
        request = SubscribeToTaskRequest(id=task.id)
        return [event async for event in self.client.subscribe(request)]

    async def push_create(self):
        self.asking = (await self.task("ask")).id
        return await self.client.create_task_push_notification_config(hook(self.asking))

    async def push_get(self):
        request = GetTaskPushNotificationConfigRequest(task_id=self.asking, id=HOOK_NAME)
        return await self.client.get_task_push_notification_config(request)

    async def push_list(self):
        return await self.hooks(self.asking)

    async def push_list_again(self):
        return await self.hooks(self.asking)

    async def push_delete(self):
        request = DeleteTaskPushNotificationConfigRequest(task_id=self.asking, id=HOOK_NAME)
        return await self.client.delete_task_push_notification_config(request)

    async def hooks(self, task):
        every = ListTaskPushNotificationConfigsRequest(task_id=task)
        return await self.client.list_task_push_notification_configs(every)

    async def push_inline(self):
        configuration = SendMessageConfiguration(task_push_notification_config=hook(""))
        return await self.hooks((await self.task("ask", configuration=configuration)).id)

    async def extended_card(self):
        return await self.client.get_extended_agent_card(GetExtendedAgentCardRequest())

    async def unknown_get(self):
        return await self.client.get_task(GetTaskRequest(id=NOWHERE))

    async def unknown_cancel(self):
        return await self.client.cancel_task(CancelTaskRequest(id=NOWHERE))

    async def unknown_send(self):
        return await self.send("task", task_id=NOWHERE)

    async def unknown_stream(self):
        return await self.send("task", self.client, task_id=NOWHERE)

    async def unknown_subscribe(self):
        request = SubscribeToTaskRequest(id=NOWHERE)
        return [event async for event in self.client.subscribe(request)]

    async def unknown_push(self):
        return await self.hooks(NOWHERE)

    async def counters(self):
        return await self.send("counters")

    async def run(self, steps):
        for step in steps:
            self.names = {NOWHERE: "<nowhere>"}
            try:
                seen = await asyncio.wait_for(getattr(self, step)(), PATIENCE)
                line = {"seen": self.normalise(plain(seen))}
            except Exception as error:  # Whatever it is, it is what the client saw.
                line = {"error": self.normalise(describe(error))}
            print(json.dumps({"step": step} | line, sort_keys=True, ensure_ascii=False), flush=True)

    def normalise(self, seen):
        """Names in place of what the agent made up, and of where it is."""
        if isinstance(seen, dict):
            named = {key: self.normalise(value) for key, value in seen.items()}
            return named | {key: "<page>" for key in named.keys() & {"nextPageToken"} if named[key]}
        if isinstance(seen, list):
            return [self.normalise(value) for value in seen]
        if not isinstance(seen, str):
            return seen
        if seen == self.origin or seen.startswith(f"{self.origin}/"):
            return "<here>"
        for place in sorted(self.here, key=len, reverse=True):
            seen = seen.replace(place, "<here>")
        return IDENTITY.sub(self.name, INSTANT.sub("<instant>", seen))

    def name(self, found):
        return self.names.setdefault(found[0], f"<{len(self.names)}>")


STEPS = [
    "read_card",
    "send_message",
    "send_task",
    "send_parts",
    "stream_parts",
    "stream_task",
    "stream_message",
    "large",
    "many",
    "tenant",
    "extensions",
    "references",
    "fail",
    "ask",
    "stream_ask",
    "get",
    "list",
    "cancel",
    "cancel_done",
    "subscribe",
    "subscribe_done",
    "push_create",
    "push_get",
    "push_list",
    "push_delete",
    "push_list_again",
    "push_inline",
    "extended_card",
    "unknown_get",
    "unknown_cancel",
    "unknown_send",
    "unknown_stream",
    "unknown_subscribe",
    "unknown_push",
]
REFUSED = ["send_parts", "stream_parts", "send_message", "stream_message"]
"""The first two are what a proxy is expected to refuse, and then nothing."""


def hook(task):
    return TaskPushNotificationConfig(task_id=task, id=HOOK_NAME, url=HOOK, token="told")


def plain(seen):
    if isinstance(seen, (list, tuple)):
        return [plain(value) for value in seen]
    return MessageToDict(seen) if hasattr(seen, "DESCRIPTOR") else seen


def describe(error):
    """An error as a program can read it, with what it was raised from."""
    told = {"class": type(error).__name__, "message": str(error)}
    for attribute in ("code", "data"):
        value = getattr(error, attribute, None)
        if value is not None:
            told[attribute] = value
    response = getattr(error.__cause__, "response", None)
    if response is not None:
        told["status"] = response.status_code
        with contextlib.suppress(ValueError, httpx.ResponseNotRead):
            told["body"] = response.json()
        if "retry-after" in response.headers:
            told["retryAfter"] = response.headers["retry-after"]
    return told


def tls(options):
    if options.ca is None:
        return True
    context = ssl.create_default_context(cafile=options.ca)
    # An SVID names a workload, not a host.
    context.check_hostname = False
    if options.cert is not None:
        context.load_cert_chain(options.cert, options.key)
    return context


async def main(options):
    async with httpx.AsyncClient(verify=tls(options), timeout=PATIENCE, trust_env=False) as http:
        driver = Driver(options, http)
        await driver.connect()
        steps = options.steps.split(",") if options.steps else STEPS
        await driver.run(REFUSED if options.refused else steps)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="below which the card is found")
    parser.add_argument("--binding", choices=["JSONRPC", "HTTP+JSON"], default="JSONRPC")
    parser.add_argument("--version", choices=["1.0", "0.3"], default="1.0")
    parser.add_argument("--ca", help="PEM file of roots that may vouch for the agent")
    parser.add_argument("--cert", help="PEM file of the chain to show")
    parser.add_argument("--key", help="PEM file of its key")
    parser.add_argument("--refused", action="store_true", help="only what is to be refused")
    parser.add_argument("--steps", help="only these steps, with commas between")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse()))
