"""The openai and anthropic packages against four running servers: one with the demo model, one with an embedding model,
one that requires the key "sesame" and accepts two requests at a time, and one with a model that always thinks and
calls. Usage: clients_check.py URL EMBEDDING_URL LIMITED_URL CALLS_URL. clients_test.py runs this file with a Python
that has the packages."""
import json
import sys

import anthropic
import openai
import pydantic

URL = sys.argv[1]
SUM = [{"role": "user", "content": "What is 7 + 5?"}]
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]
WEATHER = [{"role": "user", "content": "The weather in Oslo?"}]
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a place", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
GREEDY = {"temperature": 0}  # Anthropic's newer packages do not have this field
model = client.models.list().data[0].id
messages_client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def chat():
    got = client.chat.completions.create(model=model, messages=SUM, temperature=0)
    assert got.choices[0].message.content == "7 + 5 = 12." and got.choices[0].finish_reason == "stop" and got.usage.total_tokens > 10
    assert client.models.retrieve(model).id == model


def chat_stream():
    stream = client.chat.completions.create(model=model, messages=SUM, temperature=0, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "7 + 5 = 12."
    assert chunks[-1].usage.completion_tokens > 0 and chunks[0].choices[0].delta.role == "assistant"
    with client.chat.completions.stream(model=model, messages=SUM, temperature=0) as events:
        final = events.get_final_completion()
    assert final.choices[0].message.content == "7 + 5 = 12."


def chat_options():
    got = client.chat.completions.create(model=model, messages=STORY, n=2, seed=3, max_completion_tokens=9, logprobs=True, top_logprobs=2, temperature=1.2, tools=[TOOL], tool_choice="auto")
    assert [len(c.logprobs.content) for c in got.choices] == [9, 9] and len(got.choices[0].logprobs.content[0].top_logprobs) == 2
    bytes_of = b"".join(bytes(t.bytes) for t in got.choices[0].logprobs.content)
    assert bytes_of.decode() == got.choices[0].message.content


def completions():
    got = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, echo=True)
    assert got.choices[0].text.startswith("Once upon a time") and len(got.choices[0].text) > 20
    text = "".join(c.choices[0].text for c in client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True))
    assert "Once upon a time" + text == got.choices[0].text


def responses():
    got = client.responses.create(model=model, input="What is 7 + 5?", temperature=0)
    assert got.output_text == "7 + 5 = 12." and got.status == "completed" and got.usage.output_tokens > 0
    got = client.responses.create(model=model, input=[{"role": "user", "content": [{"type": "input_text", "text": "Tell me a story."}]}], max_output_tokens=5, instructions="Be brief.")
    assert got.status == "incomplete" and got.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(model=model, input="What is 7 + 5?", temperature=0) as events:
        kinds = [event.type for event in events]
        final = events.get_final_response()
    assert final.output_text == "7 + 5 = 12." and kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.done") == 1 and "response.output_text.delta" in kinds
    raises(openai.BadRequestError, lambda: client.responses.create(model=model, input="x", previous_response_id="resp_1"))


def errors():
    error = raises(openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=SUM, temperature=-1))
    assert error.param == "temperature" and error.type == "invalid_request_error"
    raises(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))
    error = raises(openai.BadRequestError, lambda: client.completions.create(model=model, prompt=[5] * 100000))
    assert error.code == "context_length_exceeded"
    raises(anthropic.BadRequestError, lambda: messages_client.messages.create(model=model, max_tokens=5, messages=[{"role": "nobody", "content": "x"}]))


class Sum(pydantic.BaseModel):
    value: int


class Weather(pydantic.BaseModel):
    """The weather of a place."""
    place: str


