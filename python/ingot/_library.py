"""libingot.so through ctypes: the structs and functions of ingot/ingot.h, and its failures as exceptions.

ctypes releases the GIL during each call, so other threads of Python run while the library works.
"""
from __future__ import annotations

import ctypes as c
import os
import pathlib
from typing import Any, Dict, List, Optional, Tuple, Type

import numpy as np

FOLDER = pathlib.Path(__file__).parent


class IngotError(Exception):
    """What the library refuses or fails at, in one line. The classes below say which of the two it is."""


class InvalidError(IngotError, ValueError):
    """An invalid argument or model file, or a request that can never run."""


class QueueFullError(IngotError):
    """As many requests wait as `max_queue` allows: try again later."""


class OutOfMemoryError(IngotError, MemoryError):
    """The memory is not enough."""


class InternalError(IngotError):
    """A fault of the library: please report it."""


OK, INVALID, FULL, MEMORY, TIMEOUT, END, INTERNAL = range(7)
ERRORS: Dict[int, Type[IngotError]] = {INVALID: InvalidError, FULL: QueueFullError, MEMORY: OutOfMemoryError}
EVENT_TOKEN, EVENT_FINISH = range(2)
FINISH = ("stop", "length", "cancelled", "error", "timeout")
KIND_TEXT, KIND_EMBEDDER, KIND_RERANKER, KIND_SPEECH = range(4)


ProgressCallback = c.CFUNCTYPE(None, c.c_size_t, c.c_size_t, c.c_void_p)


class ModelOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char_p), ("n_threads", c.c_int), ("n_ctx", c.c_int),
                ("max_seqs", c.c_int), ("max_batch_tokens", c.c_int), ("n_kv_tokens", c.c_int), ("max_queue", c.c_int),
                ("deterministic", c.c_int), ("kv_type", c.c_char_p), ("speculate", c.c_char_p), ("draft", c.c_char_p),
                ("tp", c.c_int), ("pp", c.c_int), ("gpu_layers", c.c_int), ("gpu_memory", c.c_double),
                ("quantize", c.c_char_p), ("chat_template", c.c_char_p), ("progress", ProgressCallback),
                ("progress_user", c.c_void_p), ("mmproj", c.c_char_p), ("no_images", c.c_int)]


class Image(c.Structure):
    _fields_ = [("bytes", c.c_char_p), ("n_bytes", c.c_size_t)]


class ChatOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("tools", c.c_char_p), ("variables", c.c_char_p),
                ("images", c.POINTER(Image)), ("n_images", c.c_size_t)]


class RequestOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("max_tokens", c.c_int), ("temperature", c.c_float), ("top_k", c.c_int),
                ("top_p", c.c_float), ("min_p", c.c_float), ("repetition_penalty", c.c_float),
                ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float), ("seed", c.c_uint64),
                ("logprobs", c.c_int), ("ignore_eos", c.c_int), ("stop_tokens", c.POINTER(c.c_int32)),
                ("n_stop_tokens", c.c_size_t), ("priority", c.c_int), ("cache_salt", c.c_char_p),
                ("timeout_s", c.c_double), ("json_schema", c.c_char_p), ("regex", c.c_char_p), ("grammar", c.c_char_p),
                ("typical_p", c.c_float), ("penalty_window", c.c_int), ("top_logprobs", c.c_int),
                ("bias_tokens", c.POINTER(c.c_int32)), ("biases", c.POINTER(c.c_float)), ("n_biases", c.c_size_t),
                ("images", c.POINTER(Image)), ("n_images", c.c_size_t), ("n_beams", c.c_int),
                ("length_penalty", c.c_float), ("early_stopping", c.c_int)]


class EmbedderOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char_p), ("n_threads", c.c_int), ("n_ctx", c.c_int),
                ("max_batch_tokens", c.c_int), ("pooling", c.c_char_p), ("normalize", c.c_int)]


class EmbedOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("truncate", c.c_int), ("prompt_name", c.c_char_p)]


class SpeechOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char_p), ("n_threads", c.c_int), ("quantize", c.c_char_p),
                ("n_beams", c.c_int)]


class TranscribeOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("language", c.c_char_p), ("prompt", c.c_char_p), ("translate", c.c_int),
                ("word_times", c.c_int), ("temperature", c.c_float), ("seed", c.c_uint64),
                ("hotwords", c.c_char_p), ("n_beams", c.c_int)]


class Event(c.Structure):
    _fields_ = [("kind", c.c_int), ("token", c.c_int32), ("logprob", c.c_float), ("text", c.c_void_p),
                ("n_bytes", c.c_size_t), ("finish", c.c_int), ("prompt_tokens", c.c_int), ("cached_tokens", c.c_int),
                ("output_tokens", c.c_int)]

    def read_text(self) -> str:
        return c.string_at(self.text, self.n_bytes).decode() if self.n_bytes else ""


class TopLogprob(c.Structure):
    _fields_ = [("token", c.c_int32), ("logprob", c.c_float)]


EventCallback = c.CFUNCTYPE(None, c.POINTER(Event), c.c_void_p)

_tokens, _size, _handle = c.POINTER(c.c_int32), c.c_size_t, c.c_void_p
_out_size, _out_handle, _text = c.POINTER(c.c_size_t), c.POINTER(c.c_void_p), c.c_char_p
_texts = c.POINTER(c.c_char_p)
SIGNATURES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "version": (_text, ()),
    "last_error": (_text, ()),
    "model_options_init_sized": (None, (c.POINTER(ModelOptions), c.c_size_t)),
    "chat_options_init_sized": (None, (c.POINTER(ChatOptions), c.c_size_t)),
    "request_options_init_sized": (None, (c.POINTER(RequestOptions), c.c_size_t)),
    "embedder_options_init_sized": (None, (c.POINTER(EmbedderOptions), c.c_size_t)),
    "embed_options_init_sized": (None, (c.POINTER(EmbedOptions), c.c_size_t)),
    "speech_options_init_sized": (None, (c.POINTER(SpeechOptions), c.c_size_t)),
    "transcribe_options_init_sized": (None, (c.POINTER(TranscribeOptions), c.c_size_t)),
    "kind_of": (c.c_int, (_text, c.POINTER(c.c_int))),
    "load": (c.c_int, (_text, c.POINTER(ModelOptions), _out_handle)),
    "free": (c.c_int, (_handle,)),
    "n_ctx": (c.c_int, (_handle,)),
    "n_vocab": (c.c_int, (_handle,)),
    "reads_images": (c.c_int, (_handle,)),
    "reads_recordings": (c.c_int, (_handle,)),
    "is_recording": (c.c_int, (_text, _size)),
    "tokenize": (c.c_int, (_handle, _text, _size, c.c_int, c.c_int, _tokens, _size, _out_size)),
    "tokenize_chat_with": (c.c_int, (_handle, _text, c.POINTER(ChatOptions), _tokens, _size, _out_size)),
    "detokenize": (c.c_int, (_handle, _tokens, _size, c.c_void_p, _size, _out_size)),
    "answer_begin": (c.c_int, (_handle, _tokens, _size, _text, _out_handle)),
    "answer_feed": (c.c_int, (_handle, _tokens, _size, c.POINTER(c.c_void_p), _out_size)),
    "answer_free": (None, (_handle,)),
    "submit": (c.c_int, (_handle, _tokens, _size, c.POINTER(RequestOptions), EventCallback, c.c_void_p, _out_handle)),
    "poll": (c.c_int, (_handle, c.c_int, c.POINTER(Event))),
    "top_logprobs": (c.c_size_t, (c.POINTER(c.POINTER(TopLogprob)),)),
    "cancel": (None, (_handle,)),
    "request_free": (None, (_handle,)),
    "logits": (c.c_int, (_handle, _tokens, _size, _size, c.c_void_p, _size)),
    "embedder_load": (c.c_int, (_text, c.POINTER(EmbedderOptions), _out_handle)),
    "embedder_free": (None, (_handle,)),
    "embedder_dim": (c.c_int, (_handle,)),
    "embed_with": (c.c_int, (_handle, _texts, _out_size, _size, c.POINTER(EmbedOptions), c.c_void_p, _size)),
    "rerank": (c.c_int, (_handle, _text, _texts, _out_size, _size, c.c_int, c.c_void_p)),
    "speech_load": (c.c_int, (_text, c.POINTER(SpeechOptions), _out_handle)),
    "speech_free": (None, (_handle,)),
    "transcribe": (c.c_int, (_handle, _text, _size, c.POINTER(TranscribeOptions), c.POINTER(c.c_void_p), _out_size)),
}


