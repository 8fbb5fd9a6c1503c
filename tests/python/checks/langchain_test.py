"""ingot.langchain, by LangChain's own parts."""
import asyncio

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool

from conftest import DATA
from ingot import InvalidError, Model
from ingot.langchain import ChatIngot, IngotEmbeddings

CALL = r"""<tool_call>\n\{"name": "weather", "arguments": \{"city": "[A-Z][a-z]{2,5}"\}\}\n</tool_call>"""


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"7 degrees in {city}"


@pytest.fixture
def chat(model):
    return ChatIngot(model=model, options={"temperature": 0, "max_tokens": 20})


def test_invoke_stream_and_batch(chat, model):
    expected = model.chat("Tell me a story.", temperature=0, max_tokens=20)
    message = chat.invoke("Tell me a story.")
    assert message.content == expected.text and message.response_metadata["finish_reason"] == expected.finish
    assert message.usage_metadata == {"input_tokens": expected.prompt_tokens, "output_tokens": 20, "total_tokens": expected.prompt_tokens + 20}
    chunks = list(chat.stream([SystemMessage("Be short."), HumanMessage("Hi")]))
    said = model.chat([{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}], temperature=0, max_tokens=20)
    assert "".join(c.content for c in chunks) == said.text
    assert sum((c.usage_metadata or {}).get("output_tokens", 0) for c in chunks) == said.output_tokens
    assert [m.content for m in chat.batch(["Hi", "Tell me a story."])][1] == expected.text
    chain = ChatPromptTemplate.from_messages([("user", "Tell me a {what}.")]) | chat | StrOutputParser()
    assert chain.invoke({"what": "story"}) == expected.text
    stop = expected.text[5:8]
    assert chat.invoke("Tell me a story.", stop=[stop]).content == expected.text[: expected.text.find(stop)]


def test_asyncio(chat, model):
    async def go():
        one = await chat.ainvoke("Hi")
        return one.content, "".join([c.content async for c in chat.astream("Hi")])

    assert set(asyncio.run(go())) == {model.chat("Hi", temperature=0, max_tokens=20).text}


def test_tools(chat):
    bound = chat.bind_tools([weather])
    message = bound.invoke("Is it cold in Oslo?", regex=CALL, max_tokens=90)
    [call] = message.tool_calls
    assert call["name"] == "weather" and set(call["args"]) == {"city"}
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage) and call["args"]["city"] in result.content
    assert isinstance(bound.invoke([HumanMessage("Is it cold in Oslo?"), message, result]), AIMessage)
    chunks = list(bound.stream("Is it cold in Oslo?", regex=CALL, max_tokens=90))
    assert sum(chunks[1:], chunks[0]).tool_calls[0]["args"] == call["args"]
    with pytest.raises(InvalidError, match="tool_choice"):
        chat.bind_tools([weather], tool_choice="any")


def test_structured_output(chat):
    class Animal(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)

    assert isinstance(chat.with_structured_output(Animal).invoke("An animal.", max_tokens=80), Animal)


def test_embeddings():
    with Model.load(DATA / "encoders" / "gemma_embed", n_threads=2) as model:
        vectors = IngotEmbeddings(model, query_prompt="query")
        assert vectors.embed_query("a fox") == model.embed("a fox", prompt_name="query").tolist()
        assert vectors.embed_documents(["a fox", "a dog"]) == model.embed(["a fox", "a dog"]).tolist()
