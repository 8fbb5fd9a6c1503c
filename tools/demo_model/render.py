"""Renders chats as chat_template.jinja does, in plain Python, so that the corpus needs no template engine. verify.py
checks that both give the same text."""

import json

TOOLS_HEAD = "You can call these tools:\n<tools>"
TOOLS_TAIL = '\n</tools>\nTo call a tool, write:\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call>'


def to_json(value):
    return json.dumps(value, ensure_ascii=False)


def render_call(call):
    call = call.get("function") or call
    arguments = call["arguments"] if isinstance(call["arguments"], str) else to_json(call["arguments"])
    return f'<tool_call>\n{{"name": {to_json(call["name"])}, "arguments": {arguments}}}\n</tool_call>'


def render(messages, tools=None, add_generation_prompt=False):
    has_system = messages[0]["role"] == "system"
    system = messages[0]["content"] if has_system else ""
    out = []
    if tools:
        listed = "".join("\n" + to_json(t) for t in tools)
        system = (system + "\n\n" if system else "") + TOOLS_HEAD + listed + TOOLS_TAIL
    if system:
        out.append(f"<|im_start|>system\n{system}<|im_end|>\n")
    for message in messages[has_system:]:
        parts = [message["content"]] if message.get("content") else []
        parts += [render_call(c) for c in message.get("tool_calls") or []]
        out.append(f"<|im_start|>{message['role']}\n" + "\n".join(parts) + "<|im_end|>\n")
    if add_generation_prompt:
        out.append("<|im_start|>assistant\n")
    return "".join(out)
