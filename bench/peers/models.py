# SPDX-License-Identifier: Apache-2.0
"""The models of the comparison: `transformers` configurations with random weights, and a U-Net.

A block is what people checkpoint: one transformer layer, one bottleneck, one ConvNeXt layer, one pair of
convolutions of the U-Net. `containers` are the module lists that hold them; the blocks of one list run one
after the other, each on the result of the one before. In the U-Net each pair has its own list.

Widths are chosen so that a plain step takes one to two and a half seconds on two cores and most of its peak
is activations. The published widths of BERT and GPT-2 would need ten times the tokens for that; depths, heads
and dropout are the published ones. `--small` shrinks everything, to try the programs out.
"""

from dataclasses import dataclass

import torch
import transformers
from torch import nn
from torch.nn import functional as F


@dataclass
class Task:
    model: nn.Module
    batch: tuple  # of tensors
    loss: object  # callable(*batch) -> scalar tensor
    containers: list  # of nn.ModuleList or nn.Sequential


class PairOfConvolutions(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padding and batch norm as most write it today."""

    def __init__(self, width, depth, classes=2):
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        pairs = zip([3, *widths], widths, strict=False)
        self.down = nn.ModuleList(nn.Sequential(PairOfConvolutions(a, b)) for a, b in pairs)
        ups = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in ups)
        self.up = nn.ModuleList(nn.Sequential(PairOfConvolutions(2 * b, b)) for _, b in ups)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skipped = []
        for level, pair in enumerate(self.down):
            x = pair(x if level == 0 else F.max_pool2d(x, 2))
            skipped.append(x)
        skipped.pop()
        for widen, pair in zip(self.widen, self.up, strict=True):
            x = pair(torch.cat([skipped.pop(), widen(x)], dim=1))
        return self.head(x)


def _images(batch, side, classes):
    return torch.randn(batch, 3, side, side), torch.randint(classes, (batch,))


def _classifier(model, batch, side, containers):
    def loss(pixels, labels):
        return model(pixel_values=pixels, labels=labels).loss

    return Task(model, _images(batch, side, 1000), loss, containers)


def _language_model(model, batch, length, containers):
    def loss(tokens):
        return model(input_ids=tokens, labels=tokens).loss

    tokens = torch.randint(model.config.vocab_size, (batch, length))
    return Task(model, (tokens,), loss, containers)


def _resnet(depths, batch, side, small):
    config = transformers.ResNetConfig(depths=[1, 1, 2, 1] if small else depths, num_labels=1000)
    model = transformers.ResNetForImageClassification(config)
    containers = [stage.layers for stage in model.resnet.encoder.stages]
    return _classifier(model, 2 if small else batch, 64 if small else side, containers)


def resnet50(small):
    return _resnet([3, 4, 6, 3], 10, 192, small)


def resnet152(small):
    return _resnet([3, 8, 36, 3], 6, 160, small)


def bert(small):
    config = transformers.BertConfig(
        vocab_size=8192,
        hidden_size=96 if small else 384,
        intermediate_size=384 if small else 1536,
        num_hidden_layers=4 if small else 12,
    )
    model = transformers.BertForMaskedLM(config)
    return _language_model(model, 2 if small else 4, 64 if small else 256, [model.bert.encoder.layer])


def gpt2(small):
    config = transformers.GPT2Config(
        vocab_size=8192,
        n_embd=96 if small else 384,
        n_layer=4 if small else 12,
        use_cache=False,
    )
    model = transformers.GPT2LMHeadModel(config)
    return _language_model(model, 2, 64 if small else 512, [model.transformer.h])


def llama(small):
    config = transformers.LlamaConfig(
        vocab_size=8192,
        hidden_size=64 if small else 384,
        intermediate_size=176 if small else 1024,
        num_hidden_layers=4 if small else 12,
        num_attention_heads=4 if small else 6,
        num_key_value_heads=2,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)
    return _language_model(model, 2 if small else 3, 64 if small else 512, [model.model.layers])


def vit(small):
    config = transformers.ViTConfig(
        hidden_size=96 if small else 384,
        intermediate_size=384 if small else 1536,
        num_hidden_layers=4 if small else 12,
        num_attention_heads=6,
        image_size=64 if small else 224,
        hidden_dropout_prob=0.1,
        num_labels=1000,
    )
    model = transformers.ViTForImageClassification(config)
    return _classifier(model, 2 if small else 8, config.image_size, [model.vit.layers])


def convnext(small):
    config = transformers.ConvNextConfig(
        depths=[1, 1, 2, 1] if small else [3, 3, 9, 3],
        hidden_sizes=[24, 48, 96, 192] if small else [96, 192, 384, 768],
        drop_path_rate=0.1,
        num_labels=1000,
    )
    model = transformers.ConvNextForImageClassification(config)
    containers = [stage.layers for stage in model.convnext.encoder.stages]
    return _classifier(model, 2 if small else 8, 64 if small else 160, containers)


def unet(small):
    model = UNet(8 if small else 32, 4)
    side = 64 if small else 256
    pixels = torch.randn(2 if small else 3, 3, side, side)
    classes = torch.randint(2, (len(pixels), side, side))

    def loss(x, y):
        return F.cross_entropy(model(x), y)

    return Task(model, (pixels, classes), loss, [*model.down, *model.up])


MODELS = {
    "resnet50": resnet50,
    "resnet152": resnet152,
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
    "convnext": convnext,
    "unet": unet,
}


def make(name, small):
    """The same weights, batch and generator in every process."""
    torch.manual_seed(0)
    task = MODELS[name](small)
    task.model.train()
    return task