def structured_parse():
    """A format is a Pydantic class, and the answer is an object of it. The request also has tools."""
    got = client.chat.completions.parse(model=model, messages=SUM, response_format=Sum, temperature=0, max_tokens=200)
    assert isinstance(got.choices[0].message.parsed, Sum)
    got = client.responses.parse(model=model, input="7 + 5?", text_format=Sum, temperature=0, max_output_tokens=200)
    assert isinstance(got.output_parsed, Sum)
    got = client.chat.completions.parse(model=model, messages=SUM, temperature=0)
    assert got.choices[0].message.content == "7 + 5 = 12." and got.choices[0].message.parsed is None
    cut = raises(openai.LengthFinishReasonError,
                 lambda: client.chat.completions.parse(model=model, messages=SUM, max_tokens=5, tools=[openai.pydantic_function_tool(Weather)], extra_body={"ignore_eos": True}))
    assert cut.completion.usage.completion_tokens == 5 and cut.completion.usage.prompt_tokens > got.usage.prompt_tokens + 50, "the tools are in the prompt"


class Forecast(pydantic.BaseModel):
    place: str = pydantic.Field(max_length=8)
    days: int = pydantic.Field(ge=1, le=9)


def forced_calls():
    """Forced and strict calls of a Pydantic class are returned as its objects."""
    asked = {"model": model, "messages": WEATHER, "tools": [openai.pydantic_function_tool(Forecast)], "temperature": 0, "max_tokens": 200}
    for choice in ("required", {"type": "function", "function": {"name": "Forecast"}}):
        got = client.chat.completions.parse(**asked, tool_choice=choice, parallel_tool_calls=False).choices[0]
        assert got.finish_reason == "tool_calls" and isinstance(got.message.tool_calls[0].function.parsed_arguments, Forecast)
    with client.chat.completions.stream(**asked, tool_choice="required", parallel_tool_calls=False) as events:
        streamed = events.get_final_completion().choices[0]
    assert streamed.message.tool_calls[0].function.arguments == got.message.tool_calls[0].function.arguments
    tool = openai.pydantic_function_tool(Forecast)["function"]
    got = client.responses.parse(model=model, input=WEATHER, tools=[{"type": "function", **tool}], tool_choice={"type": "function", "name": "Forecast"}, temperature=0)
    assert isinstance(Forecast(**json.loads(got.output[0].arguments)), Forecast)
    tool = {"name": "Forecast", "input_schema": Forecast.model_json_schema()}
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "Forecast"}):
        asked = {"model": model, "max_tokens": 200, "messages": WEATHER, "tools": [tool], "tool_choice": choice, "extra_body": {"temperature": 0}}
        got = messages_client.messages.create(**asked)
        assert got.stop_reason == "tool_use" and [block.type for block in got.content] == ["tool_use"] and Forecast(**got.content[0].input)
        with messages_client.messages.stream(**asked) as events:
            assert events.get_final_message().content[0].input == got.content[0].input


def limited(**options):
    return openai.OpenAI(base_url=f"{sys.argv[3]}/v1", **({"api_key": "sesame", "max_retries": 0} | options))


def keys():
    raises(openai.AuthenticationError, lambda: limited(api_key="mellon").models.list())
    raises(anthropic.AuthenticationError, lambda: anthropic.Anthropic(base_url=sys.argv[3], api_key="mellon", max_retries=0).messages.count_tokens(model=model, messages=SUM))
    raises(openai.APIConnectionError, lambda: openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0).models.list())
    for given in ({"api_key": "sesame"}, {"auth_token": "sesame"}):  # X-Api-Key, and Bearer
        got = anthropic.Anthropic(base_url=sys.argv[3], max_retries=0, **given).messages.create(model=model, max_tokens=3, messages=SUM)
        assert got.usage.output_tokens == 3
    assert limited().chat.completions.create(model=model, messages=SUM, max_tokens=3)._request_id.startswith("req-")


