"""Talks in the terminal: chat.py [MODEL]. Answers stream; the conversation stays in the model's cache, so a turn computes its own tokens."""
import sys

from ingot import Model


def main(name: "str | None" = None) -> None:
    messages = []
    with Model.load(name) as model:
        while question := input("> ").strip():
            messages.append({"role": "user", "content": question})
            stream = model.chat(messages, stream=True, max_tokens=300)
            for delta in stream:
                print(delta.content, end="", flush=True)
            messages.append(stream.answer.message)
            print(f"\n[{stream.answer.output_tokens} tokens, {stream.answer.cached_tokens} of the prompt cached]")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except EOFError:
        pass
