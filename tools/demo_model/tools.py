"""Conversations in which the assistant calls tools: those of data/tools.txt, and invented tools that are in no list, so
that the model must read the definitions and cannot memorize them."""

import dataclasses
import json
import pathlib

from grammar import Grammar, read_sections, split_options
from stories import WORDS, made_up_name, person_name
from values import LISTS, draw

TEMPLATES = Grammar({})  # requests and results bind every slot


@dataclasses.dataclass
class Tool:
    names: list
    desc: list
    params: list  # [([names], JSON type, description, rule)]
    extras: dict  # slot: rule
    requests: list
    results: list
    answer: str


def _read_tools():
    tools = []
    for _, lines in read_sections(pathlib.Path(__file__).parent / "data" / "tools.txt"):
        tool = Tool([], [], [], {}, [], [], "")
        for line in lines:
            key, _, rest = line.partition(":")
            rest = rest.strip()
            if key == "names":
                tool.names = split_options(rest)
            elif key == "desc":
                tool.desc = split_options(rest)
            elif key == "p":
                names, kind, text, rule = split_options(rest)
                tool.params.append((names.split(","), kind, text, rule))
            elif key == "let":
                tool.extras = dict(item.split("=") for item in rest.split())
            elif key == "q":
                tool.requests = split_options(rest)
            elif key == "r":
                tool.results = split_options(rest)
            elif key == "a":
                tool.answer = rest
        tools.append(tool)
    return tools


TOOLS = _read_tools()


def made_up_tool(rng):
    """A tool with a name, a purpose and values that were never seen before."""
    what = (
        rng.choice(WORDS.lists["syllable_b"])
        + rng.choice(WORDS.lists["syllable_b"])
        + rng.choice(WORDS.lists["syllable_c"])
    ).lower()
    owner = rng.choice(["person", "city", "product", "animal", "song"])
    rule = {"person": "full_name", "city": "city", "product": "product", "animal": "pet_species", "song": "song"}[
        owner
    ]
    verb = rng.choice(["get", "find", "lookup", "read"])
    return Tool(
        [f"{verb}_{what}"],
        [f"Get the {what} of a {owner}.", f"Returns the {what} of a {owner}."],
        [([owner, "name", "key"], "string", f"Name of the {owner}", rule)],
        {"t": "int:1:99"},
        [
            f"What is the {what} of [{owner}]?",
            f"Tell me the {what} of [{owner}].",
            f"Find the {what} of [{owner}].",
            f"I need the {what} of [{owner}].",
        ],
        ['{"result": [t]}', f'{{"{what}": [t]}}'],
        f"The {what} of [{owner}] is [t].",
    )


def _tool_name(rng, names):
    """Often an unseen form, so that the model copies names from the definitions."""
    name = rng.choice(names)
    kind = rng.random()
    if kind < 0.12:
        first, *rest = name.split("_")
        return first + "".join(map(str.capitalize, rest))
    if kind < 0.30:
        other = rng.choice(
            [
                "home",
                "my",
                "api",
                "v2",
                "tool",
                "do",
                "fn",
                made_up_name(rng).lower().encode("ascii", "ignore").decode(),
            ]
        )
        return rng.choice([f"{other}_{name}", f"{name}_{other}", f"{name}_{rng.randrange(100)}"])
    return name


class BoundTool:
    """A tool in one conversation, with its name, description and parameter names chosen."""

    def __init__(self, rng, tool):
        self.tool = tool
        self.name = _tool_name(rng, tool.names)
        self.params = [
            (rng.choice(names[:1] * 2 + names), names[0], kind, text, rule) for names, kind, text, rule in tool.params
        ]
        names = [p[0] for p in self.params]
        if len(set(names)) < len(names):
            self.params = [(names[0], names[0], kind, text, rule) for names, kind, text, rule in tool.params]
        properties = {
            p: {"type": kind, "description": text} if self._described(rng) else {"type": kind}
            for p, _, kind, text, _ in self.params
        }
        function = {
            "name": self.name,
            "description": rng.choice(tool.desc),
            "parameters": {"type": "object", "properties": properties, "required": [p[0] for p in self.params]},
        }
        self.definition = {"type": "function", "function": function}

    @staticmethod
    def _described(rng):
        return rng.random() < 0.5

    def use(self, rng):
        """One use: (request, call, result text, final answer)."""
        values, texts = {}, {}
        for _, slot, _, _, rule in self.params:
            while True:
                values[slot], texts[slot] = draw(rng, rule)
                if list(values.values()).count(values[slot]) == 1 or isinstance(values[slot], (int, bool)):
                    break
        for slot, rule in self.tool.extras.items():
            values[slot], texts[slot] = draw(rng, rule, texts)
        request = _fill(rng.choice(self.tool.requests), texts)
        call = {"name": self.name, "arguments": {p: values[slot] for p, slot, _, _, _ in self.params}}
        result = _fill(rng.choice(self.tool.results), texts, quote=True)
        return request, call, result, _fill(self.tool.answer, texts)


def _fill(template, texts, quote=False):
    for slot, text in texts.items():
        template = template.replace(f"[{slot}]", json.dumps(text, ensure_ascii=False)[1:-1] if quote else text)
    return template


def assistant_calls(*calls):
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": c} for c in calls]}


def tool_conversation(rng, plain_exchange):
    """Returns (messages, tool definitions). `plain_exchange(rng)` gives a question that needs no tool and its answer."""
    pool = rng.sample(TOOLS, rng.randint(1, 4))
    if rng.random() < 0.3:
        pool[rng.randrange(len(pool))] = made_up_tool(rng)
    bound = [BoundTool(rng, t) for t in pool]
    if len({b.name for b in bound}) < len(bound):
        bound = bound[:1]
    messages = []
    for _ in range(rng.choices([1, 2, 3], [60, 28, 12])[0]):
        messages += _turn(rng, bound, plain_exchange)
    return messages, [b.definition for b in bound]


def _turn(rng, bound, plain_exchange):
    kind = rng.random()
    if kind < 0.13:
        ask, answer = plain_exchange(rng)
        return [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]
    if kind < 0.18:
        others = [t for t in TOOLS if t not in [b.tool for b in bound]]
        ask = BoundTool(rng, rng.choice(others)).use(rng)[0]
        return [
            {"role": "user", "content": ask},
            {"role": "assistant", "content": "I am sorry, I have no tool for that."},
        ]
    tool = rng.choice(bound)
    ask, call, result, answer = tool.use(rng)
    if kind < 0.26 and not answer.startswith("I am sorry"):
        ask2, call2, result2, answer2 = tool.use(rng)
        both = f"{ask} {rng.choice(['And also: ', 'Then: ', ''])}{ask2}"
        return [
            {"role": "user", "content": both},
            assistant_calls(call, call2),
            {"role": "tool", "content": result},
            {"role": "tool", "content": result2},
            {"role": "assistant", "content": f"{answer} {answer2}"},
        ]
    return [
        {"role": "user", "content": ask},
        assistant_calls(call),
        {"role": "tool", "content": result},
        {"role": "assistant", "content": answer},
    ]