def retries():
    """A client at a full queue gets an error at once. A client that may retry does so and gets an answer."""
    error = None
    for _ in range(20):  # on a busy machine, its choices may end before the next request arrives
        held = limited().completions.create(model=model, prompt="Once", max_tokens=800, n=2, stream=True, extra_body={"ignore_eos": True, "logprobs": 20})
        try:
            limited().chat.completions.create(model=model, messages=SUM)
        except openai.RateLimitError as refusal:
            error = refusal
        if error:
            break
        held.close()
    assert error and error.code == "queue_full" and int(error.response.headers["retry-after"]) >= 1
    held.close()  # frees the places in the queue
    got = limited(max_retries=8).chat.completions.create(model=model, messages=SUM, temperature=0)
    assert got.choices[0].message.content == "7 + 5 = 12."


def prefill():
    """Anthropic's clients prefill the beginning of the answer."""
    turns = [*SUM, {"role": "assistant", "content": "7 + 5 ="}]
    got = messages_client.messages.create(model=model, max_tokens=10, messages=turns, extra_body=GREEDY)
    assert got.content[0].text == " 12." and got.stop_reason == "end_turn"
    more = {"continue_final_message": True, "add_generation_prompt": False}
    got = client.chat.completions.create(model=model, messages=turns, temperature=0, extra_body=more)
    assert got.choices[0].message.content == " 12."


