# SPDX-License-Identifier: Apache-2.0
"""What the interpreter knows of a running program: the layer and the line of a call, names of parameters."""

import os
import sys
import weakref

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_REMAT = os.path.dirname(__file__) + os.sep
_MODULE_CALL = torch.nn.Module._call_impl.__code__


class Program:
    """Modules and tensors that were met, by name. Holds neither."""

    def __init__(self, model=None):
        self._roots = []  # (weak reference to an outermost module, {id(module): name})
        self._tensors = {}  # id: (weak reference, name)
        if model is not None:
            self._names_in(model)

    def call_site(self):
        """(layer, line) of the call that runs on this thread."""
        modules = []
        line = ""
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code is _MODULE_CALL:
                modules.append(frame.f_locals["self"])
            elif not line and not code.co_filename.startswith((_TORCH, _REMAT, "<frozen")):
                line = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
            frame = frame.f_back
        return self._layer(modules), line

    def name_of(self, tensor):
        known, name = self._tensors.get(id(tensor), (None, ""))
        return name if known is not None and known() is tensor else ""

    def _layer(self, modules):
        """The name of the innermost module, as seen from the outermost."""
        if not modules:
            return ""
        names = self._names_in(modules[-1])
        unnamed = []
        for module in modules:
            if id(module) in names:
                return ".".join([part for part in [names[id(module)], *reversed(unnamed)] if part])
            unnamed.append(type(module).__name__)  # made in forward, or kept in a plain list
        return ".".join(reversed(unnamed))

    def _names_in(self, root):
        for known, names in self._roots:
            if known() is not None and id(root) in names:
                return names
        # With several models in one step, the later ones are told apart by their class.
        prefix = type(root).__name__ if self._roots else ""
        named = [(".".join(filter(None, [prefix, name])), module) for name, module in root.named_modules()]
        names = {id(module): name for name, module in named}
        self._roots.append((weakref.ref(root), names))
        for tensors in (root.named_parameters(), root.named_buffers()):
            for name, tensor in tensors:
                full = ".".join(filter(None, [prefix, name]))
                self._tensors.setdefault(id(tensor), (weakref.ref(tensor), full))
        return names
