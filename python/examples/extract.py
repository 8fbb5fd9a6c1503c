"""Reads facts out of lines of text, all lines at once: extract.py [MODEL] < lines.txt. Each line of the output is JSON of the class below."""
import asyncio
import sys

import pydantic

from ingot import Model


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=30)
    age: int = pydantic.Field(ge=0, le=130)


async def main(name: "str | None" = None) -> None:
    with Model.load(name) as model:
        answers = (model.achat(line, schema=Person, temperature=0, max_tokens=100) for line in sys.stdin.read().splitlines())
        for answer in await asyncio.gather(*answers):
            print(answer.parsed.model_dump_json() if answer.parsed else f"cut: {answer.text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