def messages():
    got = messages_client.messages.create(model=model, max_tokens=50, messages=SUM, extra_body=GREEDY, system="You answer sums.")
    assert got.content[0].text and got.stop_reason in ("end_turn", "max_tokens") and got.usage.output_tokens > 0
    plain = messages_client.messages.create(model=model, max_tokens=50, messages=SUM, extra_body=GREEDY)
    assert plain.content[0].text == "7 + 5 = 12." and plain.stop_reason == "end_turn"
    with messages_client.messages.stream(model=model, max_tokens=50, messages=SUM, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == plain.content[0].text and final.stop_reason == "end_turn" and final.usage.output_tokens == plain.usage.output_tokens
    cut = messages_client.messages.create(model=model, max_tokens=50, messages=SUM, extra_body=GREEDY, stop_sequences=[" = "])
    assert cut.content[0].text == "7 + 5" and cut.stop_reason == "stop_sequence" and cut.stop_sequence == " = "
    assert messages_client.messages.create(model=model, max_tokens=3, messages=STORY).stop_reason == "max_tokens"
    counted = messages_client.messages.count_tokens(model=model, messages=SUM).input_tokens
    assert counted == plain.usage.input_tokens + (plain.usage.cache_read_input_tokens or 0)


def messages_with_tools():
    tool = {"name": "weather", "description": "The weather", "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}}}
    turns = [{"role": "user", "content": [{"type": "text", "text": "The weather in Oslo?"}]},
             {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "Oslo"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Rain"}]}, {"type": "text", "text": "Thanks"}]}]
    assert messages_client.messages.create(model=model, max_tokens=5, messages=turns, tools=[tool]).usage.output_tokens == 5


CALLS = [{"place": "Oslo"}, {"place": "Zürich \"B\""}]  # clients_test.py makes the model write these calls
STOP = {"stop_token_ids": [256]}
calls_client = openai.OpenAI(base_url=f"{sys.argv[4]}/v1", api_key="none", max_retries=0)
calls_messages = anthropic.Anthropic(base_url=sys.argv[4], api_key="none", max_retries=0)


def tool_calls():
    asked = {"model": "fake", "messages": SUM, "tools": [TOOL], "max_tokens": 400, "extra_body": STOP}

    def check(choice):
        assert choice.finish_reason == "tool_calls" and choice.message.content == "I look." and choice.message.reasoning_content == "Hm."
        assert [json.loads(c.function.arguments) for c in choice.message.tool_calls] == CALLS
        assert {c.function.name for c in choice.message.tool_calls} == {"weather"} and len({c.id for c in choice.message.tool_calls}) == 2
        return choice.message

    message = check(calls_client.chat.completions.create(**asked).choices[0])
    with calls_client.chat.completions.stream(**asked) as events:
        kinds = [event.type for event in events]
        check(events.get_final_completion().choices[0])
    assert kinds.count("tool_calls.function.arguments.delta") > 10 and kinds.count("tool_calls.function.arguments.done") == 2
    results = [{"role": "tool", "tool_call_id": c.id, "content": "Rain"} for c in message.tool_calls]
    calls_client.chat.completions.create(**asked | {"messages": [*SUM, message, *results]})


def tool_calls_of_responses():
    tool = {"type": "function", "name": "weather", "parameters": TOOL["function"]["parameters"], "strict": False}
    asked = {"model": "fake", "input": SUM, "tools": [tool], "max_output_tokens": 400, "extra_body": STOP}
    with calls_client.responses.stream(**asked) as events:
        kinds = [event.type for event in events]
        streamed = events.get_final_response()
    assert kinds.count("response.function_call_arguments.delta") > 10 and kinds.count("response.function_call_arguments.done") == 2
    for got in (calls_client.responses.create(**asked), streamed):
        assert [item.type for item in got.output] == ["reasoning", "message", "function_call", "function_call"] and got.output_text == "I look."
        assert [json.loads(item.arguments) for item in got.output[2:]] == CALLS and got.output[0].content[0].text == "Hm."
    results = [{"type": "function_call_output", "call_id": item.call_id, "output": "Rain"} for item in streamed.output[2:]]
    calls_client.responses.create(**asked | {"input": [*SUM, *streamed.output, *results]})


def tool_use():
    tool = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
    asked = {"model": "fake", "max_tokens": 400, "messages": SUM, "tools": [tool], "extra_body": STOP}
    with calls_messages.messages.stream(**asked) as events:
        kinds = [event.type for event in events]
        streamed = events.get_final_message()
    assert kinds.count("input_json") > 10
    for got in (calls_messages.messages.create(**asked), streamed):
        assert got.stop_reason == "tool_use" and [block.type for block in got.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert got.content[0].thinking == "Hm." and got.content[0].signature and got.content[1].text == "I look."
        assert [block.input for block in got.content[2:]] == CALLS
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "Rain"} for block in streamed.content[2:]]
    turns = [*SUM, {"role": "assistant", "content": streamed.content}, {"role": "user", "content": results}]
    calls_messages.messages.create(**asked | {"messages": turns})


def embeddings():
    vectors = openai.OpenAI(base_url=f"{sys.argv[2]}/v1", api_key="none", max_retries=0)
    texts = ["the quick brown fox", "a", "other words"]
    got = vectors.embeddings.create(model="any", input=texts)  # asks for base64 by itself
    plain = vectors.embeddings.create(model="any", input=texts, encoding_format="float")
    assert [len(d.embedding) for d in got.data] == [48] * 3 and got.usage.prompt_tokens == got.usage.total_tokens > 5
    for a, b in zip(got.data, plain.data, strict=True):
        assert a.index == b.index and abs(sum(x * x for x in a.embedding) - 1) < 1e-5 and all(abs(x - y) < 1e-6 for x, y in zip(a.embedding, b.embedding, strict=True))
    assert vectors.embeddings.create(model="any", input=[5, 6, 7]).data[0].embedding
    error = raises(openai.BadRequestError, lambda: vectors.embeddings.create(model="any", input="a", dimensions=7))
    assert error.param == "dimensions"
    raises(openai.BadRequestError, lambda: client.embeddings.create(model=model, input="a"))
    raises(openai.BadRequestError, lambda: vectors.chat.completions.create(model="any", messages=SUM))


for check in (chat, chat_stream, chat_options, completions, responses, errors, structured_parse, forced_calls, keys, retries, prefill, messages, messages_with_tools, tool_calls, tool_calls_of_responses, tool_use, embeddings):
    check()
    print(check.__name__, "ok")
