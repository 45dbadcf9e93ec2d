# SPDX-License-Identifier: Apache-2.0
"""Tensors in nested Python values: dicts and other mappings, lists, tuples, dataclasses, whatever is registered
with torch's pytrees (the outputs of transformers are mappings)."""

import copy
import dataclasses
from collections.abc import Mapping

import torch
from torch.utils import _pytree as pytree

_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.nn.Module)


def tensors_in(value):
    """Every tensor once, in the order of the value."""
    found = []
    _collect(value, found, set())
    return found


def _collect(value, found, seen):
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen.add(id(value))
            found.append(value)
    elif isinstance(value, _PLAIN):
        pass
    elif isinstance(value, Mapping):
        for each in value.values():
            _collect(each, found, seen)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _collect(each, found, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        if id(value) not in seen:
            seen.add(id(value))
            for field in dataclasses.fields(value):
                _collect(getattr(value, field.name, None), found, seen)
    elif type(value) in pytree.SUPPORTED_NODES:
        for each in pytree.tree_leaves(value):
            _collect(each, found, seen)


def with_tensors(value, tensors):
    """The value with other tensors in place of those that tensors_in() finds, in the same order."""
    old = tensors_in(value)
    new = {id(before): after for before, after in zip(old, tensors, strict=True)}
    return _replace(value, new)


def _replace(value, new):
    if isinstance(value, torch.Tensor):
        return new[id(value)]
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(each, new) for each in value))
    if isinstance(value, tuple):
        return type(value)(_replace(each, new) for each in value)
    if isinstance(value, list):
        made = copy.copy(value)
        made[:] = [_replace(each, new) for each in value]
        return made
    if isinstance(value, Mapping):
        made = copy.copy(value)
        for key, each in value.items():
            made[key] = _replace(each, new)
        return made
    if dataclasses.is_dataclass(value):
        changes = {f.name: _replace(getattr(value, f.name), new) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changes)
    return pytree.tree_map(lambda each: new.get(id(each), each), value)
