"""LangChain's OpenAI client against a running server: langchain_check.py URL. Run by clients_test.py with a Python that has it."""
import asyncio
import sys

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


for check in (invoke, stream, tools, completions):
    check()
    print(check.__name__, "ok")
