"""ingot rerank, as users run it: the scores equal those of sentence-transformers."""
import json

import pytest

from conftest import DATA

RANKERS = DATA / "rankers"


@pytest.fixture(params=["bert", "xlm_roberta", "modern_bert"])
def golden(request):
    return json.loads((RANKERS / f"{request.param}.json").read_text())


def test_order_and_scores(ingot, golden, tmp_path):
    documents = golden["documents"]
    assert documents[-1] == ""  # an empty line is also a document
    (tmp_path / "documents").write_text("\n".join(documents) + "\n")
    best = sorted(range(len(documents)), key=lambda i: -golden["scores"][i])
    done = ingot("rerank", RANKERS / golden["name"], "-q", golden["query"], "-f", tmp_path / "documents", "--truncate", "--device", "ref", "--json")
    answer = json.loads(done.stdout)
    assert [r["index"] for r in answer["results"]] == best
    for result in answer["results"]:
        assert abs(result["relevance_score"] - golden["scores"][result["index"]]) < 1e-4
        assert result["document"]["text"] == documents[result["index"]]
    assert answer["usage"]["prompt_tokens"] == sum(len(i) for i in golden["ids"])
    lines = ingot("rerank", RANKERS / golden["name"], "-q", golden["query"], *(a for d in documents for a in ("-p", d)), "--truncate",
                  "--device", "ref", "-n", "2").stdout.splitlines()
    assert [line.split("\t")[1:] for line in lines] == [[str(i), documents[i]] for i in best[:2]]


def test_lines_stay_lines(ingot):
    done = ingot("rerank", RANKERS / "bert.gguf", "-q", "fox", "-p", "a\tb\nc")
    assert done.stdout.count("\n") == 1 and done.stdout.endswith("\t0\ta b c\n")


def test_empty_lines_are_documents(ingot, golden, tmp_path):
    documents = ["", golden["documents"][0], "", golden["documents"][1]]
    (tmp_path / "documents").write_text("\n".join(documents))
    done = ingot("rerank", RANKERS / golden["name"], "-q", golden["query"], "-f", tmp_path / "documents", "--truncate", "--device", "ref", "--json")
    scores = {r["index"]: r["relevance_score"] for r in json.loads(done.stdout)["results"]}
    expected = [golden["scores"][i] for i in (-1, 0, -1, 1)]
    assert [scores[i] for i in range(4)] == pytest.approx(expected, abs=1e-4)


def test_what_is_refused(ingot):
    def refused(code, *args, **kwargs):
        done = ingot("rerank", *args, ok=False, **kwargs)
        assert done.returncode == code, done.stderr
        return done.stderr
    assert "this model has no known classifier" in refused(1, RANKERS.parent / "encoders" / "bert", "-q", "a", "-p", "b")
    assert "--query" in refused(2, RANKERS / "bert", "-p", "b")
    assert "the query and document 1 have" in refused(1, RANKERS / "bert", "-q", "a", "-p", "b", "-p", "word " * 100)
    assert "this model ranks documents" in ingot("embed", RANKERS / "bert", "-p", "b", ok=False).stderr
