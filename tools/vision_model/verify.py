"""Writes pictures that training never draws, with questions and their answers: the test of the vision demo.

  verify.py --out ../../tests/data/demo_vision --pictures 24
  verify.py --ask http://127.0.0.1:8080 --pictures 400     asks a server instead, and prints the share of right answers
The answers are computed from what was drawn, never from a model.
"""

import argparse
import base64
import collections
import io
import json
import pathlib
import random
import urllib.request

import questions
import scenes
from score import is_right


def draw(n, seed):
    """(PNG bytes, [(kind, question, answer)]): each picture with up to six kinds of question."""
    rng = random.Random(f"verify {seed}")
    for _ in range(n):
        picture, scene = scenes.make(rng.getrandbits(64), held_out=True)
        asked = {}
        for _ in range(40):
            kind, question, answer = questions.ask(rng, scene)
            asked.setdefault(kind, (kind, question, answer))
        data = io.BytesIO()
        picture.quantize(64, dither=0).save(data, "PNG", optimize=True)
        yield data.getvalue(), rng.sample(list(asked.values()), min(6, len(asked)))


def ask(server, picture, question):
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 150}
    request = urllib.request.Request(server + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--ask")
    parser.add_argument("--pictures", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        cases = []
        for i, (picture, asked) in enumerate(draw(args.pictures, args.seed)):
            (args.out / f"{i:02}.png").write_bytes(picture)
            cases += [{"picture": f"{i:02}.png", "kind": k, "question": q, "answer": a} for k, q, a in asked]
        (args.out / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    if args.ask:
        right = collections.defaultdict(list)
        for picture, asked in draw(args.pictures, args.seed):
            for kind, question, answer in asked:
                said = ask(args.ask, picture, question)
                right[kind].append(is_right(kind, answer, said))
                if not right[kind][-1]:
                    print(f"{kind}: {question}\n    {answer}\n    {said}")
        for kind, values in sorted(right.items()):
            print(f"{kind:10} {sum(values)} of {len(values)}: {100 * sum(values) / len(values):.1f} %")


if __name__ == "__main__":
    main()
