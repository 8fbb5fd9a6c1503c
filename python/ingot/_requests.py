"""A request from its submission to its answer: options, events, and the readers that make text or messages of events."""
from __future__ import annotations

import asyncio
import ctypes as c
import itertools
import json
import os
import secrets
import weakref
from typing import Any, Dict, Generic, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, TypedDict, TypeVar, Union

from . import _library as lib
from ._schemas import Schema, parse, schema_text
from .answers import Answer, ChatAnswer, Delta

Piece = TypeVar("Piece")
Result = TypeVar("Result", bound=Answer)


class Options(TypedDict, total=False):
    """How an answer is written; what is left out has the default of `ingot/ingot.h`."""

    max_tokens: int  #: -1, the default: to the end of the context
    temperature: float  #: 0.8; 0: always the likeliest token
    top_k: int  #: 40; 0: off
    top_p: float  #: 0.95; 1: off
    min_p: float  #: 0.05; 0: off
    typical_p: float  #: 1: off
    repetition_penalty: float  #: 1: off
    presence_penalty: float  #: 0: off
    frequency_penalty: float  #: 0: off
    penalty_window: int  #: how many tokens back the penalties look: 64; -1: all
    seed: int  #: the same seed gives the same text; left out: a random one, which the answer's `seed` tells
    logprobs: Union[bool, int]  #: log-probabilities of the tokens drawn; from 1 to 20: also of that many likeliest tokens
    logit_bias: Mapping[int, float]  #: added to the logits of tokens; float("-inf") forbids a token
    ignore_eos: bool  #: continue when the model generates a stop token
    stop: Union[str, Sequence[str]]  #: texts that end the answer and are no part of it
    stop_tokens: Sequence[int]  #: in addition to the model's own
    priority: int  #: -100 to 100
    cache_salt: str  #: only requests with equal salts share cached prefixes
    timeout_s: float  #: the request ends after this time at the latest
    schema: Schema  #: JSON that follows this schema: a dict, JSON or a Pydantic class
    regex: str  #: a text that this regular expression matches as a whole
    grammar: str  #: a text of this grammar: GBNF or Lark
    beams: int  #: 1; above: a search for the likeliest text, instead of samples; the text comes when it is over
    length_penalty: float  #: of beams: 1; above 0, longer texts are better
    early_stopping: Union[bool, Literal["never"]]  #: of beams: False; as in transformers


class Event(NamedTuple):
    """A copy of the library's event, which is valid for a moment only."""

    kind: int
    token: int
    logprob: float
    text: str
    finish: int
    counts: Tuple[int, int, int]
    top: List[Tuple[int, float]]

    @classmethod
    def of(cls, event: lib.Event) -> "Event":
        """Of the event that this thread has got last."""
        counts = (event.prompt_tokens, event.cached_tokens, event.output_tokens)
        return cls(event.kind, event.token, event.logprob, event.read_text(), event.finish, counts, lib.top_logprobs())


def settled(options: Options, i: int = 0) -> Options:
    """The options of the i-th answer to a prompt, checked, with a seed."""
    unknown = [name for name in options if name not in Options.__annotations__]
    if unknown:
        raise lib.InvalidError(f"there is no option {unknown[0]!r}: use one of {', '.join(Options.__annotations__)}")
    constraints = [name for name in ("schema", "regex", "grammar") if options.get(name) is not None]
    if len(constraints) > 1:
        raise lib.InvalidError(f"{' and '.join(constraints)} exclude each other: give only one of them")
    if i > 0 and options.get("beams", 1) != 1:
        raise lib.InvalidError("beams find one answer: leave out n")
    seed = options.get("seed")
    if seed is None:
        seed = secrets.randbits(53)  # a number that JSON keeps
    elif not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise lib.InvalidError(f"seed is {seed!r}: it must be an integer from 0 to 2**64 - 1")
    return {**options, "seed": (seed + i) % (1 << 64)}


