"""Ollama's own Python client against three running servers: one with the demo model, one with an encoder and one with a
model that thinks and calls. Usage: ollama_check.py URL ENCODER_URL CALLS_URL. clients_test.py runs this file with a
Python that has the package."""
import asyncio
import json
import sys

import ollama
import pydantic

URL, ENCODER_URL, CALLS_URL = sys.argv[1:]
client = ollama.Client(host=URL)
SUM = [{"role": "user", "content": "What is 7 + 5?"}]
ANSWER = "7 + 5 = 12."
GREEDY = {"temperature": 0}
CALLS = {"num_predict": 400, "stop": ["abab"]}  # the other model writes this text after its calls


def chat():
    got = client.chat(model="demo", messages=SUM, options=GREEDY)
    assert got.message.content == ANSWER and got.done and got.done_reason == "stop" and got.eval_count > 3 and got.prompt_eval_count > 5, got
    assert client.chat(model="demo:latest", messages=[ollama.Message(role="user", content=SUM[0]["content"])], options=ollama.Options(temperature=0)).message.content == ANSWER


def stream():
    parts = list(client.chat(model="demo", messages=SUM, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == ANSWER and [part.done for part in parts] == [False] * (len(parts) - 1) + [True]

    async def pieces():
        return [part.message.content async for part in await ollama.AsyncClient(host=URL).chat(model="demo", messages=SUM, options=GREEDY, stream=True)]

    assert "".join(asyncio.run(pieces())) == ANSWER


def generate():
    got = client.generate(model="demo", prompt=SUM[0]["content"], options=GREEDY)
    assert got.response == ANSWER and got.total_duration > 0, got
    assert "".join(part.response for part in client.generate(model="demo", prompt=SUM[0]["content"], options=GREEDY, stream=True)) == ANSWER
    assert client.generate(model="demo", prompt="Once upon a time", raw=True, options=GREEDY | {"num_predict": 5}).eval_count == 5
    assert client.generate(model="demo").done_reason == "load"


class Person(pydantic.BaseModel):
    name: str
    age: int


def structured():
    ask = [{"role": "user", "content": "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."}]
    got = client.chat(model="demo", messages=ask, format=Person.model_json_schema(), options=GREEDY | {"num_predict": 200})
    assert Person.model_validate_json(got.message.content) == Person(name="Clara Reed", age=34), got
    assert json.loads(client.chat(model="demo", messages=ask, format="json", options=GREEDY | {"num_predict": 300}).message.content)


def tools():
    def weather(place: str) -> str:
        """The weather of a place.

        Args:
          place: where
        """
        return place

    caller = ollama.Client(host=CALLS_URL)
    got = caller.chat(model="fake", messages=SUM, tools=[weather], options=CALLS)
    assert got.message.thinking == "Hm." and got.message.content == "I look.", got
    assert [(call.function.name, call.function.arguments) for call in got.message.tool_calls] == [("weather", {"place": "Oslo"}), ("weather", {"place": 'Zürich "B"'})]
    again = SUM + [got.message, {"role": "tool", "tool_name": "weather", "content": "rain"}]
    assert caller.chat(model="fake", messages=again, tools=[weather], options=CALLS).message.tool_calls
    streamed = [call for part in caller.chat(model="fake", messages=SUM, tools=[weather], stream=True, options=CALLS) for call in part.message.tool_calls or ()]
    assert [call.function.arguments["place"] for call in streamed] == ["Oslo", 'Zürich "B"']


def models():
    assert [m.model for m in client.list().models] == ["demo:latest"] and client.list().models[0].details.family == "llama", client.list()
    facts = client.show("demo")
    assert "completion" in facts.capabilities and facts.modelinfo["general.architecture"] and facts.template
    assert client.ps().models[0].context_length > 0
    try:
        client.pull("no-such-model")
    except ollama.ResponseError as error:
        assert error.status_code == 404 and "no-such-model" in error.error
    else:
        raise AssertionError("it was pulled")
    assert client.pull("demo").status == "success" and [part.status for part in client.pull("demo", stream=True)][-1] == "success"


def vectors():
    encoder = ollama.Client(host=ENCODER_URL)
    got = encoder.embed(model="bert", input=["one", "two"])
    assert len(got.embeddings) == 2 and len(got.embeddings[0]) > 8 and got.prompt_eval_count > 2
    assert list(encoder.embeddings(model="bert", prompt="one").embedding) == list(got.embeddings[0])


def log_probabilities():
    got = client.chat(model="demo", messages=SUM, options=GREEDY, logprobs=True, top_logprobs=3)
    assert "".join(one.token for one in got.logprobs) == ANSWER and len(got.logprobs[0].top_logprobs) == 3


def errors():
    for fields, word in [({"options": {"temperature": 500}}, "options.temperature"), ({"messages": [{"role": "user", "content": "x", "images": [b"\x89PNG"]}]}, "images"),
                         ({"messages": [{"role": "user", "content": "a " * 5000}]}, "context length"), ({"think": True}, "think")]:
        try:
            client.chat(**{"model": "demo", "messages": SUM} | fields)
        except ollama.ResponseError as error:
            assert error.status_code == 400 and word in error.error, error
            continue
        raise AssertionError(f"{fields} was taken")


for check in (chat, stream, generate, structured, tools, models, vectors, log_probabilities, errors):
    check()
    print(check.__name__, "ok")
