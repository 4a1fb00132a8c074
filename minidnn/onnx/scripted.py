"""The parameters of a file of PyTorch's older exporter (`dynamo=False`), which keeps their names, and no more.

Three things are undone. It transposes the weights of products, and names them anew ("onnx::MatMul_18"): the name of the
node that reads them says which module's they are. It joins initializers of equal values by Identity nodes. Those of
different modules are joined by chance if all their values are one number, or if their names differ in numbers alone,
as those of copied blocks do; otherwise they are one weight. It folds a BatchNorm into the convolution before it, which
is lost to training, as are other constants that it computes from parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from minidnn.errors import few
from minidnn.onnx.origins import NAMED, Origins, own
from minidnn.onnx.weight import Weight

CALL = (
    'torch.onnx.export(model.train(), samples, "FILE.onnx", dynamo=False, do_constant_folding=False, '
    "training=torch.onnx.TrainingMode.TRAINING)"
)
NEW = "onnx::"  # what the exporter's own names begin with
_BUFFER = re.compile(
    r"(^|[._])(mean|std|var|mask|masks|attn_mask|causal_mask|tril|triu|inv_freq|freqs(_cis)?|freq|rope|pe|pos_enc|"
    r"cos(_cached)?|sin(_cached)?|running_mean|running_var|num_batches_tracked|"
    r"position_ids|relative_position_index|pixel_mean|pixel_std)$"
)


def scripted(model: Any, arrays: Mapping[str, np.ndarray]) -> Origins:
    """The origins of the numbers."""
    return _Scripted(model, arrays).result


class _Scripted:
    def __init__(self, model: Any, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = dict(arrays)
        nodes = list(model.graph.node)
        joined = [n for n in nodes if n.op_type == "Identity" and n.input[0] in arrays]
        self.join = {n.output[0]: n.input[0] for n in joined}
        self.arrays |= {name: arrays[first] for name, first in self.join.items()}
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        kept = {id(n) for n in joined}
        self.result = Origins([n for n in nodes if id(n) not in kept], dict(self.arrays))
        for node in self.result.nodes:
            for k, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, k))
        self.inputs = {v.name for v in model.graph.input}
        tied: dict[str, str] = {}
        owned = own(nodes)
        single, guessed = [], []  # constants of one number; parameters that no layer has as its own
        for name in (n for n, v in self.arrays.items() if v.dtype.kind == "f" and n in self.readers):
            if self._is_parameter(name):
                guessed += [] if name in owned or NAMED.search(name) else [name]
                self._take(name, tied)
            elif name.startswith(NEW) and self.arrays[name].size == 1:
                single.append(name)
        self._tie(tied)
        notes = (
            ("trained, as a parameter, which the file does not tell from a buffer", guessed),
            ("frozen, though the exporter may have computed it from a parameter", single),
        )
        self.result.notes += [f"{what}: {few(names, 8)}; `trained` chooses" for what, names in notes if names]

    def _is_parameter(self, name: str) -> bool:
        numbers = self.arrays[name]
        if not name.startswith(NEW):
            return not (_BUFFER.search(name) or numbers.size == 0 or self._prepares(name) or _is_mask(numbers))
        operators = {node.op_type for node, _ in self.readers[name]}
        product = operators == {"MatMul"} and numbers.ndim == 2 and all(k == 1 for _, k in self.readers[name])
        if product and self._name(name) != name and not self._differs(name):
            return True
        if operators & {"Conv", "ConvTranspose"}:
            if any(k == 1 for _, k in self.readers[name]):
                what = f"the weight of {self.readers[name][0][0].name!r}, as it does with a BatchNorm after it"
                self.result.problems.append(f"the exporter has changed {what}")
        elif numbers.size > 1:
            self.result.problems.append(f"the exporter has computed the constant {name!r} from a parameter or a buffer")
        return False

    def _differs(self, name: str) -> bool:
        """Whether another value has the module's name for this one, and other numbers: parts of a parameter."""
        target = self._name(name)
        for value, weight in self.result.parameters.items():
            if weight.name == target and value.startswith(NEW):
                return not np.array_equal(weight.numbers, self.arrays[name])
        return False

    def _prepares(self, name: str) -> bool:
        """Whether the numbers are used on an input of the net alone, as the mean and the deviation of images."""
        return all(
            node.op_type in ("Add", "Sub", "Mul", "Div") and self.inputs.intersection(node.input)
            for node, _ in self.readers[name]
        )

    def _take(self, name: str, tied: dict[str, str]) -> None:
        """Enter a parameter, with the name that it has in the module."""
        numbers, target = self.arrays[name], self._name(name)
        weight = Weight(numbers, target, True)
        if name.startswith(NEW):
            weight = Weight(numbers.T, target, True).transposed((1, 0))
        self.result.parameters[name] = weight
        self.result.constants.pop(name)
        first = self.join.get(name)
        if first is None or self._name(first) == target:
            return
        other = self._name(first)
        by_chance = (numbers == numbers.reshape(-1)[0]).all() or _plain(other) == _plain(target)
        if not by_chance:
            tied[target] = other

    def _tie(self, tied: dict[str, str]) -> None:
        """Make one parameter of those that are one weight: those that were joined, and a transposed one that has the
        values of another."""
        parameters = self.result.parameters
        named = {w.name: w for v, w in parameters.items() if not v.startswith(NEW)}
        for value, weight in parameters.items():
            if value.startswith(NEW) and weight.name not in tied:
                root = weight.root().numbers
                same = [n for n, w in named.items() if w.shape == root.shape and np.array_equal(w.numbers, root)]
                if same and weight.name not in named and root.size > 1 and np.ptp(root):
                    tied[weight.name] = same[0]
        for value, weight in list(parameters.items()):
            if weight.name in tied:
                parameters[value] = Weight(weight.numbers, tied[weight.name], True, weight.turns)
        if tied:
            pairs = [f"{name} is {other}" for name, other in tied.items()]
            self.result.notes.append(f"taken as one weight, since their values are equal: {few(pairs, 8)}")

    def _name(self, name: str) -> str:
        """The parameter's name in the module: of one that has lost it, from the node that reads it."""
        if not name.startswith(NEW) or name not in self.readers:
            return name
        path: list[str] = []
        for part in self.readers[name][0][0].name.split("/")[1:-1]:
            if path and part.startswith(path[-1] + "."):
                path.pop()
            path.append(part)
        module = ".".join(path)
        again = re.sub(r"_\d+(?=\.|$)", "", module)  # a module that is called again has a number behind its name
        known = [n for n in self.arrays if not n.startswith(NEW)]
        if again != module and not any(n.startswith(f"{module}.") for n in known):
            module = again
        own = "in_proj_weight" if f"{module}.in_proj_bias" in known else "weight"  # of nn.MultiheadAttention
        return f"{module}.{own}" if module else name


def _is_mask(numbers: np.ndarray) -> bool:
    """Whether there are numbers among these that only a mask has."""
    return bool(numbers.size > 1 and (numbers <= -1e4).any() and (numbers[numbers > -1e4] == 0).all())


def _plain(name: str) -> str:
    return re.sub(r"\d+", "#", name)
