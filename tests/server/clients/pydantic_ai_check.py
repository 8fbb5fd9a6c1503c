"""Pydantic AI against a running server, through OpenAI's API and through Anthropic's. Usage: pydantic_ai_check.py URL.
clients_test.py runs this file with a Python that has the package."""
import asyncio
import sys

import anthropic
import pydantic
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

URL = sys.argv[1]
SUM, ANSWER = "What is 7 + 5?", "7 + 5 = 12."
openai = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
MODELS = [OpenAIChatModel("demo", provider=openai), OpenAIResponsesModel("demo", provider=openai)]
GREEDY = {"temperature": 0, "max_tokens": 200}


class Person(pydantic.BaseModel):
    name: str
    age: int


def text():
    for model in MODELS:
        got = Agent(model, model_settings=GREEDY).run_sync(SUM)
        assert got.output == ANSWER, got


def stream():
    async def pieces(model):
        async with Agent(model, model_settings=GREEDY).run_stream(SUM) as result:
            return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

    for model in MODELS:
        got = asyncio.run(pieces(model))
        assert "".join(got) == ANSWER and len(got) > 1, got


def structured():
    ask = "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."
    for model in MODELS:
        got = Agent(model, output_type=NativeOutput(Person), model_settings=GREEDY).run_sync(ask)
        assert got.output == Person(name="Clara Reed", age=34), got


def tool():
    """The model calls, the function runs, and the model continues with its result."""
    for model in MODELS:
        agent = Agent(model, model_settings=GREEDY)
        cities = []

        @agent.tool_plain
        def get_weather(city: str) -> dict:
            """Get the current weather for a city."""
            cities.append(city)
            return {"temperature": -4, "sky": "snowy"}

        got = agent.run_sync("What is the weather in Oslo?")
        assert cities == ["Oslo"] and "snowy" in got.output and "-4" in got.output, (cities, got)


def messages():
    provider = AnthropicProvider(anthropic_client=anthropic.AsyncAnthropic(base_url=URL, api_key="none", max_retries=0))
    agent = Agent(
        AnthropicModel("demo", provider=provider), model_settings={"max_tokens": 50, "extra_body": {"temperature": 0}}
    )
    assert agent.run_sync(SUM).output == ANSWER


for check in (text, stream, structured, tool, messages):
    check()
    print(check.__name__, "ok")
