"""What a model writes: answers, and the pieces that streams give."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for. `arguments` is None where the model wrote no JSON object, or did not finish it."""

    id: str
    name: str
    raw_arguments: str
    arguments: Optional[Dict[str, Any]]

    @classmethod
    def of(cls, call: Dict[str, Any]) -> "ToolCall":
        raw: str = call["function"]["arguments"]
        try:
            arguments = json.loads(raw)
        except json.JSONDecodeError:
            arguments = None
        return cls(call["id"], call["function"]["name"], raw, arguments if isinstance(arguments, dict) else None)


@dataclass
class Answer:
    """A finished answer. `str(answer)` is its text."""

    text: str
    tokens: List[int]
    logprobs: Optional[List[float]]  #: of the tokens, if asked for
    finish: str  #: "stop", "length", "cancelled" or "timeout"
    prompt_tokens: int
    cached_tokens: int  #: prompt tokens found in the cache, not computed
    output_tokens: int
    seed: int  #: which `seed` gives this text again
    top_logprobs: Optional[List[List[Tuple[int, float]]]] = None  #: of each token's place, with `logprobs` from 1 on
    parsed: Any = None  #: with a schema, if the answer is whole: its value, of the Pydantic class where one was given

    def __str__(self) -> str:
        return self.text


@dataclass
class ChatAnswer(Answer):
    """A finished answer of a conversation. `text` is its content, `message` can be the next of the messages."""

    message: Dict[str, Any] = field(default_factory=dict)

    @property
    def reasoning(self) -> str:
        reasoning: str = self.message.get("reasoning_content", "")
        return reasoning

    @property
    def tool_calls(self) -> List[ToolCall]:
        return [ToolCall.of(call) for call in self.message.get("tool_calls", [])]


@dataclass(frozen=True)
class Delta:
    """What a streamed answer of a conversation gains. `tool_calls` are changes in OpenAI's form."""

    content: str = ""
    reasoning: str = ""
    tool_calls: List[Dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.content


@dataclass(frozen=True)
class Ranked:
    """A document's place in the answer of `Model.rerank`."""

    index: int  #: of the document in the list that was given
    score: float
    document: str


@dataclass(frozen=True)
class Word:
    """A word of a recording."""

    text: str
    start: float  #: seconds
    end: float
    probability: float  #: the mean of its tokens


@dataclass(frozen=True)
class Segment:
    """A part of what a recording says."""

    start: float  #: seconds
    end: float
    text: str
    tokens: List[int]
    temperature: float  #: with which the text was written
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


@dataclass(frozen=True)
class Transcript:
    """What a recording says. `str(transcript)` is its text."""

    text: str
    language: str  #: in English: "german"
    duration: float  #: seconds
    segments: List[Segment]
    words: List[Word]  #: with `word_times`

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, found: Dict[str, Any]) -> "Transcript":
        segments = [Segment(*(one[name] for name in Segment.__dataclass_fields__)) for one in found["segments"]]
        words = [Word(one["word"], one["start"], one["end"], one["probability"]) for one in found.get("words", [])]
        return cls(found["text"], found["language"], found["duration"], segments, words)
