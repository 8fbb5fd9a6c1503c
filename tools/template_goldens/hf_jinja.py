"""Jinja with the settings that Hugging Face transformers uses for chat templates (utils/chat_template_utils.py), and a
clock that always shows the same time. The oracle of src/text/jinja/template."""

import copy
import json
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2024, 7, 26, 14, 5, 9)


class AssistantTracker(Extension):
    """The {% generation %} tag; here, as in the text of a prompt, the tag only renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[AssistantTracker, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


ENV = environment()


def render(source, variables):
    """The text, or None for any error."""
    try:
        # A copy, because some filters wrongly change the list that they get.
        text = ENV.from_string(source).render(**copy.deepcopy(variables))
        text.encode("utf-8")
        return text
    except Exception:  # every exception means that the template is refused
        return None


def chat_variables(conversation):
    """The variables of a chat template, as apply_chat_template passes them."""
    return {
        "messages": conversation["messages"],
        "tools": conversation.get("tools"),
        "documents": None,
        "add_generation_prompt": conversation.get("add_generation_prompt", True),
        "bos_token": "<s>",
        "eos_token": "</s>",
        **conversation.get("set", {}),
    }
