"""Model: a model in memory, and what it can do."""
from __future__ import annotations

import asyncio
import ctypes as c
import functools
import json
import os
import re
import ssl
import subprocess
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Literal, Mapping, Optional, Sequence, Union, overload

import numpy as np

from . import _library as lib
from ._images import Image, files_of
from ._requests import AsyncStream, ChatReader, Event, Options, Request, Stream, TextReader, settled
from ._schemas import Tool, tools_text
from .answers import Answer, ChatAnswer, Delta, Ranked, Transcript

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Prompt = Union[str, Sequence[int]]
Messages = Union[str, Sequence[Mapping[str, Any]]]
Progress = Callable[[int, int], object]
PROGRAM = os.environ.get("INGOT_PROGRAM") or str(lib.FOLDER / "bin" / "ingot")
BUILT_IN = {"demo": "demo.gguf", "demo-vision": "demo-vision/demo-vision.gguf"}
HUB_NAME = re.compile(r"(hf://|hf\.co/|https://huggingface\.co/)?[\w.-]+/[\w.-]+(:[\w.-]+)?")


def environment() -> Dict[str, str]:
    """For the program: where this machine keeps its certificates, since those of the wheel's OpenSSL would be Debian's."""
    return {**({"SSL_CERT_FILE": cafile} if (cafile := ssl.get_default_verify_paths().cafile) else {}), **os.environ}