class Listener:
    """The events of requests that asyncio waits for. One C callback serves all; its `user` is the number of the request."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._queues: Dict[int, Tuple[asyncio.AbstractEventLoop, "asyncio.Queue[Event]"]] = {}
        self.callback = lib.EventCallback(self._hear)

    def add(self, queue: "asyncio.Queue[Event]", loop: Optional[asyncio.AbstractEventLoop] = None) -> int:
        number = next(self._numbers)
        self._queues[number] = (loop or asyncio.get_running_loop(), queue)
        return number

    def remove(self, number: int) -> None:
        self._queues.pop(number, None)

    def _hear(self, event: Any, number: int) -> None:  # on a thread of the library
        loop, queue = self._queues.get(number, (None, None))
        if loop is None or queue is None:
            return
        try:
            loop.call_soon_threadsafe(queue.put_nowait, Event.of(event[0]))
        except RuntimeError:  # the loop is closed: nobody waits
            self.remove(number)


LISTENER = Listener()


def _listed(values: Any, name: str, of: str) -> List[Any]:
    try:
        return list(values)
    except TypeError:
        raise lib.InvalidError(f"{name} is {values!r}: give a list of {of}") from None


def _set_logprobs(struct: Any, logprobs: Union[bool, int, None]) -> None:
    if not isinstance(logprobs, (int, type(None))) or not 0 <= int(logprobs or 0) <= 20:
        raise lib.InvalidError(f"logprobs is {logprobs!r}: give True, or a number of likeliest tokens from 1 to 20")
    struct.logprobs = int(bool(logprobs))
    struct.top_logprobs = 0 if isinstance(logprobs, bool) else logprobs or 0


def _set_beams(struct: Any, beams: Any, early_stopping: Any) -> None:
    kinds = {False: 0, True: 1, "never": 2}
    if not isinstance(early_stopping, (bool, str)) or early_stopping not in kinds:
        raise lib.InvalidError(f"early_stopping is {early_stopping!r}: give True, False or 'never'")
    if not isinstance(beams, int) or not 1 <= beams <= 64:
        raise lib.InvalidError(f"beams is {beams!r}: it must be from 1 to 64")
    struct.n_beams, struct.early_stopping = beams, kinds[early_stopping]


def _set_biases(struct: Any, biases: "Optional[Mapping[int, float]]") -> None:
    if biases is None:
        return
    try:
        tokens, values = [int(token) for token in biases], [float(bias) for bias in biases.values()]
    except (AttributeError, TypeError, ValueError):
        raise lib.InvalidError(f"logit_bias is {biases!r}: give a dict of tokens and numbers") from None
    struct.bias_tokens, struct.n_biases = lib.array(tokens), len(tokens)
    struct.biases = (c.c_float * len(values))(*values)


class StopStrings:
    """Ends text at the first of several strings. Text that may be the beginning of one is held back."""

    def __init__(self, stop: Union[str, Sequence[str]]) -> None:
        if not isinstance(stop, str) and not all(isinstance(one, str) for one in _listed(stop, "stop", "texts")):
            raise lib.InvalidError(f"stop is {stop!r}: give a text or a list of texts")
        self._strings = [stop] if isinstance(stop, str) else list(stop)
        if "" in self._strings:
            raise lib.InvalidError("stop has an empty text, which would end every answer at its start: leave it out")
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        self._held += text
        ends = [(at + len(s), -len(s)) for s in self._strings for at in [self._held.find(s)] if at >= 0]
        if ends:
            self.stopped = True
            end, minus_length = min(ends)
            return self._held[: end + minus_length]
        longest = max((n for s in self._strings for n in range(1, len(s)) if self._held.endswith(s[:n])), default=0)
        shown, self._held = self._held[: len(self._held) - longest], self._held[len(self._held) - longest :]
        return shown

    def flush(self) -> str:
        return "" if self.stopped else self._held


class Request:
    """A submitted request. With `queue`, its events go there; without, next_event() polls them."""

    def __init__(self, model: c.c_void_p, prompt: Any, options: Options, queue: "Optional[asyncio.Queue[Event]]" = None,
                 images: Any = None, loop: Optional[asyncio.AbstractEventLoop] = None):
        fields: Dict[str, Any] = dict(options)
        fields.pop("stop", None)
        fields["json_schema"] = schema_text(fields.pop("schema", None))
        stop_tokens = lib.array(_listed(fields.pop("stop_tokens", ()), "stop_tokens", "tokens"), "stop_tokens")
        logprobs, biases = fields.pop("logprobs", None), fields.pop("logit_bias", None)
        beams, early_stopping = fields.pop("beams", 1), fields.pop("early_stopping", False)
        struct = lib.options(lib.RequestOptions, "request", **fields)
        struct.stop_tokens, struct.n_stop_tokens = stop_tokens, len(stop_tokens)
        _set_logprobs(struct, logprobs)
        _set_biases(struct, biases)
        _set_beams(struct, beams, early_stopping)
        if images is not None:
            struct.images, struct.n_images = images, len(images)
        number = LISTENER.add(queue, loop) if queue is not None else None
        callback = LISTENER.callback if number is not None else lib.EventCallback()
        handle = c.c_void_p()
        try:
            lib.call("submit", model, prompt, len(prompt), c.byref(struct), callback, number, c.byref(handle))
        except lib.IngotError as error:
            if number is not None:
                LISTENER.remove(number)
            said = str(error)
            if said.startswith("json_schema"):  # the C API's name
                raise type(error)(said.replace("json_schema", "schema", 1)) from None
            raise
        self._handle, self._process = handle, os.getpid()
        self.close = weakref.finalize(self, _release, handle, number, self._process)

    def cancel(self) -> None:
        if self.close.alive and os.getpid() == self._process:
            lib.call("cancel", self._handle)

    def next_event(self) -> Event:
        """Waits without the GIL, and looks every 100 ms whether Python wants to stop (Ctrl-C)."""
        lib.check_process(self._process, "the answer")
        event = lib.Event()
        while not lib.poll(self._handle, 100, event):
            pass
        return Event.of(event)


def _release(handle: c.c_void_p, number: Optional[int], process: int) -> None:
    lib.free("request_free", handle, process)
    if number is not None:
        LISTENER.remove(number)


class Reader(Generic[Piece, Result]):
    """What the events of a request add up to."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.stops = StopStrings(options.get("stop", ()))
        self._text: List[str] = []
        self._tokens: List[int] = []
        self._logprobs: List[float] = []
        self._top: List[List[Tuple[int, float]]] = []
        self.result: Optional[Result] = None

    def add(self, event: Event) -> Optional[Piece]:
        """The piece that the event completes, if any; the last event sets `result`."""
        if event.kind == lib.EVENT_TOKEN:
            if self.stops.stopped:
                return None
            self._tokens.append(event.token)
            self._logprobs.append(event.logprob)
            self._top.append(event.top)
            return self._piece(event)
        if event.finish == lib.FINISH.index("error"):
            raise lib.IngotError(event.text)
        piece = None if self.stops.stopped else self._last(event)
        self.result = self._finish("stop" if self.stops.stopped else lib.FINISH[event.finish], event.counts)
        return piece

    def _common(self, finish: str, counts: Tuple[int, int, int]) -> Dict[str, Any]:
        text, schema = "".join(self._text), self._options.get("schema")
        logprobs = self._options.get("logprobs")
        return dict(text=text, tokens=self._tokens, logprobs=self._logprobs if logprobs else None,
                    top_logprobs=self._top if logprobs and not isinstance(logprobs, bool) else None,
                    seed=self._options["seed"], finish=finish, prompt_tokens=counts[0], cached_tokens=counts[1], output_tokens=len(self._tokens),
                    parsed=parse(schema, text) if schema is not None and finish == "stop" and text else None)

    def _shown(self, text: str, last: bool = False) -> str:
        shown = self.stops.push(text) + (self.stops.flush() if last else "")
        self._text.append(shown)
        return shown

    def _piece(self, event: Event) -> Optional[Piece]:
        raise NotImplementedError

    def _last(self, event: Event) -> Optional[Piece]:
        raise NotImplementedError

    def _finish(self, finish: str, counts: Tuple[int, int, int]) -> Result:
        raise NotImplementedError


