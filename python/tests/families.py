# SPDX-License-Identifier: Apache-2.0
"""Model families of transformers, tiny and with random weights: {kind: {name: function}}.

Each function returns a model and a function that makes a batch from a generator. The models are as transformers
makes them from a configuration: attention, experts and scans are those it chooses. Dropout is on wherever a family
has it. Batches are large beside the layers, so that activations outweigh the parameters, as in real training.
"""

import torch
import transformers
from transformers import AutoConfig

BATCH = 8
LENGTH = 64
VOCABULARY = 300
IMAGE = 64
CLASSES = 10

transformers.logging.set_verbosity_error()


def _model(head, model_type, **config):
    return getattr(transformers, head).from_config(AutoConfig.for_model(model_type, **config))


def _tokens(generator, length=LENGTH):
    # Small ids are padding and other special tokens in many families.
    return torch.randint(5, VOCABULARY, (BATCH, length), generator=generator)


def _mask(length):
    """Hides the end of the first sequence."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[0, -length // 4 :] = 0
    return mask


def _text(head, model_type, length=LENGTH, masked=True, **config):
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "vocab_size": VOCABULARY}
    model = _model(head, model_type, **{**special, **config})

    def make_batch(generator):
        batch = {"input_ids": _tokens(generator, length), "labels": _tokens(generator, length)}
        return {**batch, "attention_mask": _mask(length)} if masked else batch

    return model, make_batch


def _encoder(model_type, **config):
    return _text("AutoModelForMaskedLM", model_type, **config)


def _decoder(model_type, **config):
    return _text("AutoModelForCausalLM", model_type, **config)


def _encoder_decoder(model_type, **config):
    return _text("AutoModelForSeq2SeqLM", model_type, length=32, decoder_start_token_id=0, **config)


def _sentence(model_type, **config):
    """One class for each sequence."""
    model = _model("AutoModelForSequenceClassification", model_type, num_labels=CLASSES, **config)

    def make_batch(generator):
        return {"input_ids": _tokens(generator), "attention_mask": _mask(LENGTH), "labels": _classes(generator)}

    return model, make_batch


def _images(generator, size=IMAGE):
    return torch.randn(BATCH, 3, size, size, generator=generator)


def _classes(generator):
    return torch.randint(0, CLASSES, (BATCH,), generator=generator)


def _vision(model_type, size=IMAGE, **config):
    model = _model("AutoModelForImageClassification", model_type, num_labels=CLASSES, **config)
    return model, lambda generator: {"pixel_values": _images(generator, size), "labels": _classes(generator)}


def _segmentation(model_type, **config):
    model = _model("AutoModelForSemanticSegmentation", model_type, num_labels=CLASSES, **config)

    def make_batch(generator):
        labels = torch.randint(0, CLASSES, (BATCH, IMAGE, IMAGE), generator=generator)
        return {"pixel_values": _images(generator), "labels": labels}

    return model, make_batch


def _masked_images(model_type, **config):
    """Pretraining from images with most patches hidden; the model draws which."""
    model = _model("AutoModelForPreTraining", model_type, **config)
    return model, lambda generator: {"pixel_values": _images(generator)}


def _speech(model_type, **config):
    """Waveforms with CTC. Spans of time are masked, drawn by numpy; layers are skipped at random."""
    convolutions = dict(conv_dim=(32, 32, 32), conv_stride=(5, 4, 4), conv_kernel=(10, 4, 4))
    model = _model(
        "AutoModelForCTC", model_type, vocab_size=32, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        mask_time_prob=0.2, mask_time_length=4, ctc_zero_infinity=True, **convolutions, **config,
    )

    def make_batch(generator):
        waves = torch.randn(BATCH, 4000, generator=generator)
        return {"input_values": waves, "labels": torch.randint(1, 32, (BATCH, 10), generator=generator)}

    return model, make_batch


def _whisper():
    config = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    model = _model(
        "AutoModelForSpeechSeq2Seq", "whisper", **config, encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=20,
        max_source_positions=50, max_target_positions=LENGTH, vocab_size=VOCABULARY, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=0, begin_suppress_tokens=None, dropout=0.1, attention_dropout=0.1,
        apply_spec_augment=True, mask_time_prob=0.2, mask_time_length=4,
    )

    def make_batch(generator):
        features = torch.randn(BATCH, 20, 100, generator=generator)
        return {"input_features": features, "labels": _tokens(generator, 32)}

    return model, make_batch


def _spectrogram():
    model = _model(
        "AutoModelForAudioClassification", "audio-spectrogram-transformer", **_LAYERS, **_DROPOUT, num_labels=CLASSES,
        max_length=96, num_mel_bins=32, patch_size=8, frequency_stride=6, time_stride=6,
    )

    def make_batch(generator):
        return {"input_values": torch.randn(BATCH, 96, 32, generator=generator), "labels": _classes(generator)}

    return model, make_batch


def _image_and_text(model_type, length=32, **extra):
    text = dict(**_LAYERS, vocab_size=VOCABULARY, max_position_embeddings=length, attention_dropout=0.1)
    text.update(pad_token_id=1, bos_token_id=0, eos_token_id=2, projection_dim=32)
    vision = dict(**_LAYERS, image_size=IMAGE, patch_size=8, attention_dropout=0.1, projection_dim=32)
    config = AutoConfig.for_model(model_type, text_config=text, vision_config=vision, **extra)
    model = transformers.AutoModel.from_config(config)

    def make_batch(generator):
        tokens = _tokens(generator, length)
        tokens[:, -1] = 2  # the text is read at its end
        return {"input_ids": tokens, "pixel_values": _images(generator), "return_loss": True}

    return model, make_batch


def _llava():
    vision = transformers.CLIPVisionConfig(**_LAYERS, image_size=32, patch_size=8)
    text = transformers.LlamaConfig(vocab_size=VOCABULARY, **_LLAMA)
    image_token = 4
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=image_token, vision_feature_layer=-1
    )

    def make_batch(generator):
        tokens = _tokens(generator, 48)
        labels = tokens.clone()
        tokens[:, :16] = image_token
        labels[:, :16] = -100
        return {"input_ids": tokens, "pixel_values": _images(generator, 32), "labels": labels}

    return transformers.LlavaForConditionalGeneration(config), make_batch


def _captions():
    """A decoder of text over an encoder of images."""
    special = dict(vocab_size=VOCABULARY, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    decoder = transformers.GPT2Config(add_cross_attention=True, **special, **_GPT2)
    encoder = transformers.ViTConfig(**_VIT)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.pad_token_id = 1
    config.decoder_start_token_id = 0
    model = transformers.VisionEncoderDecoderModel(config=config)
    return model, lambda generator: {"pixel_values": _images(generator), "labels": _tokens(generator, 32)}


def _speech_to_text():
    layers = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    model = _model(
        "AutoModelForSpeechSeq2Seq", "speech_to_text", **layers, encoder_ffn_dim=128, decoder_ffn_dim=128,
        input_feat_per_channel=20, conv_channels=64, max_source_positions=100, max_target_positions=LENGTH,
        vocab_size=VOCABULARY, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=0,
    )

    def make_batch(generator):
        features = torch.randn(BATCH, 100, 20, generator=generator)
        return {"input_features": features, "labels": _tokens(generator, 32)}

    return model, make_batch


def _video(model_type, size=32, frames=4, **config):
    config = {**_VIT, **config, "image_size": size, "num_labels": CLASSES}
    model = _model("AutoModelForVideoClassification", model_type, **config)

    def make_batch(generator):
        clips = torch.randn(BATCH, frames, 3, size, size, generator=generator)
        return {"pixel_values": clips, "labels": _classes(generator)}

    return model, make_batch


def _series(family, batch=32, past=32, future=8):
    """Forecasts of one number and two features of the time."""
    lags = [1, 2, 3]
    config = getattr(transformers, f"{family}Config")(
        prediction_length=future, context_length=past, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=64, decoder_ffn_dim=64, lags_sequence=lags, num_time_features=2, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    model = getattr(transformers, f"{family}ForPrediction")(config)
    seen = past + max(lags)

    def make_batch(generator):
        return {
            "past_values": torch.randn(batch, seen, generator=generator),
            "past_time_features": torch.randn(batch, seen, 2, generator=generator),
            "past_observed_mask": torch.ones(batch, seen),
            "future_values": torch.randn(batch, future, generator=generator),
            "future_time_features": torch.randn(batch, future, 2, generator=generator),
        }

    return model, make_batch


def _patches_of_series():
    config = transformers.PatchTSTConfig(
        num_input_channels=4, context_length=64, patch_length=8, patch_stride=8, prediction_length=16, d_model=64,
        num_hidden_layers=2, ffn_dim=128, num_attention_heads=4, ff_dropout=0.1, attention_dropout=0.1,
    )

    def make_batch(generator):
        past = torch.randn(16, 64, 4, generator=generator)
        return {"past_values": past, "future_values": torch.randn(16, 16, 4, generator=generator)}

    return transformers.PatchTSTForPrediction(config), make_batch


def _perceiver():
    return _text(
        "AutoModelForMaskedLM", "perceiver", num_latents=32, d_latents=64, d_model=64, num_self_attends_per_block=2,
        num_self_attention_heads=4, num_cross_attention_heads=4, qk_channels=64, v_channels=64,
        max_position_embeddings=LENGTH,
    )


def _experts(model_type, head="AutoModelForCausalLM", **config):
    """Every token goes to two of four experts; the loss that balances them is on."""
    return _text(head, model_type, num_experts_per_tok=2, output_router_logits=True, **_LLAMA, **config)


def _looped_experts(model_type, **config):
    """The same as a loop over the experts that were hit, with as many rows as tokens chose each."""
    model, make_batch = _experts(model_type, **config)
    model.set_experts_implementation("eager")
    return model, make_batch


_LAYERS = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
_POSITIONS = dict(max_position_embeddings=LENGTH + 4)
_DROPOUT = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
_BERT = dict(**_LAYERS, **_POSITIONS, **_DROPOUT)
_LLAMA = dict(**_LAYERS, **_POSITIONS, num_key_value_heads=2, attention_dropout=0.1)
_NEOX = dict(**_LAYERS, **_POSITIONS, attention_dropout=0.1, hidden_dropout=0.1)
_GPT2 = dict(n_embd=64, n_layer=2, n_head=4, n_positions=LENGTH)
_T5 = dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
_BART = dict(
    d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=LENGTH, attention_dropout=0.1,
)
_VIT = dict(**_LAYERS, **_DROPOUT, image_size=IMAGE, patch_size=8)
_PYRAMID = dict(hidden_sizes=(16, 32, 48, 64), depths=(2, 2, 3, 2))

ENCODERS = {
    "bert": lambda: _encoder("bert", **_BERT),
    "roberta": lambda: _encoder("roberta", **_BERT),
    "distilbert": lambda: _encoder("distilbert", dim=64, n_layers=2, n_heads=4, hidden_dim=128, **_POSITIONS),
    "albert": lambda: _encoder("albert", embedding_size=32, **_BERT),  # all layers are one
    "electra": lambda: _encoder("electra", embedding_size=32, **_BERT),
    "deberta": lambda: _encoder("deberta", relative_attention=True, pos_att_type=["c2p", "p2c"], **_BERT),
    "deberta-v2": lambda: _encoder(
        "deberta-v2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16, share_att_key=True,
        norm_rel_ebd="layer_norm", conv_kernel_size=3, conv_act="gelu", **_BERT,
    ),
    "mpnet": lambda: _encoder("mpnet", **_BERT),
    "modernbert": lambda: _encoder(
        "modernbert", **_LAYERS, **_POSITIONS, cls_token_id=3, sep_token_id=4, local_attention=16,
        attention_dropout=0.1, mlp_dropout=0.1, embedding_dropout=0.1,
    ),
    "xlm-roberta": lambda: _encoder("xlm-roberta", **_BERT),
    "convbert": lambda: _encoder("convbert", embedding_size=64, **_BERT),
    "esm": lambda: _encoder("esm", position_embedding_type="rotary", mask_token_id=4, **_BERT),
    "squeezebert": lambda: _encoder("squeezebert", embedding_size=64, **_BERT),
    "roformer": lambda: _encoder("roformer", embedding_size=64, **_BERT),
    "funnel": lambda: _encoder(
        "funnel", block_sizes=[1, 1], d_model=64, n_head=4, d_head=16, d_inner=128, num_decoder_layers=1,
    ),
    "mobilebert": lambda: _encoder(
        "mobilebert", embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32, num_feedforward_networks=2,
        **_BERT,
    ),
    "yoso": lambda: _encoder("yoso", **_BERT),  # attends by hashing
    "mra": lambda: _encoder("mra", block_per_row=2, **_BERT),
    "xlm": lambda: _encoder("xlm", emb_dim=64, n_layers=2, n_heads=4, **_POSITIONS),
    "canine": lambda: _sentence(  # characters, hashed
        "canine", num_hash_buckets=64, downsampling_rate=4, local_transformer_stride=16,
        **{**_BERT, "max_position_embeddings": LENGTH},
    ),
}

DECODERS = {
    "gpt2": lambda: _decoder("gpt2", **_GPT2),
    "gpt-neo": lambda: _decoder(
        "gpt_neo", hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], **_POSITIONS,
        window_size=16, resid_dropout=0.1, embed_dropout=0.1, attention_dropout=0.1,
    ),
    "gpt-neox": lambda: _decoder("gpt_neox", **_NEOX),
    "gpt-j": lambda: _decoder("gptj", rotary_dim=8, resid_pdrop=0.1, attn_pdrop=0.1, embd_pdrop=0.1, **_GPT2),
    "opt": lambda: _decoder("opt", ffn_dim=128, word_embed_proj_dim=64, dropout=0.1, **_LAYERS, **_POSITIONS),
    "llama": lambda: _decoder("llama", **_LLAMA),
    "mistral": lambda: _decoder("mistral", sliding_window=16, **_LLAMA),
    "qwen2": lambda: _decoder("qwen2", **_LLAMA),
    "qwen3": lambda: _decoder("qwen3", head_dim=16, **_LLAMA),
    "gemma": lambda: _decoder("gemma", head_dim=16, **_LLAMA),
    "gemma2": lambda: _decoder("gemma2", head_dim=16, sliding_window=16, **_LLAMA),
    "gemma3": lambda: _decoder("gemma3_text", head_dim=16, sliding_window=16, **_LLAMA),
    "phi": lambda: _decoder("phi", resid_pdrop=0.1, embd_pdrop=0.1, **_LLAMA),
    "phi3": lambda: _decoder("phi3", resid_pdrop=0.1, embd_pdrop=0.1, **_LLAMA),
    "falcon": lambda: _decoder("falcon", **_NEOX),
    "bloom": lambda: _decoder("bloom", hidden_size=64, n_layer=2, n_head=4, hidden_dropout=0.1, attention_dropout=0.1),
    "stablelm": lambda: _decoder("stablelm", hidden_dropout=0.1, **_LLAMA),
    "olmo": lambda: _decoder("olmo", **_LLAMA),
    "olmo2": lambda: _decoder("olmo2", **_LLAMA),
    "cohere": lambda: _decoder("cohere", **_LLAMA),
    "granite": lambda: _decoder("granite", **_LLAMA),
    "starcoder2": lambda: _decoder("starcoder2", residual_dropout=0.1, embedding_dropout=0.1, **_LLAMA),
    "mpt": lambda: _decoder("mpt", d_model=64, n_heads=4, n_layers=2, max_seq_len=LENGTH, resid_pdrop=0.1),
    "codegen": lambda: _decoder(
        "codegen", rotary_dim=8, n_ctx=LENGTH, resid_pdrop=0.1, attn_pdrop=0.1, embd_pdrop=0.1, **_GPT2
    ),
    "openai-gpt": lambda: _decoder("openai-gpt", **_GPT2),
    "ctrl": lambda: _decoder("ctrl", n_embd=64, n_layer=2, n_head=4, dff=128, n_positions=LENGTH),
    "xglm": lambda: _decoder(  # skips layers at random
        "xglm", d_model=64, ffn_dim=128, num_layers=2, attention_heads=4, layerdrop=0.1, **_POSITIONS
    ),
    "gpt-bigcode": lambda: _decoder("gpt_bigcode", **_GPT2),
    "nemotron": lambda: _decoder("nemotron", **_LLAMA),
    "lfm2": lambda: _decoder("lfm2", layer_types=["conv", "full_attention"], **_LLAMA),
}

ENCODER_DECODERS = {
    "t5": lambda: _encoder_decoder("t5", **_T5),
    "mt5": lambda: _encoder_decoder("mt5", **_T5),
    "bart": lambda: _encoder_decoder("bart", **_BART),
    "mbart": lambda: _encoder_decoder("mbart", **_BART),
    "marian": lambda: _encoder_decoder("marian", **_BART),
    "pegasus": lambda: _encoder_decoder("pegasus", **_BART),
    "blenderbot-small": lambda: _encoder_decoder("blenderbot-small", **_BART),
    "led": lambda: _encoder_decoder(
        "led", attention_window=8, max_encoder_position_embeddings=LENGTH, max_decoder_position_embeddings=LENGTH,
        **{key: value for key, value in _BART.items() if key != "max_position_embeddings"},
    ),
    "longt5": lambda: _encoder_decoder(
        "longt5", local_radius=7, encoder_attention_type="transient-global", global_block_size=4, **_T5
    ),
    "pegasus-x": lambda: _encoder_decoder("pegasus_x", block_size=8, num_global_tokens=4, **_BART),
    "m2m-100": lambda: _encoder_decoder("m2m_100", **_BART),
    "prophetnet": lambda: _encoder_decoder(
        "prophetnet", hidden_size=64, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
        num_decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=LENGTH,
    ),
}

VISION = {
    "vit": lambda: _vision("vit", **_VIT),
    "vit-mae": lambda: _masked_images(
        "vit_mae", decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=4,
        decoder_intermediate_size=64, **_VIT,
    ),
    "deit": lambda: _vision("deit", architectures=["DeiTForImageClassification"], **_VIT),
    "beit": lambda: _vision("beit", use_relative_position_bias=True, drop_path_rate=0.2, **_VIT),
    "dinov2": lambda: _vision("dinov2", drop_path_rate=0.2, **_VIT),
    "swin": lambda: _vision(
        "swin", image_size=IMAGE, embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4, drop_path_rate=0.2,
        **_DROPOUT,
    ),
    "convnext": lambda: _vision("convnext", drop_path_rate=0.2, **_PYRAMID),
    "convnextv2": lambda: _vision("convnextv2", drop_path_rate=0.2, **_PYRAMID),
    "resnet": lambda: _vision(
        "resnet", embedding_size=8, hidden_sizes=(64, 64, 64, 64), depths=(2, 2, 2, 2)
    ),
    "regnet": lambda: _vision("regnet", embedding_size=16, groups_width=8, **_PYRAMID),
    "mobilenet-v2": lambda: _vision("mobilenet_v2", depth_multiplier=0.25, image_size=IMAGE),
    "efficientnet": lambda: _vision(
        "efficientnet", image_size=IMAGE, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320,
        drop_connect_rate=0.2, dropout_rate=0.2,
    ),
    "mobilevit": lambda: _vision(
        "mobilevit", image_size=IMAGE, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64],
        **_DROPOUT,
    ),
    "poolformer": lambda: _vision("poolformer", drop_path_rate=0.2, **_PYRAMID),
    "segformer": lambda: _segmentation(
        "segformer", depths=(1, 1, 1, 1), hidden_sizes=(8, 16, 32, 32), num_attention_heads=(1, 2, 2, 2),
        mlp_ratios=(2, 2, 2, 2), decoder_hidden_size=32, drop_path_rate=0.2, **_DROPOUT,
    ),
    "swinv2": lambda: _vision(
        "swinv2", image_size=IMAGE, embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4, drop_path_rate=0.2,
        **_DROPOUT,
    ),
    "hiera": lambda: _vision(
        "hiera", image_size=[IMAGE, IMAGE], embed_dim=16, depths=[1, 1, 1], num_heads=[1, 2, 4], query_stride=[2, 2],
        masked_unit_size=[4, 4], num_query_pool=2, drop_path_rate=0.2,
    ),
    "focalnet": lambda: _vision(
        "focalnet", image_size=IMAGE, embed_dim=16, depths=[1, 2], focal_levels=[2, 2], focal_windows=[3, 3],
        drop_path_rate=0.2,
    ),
    "bit": lambda: _vision(
        "bit", embedding_size=16, hidden_sizes=[32, 32, 64, 64], depths=[1, 1, 2, 1], num_groups=8, drop_path_rate=0.2
    ),
    "videomae": lambda: _video("videomae", num_frames=4, tubelet_size=2),
}

AUDIO = {
    "wav2vec2": lambda: _speech("wav2vec2", **_LAYERS),
    "hubert": lambda: _speech("hubert", **_LAYERS),
    "wavlm": lambda: _speech("wavlm", **_LAYERS),
    "whisper": _whisper,
    "ast": _spectrogram,
    "wav2vec2-conformer": lambda: _speech(
        "wav2vec2-conformer", layerdrop=0.0, apply_spec_augment=False, **_LAYERS
    ),
    "speech-to-text": _speech_to_text,
}

MULTIMODAL = {
    "clip": lambda: _image_and_text("clip", projection_dim=32),
    "siglip": lambda: _image_and_text("siglip"),
    "llava": _llava,
    "captions": _captions,
}

STATE_SPACE = {
    "mamba": lambda: _decoder("mamba", length=32, hidden_size=64, num_hidden_layers=2, state_size=8),
    "mamba2": lambda: _decoder(
        "mamba2", hidden_size=64, num_hidden_layers=2, state_size=8, num_heads=8, head_dim=16, n_groups=2, chunk_size=16
    ),
    "rwkv": lambda: _decoder(
        "rwkv", masked=False, length=32, hidden_size=64, num_hidden_layers=2, context_length=LENGTH
    ),
    "recurrent-gemma": lambda: _decoder(
        "recurrent_gemma", length=32, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        lru_width=64, attention_window_size=16,
    ),
    "jamba": lambda: _decoder(
        "jamba", length=32, num_experts=4, num_experts_per_tok=2, attn_layer_period=2, attn_layer_offset=1,
        mamba_d_state=8, mamba_dt_rank=4, use_mamba_kernels=False, output_router_logits=True, **_LLAMA,
    ),
    "falcon-mamba": lambda: _decoder("falcon_mamba", length=32, hidden_size=64, num_hidden_layers=2, state_size=8),
    "zamba2": lambda: _decoder(
        "zamba2", length=32, hidden_size=64, num_hidden_layers=2, mamba_d_state=8, mamba_headdim=16, n_mamba_heads=8,
        chunk_size=16, num_attention_heads=4, num_key_value_heads=4, layers_block_type=["mamba", "hybrid"],
        num_mem_blocks=1, intermediate_size=128, use_mamba_kernels=False,
    ),
    "qwen3-next": lambda: _experts(  # a gated delta rule, and experts
        "qwen3_next", num_experts=4, moe_intermediate_size=64, shared_expert_intermediate_size=64, head_dim=16,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
        layer_types=["linear_attention", "full_attention"],
    ),
}

MIXTURES_OF_EXPERTS = {
    "mixtral": lambda: _experts("mixtral", num_local_experts=4),
    "mixtral-looped": lambda: _looped_experts("mixtral", num_local_experts=4),
    "qwen2-moe": lambda: _experts(
        "qwen2_moe", num_experts=4, moe_intermediate_size=64, shared_expert_intermediate_size=64
    ),
    "qwen3-moe": lambda: _experts("qwen3_moe", num_experts=4, moe_intermediate_size=64, head_dim=16),
    "olmoe": lambda: _experts("olmoe", num_experts=4),
    "olmoe-looped": lambda: _looped_experts("olmoe", num_experts=4),
    "granitemoe": lambda: _experts("granitemoe", num_local_experts=4),
    "deepseek-v3": lambda: _decoder(
        "deepseek_v3", n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=64,
        first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
        **{**_LLAMA, "num_key_value_heads": 4},
    ),
    "gpt-oss": lambda: _decoder(
        "gpt_oss", num_local_experts=4, num_experts_per_tok=2, head_dim=16, sliding_window=16,
        output_router_logits=True, **_LLAMA,
    ),
    "switch": lambda: _encoder_decoder(
        "switch_transformers", num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_decoder_layers=2,
        num_experts=4, expert_capacity=16, **_T5,
    ),
    "nllb-moe": lambda: _encoder_decoder(
        "nllb-moe", num_experts=4, expert_capacity=32, encoder_sparse_step=2, decoder_sparse_step=2, **_BART
    ),
    "jetmoe": lambda: _decoder(
        "jetmoe", num_local_experts=4, num_experts_per_tok=2, kv_channels=16, hidden_size=64, num_hidden_layers=2,
        num_key_value_heads=2, intermediate_size=128, output_router_logits=True, **_POSITIONS,
    ),
    "phimoe": lambda: _experts("phimoe", num_local_experts=4, router_jitter_noise=0.01, input_jitter_noise=0.01),
    "minimax": lambda: _experts("minimax", num_local_experts=4, head_dim=16, block_size=16),
    "llama4": lambda: _decoder(  # rotates complex numbers
        "llama4_text", num_local_experts=4, num_experts_per_tok=1, intermediate_size_mlp=128, head_dim=16,
        interleave_moe_layer_step=1, attention_chunk_size=32, **_LLAMA,
    ),
}

OTHERS = {
    "xlnet": lambda: _decoder("xlnet", d_model=64, n_layer=2, n_head=4, d_inner=128),
    "perceiver": _perceiver,
    "longformer": lambda: _encoder("longformer", attention_window=16, **_BERT),
    "big-bird": lambda: _encoder(  # attends to blocks that numpy draws
        "big_bird", length=128, block_size=8, num_random_blocks=2, sep_token_id=4,
        **{**_BERT, "max_position_embeddings": 128},
    ),
    "fnet": lambda: _text(  # mixes tokens with a Fourier transform: complex numbers
        "AutoModelForMaskedLM", "fnet", masked=False, hidden_dropout_prob=0.1, hidden_size=64, num_hidden_layers=2,
        intermediate_size=128, **_POSITIONS,
    ),
    "reformer": lambda: _encoder(
        "reformer", attention_head_size=16, attn_layers=["local", "local"], axial_pos_shape=[8, 8],
        axial_pos_embds_dim=[32, 32], feed_forward_size=128, hidden_size=64, num_attention_heads=4, is_decoder=False,
        local_attn_chunk_length=16, hidden_dropout_prob=0.1, local_attention_probs_dropout_prob=0.1,
    ),
    "time-series": lambda: _series("TimeSeriesTransformer"),
    "informer": lambda: _series("Informer"),
    "autoformer": lambda: _series("Autoformer"),  # correlates by Fourier transforms: complex numbers
    "patchtst": _patches_of_series,
}

KINDS = {
    "encoder": ENCODERS,
    "decoder": DECODERS,
    "encoder-decoder": ENCODER_DECODERS,
    "vision": VISION,
    "audio": AUDIO,
    "multimodal": MULTIMODAL,
    "state-space": STATE_SPACE,
    "experts": MIXTURES_OF_EXPERTS,
    "other": OTHERS,
}

# Families that the library runs plainly, with a notice, and why. The table of all families shows the reason.
_ROUTED = "the rows of each expert are found by nonzero(): shapes differ at every step"
_MASKED = "as many rows as a random mask has, and layers that are dropped at random: shapes and ops differ at every step"
RUN_PLAINLY = {
    "reformer": "its forward sets the generator's seed, to a number from the system: no two plain loops agree either",
    **dict.fromkeys(["mixtral-looped", "olmoe-looped", "switch", "nllb-moe", "jetmoe"], _ROUTED),
    **dict.fromkeys(["wav2vec2", "hubert", "wavlm"], _MASKED),
    "autoformer": "shifts series by numbers that it reads from tensors: other slices at every step",
}


def families():
    return {name: function for kind in KINDS.values() for name, function in kind.items()}
