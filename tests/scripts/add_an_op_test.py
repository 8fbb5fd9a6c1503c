"""docs/add-an-op.md shows real code: each block names its file, and that file contains the block, line for line."""
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
        self.assertGreater(len(blocks), 8)
        for path, code in blocks:
            with self.subTest(path=path):
                self.assertIn(code, (ROOT / path).read_text())

    def test_every_op_is_where_the_page_says(self):
        declared = (ROOT / "src/backend/backend.h").read_text()
        ops = re.findall(r"virtual void (\w+)\(", declared.split("// ---- primitives", 1)[1].split(" protected:")[0])
        self.assertGreater(len(ops), 25)
        folders = [ROOT / "src/backend" / folder for folder in [".", "blocks", "ref"]]
        bodies = "".join(path.read_text() for folder in folders for path in folder.glob("*.cc"))
        wrapped = (ROOT / "src/backend/wrapped.h").read_text()
        for op in ops:
            with self.subTest(op=op):
                self.assertRegex(bodies, rf"\nvoid Backend::{op}\(")
                if op not in ("plain_layers", "draft_input"):  # a decorator sees the ops inside
                    self.assertRegex(wrapped, rf"void {op}\([^)]*\)[^;{{]* override")


if __name__ == "__main__":
    unittest.main()
