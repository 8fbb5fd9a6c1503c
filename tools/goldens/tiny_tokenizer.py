"""The tokenizer of the tiny models: GPT-2's bytes, some merges, and two control tokens."""
import tokenizers
import transformers


def byte_tokens():
    """GPT-2's printable spelling of the 256 bytes, in its order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def token_list(vocab):
    """256 bytes, as many merges as fit, <|bos|> and <|eos|>: exactly `vocab` tokens -> (tokens, merges)."""
    merges = ["Ġ t", "h e", "Ġt he", "i n", "Ġ a", "e r", "o n", "r e", "n d", "Ġ s", "Ġa nd", "i t", "i s", "a t",
              "in g", "e n", "o r", "Ġ o", "Ġo f"][:vocab - 258]
    tokens = byte_tokens() + [m.replace(" ", "") for m in merges] + ["<|bos|>", "<|eos|>"]
    assert len(tokens) == vocab == len(set(tokens))
    return tokens, merges


def hf_tokenizer(vocab):
    """The tokenizer of add_tokenizer(), as an object of the tokenizers package."""
    tokens, merges = token_list(vocab)
    model = tokenizers.models.BPE({t: i for i, t in enumerate(tokens[:-2])}, [tuple(m.split()) for m in merges])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(tokens[-2:])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=tokens[-2], eos_token=tokens[-1])
    fast.chat_template = "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    return fast
