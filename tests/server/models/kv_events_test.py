"""--kv-events: the events about cached prefixes that a router receives over ZeroMQ, read with pyzmq and msgpack."""
import os
import subprocess
import time

import pytest
from conftest import SLOW

zmq = pytest.importorskip("zmq")
msgpack = pytest.importorskip("msgpack")

END = b"\xff" * 8


class Router:
    """Tracks the blocks of a server like a router, from events only."""

    def __init__(self, server):
        context = zmq.Context.instance()
        self.ask = context.socket(zmq.DEALER)
        self.ask.connect(server.wait_for(r"past events of the KV cache at (\S+)")[1])
        self.ask.setsockopt(zmq.RCVTIMEO, int(30_000 * SLOW))
        self.blocks, self.parents, self.n_removed, self.n_cleared, self.next, self.media = {}, {}, 0, 0, 0, set()

    def update(self):
        """Processes all new messages."""
        self.ask.send_multipart([b"", self.next.to_bytes(8, "big")])
        while True:
            empty, number, body = self.ask.recv_multipart()
            assert empty == b""
            if number == END:
                assert body == b""
                return
            assert int.from_bytes(number, "big") == self.next
            self.next += 1
            self.take(msgpack.unpackb(body))

    def take(self, batch):
        time_sent, events, rank = batch
        assert rank == 0 and abs(time_sent - time.time()) < 600 * SLOW
        for kind, *fields in events:
            if kind == "BlockStored":
                blocks, parent, tokens, size, lora, medium, lora_name = fields
                assert len(tokens) == len(blocks) * size and lora is None and lora_name is None
                for i, block in enumerate(blocks):
                    assert block not in self.blocks and (parent is None or parent in self.blocks)
                    self.blocks[block], self.parents[block] = tokens[i * size:(i + 1) * size], parent
                    parent = block
                self.media.add(medium)
            elif kind == "BlockRemoved":
                for block in fields[0]:
                    del self.blocks[block]
                    self.n_removed += 1
                self.media.add(fields[1])
            else:
                assert [kind, *fields] == ["AllBlocksCleared"]
                self.blocks.clear()
                self.n_cleared += 1

    def cached(self, tokens):
        """How many of these tokens the server has cached, according to the events."""
        n, parent = 0, None
        while True:
            found = [b for b, held in self.blocks.items() if self.parents[b] == parent and held == tokens[n:n + len(held)]]
            if not found:
                return n
            n, parent = n + len(self.blocks[found[0]]), found[0]

    def wait_for(self, condition):
        deadline = time.monotonic() + 30 * SLOW
        while True:
            self.update()
            if condition():
                return
            assert time.monotonic() < deadline, (self.blocks, self.n_removed)
            time.sleep(0.05)


@pytest.fixture
def server(start):
    return start("--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*", "--kv-tokens", 512, "--max-seqs", 2, "-c", 256)


def complete(server, prompt, **fields):
    reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0} | fields)
    assert reply.status == 200, reply.body
    return reply.json()["usage"]


def test_a_router_knows_what_is_cached(server, draw):
    router = Router(server)
    router.wait_for(lambda: router.n_cleared == 1)
    prompt = [draw.randrange(300, 900) for _ in range(100)]
    complete(server, prompt)
    router.wait_for(lambda: router.cached(prompt) > 0)
    n = router.cached(prompt)
    block = len(next(iter(router.blocks.values())))
    assert n == 100 // block * block and router.media == {"CPU"}
    # For a prompt with a common prefix, the server finds at least the cached tokens that the router predicts.
    other = prompt[:3 * block + 1] + [draw.randrange(300, 900) for _ in range(40)]
    assert router.cached(other) == 3 * block
    assert complete(server, other)["prompt_tokens_details"]["cached_tokens"] >= 3 * block


def test_evicted_blocks_are_removed(server, draw):
    router = Router(server)
    first = [draw.randrange(300, 900) for _ in range(120)]
    complete(server, first)
    router.wait_for(lambda: router.cached(first) > 0)
    for _ in range(6):  # more than fits in the cache
        complete(server, [draw.randrange(300, 900) for _ in range(200)])
    router.wait_for(lambda: router.cached(first) == 0 and router.n_removed > 0)
    assert sum(map(len, router.blocks.values())) <= 512


def test_what_has_a_salt_is_not_published(server, draw):
    router = Router(server)
    secret = [draw.randrange(300, 900) for _ in range(100)]
    complete(server, secret, cache_salt="only me")
    known = [draw.randrange(300, 900) for _ in range(100)]
    complete(server, known)
    router.wait_for(lambda: router.cached(known) > 0)
    assert router.cached(secret) == 0


def test_a_subscriber_hears_of_its_topic(server, draw):
    context = zmq.Context.instance()
    endpoint, topic = server.wait_for(r"events of the KV cache at (\S+), topic (\S+)").groups()
    assert topic.startswith("kv@") and topic.endswith("@demo")
    heard = context.socket(zmq.SUB)
    heard.setsockopt(zmq.SUBSCRIBE, topic.encode())
    heard.connect(endpoint)
    deadline, got = time.monotonic() + 30 * SLOW, None
    while got is None and time.monotonic() < deadline:  # messages from before the connection was ready are not received
        complete(server, [draw.randrange(300, 900) for _ in range(40)])
        if heard.poll(100):
            got = heard.recv_multipart()
    assert got[0] == topic.encode() and len(got[1]) == 8 and msgpack.unpackb(got[2])[1][0][0] == "BlockStored"


@pytest.mark.parametrize("arguments, message", [
    (["--kv-events", "nonsense"], "nonsense: Invalid argument (give an endpoint such as tcp://*:5557)"),
    (["--kv-events-topic", "kv"], "--kv-events-replay and --kv-events-topic need --kv-events"),
])
def test_bad_endpoints(arguments, message):
    got = subprocess.run([os.environ["INGOT"], "serve", "--port", "0", *arguments], capture_output=True, text=True, timeout=60 * SLOW)
    assert got.returncode == 2 and message in got.stderr, got.stderr
