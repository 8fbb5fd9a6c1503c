"""The grids of the IQ formats in src/quant/grids equal those that tools/quant_tables/make.py makes from the gguf
package."""
import hashlib
import importlib.util
import os
import pathlib
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
GRIDS = ROOT / "src" / "quant" / "grids"
# The digest of all files in the order of their names, made with gguf 0.19.0.
DIGEST = "92d61013dbbf94d8ff3661755cc3ba15547058c39e3326df3c62003ada8cbdf9"


class QuantTables(unittest.TestCase):
    def test_are_unchanged(self):
        digest = hashlib.sha256()
        for path in sorted(GRIDS.iterdir()):
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
        self.assertEqual(digest.hexdigest(), DIGEST)

    @unittest.skipUnless(importlib.util.find_spec("gguf"), "needs the gguf package")
    def test_are_what_the_script_makes(self):
        spec = importlib.util.spec_from_file_location("make", ROOT / "tools" / "quant_tables" / "make.py")
        make = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(make)
        self.assertEqual(sorted(path.stem for path in GRIDS.iterdir()), sorted(make.GRIDS))
        for name, kind in make.GRIDS.items():
            self.assertEqual((GRIDS / f"{name}.inc").read_text(), make.table_text(name, kind), name)


if __name__ == "__main__":
    unittest.main()
