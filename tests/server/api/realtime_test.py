"""/v1/realtime with the tiny speech model, over a WebSocket of a few lines: sessions, turns, commits, and faults."""
import base64
import json
import os
import struct

import pytest
from conftest import SOURCE, running
from speech_test import send, wav

DATA = SOURCE / "tests" / "data"


@pytest.fixture(scope="module")
def server():
    with running(DATA / "speech") as one:
        yield one


class Socket:
    def __init__(self, server, path="/v1/realtime?intent=transcription", protocols=None):
        self.sock = server.connect(20)
        offered = f"Sec-WebSocket-Protocol: {protocols}\r\n" if protocols else ""
        self.sock.sendall((f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{offered}"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            self.bytes += self.sock.recv(4096)
        self.head, _, self.bytes = self.bytes.partition(b"\r\n\r\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def frame(self, first, payload):
        mask, n = os.urandom(4), len(payload)
        length = bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0xFE, n) if n < 65536 else struct.pack(">BQ", 0xFF, n)
        self.sock.sendall(bytes([first]) + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))

    def say(self, **event):
        self.frame(0x81, json.dumps(event).encode())

    def take(self, n):
        while len(self.bytes) < n:
            more = self.sock.recv(65536)
            assert more, "the server has closed"
            self.bytes += more
        taken, self.bytes = self.bytes[:n], self.bytes[n:]
        return taken

    def next(self):
        """(kind, payload) of the next frame."""
        first, n = self.take(2)
        n = struct.unpack(">H", self.take(2))[0] if n == 126 else struct.unpack(">Q", self.take(8))[0] if n == 127 else n
        return first & 15, self.take(n)

    def event(self):
        kind, payload = self.next()
        assert kind == 1, (kind, payload)
        return json.loads(payload)

    def until(self, name):
        events = [self.event()]
        while not events[-1]["type"].endswith(name):
            events.append(self.event())
        return events


def pcm(seconds, level=8000, rate=24000):
    """The square waves and the noise of the tiny model's sounds."""
    state, out = 1, []
    for i in range(int(seconds * rate)):
        state = (state * 1103515245 + 12345) % 2**31
        loud = (1 + i // 3600 % 5) / 8
        out.append(int(level * loud * (((state >> 8) % 4096 / 4096 - 0.5) + (0.5 if i // (30 + i // 7200 % 7 * 12) % 2 else -0.5))))
    return struct.pack(f"<{len(out)}h", *out)


def append(socket, data, n=4800):
    for at in range(0, len(data), n):
        socket.say(type="input_audio_buffer.append", audio=base64.b64encode(data[at:at + n]).decode())


def test_a_client_commits_its_parts(server):
    with Socket(server) as socket:
        assert socket.head.startswith(b"HTTP/1.1 101") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in socket.head
        assert socket.event()["type"] == "session.created"
        socket.say(type="session.update", session={"type": "transcription", "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": 24000}, "transcription": {"model": "whisper-1", "language": "de"}, "turn_detection": None}}})
        session = socket.event()
        assert session["type"] == "session.updated" and session["session"]["audio"]["input"]["turn_detection"] is None
        for part in range(2):
            append(socket, pcm(1))
            socket.say(type="input_audio_buffer.commit")
            events = socket.until(".completed")
            names = [e["type"] for e in events]
            assert names[:2] == ["input_audio_buffer.committed", "conversation.item.created"]
            assert set(names[2:-1]) <= {"conversation.item.input_audio_transcription.delta"}
            assert "".join(e["delta"] for e in events[2:-1]).strip() == events[-1]["transcript"] != ""
            assert events[-1]["usage"] == {"type": "duration", "seconds": pytest.approx(1, abs=0.01)}
            assert (events[0]["previous_item_id"] is None) == (part == 0)
        socket.say(type="input_audio_buffer.commit")
        assert socket.event()["error"]["code"] == "input_audio_buffer_commit_empty"
        append(socket, pcm(0.5))
        socket.say(type="input_audio_buffer.clear")
        assert socket.event()["type"] == "input_audio_buffer.cleared"


def test_the_server_finds_turns(server):
    with Socket(server) as socket:
        socket.event()
        socket.say(type="transcription_session.update", session={"input_audio_format": "pcm16", "input_audio_transcription": {"model": "x", "language": "de"},
                                                                 "turn_detection": {"type": "server_vad", "silence_duration_ms": 400}})
        assert socket.event()["type"] == "transcription_session.updated"
        quiet = struct.pack("<h", 3) * 36000
        append(socket, quiet + pcm(1.5) + quiet + pcm(1.5) + quiet)
        for _ in range(2):
            names = [e["type"] for e in socket.until(".completed")]
            assert names[:4] == ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed",
                                 "conversation.item.created"]


def test_long_turns_are_cut(server):
    """A turn of 40 seconds, of which nothing is lost, also if no sound before the voice counts."""
    with Socket(server) as socket:
        socket.event()
        socket.say(type="session.update", session={"type": "transcription", "audio": {"input": {
            "transcription": {"model": "x", "language": "de"}, "turn_detection": {"type": "server_vad", "prefix_padding_ms": 0}}}})
        quiet = struct.pack("<h", 3) * 36000
        append(socket, quiet + pcm(40) + quiet, 48000)
        parts = [socket.until(".completed") for _ in range(2)]
        names = [[e["type"] for e in part if ".speech_" in e["type"]] for part in parts]
        assert [name.split(".")[-1] for name in sum(names, [])] == ["speech_started", "speech_stopped"] * 2
        times = [e.get("audio_start_ms", e.get("audio_end_ms")) for part in parts for e in part if ".speech_" in e["type"]]
        assert times[1] == times[2] and 15000 <= times[1] - times[0] <= 30000
        seconds = sum(part[-1]["usage"]["seconds"] for part in parts)
        assert seconds == pytest.approx((times[3] - times[0]) / 1000, abs=0.5) and seconds > 39.5


@pytest.mark.parametrize("event, words", [
    ({"type": "response.create"}, "type"), ({"type": "input_audio_buffer.append", "audio": "%%%"}, "audio"), 
    ({"type": "session.update"}, "session"), ({"type": "session.update", "session": {"type": "realtime"}}, "type"),
    ({"type": "session.update", "session": {"audio": {"input": {"format": {"type": "audio/pcmu"}}}}}, "audio/pcm"),
    ({"type": "session.update", "session": {"audio": {"input": {"transcription": {"language": "klingon"}}}}}, "klingon"),
    ({"type": "session.update", "session": {"turn_detection": {"type": "semantic_vad"}}}, "server_vad"), ([1, 2], None)])
def test_faults_are_events(server, event, words):
    with Socket(server) as socket:
        socket.event()
        socket.frame(0x81, json.dumps(event | {"event_id": "e1"} if isinstance(event, dict) else event).encode())
        if words is None:
            socket.frame(0x81, b"{}")
        error = socket.event()
        assert error["type"] == "error" and (words or "must be") in error["error"]["message"]
        socket.say(type="input_audio_buffer.clear")
        while (last := socket.event())["type"] == "error":
            pass
        assert last["type"] == "input_audio_buffer.cleared"


def test_frames_and_handshakes(server):
    with Socket(server) as socket:
        socket.event()
        socket.frame(0x89, b"are you there")
        assert socket.next() == (10, b"are you there")
        socket.frame(0x88, struct.pack(">H", 1000))
        assert socket.next() == (8, struct.pack(">H", 1000))
        assert socket.sock.recv(10) == b""
    with Socket(server) as socket:
        socket.event()
        socket.frame(0x82, b"binary")
        kind, payload = socket.next()
        assert kind == 8 and payload[:2] == struct.pack(">H", 1003)
    assert server.request("GET", "/v1/realtime").status == 426
    assert send(server, file=wav()).status == 200


def test_browsers_show_the_key_as_a_protocol():
    with running(DATA / "speech", "--api-key", "secret") as one:
        for protocols, status in (("realtime, openai-insecure-api-key.secret, openai-beta.realtime-v1", 101),
                                  ("openai-insecure-api-key.secret", 101), ("realtime, openai-insecure-api-key.secre", 401),
                                  ("realtime", 401), (None, 401)):
            with Socket(one, protocols=protocols) as socket:
                lines = socket.head.decode().lower().split("\r\n")
                assert lines[0].startswith(f"http/1.1 {status}"), protocols
                assert ("sec-websocket-protocol: realtime" in lines) == (status == 101 and "realtime," in protocols)


def test_a_commit_is_complete_before_the_next_message(server):
    """Parts are transcribed in the order of the messages, also if a message ends several turns."""
    with Socket(server) as socket:
        socket.event()
        quiet = struct.pack("<h", 3) * 36000
        socket.say(type="input_audio_buffer.append", audio=base64.b64encode(quiet + pcm(1.5) + quiet + pcm(1.5) + quiet).decode())
        socket.say(type="input_audio_buffer.clear")
        events = socket.until("cleared")
        items = [[e["item_id"] for e in events if e["type"].endswith(kind)] for kind in ("committed", ".completed")]
        assert items[0] == items[1] and len(set(items[0])) == 2


def test_a_model_that_writes_has_no_sessions(demo_server=None):
    with running(SOURCE / "models/demo.gguf") as one, Socket(one) as socket:
        assert b" 400 " in socket.head.split(b"\r\n")[0]
