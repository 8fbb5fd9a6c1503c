"""Instructor against a running server. Usage: instructor_check.py URL. clients_test.py runs this file with a Python
that has the package."""
import sys

import instructor
import openai
import pydantic

ASK = [
    {"role": "user", "content": "Turn this into JSON: Clara Reed is 34 years old, lives in Oslo and works as a baker."}
]
client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
COMMON = {"model": "demo", "messages": ASK, "temperature": 0, "max_tokens": 200, "max_retries": 0}


class Person(pydantic.BaseModel):
    name: str
    age: int


def by_schema():
    got = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create(
        response_model=Person, **COMMON
    )
    assert (got.name, got.age) == ("Clara Reed", 34), got


def partial():
    stream = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create_partial(
        response_model=Person, **COMMON
    )
    *_, last = stream
    assert (last.name, last.age) == ("Clara Reed", 34), last


def retries():
    """If the class refuses an answer, Instructor asks again with the reason."""
    seen = []

    class Picky(Person):
        @pydantic.field_validator("age")
        @classmethod
        def once(cls, age):
            seen.append(age)
            assert len(seen) > 1, "say it again"
            return age

    got = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create(
        response_model=Picky, **COMMON | {"max_retries": 2}
    )
    assert isinstance(got, Picky) and len(seen) == 2, seen


for check in (by_schema, partial, retries):
    check()
    print(check.__name__, "ok")
