#!/usr/bin/env python3
"""Makes tests/data/api/fields.json from the clients of OpenAI and Anthropic (pip install openai anthropic):

    python3 tools/api_fields/make.py tests/data/api

The file has the fields of each route's request (members of some objects as "text.format"), the roles of its messages
and the types of its tools. tests/server/fields/known_fields_test.cc checks that the server handles each field."""
import json
import pathlib
import sys
import typing

import anthropic
import anthropic.types as an
import openai
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_create_params
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam, completion_create_params as chat_create_params
from openai.types.chat import ChatCompletionStreamOptionsParam
from openai.types.responses import ResponseTextConfigParam, ToolParam, response_create_params
from openai.types.shared_params import Reasoning


def fields(kind, **nested):
    names = set(typing.get_type_hints(kind, include_extras=True))
    for name, member in nested.items():
        assert name in names, name
        names |= {f"{name}.{inner}" for inner in fields(member)}
    return sorted(names)


def unwrapped(kind):
    while typing.get_origin(kind) is not None and hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    return kind


def words(kind, member):
    """The literals in all members of a union."""
    kind = unwrapped(kind)
    if typing.get_origin(kind) is typing.Union:
        return sorted({word for one in typing.get_args(kind) for word in words(one, member)})
    hints = typing.get_type_hints(kind)
    literal = hints.get(member)
    while literal is not None and typing.get_origin(literal) is not typing.Literal:
        inner = [a for a in typing.get_args(literal) if typing.get_origin(a) is not None]
        literal = inner[0] if inner else None
    return list(typing.get_args(literal)) if literal is not None else []


def main():
    thinking = [a for a in typing.get_args(an.ThinkingConfigParam)]
    messages = fields(message_create_params.MessageCreateParamsStreaming, output_config=an.OutputConfigParam)
    messages += fields(beta_create_params.MessageCreateParamsStreaming)
    messages += [f"thinking.{inner}" for kind in thinking for inner in fields(kind)]
    golden = {
        "versions": {"openai": openai.__version__, "anthropic": anthropic.__version__},
        "fields": {
            "/v1/chat/completions": fields(chat_create_params.CompletionCreateParamsStreaming, stream_options=ChatCompletionStreamOptionsParam),
            "/v1/completions": fields(completion_create_params.CompletionCreateParamsStreaming, stream_options=ChatCompletionStreamOptionsParam),
            "/v1/responses": fields(response_create_params.ResponseCreateParamsStreaming, text=ResponseTextConfigParam, reasoning=Reasoning),
            "/v1/messages": sorted(set(messages)),
            "/v1/messages/count_tokens": fields(message_count_tokens_params.MessageCountTokensParams, output_config=an.OutputConfigParam),
            "/v1/embeddings": fields(embedding_create_params.EmbeddingCreateParams),
        },
        "roles": {"/v1/chat/completions": words(ChatCompletionMessageParam, "role"), "/v1/messages": words(an.MessageParam, "role")},
        "tools": {
            "/v1/chat/completions": words(ChatCompletionToolUnionParam, "type"),
            "/v1/responses": words(ToolParam, "type"),
            "/v1/messages": words(an.ToolUnionParam, "type"),
        },
    }
    assert all(golden["tools"].values()) and all(golden["roles"].values())
    (pathlib.Path(sys.argv[1]) / "fields.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
