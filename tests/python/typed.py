"""What mypy --strict has to make of a caller's code: each assert_type is checked, nothing is run."""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

from ingot import Answer, AsyncStream, ChatAnswer, Delta, Model, Ranked, Stream


async def check(model: Model) -> None:
    assert_type(model.generate("a"), Answer)
    assert_type(model.generate([1, 2], temperature=0, stop=["x"]), Answer)
    assert_type(model.generate(["a", "b"]), list[Answer])
    assert_type(model.generate("a", n=2), list[Answer])
    assert_type(model.chat("a", n=2), list[ChatAnswer])
    assert_type(await model.achat("a", n=2), list[ChatAnswer])
    assert_type(model.generate("a", stream=True), Stream[str, Answer])
    assert_type(model.chat("a"), ChatAnswer)
    assert_type(model.chat([{"role": "user", "content": "a"}], stream=True), Stream[Delta, ChatAnswer])
    assert_type(await model.achat("a", stream=True), AsyncStream[Delta, ChatAnswer])
    assert_type(await model.agenerate("a"), Answer)
    assert_type(model.logits("a"), NDArray[np.float32])
    assert_type(model.embed(["a"]), NDArray[np.float32])
    assert_type(model.rerank("a", ["b"]), list[Ranked])
    model.generate("a", temprature=0)  # type: ignore[call-overload]
