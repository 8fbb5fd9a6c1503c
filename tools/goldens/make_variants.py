#!/usr/bin/env python3
"""Makes tests/data/variants: the results of sentence-transformers and transformers for directories with
different settings.

Each row is a directory of tests/data (`base`) and the changes for a copy of it: folders that move (`moves`), JSON files
that are written (`files`), and keys of JSON files that are set (`set`; null removes a key). encoders.json has the
vectors of TEXTS, rankers.json the scores of DOCUMENTS, bidirectional.json the mean over the tokens of a sequence with
is_causal false, for each decoder of tests/data/hf. The tests make the same copies. Each text is computed separately, to
avoid padding.

    pip install -r tools/goldens/requirements.txt sentence-transformers tokenizers
    python tools/goldens/make_variants.py [-o tests/data/variants]
"""
import argparse
import json
import pathlib
import shutil
import tempfile
import warnings

import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer

from makers import write_sidecar

DATA = pathlib.Path(__file__).parents[2] / "tests" / "data"
TEXTS = ["the quick brown fox", "Other WORDS, and the numbers 123! " * 4, ""]
QUERY = "what did the other people say"
DOCUMENTS = ["the quick brown fox", "It was not what they said when people make water.", ""]

LIBRARY = "sentence_transformers.models."
MODEL_FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def modules(*rows, first=""):
    return [{"idx": i, "name": str(i), "path": path, "type": LIBRARY + kind} for i, (path, kind) in enumerate([(first, "Transformer"), *rows])]


def pooling(mode, **options):
    return {"embedding_dimension": 48, "pooling_mode": mode, **options}


