"""Causal language models of transformers that AutoModelForCausalLM does not know."""
import torch
from transformers import AutoModelForCausalLM, Mistral4ForCausalLM
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLPreTrainedModel, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLPreTrainedModel, Qwen3VLTextConfig, Qwen3VLTextModel
from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import Qwen3VLMoePreTrainedModel, Qwen3VLMoeTextConfig, Qwen3VLMoeTextModel
from transformers.models.muse_glimmer.modeling_muse_glimmer import MuseGlimmerPreTrainedModel, MuseGlimmerTextConfig, MuseGlimmerTextModel
from transformers.modeling_outputs import CausalLMOutputWithPast


def text_model(base, config_type, text):
    """The text part of a model that also reads images, with its head."""
    class TextForCausalLM(base):
        config_class = config_type
        base_model_prefix = "model"

        def __init__(self, config):
            super().__init__(config)
            self.model = text(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.post_init()

        def forward(self, input_ids, past_key_values=None, use_cache=None):
            out = self.model(input_ids=input_ids, past_key_values=past_key_values, use_cache=use_cache)
            logits = self.lm_head(out.last_hidden_state)
            if cap := getattr(self.config, "final_logit_softcapping", None):
                logits = torch.tanh(logits * self.config.output_multiplier / cap) * cap
            return CausalLMOutputWithPast(logits=logits, past_key_values=getattr(out, "past_key_values", None) or getattr(out, "cache", None))

    return TextForCausalLM


OWN = {"mistral4": Mistral4ForCausalLM,
       "muse_glimmer_text": text_model(MuseGlimmerPreTrainedModel, MuseGlimmerTextConfig, MuseGlimmerTextModel),
       "qwen2_5_vl_text": text_model(Qwen2_5_VLPreTrainedModel, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel),
       "qwen3_vl_text": text_model(Qwen3VLPreTrainedModel, Qwen3VLTextConfig, Qwen3VLTextModel),
       "qwen3_vl_moe_text": text_model(Qwen3VLMoePreTrainedModel, Qwen3VLMoeTextConfig, Qwen3VLMoeTextModel)}


def class_of(config):
    return OWN.get(config.model_type) or AutoModelForCausalLM._model_mapping[type(config)]