def _load() -> c.CDLL:
    library = c.CDLL(os.environ.get("INGOT_LIBRARY") or str(FOLDER / "lib" / "libingot.so"))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, "ingot_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()


def call(name: str, *arguments: Any) -> Any:
    """Calls ingot_<name>; a status other than INGOT_OK becomes an exception with the library's message."""
    result = getattr(_library, "ingot_" + name)(*arguments)
    if SIGNATURES[name][0] is c.c_int and not name.startswith(("n_", "reads_", "is_")) and not name.endswith("_dim") and result != OK:
        raise ERRORS.get(result, InternalError)(_library.ingot_last_error().decode(errors="replace"))
    return result


def free(function: str, handle: c.c_void_p, process: int) -> None:
    """Frees what `process` has made. A fork of that process has none of the library's threads, for which some of the
    functions wait, so there the handle is left alone."""
    if os.getpid() == process:
        call(function, handle)


def check_process(process: int, what: str) -> None:
    if os.getpid() != process:
        raise InvalidError(f"{what} belongs to process {process}, and this process is its fork, where the library's "
                           "threads do not run: load the model here, or start processes with the method 'spawn'")


def top_logprobs() -> List[Tuple[int, float]]:
    """The likeliest tokens in the place of the event that this thread has got last."""
    top = c.POINTER(TopLogprob)()
    n = call("top_logprobs", c.byref(top))
    return [(top[i].token, top[i].logprob) for i in range(n)]


def poll(request: c.c_void_p, timeout_ms: int, event: Event) -> bool:
    """Whether there was an event within the time."""
    status: int = _library.ingot_poll(request, timeout_ms, c.byref(event))
    if status not in (OK, TIMEOUT):
        raise InternalError(_library.ingot_last_error().decode(errors="replace"))
    return status == OK


def options(kind: Any, prefix: str, **fields: Any) -> Any:
    """A struct with the library's defaults, and with the fields that are not None."""
    struct = kind()
    call(prefix + "_options_init_sized", c.byref(struct), c.sizeof(struct))
    for name, value in fields.items():
        if value is not None:
            try:
                setattr(struct, name, text(value, name) if isinstance(value, str) else value)
            except TypeError:
                raise InvalidError(f"{name} is {value!r}, which is of the wrong type") from None
            if isinstance(value, int) and getattr(struct, name) != value:  # ctypes would wrap it around
                raise InvalidError(f"{name} is {value}, which is out of range")
    return struct


def text(value: str, name: str) -> bytes:
    """For C, where a text ends at its first zero."""
    if "\0" in value:
        raise InvalidError(f"{name} has a zero character, where the text would end: remove it")
    return value.encode()


def array(tokens: Any, name: str = "tokens") -> Any:
    values = np.asarray(tokens)
    if values.ndim != 1 or (values.size > 0 and values.dtype.kind not in "iu"):
        raise InvalidError(f"{name} are a list of integers; for a text give a str")
    if values.size > 0 and (values.min() < -(1 << 31) or values.max() >= 1 << 31):
        raise InvalidError(f"{name} go from {values.min()} to {values.max()}: they are indices of the vocabulary")
    return (c.c_int32 * values.size).from_buffer_copy(values.astype(np.int32).tobytes())


def images(files: List[bytes]) -> Any:
    made: Any = (Image * len(files))(*(Image(data, len(data)) for data in files))
    made.files = files  # C has pointers to them
    return made


def strings(texts: Any) -> Tuple[Any, Any]:
    """Texts as pointers and lengths, so that a text may have zeros."""
    data = [text.encode() for text in texts]
    return (c.c_char_p * len(data))(*data), (c.c_size_t * len(data))(*map(len, data))


def version() -> str:
    text: Optional[bytes] = call("version")
    return (text or b"").decode()
