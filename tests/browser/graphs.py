# SPDX-License-Identifier: Apache-2.0
"""Graphs for tests, as text."""


def network(op_count, layer=lambda number: f"block{number // 8}.{number % 8}"):
    """A chain of about so many ops: conv, norm, relu in place; and back."""
    lines = ["remat-graph 1", "external x 4096 input"]
    layers = max(1, op_count // 5)
    for i in range(layers):
        lines.append(f"external w{i} {1024 + i % 7 * 512} param")
    before = "x"
    for i in range(layers):
        size = 65536 + i * 7919 % 40000
        scope = layer(i)
        lines.append(f"op conv{i} forward kind=aten::convolution time_ns={9000 + i * 31 % 4000} workspace={i % 3 * 2048} "
                     f"reads={before},w{i} creates=a{i}:{size} scope={scope}.conv")
        lines.append(f"op norm{i} forward kind=aten::native_batch_norm time_ns=1500 reads=a{i} creates=b{i}:{size} scope={scope}.norm")
        lines.append(f"op relu{i} forward kind=aten::relu_ time_ns=700 updates=b{i} scope={scope}.relu")
        before = f"b{i}"
    lines.append(f"op loss forward kind=aten::mean time_ns=300 reads={before} creates=loss:4")
    gradient = "loss"
    for i in reversed(range(layers)):
        size = 65536 + i * 7919 % 40000
        source = f"b{i - 1}" if i else "x"
        lines.append(f"op d_norm{i} backward kind=aten::native_batch_norm_backward time_ns=2500 reads={gradient},a{i},b{i} "
                     f"creates=d{i}:{size} scope={layer(i)}.norm")
        lines.append(f"op d_conv{i} backward kind=aten::convolution_backward time_ns=19000 workspace={i % 2 * 4096} "
                     f"reads=d{i},{source},w{i} creates=e{i}:{size},g{i}:{1024 + i % 7 * 512} scope={layer(i)}.conv")
        lines.append(f"output g{i}")
        gradient = f"e{i}"
    order = [line for line in lines if not line.startswith("output")] + [line for line in lines if line.startswith("output")]
    return "\n".join(order) + "\n"
