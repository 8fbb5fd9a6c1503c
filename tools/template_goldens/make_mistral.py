#!/usr/bin/env python3
"""Writes what mistral-common makes of conversations (instruct tokenizer v7), for checkpoints without a chat template.

    pip install mistral-common==1.13.1
    python tools/template_goldens/make_mistral.py > tests/data/templates/mistral_v7.json
"""
import json
import pathlib
import tempfile

import mistral_common
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import InstructRequest
from mistral_common.protocol.instruct.tool_calls import Tool
from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV7
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}]}
RESULT = {"role": "tool", "content": "seen", "tool_call_id": "call00001", "name": "look"}
CASES = [
    ([{"role": "user", "content": "Hello"}], None),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
      {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "And?"}], None),
    ([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Look."}], TOOLS),
    ([{"role": "user", "content": "Look."}, CALL, RESULT], TOOLS),
    ([{"role": "user", "content": "Look."}, CALL, RESULT, {"role": "assistant", "content": "It is seen."},
      {"role": "user", "content": "Thanks"}], TOOLS),
]
ROLES = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}


def message_of(message):
    values = {k: v for k, v in message.items() if not (k == "content" and v == "" and "tool_calls" in message)}
    return ROLES[message["role"]].model_validate(values)


def main():
    data = pathlib.Path(mistral_common.__file__).parent / "data/tekken_240911.json"
    file = json.loads(data.read_text())
    file["config"]["version"] = "v7"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as copy:
        json.dump(file, copy)
        copy.flush()
        tokenizer = InstructTokenizerV7(Tekkenizer.from_file(copy.name))
    cases = []
    for messages, tools in CASES:
        request = InstructRequest(messages=list(map(message_of, messages)),
                                  available_tools=[Tool.model_validate(tool) for tool in tools] if tools else None)
        cases.append({"messages": messages, "tools": tools, "text": tokenizer.encode_instruct(request).text})
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
