"""ingot runs open language models on the machine you have: this is its library for Python.

>>> from ingot import Model
>>> model = Model.load()  # the demo model; else a path, or ORG/REPO[:QUANT] of the Hugging Face Hub
>>> print(model.chat("Tell me a story about a fox.").text)  # doctest: +SKIP

`python -m ingot` is the program `ingot`.
"""
from ._library import IngotError, InternalError, InvalidError, OutOfMemoryError, QueueFullError, version
from ._requests import AsyncStream, Options, Stream
from .answers import Answer, ChatAnswer, Delta, Ranked, Segment, ToolCall, Transcript, Word
from .model import Model, pull

__version__ = version()
__all__ = ["Answer", "AsyncStream", "ChatAnswer", "Delta", "IngotError", "InternalError", "InvalidError", "Model",
           "Options", "OutOfMemoryError", "QueueFullError", "Ranked", "Segment", "Stream", "ToolCall", "Transcript", "Word", "pull"]
