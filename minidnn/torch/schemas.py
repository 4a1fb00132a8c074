"""What the schema of an op tells of a call, and where it does not tell all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minidnn.torch.experimental import schema_of

if TYPE_CHECKING:
    import torch

# These change running statistics, though their schemas do not say so: the arguments that are changed, and the one that
# says whether. What they return depends on the batch alone then, so a re-run leaves the statistics out.
STATISTICS = {"native_batch_norm": (3, 4, 5), "cudnn_batch_norm": (3, 4, 5), "miopen_batch_norm": (3, 4, 5)}


def known(target: Any) -> bool:
    """Whether an op is PyTorch's own. What others compute may change when they run again."""
    schema = schema_of(target)
    return schema is not None and schema.name.partition("::")[0] in ("aten", "prims", "quantized", "mkldnn")


def wanted(node: torch.fx.Node, i: int) -> bool:
    """Whether a call gives its result i: a backward op leaves out gradients that its mask does not ask for, though its
    fake kernel may not."""
    schema = schema_of(node.target)
    arguments = schema.arguments if schema is not None else ()
    at = next((k for k, argument in enumerate(arguments) if argument.name == "output_mask"), len(node.args))
    mask = node.args[at] if at < len(node.args) else node.kwargs.get("output_mask")
    return not isinstance(mask, list | tuple) or i >= len(mask) or bool(mask[i])


def statistics(node: torch.fx.Node) -> tuple[int, ...]:
    """The numbers of arguments that are statistics which a call changes."""
    schema = schema_of(node.target)
    *numbers, training = STATISTICS.get(schema.name.partition("::")[2] if schema else "", (-1,))
    changes = 0 <= training < len(node.args) and node.args[training] is True
    return tuple(i for i in numbers if node.args[i] is not None) if changes else ()


def changed(node: torch.fx.Node) -> list[Any]:
    """The arguments that a call changes in place, by its schema."""
    schema = schema_of(node.target)
    result: list[Any] = []
    for i, argument in enumerate(schema.arguments if schema is not None and schema.is_mutable else ()):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given: Any = node.kwargs.get(argument.name) if i >= len(node.args) else node.args[i]
        result += [n for n in (given if isinstance(given, list | tuple) else [given]) if n is not None]
    return result
