"""OpenAI's chat and completions over ingot's Python package, for ray_serve.py and dynamo_worker.py: which options the
fields of a request are, and the form of answers. A field that would change the answer and is not known is refused."""
import secrets
import time
from typing import Any, AsyncIterator, Dict, Mapping, Tuple

import ingot

Json = Dict[str, Any]
SAME = {"temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "seed", "stop", "ignore_eos", "priority", "cache_salt"}
READ = {"messages", "prompt", "tools", "chat_template_kwargs", "reasoning_effort", "max_tokens", "max_completion_tokens",
        "response_format", "logit_bias", "stream", "stream_options"}
WITHOUT_EFFECT = {"model", "user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier"}
ONLY = {"n": (1,), "logprobs": (False,), "tool_choice": ("auto",), "echo": (False,), "best_of": (1,)}  # or left out
FINISH = {"stop": "stop", "length": "length", "cancelled": "stop", "timeout": "length"}


def _options(body: Mapping[str, Any]) -> Json:
    """The options of ingot for a request. Throws ingot.InvalidError that names the field."""
    for name, value in body.items():
        if name not in SAME | READ | WITHOUT_EFFECT and value not in ONLY.get(name, ()):
            raise ingot.InvalidError(f"{name} is not supported with this value: leave it out")
    options = {name: body[name] for name in SAME if name in body}
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None:
        options["max_tokens"] = limit
    if "logit_bias" in body:
        options["logit_bias"] = {int(token): bias for token, bias in body["logit_bias"].items()}
    form = body.get("response_format", {"type": "text"})
    if form["type"] == "json_schema":
        options["schema"] = form["json_schema"]["schema"]
    elif form["type"] == "json_object":
        options["schema"] = {"type": "object"}
    elif form["type"] != "text":
        raise ingot.InvalidError("response_format.type must be text, json_object or json_schema")
    return options


class Answering:
    """One request: `await begin()` submits it, then `whole()` or `events()` gives the answer."""

    def __init__(self, model: ingot.Model, name: str, body: Mapping[str, Any]):
        self.model, self.body = model, {key: value for key, value in body.items() if value is not None}
        self.is_chat = "messages" in self.body
        kind = "chat.completion" if self.is_chat else "text_completion"
        self.envelope = {"id": f"{'chatcmpl' if self.is_chat else 'cmpl'}-{secrets.token_hex(12)}", "object": kind,
                         "created": int(time.time()), "model": name}

    async def begin(self) -> "Answering":
        try:
            options = _options(self.body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise error if isinstance(error, ingot.IngotError) else ingot.InvalidError(f"the request is malformed: {error!r}")
        if self.is_chat:
            variables = dict(self.body.get("chat_template_kwargs", {}))
            if "reasoning_effort" in self.body:
                variables["reasoning_effort"] = self.body["reasoning_effort"]
            self.stream: Any = await self.model.achat(self.body["messages"], tools=self.body.get("tools"),
                                                      variables=variables, stream=True, **options)
        elif isinstance(self.body.get("prompt"), str) or all(type(t) is int for t in self.body.get("prompt", [""])):
            self.stream = await self.model.agenerate(self.body["prompt"], stream=True, **options)
        else:
            raise ingot.InvalidError("give messages, or a prompt that is a text or a list of token ids")
        return self

    def _end(self, answer: Any) -> Tuple[str, Json]:
        """The finish reason, and the usage."""
        reason = "tool_calls" if getattr(answer, "tool_calls", None) else FINISH[answer.finish]
        return reason, {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.output_tokens,
                        "total_tokens": answer.prompt_tokens + answer.output_tokens,
                        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens}}

    async def whole(self) -> Json:
        answer = await self.stream.answer()
        reason, usage = self._end(answer)
        said = {"message": answer.message} if self.is_chat else {"text": answer.text}
        return {**self.envelope, "choices": [{"index": 0, **said, "finish_reason": reason}], "usage": usage}

    async def events(self) -> AsyncIterator[Json]:
        head = {**self.envelope, "object": self.envelope["object"] + ".chunk"} if self.is_chat else self.envelope

        def event(said: Json, reason: Any = None) -> Json:
            return {**head, "choices": [{"index": 0, **said, "finish_reason": reason}]}

        if self.is_chat:
            yield event({"delta": {"role": "assistant", "content": ""}})
        async for piece in self.stream:
            fields = {"content": piece.content, "reasoning_content": piece.reasoning, "tool_calls": piece.tool_calls} if self.is_chat else {}
            yield event({"delta": {name: value for name, value in fields.items() if value}} if self.is_chat else {"text": piece})
        reason, usage = self._end(await self.stream.answer())
        yield event({"delta": {}} if self.is_chat else {"text": ""}, reason)
        if self.body.get("stream_options", {}).get("include_usage"):
            yield {**head, "choices": [], "usage": usage}


def status_of(error: ingot.IngotError) -> int:
    """The HTTP status of a failed request."""
    kinds = {ingot.InvalidError: 400, ingot.QueueFullError: 429, ingot.OutOfMemoryError: 503}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 500)


def error_of(error: ingot.IngotError) -> Json:
    kind = "invalid_request_error" if status_of(error) < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": None}}
