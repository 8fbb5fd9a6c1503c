"""docs/formats.md has a row for every format, and for every layout of tensors that the tests compare."""
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
PAGE = (ROOT / "docs" / "formats.md").read_text()


class FormatsTable(unittest.TestCase):
    def test_every_format_has_a_row(self):
        names = re.findall(r"^INGOT_FORMAT\((\w+)\)", (ROOT / "src" / "quant" / "formats.def").read_text(), flags=re.M)
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertRegex(PAGE, rf"(?m)^\| {name} \|(.*\|){{5}}$")

    def test_every_layout_has_a_row(self):
        rows = re.findall(r'^    \{"\w[\w-]*", Format::(\w+), "([^"]+)"', (ROOT / "tests" / "io" / "quantized_tensors_test.cc").read_text(), flags=re.M)
        self.assertGreater(len(rows), 30)
        for becomes, layout in rows:
            self.assertRegex(PAGE, rf"(?m)^\| {re.escape(layout)} \|(.*\|){{4}} {becomes} \|$")


if __name__ == "__main__":
    unittest.main()
