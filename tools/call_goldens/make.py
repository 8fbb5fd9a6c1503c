#!/usr/bin/env python3
"""Renders assistant turns with reasoning and tool calls through published chat templates, as Hugging Face transformers
does (../template_goldens/hf_jinja.py). A family's parser must get the same turn back from the text.

    make.py TEMPLATES > tests/data/calls/rendered.json

TEMPLATES is a folder of .jinja files, named after the models. Needs jinja2. A turn is the text
after the prompt, up to the tokens that end the turn.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "template_goldens"))
from hf_jinja import render  # noqa: E402

# The row of src/text/calls/call_format.cc for a template whose name contains the key; the first match is used.
FAMILIES = [
    ("gpt-oss", "gpt_oss"), ("R1-Distill", "deepseek_v3"), ("V3.1", "deepseek_v3_1"), ("V3.2", "deepseek_v3_2"),
    ("Kimi", "kimi_k2"), ("MiniMax", "minimax_m2"), ("Seed", "seed_oss"), ("Qwen3-Coder", "qwen3_coder"),
    ("GLM", "glm"), ("gemma-4", "gemma4"), ("LFM2", "lfm2"), ("OLMo", "olmo3"), ("command-r7b", "command_r7b"),
    ("Nemo-", "mistral"), ("Qwen3", "qwen3"), ("Qwen2.5", "qwen2_5"), ("Hermes", "hermes"), ("Llama-3", "llama3_json")]
ENDS = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "[e~[",
        "<seed:eos>", "<turn|>"]


def tool(name, **types):
    properties = {key: {"type": kind, "description": "What."} for key, kind in types.items()}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": {
        "type": "object", "properties": properties, "required": list(properties)}}}


TOOLS = [tool("get_weather", city="string", days="integer"), tool("now"),
         tool("write_file", path="string", text="string"),
         tool("search", filter="object", limits="array", ratio="number", exact="boolean")]

CALL = ("get_weather", {"city": "Paris", "days": 3})
TURNS = {
    "one": dict(calls=[CALL]),
    "no_arguments": dict(calls=[("now", {})]),
    "parallel": dict(calls=[CALL, ("now", {}), ("get_weather", {"city": "Oslo", "days": 1})]),
    "content": dict(content="Let me look.", calls=[CALL]),
    "reasoning": dict(reasoning="I need the weather.", calls=[CALL]),
    "digits": dict(calls=[("get_weather", {"city": "75001", "days": 12})]),
    "escapes": dict(calls=[("write_file", {
        "path": "/a b/ü.txt", "text": "He said \"no\" \\ 5 < 6 & {x: [1]}\n\tline 2\n日本 🙂"})]),
    "markup": dict(calls=[("write_file", {"path": "x.html", "text": "<p>{\"a\": 1}</p>"})]),
    "nested": dict(calls=[("search", {
        "filter": {"a": [1, {"b": "x"}], "c": "ü"}, "limits": [1, 2.5, -3], "ratio": 0.5, "exact": True})]),
}


def message(turn, arguments_as_text):
    one = {"role": "assistant", "content": turn.get("content", "")}
    if "reasoning" in turn:
        one["reasoning_content"] = one["thinking"] = turn["reasoning"]
    one["tool_calls"] = [{"id": f"call{i:05}", "type": "function", "function": {
        "name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if arguments_as_text else arguments}}
        for i, (name, arguments) in enumerate(turn["calls"])]
    return one


def turn_text(source, turn, arguments_as_text):
    """The text that the model would have written, or None if the template cannot render this turn."""
    user = [{"role": "user", "content": "Hello"}]
    fixed = {"tools": TOOLS, "bos_token": "<s>", "eos_token": "</s>", "enable_thinking": True, "thinking": True}
    prompt = render(source, {**fixed, "messages": user, "add_generation_prompt": True})
    messages = user + [message(turn, arguments_as_text)]
    whole = render(source, {**fixed, "messages": messages, "add_generation_prompt": False})
    if prompt is None or whole is None:
        return None
    opened = prompt.rstrip("\n")  # templates may open the reasoning in the prompt, but leave it out of the history
    if not whole.startswith(prompt) and opened.endswith("<think>"):
        prompt = opened[:-len("<think>")]
    if not whole.startswith(prompt):
        prompt = prompt.rstrip("\n")
    if not whole.startswith(prompt):
        return None
    text = whole[len(prompt):]
    for end in ENDS:
        text = text.split(end)[0] if end in text else text
    return text


def main():
    goldens = []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        family = next((row for part, row in FAMILIES if part in path.name), None)
        if family is None:
            continue
        source = path.read_text()
        for name, turn in TURNS.items():
            texts = [turn_text(source, turn, as_text) for as_text in (False, True)]
            text = next((t for t in texts if t is not None and turn["calls"][0][0] in t), None)
            if text is None or not all(call[0] in text for call in turn["calls"]):
                continue
            if any(turn.get(part, "") not in text for part in ("content", "reasoning")):
                continue  # the template leaves the part out
            if family == "gpt_oss" and "content" in turn:
                continue  # the template shows the content as reasoning
            goldens.append({"template": path.stem, "format": family, "turn": name, "text": text,
                            "in_reasoning": text.find("</think>") > text.find("<think>") == -1,
                            "reasoning": turn.get("reasoning", ""), "content": turn.get("content", ""),
                            "calls": [{"name": n, "arguments": a} for n, a in turn["calls"]]})
    print(json.dumps({"tools": TOOLS, "turns": goldens}, ensure_ascii=False, separators=(",", ":")))


main()