class TextReader(Reader[str, Answer]):
    def _piece(self, event: Event) -> Optional[str]:
        return self._shown(event.text) or None

    def _last(self, event: Event) -> Optional[str]:
        return self._shown(event.text, last=True) or None

    def _finish(self, finish: str, counts: Tuple[int, int, int]) -> Answer:
        return Answer(**self._common(finish, counts))


class ChatReader(Reader[Delta, ChatAnswer]):
    """Tokens go to the library's reader of answers, which tells reasoning, content and calls apart."""

    def __init__(self, options: Options, model: c.c_void_p, prompt: Any, tools: Optional[str]) -> None:
        super().__init__(options)
        handle = c.c_void_p()
        text = tools.encode() if tools is not None else None
        lib.call("answer_begin", model, prompt, len(prompt), text, c.byref(handle))
        self._handle = handle
        weakref.finalize(self, lib.call, "answer_free", handle)
        self._reasoning: List[str] = []
        self._calls: List[Dict[str, Any]] = []

    def _change(self, tokens: Sequence[int], last: bool = False) -> Optional[Delta]:
        text, n = c.c_void_p(), c.c_size_t()
        lib.call("answer_feed", self._handle, lib.array(tokens), len(tokens), c.byref(text), c.byref(n))
        change = json.loads(c.string_at(text, n.value)) if n.value else {}
        content = self._shown(change.get("content", ""), last)
        reasoning: str = change.get("reasoning_content", "")
        self._reasoning.append(reasoning)
        for call in change.get("tool_calls", []):
            if call["index"] < len(self._calls):
                self._calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            else:
                self._calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
        delta = Delta(content, reasoning, change.get("tool_calls", []))
        return delta if delta != Delta() else None

    def _piece(self, event: Event) -> Optional[Delta]:
        return self._change([event.token])

    def _last(self, event: Event) -> Optional[Delta]:
        return self._change([], last=True)

    def _finish(self, finish: str, counts: Tuple[int, int, int]) -> ChatAnswer:
        message: Dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if any(self._reasoning):
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return ChatAnswer(**self._common(finish, counts), message=message)


