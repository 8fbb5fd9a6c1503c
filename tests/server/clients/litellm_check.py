"""LiteLLM against three running servers: one with the demo model, one with an encoder and one with a model that thinks
and calls. Usage: litellm_check.py URL ENCODER_URL CALLS_URL. clients_test.py runs this file with a Python that has the
package."""
import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise LiteLLM would fetch prices
import litellm
import pydantic

litellm.telemetry = False
URL, ENCODER_URL, CALLS_URL = sys.argv[1:]
COMMON = {"model": "openai/demo", "api_base": f"{URL}/v1", "api_key": "none", "max_retries": 0}
SUM = [{"role": "user", "content": "What is 7 + 5?"}]
ANSWER = "7 + 5 = 12."


def completion():
    got = litellm.completion(messages=SUM, temperature=0, **COMMON)
    assert got.choices[0].message.content == ANSWER and got.choices[0].finish_reason == "stop" and got.usage.completion_tokens > 0, got
    many = litellm.batch_completion(messages=[SUM] * 5, temperature=0, **COMMON)
    assert [one.choices[0].message.content for one in many] == [ANSWER] * 5


def stream():
    chunks = list(litellm.completion(messages=SUM, temperature=0, stream=True, stream_options={"include_usage": True}, **COMMON))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    whole = litellm.stream_chunk_builder(chunks, messages=SUM)
    assert whole.choices[0].message.content == ANSWER and whole.usage.completion_tokens > 0, whole

    async def pieces():
        return [c.choices[0].delta.content async for c in await litellm.acompletion(messages=SUM, temperature=0, stream=True, **COMMON)]

    assert "".join(piece or "" for piece in asyncio.run(pieces())) == ANSWER


def text_completion():
    got = litellm.text_completion(prompt="Once upon a time", max_tokens=8, temperature=0, **COMMON | {"model": "text-completion-openai/demo"})
    assert got.choices[0].text and got.usage.completion_tokens == 8, got


class Person(pydantic.BaseModel):
    name: str
    age: int


def structured():
    ask = [{"role": "user", "content": "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."}]
    got = litellm.completion(messages=ask, temperature=0, max_tokens=200, response_format=Person, **COMMON)
    assert Person.model_validate_json(got.choices[0].message.content) == Person(name="Clara Reed", age=34), got


def messages():
    """Through Anthropic's API."""
    got = litellm.completion(messages=SUM, max_tokens=50, temperature=0, **COMMON | {"model": "anthropic/demo", "api_base": URL})
    assert got.choices[0].message.content == ANSWER and got.usage.prompt_tokens > 10, got


def embedding():
    got = litellm.embedding(model="openai/bert", input=["one", "two"], api_base=f"{ENCODER_URL}/v1", api_key="none", encoding_format="float")
    assert len(got.data) == 2 and len(got.data[0]["embedding"]) > 8, got


def errors():
    for fields, kind in [({"temperature": 500}, litellm.BadRequestError), ({"messages": SUM[:0]}, litellm.BadRequestError),
                         ({"messages": [{"role": "user", "content": "a " * 5000}]}, litellm.ContextWindowExceededError)]:
        try:
            litellm.completion(**COMMON | {"messages": SUM} | fields)
        except kind:
            continue
        raise AssertionError(f"{fields} did not raise {kind}")


def ollama():
    """Through Ollama's API, both of its routes."""
    for model in ("ollama_chat/demo", "ollama/demo"):
        fields = {"model": model, "api_base": URL, "max_retries": 0, "temperature": 0}
        got = litellm.completion(messages=SUM, **fields)
        assert got.choices[0].message.content == ANSWER and got.choices[0].finish_reason == "stop" and got.usage.completion_tokens > 0, got
        chunks = list(litellm.completion(messages=SUM, stream=True, **fields))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    ask = [{"role": "user", "content": "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."}]
    got = litellm.completion(messages=ask, model="ollama_chat/demo", api_base=URL, temperature=0, max_tokens=200, response_format=Person)
    assert Person.model_validate_json(got.choices[0].message.content) == Person(name="Clara Reed", age=34), got


def ollama_calls():
    tool = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
    got = litellm.completion(model="ollama_chat/fake", api_base=CALLS_URL, messages=SUM, tools=[tool], max_tokens=400, stop=["abab"])
    assert got.choices[0].finish_reason == "tool_calls" and got.choices[0].message.reasoning_content == "Hm.", got
    assert [json.loads(call.function.arguments)["place"] for call in got.choices[0].message.tool_calls] == ["Oslo", 'Zürich "B"']


def ollama_embedding():
    got = litellm.embedding(model="ollama/bert", input=["one", "two"], api_base=ENCODER_URL)
    assert len(got.data) == 2 and len(got.data[0]["embedding"]) > 8, got


for check in (completion, stream, text_completion, structured, messages, embedding, errors, ollama, ollama_calls, ollama_embedding):
    check()
    print(check.__name__, "ok")
