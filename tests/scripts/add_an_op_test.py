"""docs/add-an-op.md shows the code of the tree: each block names its file and stands there, line for line."""
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
BLOCK = re.compile(r"```cpp\n// (\S+)\n(.*?)```", re.S)


class AddAnOp(unittest.TestCase):
    page = (ROOT / "docs/add-an-op.md").read_text()

    def test_blocks_stand_in_their_files(self):
        blocks = BLOCK.findall(self.page)
        self.assertEqual(len(blocks), self.page.count("```cpp"), "a block does not name its file")
        self.assertGreater(len(blocks), 10)
        for path, code in blocks:
            with self.subTest(path=path):
                self.assertIn(code, (ROOT / path).read_text())

    def test_every_primitive_is_where_the_page_says(self):
        verbs = re.findall(r"virtual void (\w+)\([^;]*= 0;", (ROOT / "src/backend/backend.h").read_text().split("// ---- primitives")[1])
        self.assertGreater(len(verbs), 8)
        for path in ["src/backend/wrapped.h", "src/backend/ref/ref_backend.cc", "src/backend/cpu/cpu_backend.h"]:
            for verb in verbs:
                with self.subTest(path=path, verb=verb):
                    self.assertRegex((ROOT / path).read_text(), rf"void {verb}\([^)]*\)[^;{{]* override")


if __name__ == "__main__":
    unittest.main()