POOL, UNIT = ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
DENSE = [("2_Dense", "Dense"), ("3_Dense", "Dense")]
PADS = [("roberta", 3), ("xlm-roberta", 7), ("camembert", 14), ("roberta", None)]  # tokens that occur in no text
ENCODERS = [
    dict(name="another_folder", base="encoders/bert", moves=[["1_Pooling", "how_to_pool"]], files={"modules.json": modules(("how_to_pool", "Pooling"), UNIT)}),
    dict(name="pooling_of_another_folder", base="encoders/bert",
         files={"modules.json": modules(("7_Pooling", "Pooling"), UNIT), "7_Pooling/config.json": pooling("mean")}),
    dict(name="newer_names", base="encoders/bert", files={
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
                         {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}],
        "1_Pooling/config.json": pooling("lasttoken", include_prompt=True),
        "sentence_bert_config.json": {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
                                      "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}}}),
    dict(name="unit_before_dense", base="encoders/gemma_embed", files={"modules.json": modules(POOL, UNIT, *DENSE)}),
    dict(name="unit_between_dense", base="encoders/gemma_embed", files={"modules.json": modules(POOL, DENSE[0], UNIT, DENSE[1])}),
    dict(name="unit_twice", base="encoders/gemma_embed", files={"modules.json": modules(POOL, UNIT, ("3_Normalize", "Normalize"), DENSE[0], UNIT)}),
    dict(name="bent_after_unit", base="encoders/gemma_embed", files={"modules.json": modules(POOL, UNIT, DENSE[0])},
         set={"2_Dense/config.json": {"activation_function": "torch.nn.modules.activation.Tanh"}}),
    *[dict(name=f"without_prompt_{mode}", base="encoders/bert", files={"1_Pooling/config.json": pooling(mode, include_prompt=False)})
      for mode in ("mean", "cls", "lasttoken")],
    dict(name="without_prompt_no_bos", base="encoders/qwen3_embed", files={"1_Pooling/config.json": pooling("mean", include_prompt=False)}),
    dict(name="without_long_prompt", base="encoders/bert", files={"1_Pooling/config.json": pooling("mean", include_prompt=False),
                                                                   "sentence_bert_config.json": {"max_seq_length": 4}}),
    dict(name="short", base="encoders/bert", files={"sentence_bert_config.json": {"max_seq_length": 9, "do_lower_case": False}}),
    dict(name="short_by_tokenizer", base="encoders/qwen3_embed", set={"tokenizer_config.json": {"model_max_length": 11}}),
    dict(name="short_by_old_name", base="encoders/xlm_roberta", files={"sentence_roberta_config.json": {"max_seq_length": 10}}),
    dict(name="lower_case", base="encoders/modern_bert", files={"sentence_bert_config.json": {"do_lower_case": True}}),
    dict(name="lower_case_pieces", base="encoders/xlm_roberta", files={"sentence_bert_config.json": {"do_lower_case": True, "max_seq_length": 60}}),
    dict(name="lower_case_twice", base="encoders/bert", files={"sentence_bert_config.json": {"do_lower_case": True}}),
    dict(name="in_a_folder", base="encoders/bert", moves=[[file, f"0_Transformer/{file}"] for file in MODEL_FILES],
         files={"modules.json": modules(POOL, UNIT, first="0_Transformer"), "0_Transformer/sentence_bert_config.json": {"max_seq_length": 12}}),
    dict(name="beside_another_config", base="encoders/bert", moves=[[file, f"0_BERT/{file}"] for file in MODEL_FILES],
         files={"modules.json": modules(POOL, first="0_BERT"), "config.json": {"__version__": "0.2.0"}}),
    dict(name="default_prompt", base="encoders/nomic_bert", set={"config_sentence_transformers.json": {"default_prompt_name": "query"}}),
    *[dict(name=f"{kind.replace('-', '_')}_pad_{pad}", base="encoders/xlm_roberta",
           set={"config.json": {"model_type": kind, "pad_token_id": pad}, "tokenizer_config.json": {"model_max_length": 50}})
      for kind, pad in PADS],
]

BERT_PAIR = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}


def template(*pair):
    """[CLS] and so on, each with its type, in the form of TemplateProcessing's `pair`."""
    piece = lambda token, kind: {"Sequence": {"id": token, "type_id": kind}} if token in "AB" else {"SpecialToken": {"id": token, "type_id": kind}}
    special = {name: {"id": name, "ids": [token], "tokens": [name]} for name, token in (("[CLS]", 2), ("[SEP]", 3))}
    return {"type": "TemplateProcessing", "single": [piece("[CLS]", 0), piece("A", 0), piece("[SEP]", 0)],
            "pair": [piece(token, kind) for token, kind in pair], "special_tokens": special}


def typed(kind):
    return template(("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", kind), ("[SEP]", kind))


NO_TYPES = {"model_input_names": ["input_ids", "attention_mask"]}
SEP_OF_BYTES = 263  # the last token that the byte tokenizer adds
RANKERS = [
    dict(name="one_type", base="rankers/bert", set={"tokenizer.json": {"post_processor": typed(0)}}),
    dict(name="two_types", base="rankers/bert", set={"tokenizer.json": {"post_processor": typed(1)}}),
    dict(name="bert_processing", base="rankers/bert", set={"tokenizer.json": {"post_processor": BERT_PAIR}}),
    dict(name="roberta_processing", base="rankers/bert", set={"tokenizer.json": {"post_processor": {
        **BERT_PAIR, "type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": False}}}),
    dict(name="types_not_wanted", base="rankers/bert", set={"tokenizer_config.json": NO_TYPES}),
    dict(name="types_not_said", base="rankers/bert", set={"tokenizer_config.json": {"model_input_names": None}}),
    dict(name="types_of_bert", base="rankers/bert", set={"tokenizer_config.json": {"model_input_names": None, "tokenizer_class": "BertTokenizer", "backend": None}}),
    dict(name="short", base="rankers/bert", set={"tokenizer_config.json": {"model_max_length": 12}}),
    dict(name="ends_with_pad", base="rankers/qwen3_score", set={"config.json": {"pad_token_id": SEP_OF_BYTES}}),
    dict(name="ends_with_pad_and_sees_both_sides", base="rankers/qwen3_score", set={"config.json": {"pad_token_id": SEP_OF_BYTES, "is_causal": False}}),
    dict(name="pad_not_said", base="rankers/qwen3_score", set={"config.json": {"pad_token_id": None}}),
]


def copy_of(row, folder):
    """The directory of a row; the test makes the same copy."""
    shutil.copytree(DATA / row["base"], folder)
    for old, new in row.get("moves", []):
        (folder / new).parent.mkdir(exist_ok=True)
        (folder / old).rename(folder / new)
    for name, value in row.get("files", {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    for name, keys in row.get("set", {}).items():
        value = json.loads((folder / name).read_text()) | keys
        (folder / name).write_text(json.dumps({k: v for k, v in value.items() if v is not None}))
    return folder


def rounded(rows):
    return [[round(float(x), 6) for x in row] for row in rows]


def encoder_row(row, folder):
    for module in json.loads((folder / "modules.json").read_text()):
        (folder / module["path"]).mkdir(exist_ok=True)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    ids = {i for text in TEXTS for i in model.tokenizer("the query: " + text)["input_ids"]}
    assert row.get("set", {}).get("config.json", {}).get("pad_token_id") not in ids, sorted(set(range(20)) - ids)
    return {"vectors": {"": rounded(model.encode(TEXTS, batch_size=1)), "query": rounded(model.encode(TEXTS, batch_size=1, prompt_name="query"))},
            "max_tokens": model.max_seq_length}


def ranker_row(row, folder):
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    return {"scores": [round(float(x), 7) for x in model.predict([(QUERY, d) for d in DOCUMENTS], batch_size=1)]}


@torch.inference_mode()
def bidirectional_row(folder):
    config = transformers.AutoConfig.from_pretrained(folder).get_text_config()
    config.is_causal = False
    model = transformers.AutoModel.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    ids = np.random.default_rng(5000).integers(10, min(config.vocab_size, 100), 40).tolist()
    hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return {"name": folder.name, "sequence": ids, "mean": rounded([hidden.mean(0)])[0]}


def has_attention_alone(folder):
    config = json.loads((folder / "config.json").read_text())
    return "linear_attention" not in config.get("layer_types", []) and "rope_scaling" not in config


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=pathlib.Path, default=DATA / "variants")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    out.mkdir(exist_ok=True)
    about = {"transformers": transformers.__version__}
    for file, rows, run, given in (("encoders", ENCODERS, encoder_row, {"texts": TEXTS}),
                                   ("rankers", RANKERS, ranker_row, {"query": QUERY, "documents": DOCUMENTS})):
        done = []
        for row in rows:
            with tempfile.TemporaryDirectory() as scratch:
                done.append(row | run(row, copy_of(row, pathlib.Path(scratch) / "model")))
        write_sidecar(out / f"{file}.json", {**about, **given, "rows": done})
    rows = [bidirectional_row(folder) for folder in sorted((DATA / "hf").iterdir()) if has_attention_alone(folder)]
    write_sidecar(out / "bidirectional.json", {**about, "rows": rows})


if __name__ == "__main__":
    main()