class Stream(Generic[Piece, Result]):
    """An answer while it comes: an iterator of its pieces. `answer` waits for the end."""

    def __init__(self, request: Request, reader: Reader[Piece, Result]) -> None:
        self._request, self._reader = request, reader

    def __iter__(self) -> "Stream[Piece, Result]":
        return self

    def __next__(self) -> Piece:
        while self._reader.result is None and self._request.close.alive:
            try:
                piece = self._reader.add(self._request.next_event())
            except lib.IngotError:
                self._request.close()
                raise
            if self._reader.stops.stopped:
                self._request.cancel()
            if piece is not None:
                return piece
        self._request.close()
        raise StopIteration

    @property
    def answer(self) -> Result:
        for _ in self:
            pass
        if self._reader.result is None:
            raise lib.IngotError("the stream was closed before the answer's end")
        return self._reader.result

    def close(self) -> None:
        """Ends the request. Leaving a loop and dropping the stream does the same."""
        self._request.close()


class AsyncStream(Generic[Piece, Result]):
    """The same for asyncio: `async for piece in stream`, then `await stream.answer()`."""

    def __init__(self, request: Request, reader: Reader[Piece, Result], queue: "asyncio.Queue[Event]") -> None:
        self._request, self._reader, self._queue = request, reader, queue

    def __aiter__(self) -> "AsyncStream[Piece, Result]":
        return self

    async def __anext__(self) -> Piece:
        while self._reader.result is None and self._request.close.alive:
            try:
                piece = self._reader.add(await self._queue.get())
            except (lib.IngotError, asyncio.CancelledError):
                self._request.close()
                raise
            if self._reader.stops.stopped:
                self._request.cancel()
            if piece is not None:
                return piece
        self._request.close()
        raise StopAsyncIteration

    async def answer(self) -> Result:
        async for _ in self:
            pass
        if self._reader.result is None:
            raise lib.IngotError("the stream was closed before the answer's end")
        return self._reader.result

    def close(self) -> None:
        self._request.close()