def pull(name: str, *flags: str) -> str:
    """Downloads ORG/REPO[:QUANT] of the Hugging Face Hub, once, and returns its path. flags: those of `ingot pull`.

    HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT and HF_HUB_OFFLINE have their usual meaning.
    """
    done = subprocess.run([PROGRAM, "pull", name, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment())
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ingot: ")]
        raise lib.InvalidError(lines[-1][len("ingot: ") :] if lines else f"`ingot pull {name}` failed")
    return done.stdout.strip()



class _ProgressCalls:
    """A C callback that calls a function of Python, and keeps what the function raises: C passes on no exception."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._progress = progress
        self._fault: Optional[BaseException] = None
        self.callback = lib.ProgressCallback(self._call) if progress is not None else None

    def _call(self, done: int, total: int, _: Any) -> None:
        try:
            if self._progress is not None and self._fault is None:
                self._progress(done, total)
        except BaseException as fault:
            self._fault = fault

    def raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault


def _gpu_memory(given: Union[float, str, None]) -> Optional[float]:
    """A share, or bytes."""
    if not isinstance(given, str):
        return given
    found = re.fullmatch(r"([0-9.]+) *([KMGT]?)(i?)B?", given)
    try:
        number = float(found[1]) if found else None
    except ValueError:
        number = None
    if found is None or number is None:
        raise lib.InvalidError(f"gpu_memory is {given!r}: give a share such as 0.9, or a size such as '40GiB'")
    return number * float((1024 if found[3] else 1000) ** " KMGT".index(found[2] or " "))


def _numbers(n: Optional[int], stream: bool) -> "range":
    """Of the answers to a prompt."""
    if n is not None and (not isinstance(n, int) or not 1 <= n <= 128):
        raise lib.InvalidError(f"n is {n!r}: it must be from 1 to 128")
    if n is not None and stream:
        raise lib.InvalidError("a stream is of one answer: leave out n, or ask for a stream n times")
    return range(n or 1)


def _with_files(messages: List[Any], files: Any) -> List[Any]:
    """The messages with a part for each image or recording: where they have such parts already, or else before the last
    question."""
    parts = [part for message in messages if isinstance(message, Mapping) and isinstance(message.get("content"), list)
             for part in message["content"] if isinstance(part, Mapping) and part.get("type") in ("image", "audio")]
    asked = [i for i, m in enumerate(messages) if isinstance(m, Mapping) and m.get("role") == "user"]
    if parts or not asked:
        return messages
    content = messages[asked[-1]].get("content") or []
    texts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    shown = [{"type": "audio" if lib.call("is_recording", data, len(data)) else "image"} for data in files.files]
    changed = {**messages[asked[-1]], "content": shown + texts}
    return [*messages[: asked[-1]], changed, *messages[asked[-1] + 1 :]]


def _messages_text(messages: Messages, files: Any = None) -> str:
    """In JSON. The library checks the messages as the HTTP server does."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        raise lib.InvalidError("messages is one message: give a list of messages, or a text")
    try:
        return json.dumps(_with_files(list(messages), files) if files is not None else list(messages))
    except (TypeError, ValueError) as error:
        raise lib.InvalidError(f"messages is no text and no list of JSON objects: {error}") from None


class Model:
    """A model in memory. Any number of threads may use it; requests at the same time are computed together.

    >>> from ingot import Model
    >>> model = Model.load()  # the demo model of the package; else a path, or ORG/REPO[:QUANT] of the Hugging Face Hub
    >>> answer = model.chat("Tell me a story about a fox.", temperature=0, max_tokens=8)
    >>> answer.output_tokens
    8
    """

    def __init__(self, path: str, kind: int, handle: c.c_void_p, free: str):
        self.path, self._kind, self._handle, self._process = path, kind, handle, os.getpid()
        #: Frees the model's memory. Its requests end as cancelled.
        self.close = weakref.finalize(self, lib.free, free, handle, self._process)

    @classmethod
    def load(cls, model: "Union[str, os.PathLike[str], None]" = None, *, device: str = "cpu", n_threads: int = 0,
             n_ctx: int = 0, max_seqs: int = 8, max_batch_tokens: int = 0, n_kv_tokens: int = 0, max_queue: int = 0,
             deterministic: bool = False, kv_type: str = "f16", speculate: str = "off", draft: Optional[str] = None,
             tp: int = 1, pp: int = 1, gpu_layers: Optional[int] = None,
             gpu_memory: Union[float, str, None] = None, quantize: Optional[str] = None,
             chat_template: Optional[str] = None, progress: Optional[Progress] = None,
             mmproj: "Union[str, os.PathLike[str], None]" = None, no_images: bool = False,
             pooling: Optional[str] = None, normalize: bool = True, beams: int = 1) -> "Model":
        """Loads a GGUF file, a directory of Hugging Face or MLX, a speech model, ORG/REPO[:QUANT] of the Hub, or a model of the package:
        "demo" (None means it too) or "demo-vision", which reads images.

        device: "cpu", "cuda", "cuda:1" (the second GPU), a list of GPUs for tp and pp ("cuda:0,cuda:2"), or "ref" (the
            plain and slow reference)
        n_threads: to compute with; 0: as many as there are cores
        n_ctx: tokens of one request, prompt and output together; 0: the model's, or what fits in memory
        max_seqs: requests computed at once
        max_batch_tokens: tokens computed at once; 0: 512 on the CPU, up to 2048 on a GPU
        n_kv_tokens: size of the KV cache; 0: n_ctx for each request, or what fits in memory
        max_queue: requests that may wait before QueueFullError; 0: any number
        deterministic: other requests do not change a request's tokens
        kv_type: of the KV cache: "f16", "bf16", "f32", "fp8", "q8_0", or on a GPU "q8_0/q4_0" (keys/values) or "q4_0"
        speculate: how tokens are guessed, for several in a step and the same text: "auto", "mtp", "draft", "eagle3",
            "ngram" or "off"
        draft: path of a small model with the same tokens, or of an EAGLE-3 head; None: none
        tp: devices that compute a share of every layer: faster answers
        pp: devices that have some of the layers each: larger models
        gpu_layers: so many of the last layers run on the GPU, the others on the CPU; None: as many as fit
        gpu_memory: a share of the GPU's memory (0.9), bytes, or a text such as "40GiB"; None: as the context needs
        quantize: the format of dense matrices in memory, such as "Q8_0"; None: as stored
        chat_template: in Jinja, or the name "chatml"; None: the model's
        progress: is called with the bytes that are loaded, and with those of the whole model
        mmproj: path of a GGUF file with the model's vision tower; None: the one beside the model, or in its directory
        no_images: load neither the vision tower nor the ears
        pooling: "cls", "mean" or "last" makes a model for embed() of any model; None: what the model is for
        normalize: vectors of length 1
        beams: of a speech model: the most that transcribe() may use; each takes memory
        """
        path = "demo" if model is None else os.fspath(model)
        if path in BUILT_IN and not os.path.exists(path):
            path = str(lib.FOLDER / "models" / BUILT_IN[path])
        if not os.path.exists(path) and HUB_NAME.fullmatch(path) and not path.endswith(".gguf"):
            path = pull(path)
        kind, handle = c.c_int(), c.c_void_p()
        lib.call("kind_of", lib.text(path, "the path"), c.byref(kind))
        if kind.value == lib.KIND_TEXT and pooling is None:
            calls = _ProgressCalls(progress)
            options = lib.options(lib.ModelOptions, "model", device=device, n_threads=n_threads, n_ctx=n_ctx,
                                  max_seqs=max_seqs, max_batch_tokens=max_batch_tokens, n_kv_tokens=n_kv_tokens,
                                  max_queue=max_queue, deterministic=int(deterministic), kv_type=kv_type,
                                  speculate=speculate, draft=draft, tp=tp, pp=pp, gpu_layers=gpu_layers,
                                  gpu_memory=_gpu_memory(gpu_memory), quantize=quantize, chat_template=chat_template,
                                  progress=calls.callback, mmproj=None if mmproj is None else os.fspath(mmproj),
                                  no_images=int(no_images))
            lib.call("load", path.encode(), c.byref(options), c.byref(handle))
            loaded = cls(path, lib.KIND_TEXT, handle, "free")
            calls.raise_fault()
            return loaded
        if kind.value == lib.KIND_SPEECH:
            options = lib.options(lib.SpeechOptions, "speech", device=device, n_threads=n_threads, quantize=quantize,
                                  n_beams=beams)
            lib.call("speech_load", path.encode(), c.byref(options), c.byref(handle))
            return cls(path, lib.KIND_SPEECH, handle, "speech_free")
        for name, value in {"tp": tp if tp != 1 else None, "pp": pp if pp != 1 else None, "gpu_layers": gpu_layers,
                            "gpu_memory": gpu_memory, "quantize": quantize, "chat_template": chat_template,
                            "progress": progress, "mmproj": mmproj, "no_images": no_images or None}.items():
            if value is not None:
                raise lib.InvalidError(f"{name} is for models that write text, and {path} makes vectors or ranks: "
                                       f"leave out {name}")
        options = lib.options(lib.EmbedderOptions, "embedder", device=device, n_threads=n_threads, n_ctx=n_ctx,
                              max_batch_tokens=max_batch_tokens or None, pooling=pooling, normalize=int(normalize))
        lib.call("embedder_load", path.encode(), c.byref(options), c.byref(handle))
        return cls(path, lib.KIND_EMBEDDER if pooling is not None else kind.value, handle, "embedder_free")

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ingot.Model {self.path} ({('text', 'embedder', 'reranker', 'speech')[self._kind]})>"

    def _as(self, kind: int) -> c.c_void_p:
        """The handle, where the model is of this kind."""
        verbs = ("writes text: use generate, chat or logits", "makes vectors: use embed", "ranks documents: use rerank",
                 "writes down recordings: use transcribe")
        lib.check_process(self._process, f"the model {self.path}")
        if not self.close.alive:
            raise lib.InvalidError(f"the model {self.path} is closed: load it again")
        if self._kind != kind:
            raise lib.InvalidError(f"the model {self.path} {verbs[self._kind]}")
        return self._handle

    # ---- tokens ----

    @property
    def n_ctx(self) -> int:
        """Tokens of one request, prompt and output together."""
        n: int = lib.call("n_ctx", self._as(lib.KIND_TEXT))
        return n

    @property
    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        n: int = lib.call("n_vocab", self._as(lib.KIND_TEXT))
        return n

    @property
    def reads_images(self) -> bool:
        """Whether chat() takes images."""
        return bool(lib.call("reads_images", self._as(lib.KIND_TEXT)))

    @property
    def reads_recordings(self) -> bool:
        """Whether chat() takes recordings, as `images`."""
        return bool(lib.call("reads_recordings", self._as(lib.KIND_TEXT)))

    def _tokens(self, function: str, *arguments: Any) -> Any:
        n, handle = c.c_size_t(), self._as(lib.KIND_TEXT)
        lib.call(function, handle, *arguments, None, 0, c.byref(n))
        tokens = (c.c_int32 * n.value)()
        lib.call(function, handle, *arguments, tokens, len(tokens), c.byref(n))
        return tokens

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> List[int]:
        """The tokens of a text. add_special: with BOS and similar tokens that the model needs. parse_special: names of
        control tokens, such as <|im_end|>, become those tokens."""
        data = text.encode()
        return list(self._tokens("tokenize", data, len(data), int(add_special), int(parse_special)))

    def tokenize_chat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
                      tools: Optional[Sequence[Tool]] = None,
                      variables: Optional[Mapping[str, Any]] = None) -> List[int]:
        """The prompt that chat() makes of messages, by the model's chat template."""
        return list(self._chat_prompt(messages, tools_text(tools), variables, files_of(images)))

    def _chat_prompt(self, messages: Messages, tools: Optional[str], variables: Optional[Mapping[str, Any]],
                     files: Any = None) -> Any:
        said = _messages_text(messages, files)
        options = lib.options(lib.ChatOptions, "chat", tools=tools,
                              variables=json.dumps(variables) if variables is not None else None)
        if files is not None:
            options.images, options.n_images = files, len(files)
        return self._tokens("tokenize_chat_with", said.encode(), c.byref(options))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Bytes that are no UTF-8, as half a character may be, become U+FFFD."""
        n, handle, data = c.c_size_t(), self._as(lib.KIND_TEXT), lib.array(tokens)
        lib.call("detokenize", handle, data, len(data), None, 0, c.byref(n))
        text = c.create_string_buffer(n.value)
        lib.call("detokenize", handle, data, len(data), text, n.value, c.byref(n))
        return text.raw.decode(errors="replace")

    def logits(self, tokens: Prompt, *, all: bool = False) -> "NDArray[np.float32]":
        """The scores of every token of the vocabulary as the next one: [n_vocab], or with `all` after each token:
        [n_tokens, n_vocab]. The library writes into the array that is returned."""
        ids = self._prompt(tokens)
        rows = np.empty((len(ids) if all else 1, self.n_vocab), dtype=np.float32)
        first = 0 if all else max(0, len(ids) - 1)
        lib.call("logits", self._as(lib.KIND_TEXT), ids, len(ids), first, rows.ctypes.data, rows.size)
        return rows if all else rows[0]

    # ---- text ----

    def _prompt(self, prompt: Prompt) -> Any:
        return lib.array(self.tokenize(prompt) if isinstance(prompt, str) else prompt)

    def _text_stream(self, prompt: Prompt, options: Options) -> Stream[str, Answer]:
        return Stream(Request(self._as(lib.KIND_TEXT), self._prompt(prompt), options), TextReader(options))

    def _chat_stream(self, prompt: Any, tools: Optional[str], options: Options,
                     files: Any = None) -> Stream[Delta, ChatAnswer]:
        handle = self._as(lib.KIND_TEXT)
        return Stream(Request(handle, prompt, options, images=files), ChatReader(options, handle, prompt, tools))

    async def _text_astream(self, prompt: Prompt, options: Options) -> AsyncStream[str, Answer]:
        queue: "asyncio.Queue[Event]" = asyncio.Queue()
        request = Request(self._as(lib.KIND_TEXT), self._prompt(prompt), options, queue)
        return AsyncStream(request, TextReader(options), queue)

    async def _chat_astream(self, prompt: Any, tools: Optional[str], options: Options,
                            files: Any = None) -> AsyncStream[Delta, ChatAnswer]:
        queue: "asyncio.Queue[Event]" = asyncio.Queue()
        handle, loop = self._as(lib.KIND_TEXT), asyncio.get_running_loop()
        submit = functools.partial(Request, handle, prompt, options, queue, images=files, loop=loop)
        # The vision tower takes long, and other tasks go on meanwhile.
        request = submit() if files is None else await loop.run_in_executor(None, submit)
        return AsyncStream(request, ChatReader(options, handle, prompt, tools), queue)

    @overload
    def generate(self, prompt: Prompt, *, stream: Literal[False] = False,  # type: ignore[overload-overlap]
                 n: None = None, **options: "Unpack[Options]") -> Answer: ...

    @overload
    def generate(self, prompt: Union[Prompt, Sequence[Prompt]], *, stream: Literal[False] = False, n: int,
                 **options: "Unpack[Options]") -> List[Answer]: ...

    @overload
    def generate(self, prompt: Prompt, *, stream: Literal[True], **options: "Unpack[Options]") -> Stream[str, Answer]: ...

    @overload
    def generate(self, prompt: Sequence[Prompt], *, stream: Literal[False] = False,
                 **options: "Unpack[Options]") -> List[Answer]: ...

    def generate(self, prompt: Any, *, stream: bool = False, n: Optional[int] = None,
                 **options: "Unpack[Options]") -> Any:
        """Continues a text (or tokens) as it is, without the chat template. A list of texts is computed together.

        stream: returns an iterator of texts at once; its `answer` is the whole
        n: returns a list with so many answers to each prompt; the i-th has the seed `seed` + i
        options: see `ingot.Options`
        """
        is_list = not isinstance(prompt, str) and any(not isinstance(p, (int, np.integer)) for p in prompt)
        prompts, numbers = list(prompt) if is_list else [prompt], _numbers(n, stream)
        if is_list and stream:
            raise lib.InvalidError("a stream is of one prompt: leave out stream, or ask for each prompt by itself")
        streams = [self._text_stream(p, settled(options, i)) for p in prompts for i in numbers]
        if stream:
            return streams[0]
        answers = [one.answer for one in streams]
        return answers if is_list or n is not None else answers[0]

    @overload
    def chat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
             tools: Optional[Sequence[Tool]] = None,
             variables: Optional[Mapping[str, Any]] = None, stream: Literal[False] = False, n: None = None,
             **options: "Unpack[Options]") -> ChatAnswer: ...

    @overload
    def chat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
             tools: Optional[Sequence[Tool]] = None,
             variables: Optional[Mapping[str, Any]] = None, stream: Literal[False] = False, n: int,
             **options: "Unpack[Options]") -> List[ChatAnswer]: ...

    @overload
    def chat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
             tools: Optional[Sequence[Tool]] = None,
             variables: Optional[Mapping[str, Any]] = None, stream: Literal[True],
             **options: "Unpack[Options]") -> Stream[Delta, ChatAnswer]: ...

    def chat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
             tools: Optional[Sequence[Tool]] = None,
             variables: Optional[Mapping[str, Any]] = None, stream: bool = False, n: Optional[int] = None,
             **options: "Unpack[Options]") -> Any:
        """Answers messages: a question, or a list of {"role": ..., "content": ...} as OpenAI's API has.

        images: for a model that reads images: paths or bytes of JPEG, PNG, WebP or GIF files, or arrays of pixels,
            uint8 [height, width, 3] in RGB; for a model that hears, audio files. They precede the text of the last
            question, or stand where the contents of messages have parts {"type": "image"} or {"type": "audio"}
        tools: what the model may call: functions with type hints, Pydantic classes, or dicts in OpenAI's form; the
            calls are in the answer's `tool_calls`, and running them is up to the caller
        variables: more for the chat template, such as {"enable_thinking": False}
        stream: returns an iterator of `Delta` at once; its `answer` is the whole
        n: returns a list of so many answers; the i-th has the seed `seed` + i
        options: see `ingot.Options`; with `schema`, the answer's `parsed` is the value
        """
        numbers, may_be_called, files = _numbers(n, stream), tools_text(tools), files_of(images)
        prompt = self._chat_prompt(messages, may_be_called, variables, files)
        streams = [self._chat_stream(prompt, may_be_called, settled(options, i), files) for i in numbers]
        if stream:
            return streams[0]
        answers = [one.answer for one in streams]
        return answers if n is not None else answers[0]

    # ---- asyncio ----

    @overload
    async def agenerate(self, prompt: Prompt, *, stream: Literal[False] = False, n: None = None,
                        **options: "Unpack[Options]") -> Answer: ...

    @overload
    async def agenerate(self, prompt: Prompt, *, stream: Literal[False] = False, n: int,
                        **options: "Unpack[Options]") -> List[Answer]: ...

    @overload
    async def agenerate(self, prompt: Prompt, *, stream: Literal[True],
                        **options: "Unpack[Options]") -> AsyncStream[str, Answer]: ...

    async def agenerate(self, prompt: Prompt, *, stream: bool = False, n: Optional[int] = None,
                        **options: "Unpack[Options]") -> Any:
        """generate() for asyncio. Requests of several tasks are computed together."""
        streams = [await self._text_astream(prompt, settled(options, i)) for i in _numbers(n, stream)]
        if stream:
            return streams[0]
        answers = await asyncio.gather(*(one.answer() for one in streams))
        return list(answers) if n is not None else answers[0]

    @overload
    async def achat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
                    tools: Optional[Sequence[Tool]] = None,
                    variables: Optional[Mapping[str, Any]] = None, stream: Literal[False] = False, n: None = None,
                    **options: "Unpack[Options]") -> ChatAnswer: ...

    @overload
    async def achat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
                    tools: Optional[Sequence[Tool]] = None,
                    variables: Optional[Mapping[str, Any]] = None, stream: Literal[False] = False, n: int,
                    **options: "Unpack[Options]") -> List[ChatAnswer]: ...

    @overload
    async def achat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
                    tools: Optional[Sequence[Tool]] = None,
                    variables: Optional[Mapping[str, Any]] = None, stream: Literal[True],
                    **options: "Unpack[Options]") -> AsyncStream[Delta, ChatAnswer]: ...

    async def achat(self, messages: Messages, *, images: Optional[Sequence[Image]] = None,
                    tools: Optional[Sequence[Tool]] = None,
                    variables: Optional[Mapping[str, Any]] = None, stream: bool = False, n: Optional[int] = None,
                    **options: "Unpack[Options]") -> Any:
        """chat() for asyncio."""
        numbers, may_be_called, files = _numbers(n, stream), tools_text(tools), files_of(images)
        prompt = self._chat_prompt(messages, may_be_called, variables, files)
        streams = [await self._chat_astream(prompt, may_be_called, settled(options, i), files) for i in numbers]
        if stream:
            return streams[0]
        answers = await asyncio.gather(*(one.answer() for one in streams))
        return list(answers) if n is not None else answers[0]

    # ---- vectors and scores ----

    def embed(self, texts: Union[str, Sequence[str]], *, prompt_name: Optional[str] = None,
              truncate: bool = False) -> "NDArray[np.float32]":
        """The vector of a text, [dim], or the vectors of several, [n_texts, dim].

        prompt_name: of a prompt of the model, such as "query", to put before each text; None: its default
        truncate: truncate texts that are too long for the model, instead of rejecting them
        """
        handle, single = self._as(lib.KIND_EMBEDDER), isinstance(texts, str)
        given = [texts] if isinstance(texts, str) else list(texts)
        data, sizes = lib.strings(given)
        vectors = np.empty((len(given), lib.call("embedder_dim", handle)), dtype=np.float32)
        options = lib.options(lib.EmbedOptions, "embed", truncate=int(truncate), prompt_name=prompt_name)
        lib.call("embed_with", handle, data, sizes, len(given), c.byref(options), vectors.ctypes.data, vectors.size)
        return vectors[0] if single else vectors

    async def aembed(self, texts: Union[str, Sequence[str]], *, prompt_name: Optional[str] = None,
                     truncate: bool = False) -> "NDArray[np.float32]":
        """embed() for asyncio."""
        return await asyncio.to_thread(self.embed, texts, prompt_name=prompt_name, truncate=truncate)

    def rerank(self, query: str, documents: Sequence[str], *, top: Optional[int] = None,
               truncate: bool = False) -> List[Ranked]:
        """The documents by how well they answer the query, the best first; `top`: the most to return."""
        handle = self._as(lib.KIND_RERANKER)
        data, sizes = lib.strings(documents)
        scores = np.empty(len(documents), dtype=np.float32)
        lib.call("rerank", handle, lib.text(query, "query"), data, sizes, len(documents), int(truncate), scores.ctypes.data)
        order = np.argsort(-scores, kind="stable")[:top]
        return [Ranked(int(i), float(scores[i]), documents[i]) for i in order]

    async def arerank(self, query: str, documents: Sequence[str], *, top: Optional[int] = None,
                      truncate: bool = False) -> List[Ranked]:
        """rerank() for asyncio."""
        return await asyncio.to_thread(self.rerank, query, documents, top=top, truncate=truncate)

    # ---- speech ----

    def transcribe(self, audio: "Union[str, os.PathLike[str], bytes]", *, language: Optional[str] = None,
                   translate: bool = False, prompt: Optional[str] = None, word_times: bool = False,
                   temperature: Optional[float] = None, seed: int = 0, hotwords: Optional[str] = None,
                   beams: int = 1) -> Transcript:
        """What a recording says: a path, or the bytes of a file (WAV, FLAC, Ogg, MP3, AIFF, AU, CAF).

        language: code or name, such as "de" or "german"; None: detected
        translate: write English
        prompt: text that could come before: names, words and style to expect
        word_times: also when each word was said
        temperature: None: higher ones are tried where a text repeats itself or is unlikely
        seed: of temperatures above 0
        hotwords: words to expect in every window of 30 seconds, such as names
        beams: above 1: a search for the likeliest text, with at most the beams that load() has made room for
        """
        handle = self._as(lib.KIND_SPEECH)
        if not isinstance(audio, bytes):
            with open(audio, "rb") as file:
                audio = file.read()
        options = lib.options(lib.TranscribeOptions, "transcribe", language=language, prompt=prompt,
                              translate=int(translate), word_times=int(word_times), temperature=temperature, seed=seed,
                              hotwords=hotwords, n_beams=beams)
        text, n = c.c_void_p(), c.c_size_t()
        lib.call("transcribe", handle, audio, len(audio), c.byref(options), c.byref(text), c.byref(n))
        return Transcript.of(json.loads(c.string_at(text, n.value)))

    async def atranscribe(self, audio: "Union[str, os.PathLike[str], bytes]", *, language: Optional[str] = None,
                          translate: bool = False, prompt: Optional[str] = None, word_times: bool = False,
                          temperature: Optional[float] = None, seed: int = 0, hotwords: Optional[str] = None,
                          beams: int = 1) -> Transcript:
        """transcribe() for asyncio."""
        return await asyncio.to_thread(self.transcribe, audio, language=language, translate=translate, prompt=prompt,
                                       word_times=word_times, temperature=temperature, seed=seed, hotwords=hotwords,
                                       beams=beams)
