"""scripts/fuzz_table.py reads libFuzzer's logs and writes the table of SECURITY.md, which has a row for each target."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
import fuzz_table

LOG = """#1234\tNEW    cov: 700 ft: 900 corp: 3/9b lim: 4 exec/s: 600 rss: 50Mb
#{runs}\tDONE   cov: 815 ft: 2000 corp: 90/9Kb lim: 4096 exec/s: 200 rss: 80Mb
Done {runs} runs in 61 second(s)
stat::number_of_executed_units: {runs}
stat::average_exec_per_sec:     200
"""


class FuzzTable(unittest.TestCase):
    def targets(self):
        text = (ROOT / "tests/fuzz/CMakeLists.txt").read_text()
        names = re.search(r"foreach\(name ([\w ]+) \$\{grammars\}\)", text)[1].split()
        return names + re.search(r"set\(grammars ([\w ]+)\)", text)[1].split()

    def test_each_target_has_a_row(self):
        self.assertEqual(sorted(self.targets()), sorted(fuzz_table.READS))
        self.assertGreater(len(fuzz_table.READS), 10)

    def run_on(self, logs, page_text=f"before\n{fuzz_table.BEGIN}\nold\n{fuzz_table.END}\nafter\n"):
        with tempfile.TemporaryDirectory() as folder:
            root, build = pathlib.Path(folder), pathlib.Path(folder) / "build"
            build.mkdir()
            page = root / "SECURITY.md"
            page.write_text(page_text)
            for i, name in enumerate(logs):
                (build / f"fuzz_{name}.log").write_text(LOG.format(runs=1000 * (i + 1)))
            done = subprocess.run([sys.executable, ROOT / "scripts/fuzz_table.py", build, root], capture_output=True, text=True)
            return done, page.read_text()

    def test_the_logs_become_the_table(self):
        done, text = self.run_on(fuzz_table.READS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| `gguf` | GGUF files, and what is written from them | 1,000 | 61 | 815 |", text)
        self.assertEqual(text.count("| 61 | 815 |"), len(fuzz_table.READS))
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text)

    def test_a_page_without_a_table_gets_one(self):
        done, text = self.run_on(fuzz_table.READS, "before\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(text.startswith("before\n\n## What"))
        self.assertEqual(text.count("| 61 | 815 |"), len(fuzz_table.READS))

    def test_a_target_without_a_log_keeps_its_row(self):
        kept = "| `gguf` | GGUF files | 7 | 8 | 9 |"
        done, text = self.run_on(list(fuzz_table.READS)[1:], f"before\n{fuzz_table.BEGIN}\n{kept}\n{fuzz_table.END}\nafter\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"\n{kept}\n", text)
        self.assertEqual(text.count("| 61 | 815 |"), len(fuzz_table.READS) - 1)

    def test_a_missing_log_is_told(self):
        done, text = self.run_on(list(fuzz_table.READS)[1:])
        self.assertEqual(done.returncode, 1)
        self.assertIn("run make fuzz first", done.stderr)
        self.assertIn("old", text)


if __name__ == "__main__":
    unittest.main()
