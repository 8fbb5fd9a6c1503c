"""docs/models.md has a row for every tiny model, and every architecture of the table has a tiny model, except
architectures that are another name of one. Models that embed or rank have separate tables."""
import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(os.environ.get("INGOT_SOURCE", pathlib.Path(__file__).parents[2]))
PAGE = (ROOT / "docs" / "models.md").read_text()
# The same as deepseek_v3, qwen2, mistral, and the texts of qwen2_5_vl, of qwen2 and of qwen3_vl_moe, except for the name.
SAME = {"kimi_k2", "mimo", "ministral", "qwen2_vl_text", "qwen2_5_omni_text", "qwen3_omni_moe_text"}
EMBEDS = {"gemma-embedding": "gemma_embed", "bert": "bert", "nomic-bert": "nomic_bert", "modern-bert": "modern_bert"}
ONLY_DIRECTORIES = {"zamba2": "Zamba 2"}  # without a GGUF form, described in words


class ModelsTable(unittest.TestCase):
    def test_every_model_has_a_row(self):
        models = sorted((ROOT / "tests" / "data" / "models").glob("*.json"))
        self.assertGreater(len(models), 30)
        for path in models:
            self.assertRegex(PAGE, rf"(?m)^\| {path.stem} \|(.*\|){{6}}$")

    def test_every_encoder_and_ranker_has_a_row(self):
        for folder, columns in (("encoders", 7), ("rankers", 4)):
            models = sorted((ROOT / "tests" / "data" / folder).glob("*.json"))
            self.assertGreater(len(models), 3)
            for path in models:
                self.assertRegex(PAGE, rf"(?m)^\| {path.stem} \|([^|]*\|){{{columns}}}$")

    def test_every_architecture_has_a_row(self):
        rows = re.findall(r'\{\.gguf_name = "([^"]+)", \.hf_name = "([^"]+)"', (ROOT / "src" / "model" / "config" / "arch.cc").read_text())
        self.assertGreater(len(rows), 15)
        for gguf, hf in rows:
            if gguf in EMBEDS:
                self.assertRegex(PAGE, rf"(?m)^\| {EMBEDS[gguf]} \|(.*\|){{7}}$")
                continue
            if gguf in ONLY_DIRECTORIES:
                self.assertIn(f"- **{ONLY_DIRECTORIES[gguf]}** ", PAGE)
                continue
            self.assertRegex(PAGE, rf"(?m)^\| \w+ \| {re.escape(gguf)} \|")
            if hf not in SAME:
                self.assertRegex(PAGE, rf"(?m)^\|(.*\|){{5}} {hf} \|[^|]*\|$")


if __name__ == "__main__":
    unittest.main()
