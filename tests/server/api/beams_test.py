"""Searches with beams (vLLM's use_beam_search) and best_of: choices, lengths, and what does not go together."""
import pytest

PROMPT = "Once upon a time"
USER = {"role": "user", "content": "Tell me about a fox."}


def choices(server, **fields):
    return server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 12, **fields}).json()["choices"]


def total(choice):
    return sum(choice["logprobs"]["token_logprobs"])


def test_more_beams_find_likelier_texts(server):
    fields = {"logprobs": 0, "ignore_eos": True}
    greedy = choices(server, temperature=0, **fields)[0]
    beams = choices(server, use_beam_search=True, n=4, length_penalty=0, **fields)
    assert [c["index"] for c in beams] == [0, 1, 2, 3] and len({c["text"] for c in beams}) == 4
    sums = [total(c) for c in beams]
    assert sums == sorted(sums, reverse=True) and sums[0] >= total(greedy) - 1e-4
    assert choices(server, use_beam_search=True, n=1, best_of=4, length_penalty=0, **fields)[0]["text"] == beams[0]["text"]


def test_chat_and_several_prompts(server):
    answer = server.post("/v1/chat/completions", {"messages": [USER], "max_tokens": 30, "use_beam_search": True, "n": 2, "best_of": 3, "early_stopping": "never"}).json()
    assert len(answer["choices"]) == 2 and all(c["message"]["content"] for c in answer["choices"])
    assert answer["usage"]["prompt_tokens"] < 60
    both = server.post("/v1/completions", {"prompt": [PROMPT, "The fox"], "max_tokens": 6, "n": 2, "use_beam_search": True}).json()["choices"]
    assert [c["index"] for c in both] == [0, 1, 2, 3]
    assert both[0]["text"] == choices(server, max_tokens=6, n=2, use_beam_search=True)[0]["text"]


def test_beams_follow_a_grammar(server):
    texts = [c["text"] for c in choices(server, use_beam_search=True, n=3, guided_regex="(cat|dog|cow) [0-9]{2}")]
    assert len(set(texts)) == 3
    assert all(t[:3] in ("cat", "dog", "cow") and t[3] == " " and t[4:].isdigit() and len(t) == 6 for t in texts)


@pytest.mark.parametrize("fields, words", [
    ({"stream": True}, "stream"), ({"echo": True}, "echo"), ({"speculate": "ngram"}, "drafts"), ({"logprobs": 2}, "logprobs"),
    ({"best_of": 100}, "beams"), ({"early_stopping": "soon"}, "never"), ({"length_penalty": 1000}, "length_penalty")])
def test_what_does_not_go_together(server, fields, words):
    error = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "use_beam_search": True, **fields}).error(400)
    assert words in error["message"]


def test_best_of_sends_the_likeliest_answers(server):
    fields = {"temperature": 1, "seed": 3, "logprobs": 0, "max_tokens": 8}
    mean = lambda c: total(c) / len(c["logprobs"]["token_logprobs"])  # noqa: E731
    all_of_them = sorted(choices(server, n=5, **fields), key=mean, reverse=True)
    best = choices(server, n=2, best_of=5, **fields)
    assert [c["text"] for c in best] == [c["text"] for c in all_of_them[:2]] and [c["index"] for c in best] == [0, 1]
    assert "stream" in server.post("/v1/completions", {"prompt": PROMPT, "best_of": 2, "stream": True}).error(400)["message"]
    assert "best_of" in server.post("/v1/completions", {"prompt": PROMPT, "best_of": 2, "n": 3}).error(400)["message"]
