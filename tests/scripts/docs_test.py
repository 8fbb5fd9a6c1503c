"""Every relative link of the pages, and every path of the source tree that they name, exists. The design page shows the
engine's step as it is."""
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


class Docs(unittest.TestCase):
    def test_links_lead_somewhere(self):
        n_links = 0
        for page in PAGES:
            text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)  # a lambda looks like a link
            for target in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" not in target:
                    n_links += 1
                    self.assertTrue((page.parent / target).exists(), f"{page.name} links to {target}")
        self.assertGreater(n_links, 5)

    def test_named_paths_exist(self):
        n_paths = 0
        for page in PAGES:
            for path in re.findall(r"`((?:src|tests|tools|scripts|cmake|docs|bench|models)/[\w./-]+)`", page.read_text()):
                n_paths += 1
                self.assertTrue((ROOT / path).exists(), f"{page.name} names {path}")
        self.assertGreater(n_paths, 10)

    def test_the_design_page_shows_the_step(self):
        begin = "void Engine::run_step() {\n"

        def lines_of(text):
            self.assertEqual(text.count(begin), 1)
            body = text[text.index(begin) + len(begin):]
            body = body[:re.search(r"^ *}$", body, flags=re.M).start()]
            return [line for line in (re.sub(r"//.*", "", line).strip() for line in body.split("\n")) if line]

        shown = lines_of((ROOT / "docs/design.md").read_text())
        self.assertEqual(shown, lines_of((ROOT / "src/engine/engine_step.cc").read_text()))
        self.assertGreater(len(shown), 5)


if __name__ == "__main__":
    unittest.main()
