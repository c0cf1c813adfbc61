"""A Chromium, and instances that serve the page: real endpoints over snapshots as the runtime would make them."""

import datetime as dt
import itertools
import os
import threading

import pytest
from playwright.sync_api import sync_playwright
from tests.ports import own_port

from sparkrelay.observe.counters import Counters
from sparkrelay.observe.details import InstanceDetails
from sparkrelay.observe.endpoint import serve
from sparkrelay.observe.rebalance_stories import RebalanceStories
from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata, ThreadMetadata
from sparkrelay.types import TopicPartition

_CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """`opened(instance, blocked=None, **context)`: a page that shows it, without errors or requests to elsewhere.

    Requests that match ``blocked`` get no answer; then the page is returned before it shows anything.
    """
    contexts, wrong = [], []

    def open_page(instance, blocked=None, **context):
        contexts.append(chromium.new_context(**context))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}") or dialog.dismiss())
        page.on("request", lambda request: wrong.append(request.url) if instance.address not in request.url else None)
        if blocked:
            page.route(blocked, lambda route: None)
        page.goto(f"http://{instance.address}/")
        if blocked:
            return page
        page.wait_for_selector("#tasks-table tbody tr", timeout=60_000)
        return page

    open_page.wrong = wrong
    yield open_page
    for context in contexts:
        context.close()
    gone = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
    assert [text for text in wrong if not any(name in text for name in gone)] == []


class Instance:
    """One of several that share tasks: the runner of every nth, with a standby of the next one's."""

    def __init__(self, number, ports, tasks, nasty, late=0, steps=(), pageless=()):
        self.address = f"127.0.0.1:{ports[number]}"
        self.number, self.ports, self.tasks, self.nasty = number, ports, tasks, nasty
        self.late, self.steps, self.pageless = late, steps, pageless
        self.state, self.counters, self.stories = "RUNNING", Counters(), RebalanceStories()
        self.running = threading.Event()
        self.thread = f"delays-{self.process[:8]}-StreamThread-1"
        self.stories.decided(self.thread, f"{self.process[:8]} joined{nasty}", [f"0_1 moves: its copy is warm{nasty}"])
        self.stories.assigned(self.thread, 4, why=f"it joined{nasty}", moves=["gains 0_0"], active=1, standby=1)
        self.stories.in_service(self.thread, 4, seconds=1.25, until_assigned=0.25)
        self.counters.batch(
            at=0.0, seconds=0.1, commit_seconds=0.01, records={f"flights{nasty}": 100}, rows_written=1, reopened=0,
            failed=False, late={"by-carrier": late},
        )  # fmt: skip
        self.endpoint = serve(self.snapshot, port=ports[number], details=self.details)

    @property
    def process(self):
        return f"{'abcdefgh'[self.number] * 8}-0000-0000-0000-000000000000"

    def task(self, number, state):
        at = TopicPartition(f"flights{self.nasty}", number)
        running = state == "running"
        return TaskMetadata(
            task_id=f"0_{number}",
            state=state,
            topic_partitions=frozenset([at]),
            committed_offsets={at: 90} if running else {},
            end_offsets={at: 100} if running else {},
            lag=10,
            changelog_offsets={},
            changelog_end_offsets={},
            changelog_lag=10,
            replay_began=None if running else dt.datetime.now(dt.UTC),
        )

    def snapshot(self):
        every = len(self.ports)
        ours = [self.task(n, "running") for n in range(self.tasks) if n % every == self.number]
        copies = [self.task(n, "standby") for n in range(self.tasks) if (n + 1) % every == self.number and every > 1]
        thread = ThreadMetadata(
            self.thread, "RUNNING", self.process, None, "c", "m", "r", frozenset(), "a", tuple(ours), tuple(copies)
        )
        well = self.state == "RUNNING"
        trouble = None if well else f"StreamsException: no{self.nasty}"
        return InstanceSnapshot(
            f"delays{self.nasty}", self.state, well, well, trouble, (thread,), self.counters.totals()
        )

    def details(self):
        nodes = [
            {"id": name, "kind": "topic", "label": f"{name}{self.nasty}", "notes": [f"n{self.nasty}"], "box": ""}
            for name in ("flights", "by-carrier")
        ]
        nodes += [
            {"id": name, "kind": "processor", "label": f"step-{name}", "notes": [], "box": "Sub-topology 0"}
            for name in self.steps
        ]
        edges = [*itertools.pairwise(["flights", *self.steps, "by-carrier"]), ("by-carrier", "flights")]
        report = {
            "timestamp": f"2026-01-01T10:00:00.000Z{self.nasty}", "batchId": 7, "numInputRows": 5,
            "durationMs": {"latestOffset": 1, "addBatch": 20, "commitOffsets": 3, "triggerExecution": 24},
            "stateOperators": [{"numRowsDroppedByWatermark": self.late}], "sink": {"numOutputRows": 4},
            "sparkrelay": {"resident": True, "tasks": {"committed": ["0_0"], "again": {}, "reopened": {}}},
        }  # fmt: skip
        return InstanceDetails(
            config={"application.id": f"delays{self.nasty}", "sasl.password": "[hidden]"},
            graph={"nodes": nodes, "edges": [list(edge) for edge in edges]},
            plan=[f"0_{n}" for n in range(self.tasks)],
            members={"abcdefgh"[n] * 8: f"127.0.0.1:{port}" for n, port in enumerate(self.ports)}
            | dict.fromkeys(self.pageless, ""),
            reports=[report],
            rebalances=self.stories.entries,
        )

    def kill(self):
        self.endpoint.close()


@pytest.fixture
def group():
    """`group(count, tasks=8, nasty="", late=0, steps=(), pageless=())`: instances that know of each other."""
    made = []

    def make(count, *, tasks=8, nasty="", **more):
        ports = [own_port() for _ in range(count)]
        made.extend(Instance(number, ports, tasks, nasty, **more) for number in range(count))
        return made

    yield make
    for instance in made:
        instance.kill()
