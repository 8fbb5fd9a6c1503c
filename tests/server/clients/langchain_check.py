"""LangChain's OpenAI client against a running server. Usage: langchain_check.py URL. clients_test.py runs this file
with a Python that has the package."""
import asyncio
import sys

import pydantic
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

COMMON = {"base_url": f"{sys.argv[1]}/v1", "api_key": "none", "model": "demo", "temperature": 0, "max_retries": 0}
SUM = "What is 7 + 5?"
chat = ChatOpenAI(**COMMON)


def invoke():
    got = chat.invoke(SUM)
    assert got.content == "7 + 5 = 12." and got.response_metadata["finish_reason"] == "stop" and got.usage_metadata["output_tokens"] > 0, got
    many = chat.batch([SUM] * 5)
    assert [one.content for one in many] == [got.content] * 5


def stream():
    assert "".join(chunk.content for chunk in chat.stream(SUM)) == "7 + 5 = 12."

    async def pieces():
        return [chunk.content async for chunk in chat.astream([SystemMessage("You answer sums."), HumanMessage(SUM)])]

    assert len([piece for piece in asyncio.run(pieces()) if piece]) > 1


def tools():
    def weather(place: str) -> str:
        """The weather of a place."""
        return place

    call = AIMessage("", tool_calls=[{"name": "weather", "args": {"place": "Oslo"}, "id": "c1"}])
    got = chat.bind_tools([weather]).bind(max_tokens=5).invoke([HumanMessage("The weather in Oslo?"), call, ToolMessage("Rain", tool_call_id="c1")])
    assert got.usage_metadata["output_tokens"] <= 5


def completions():
    text = OpenAI(**COMMON, max_tokens=8)
    got = text.invoke("Once upon a time")
    assert got and "".join(text.stream("Once upon a time")) == got


class Person(pydantic.BaseModel):
    name: str
    age: int


def structured():
    ask = "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."
    for given in (Person, Person.model_json_schema() | {"additionalProperties": False}):
        got = chat.bind(max_tokens=200).with_structured_output(given, method="json_schema").invoke(ask)
        assert (got if isinstance(got, dict) else got.model_dump()) == {"name": "Clara Reed", "age": 34}, got


def agent():
    """The model calls, the function runs, and the model continues with its result."""
    cities = []

    def get_weather(city: str) -> dict:
        """Get the current weather for a city."""
        cities.append(city)
        return {"temperature": -4, "sky": "snowy"}

    got = create_agent(chat, [get_weather]).invoke({"messages": [HumanMessage("What is the weather in Oslo?")]})
    assert cities == ["Oslo"] and "snowy" in got["messages"][-1].content, (cities, got)


for check in (invoke, stream, tools, completions, structured, agent):
    check()
    print(check.__name__, "ok")
