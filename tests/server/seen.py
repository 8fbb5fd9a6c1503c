"""The pictures of tests/data/demo_vision, with questions and right answers (tools/vision_model/verify.py)."""
import collections
import json
import sys

from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "tools/vision_model"))
from score import is_right  # noqa: E402

PICTURES = SOURCE / "tests/data/demo_vision"
CASES = json.loads((PICTURES / "cases.json").read_text())


def check(ask):
    """ask(path, question) answers each question: at least nine of ten are right, of all and of each kind."""
    right, wrong = collections.defaultdict(list), []
    for case in CASES:
        said = ask(PICTURES / case["picture"], case["question"]).strip()
        right[case["kind"]].append(is_right(case["kind"], case["answer"], said))
        if not right[case["kind"]][-1]:
            wrong.append((case, said))
    everything = [one for kind in right.values() for one in kind]
    assert sum(everything) >= 0.9 * len(everything), wrong
    for kind, ones in right.items():
        assert sum(ones) >= 0.9 * len(ones) - 1, (kind, wrong)  # a kind has 5 to 24 questions: one more may be wrong
