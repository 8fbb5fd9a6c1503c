"""Causal language models of transformers that AutoModelForCausalLM does not know."""
import torch
from transformers import AutoModelForCausalLM, Mistral4ForCausalLM
from transformers.models.muse_glimmer.modeling_muse_glimmer import MuseGlimmerPreTrainedModel, MuseGlimmerTextConfig, MuseGlimmerTextModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class MuseGlimmerForCausalLM(MuseGlimmerPreTrainedModel):
    """The text part of MuseGlimmerForConditionalGeneration, with its head."""
    config_class = MuseGlimmerTextConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.model = MuseGlimmerTextModel(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, past_key_values=None, use_cache=None):
        out = self.model(input_ids=input_ids, past_key_values=past_key_values, use_cache=use_cache)
        cap = self.config.final_logit_softcapping
        logits = torch.tanh(self.lm_head(out.last_hidden_state) * self.config.output_multiplier / cap) * cap
        return CausalLMOutputWithPast(logits=logits, past_key_values=getattr(out, "past_key_values", None) or getattr(out, "cache", None))


OWN = {"mistral4": Mistral4ForCausalLM, "muse_glimmer_text": MuseGlimmerForCausalLM}


def class_of(config):
    return OWN.get(config.model_type) or AutoModelForCausalLM._model_mapping[type(config)]
